"""One row for each program: what its flags and config files are."""

from __future__ import annotations

from typing import NamedTuple

from .flags import Manner


class Program(NamedTuple):
    """A program and how its command line is read.

    format   the format of its flags and of its config file
    heads    how it is called: "vllm serve"; "-m axolotl.cli.train"; "src/train.py" for a script whose path ends so
    manner   how its flags are read
    config   the flags that name a config file of the same format
    file     whether its first word that is no flag names the config file
    variables whether environment variables set options, too (`x-variable` in the schema); flags win
    more     whether the program has options of its own beside those of the format; they are left out
    exact    whether its parser (clap, click) takes options in full only; argparse takes unique beginnings
    under    whether the file wins over the flags
    """

    format: str
    heads: tuple[str, ...]
    manner: Manner = Manner()
    config: tuple[str, ...] = ()
    file: bool = False
    variables: bool = False
    more: bool = False
    exact: bool = False
    under: bool = False


_VLLM = {
    "tp": "tensor-parallel-size",
    "pp": "pipeline-parallel-size",
    "dp": "data-parallel-size",
    "q": "quantization",
    "cc": "compilation-config",
    "O.": "compilation-config",
    "sc": "speculative-config",
}

_TRTLLM = ("extra_llm_api_options", "config")

PROGRAMS: tuple[Program, ...] = (
    Program(
        "vllm",
        (
            "vllm serve",
            "-m vllm.entrypoints.openai.api_server",
            "-m vllm.entrypoints.api_server",
            "-m vllm.entrypoints.cli.main serve",
        ),
        Manner(short=_VLLM, positionals=("model",)),
        config=("config",),
    ),
    Program(
        "sglang",
        ("-m sglang.launch_server", "sglang serve", "-m sglang.srt.entrypoints.http_server"),
        Manner(positionals=("model-path",)),
        config=("config",),
    ),
    Program("sglang", ("-m dynamo.sglang", "-m dynamo.sglang.worker"), config=("config",), more=True),
    Program(
        "vllm",
        ("-m dynamo.vllm", "-m fastchat.serve.vllm_worker"),
        Manner(short=_VLLM | {"model-path": "model"}),
        more=True,
    ),
    Program("tgi", ("text-generation-launcher",), Manner(short={"p": "port"}), variables=True, exact=True),
    Program(
        "trtllm",
        ("trtllm-serve serve", "trtllm-serve"),
        Manner(positionals=("model",)),
        config=_TRTLLM,
        exact=True,
        under=True,
    ),
    Program("trtllm", ("trtllm-build", "-m tensorrt_llm.commands.build"), config=("build_config",)),
    Program(
        "lmdeploy",
        ("lmdeploy serve api_server", "lmdeploy serve gradio", "lmdeploy chat", "-m lmdeploy serve api_server"),
        Manner(positionals=("model-path",)),
    ),
    Program("llama_cpp", ("llama-server",), variables=True, exact=True),
    Program(
        "axolotl",
        (
            "axolotl train",
            "axolotl preprocess",
            "-m axolotl.cli.train",
            "-m axolotl.cli.preprocess",
            "scripts/finetune.py",
        ),
        file=True,
    ),
    Program(
        "areal",
        (
            "-m areal.launcher.local",
            "-m areal.launcher.ray",
            "-m areal.launcher.slurm",
            "-m areal.infra.launcher.local",
            "-m areal.infra.launcher.ray",
            "-m areal.infra.launcher.slurm",
        ),
        Manner(overrides=True, nested=True),
        config=("config",),
    ),
    Program("autotrain", ("autotrain llm",), exact=True),
    Program("autotrain", ("autotrain",), config=("config",), exact=True),
    Program(
        "llamafactory",
        (
            "llamafactory-cli train",
            "lmf train",
            "-m llamafactory.launcher",
            "llamafactory/launcher.py",
            "src/train.py",
            "src/train_bash.py",
        ),
        Manner(underscored=True, overrides=True),
    ),
    Program(
        "litgpt",
        ("litgpt", "-m litgpt"),
        Manner(nested=True, positionals=("command", "checkpoint_dir")),
        config=("config",),
    ),
    Program(
        "megatron",
        ("pretrain_gpt.py",),
    ),
    Program(
        "torchtitan",
        ("-m torchtitan.train", "torchtitan/train.py"),
        Manner(nested=True),
        config=("job.config_file", "job.config-file"),
    ),
    Program("lingua", ("-m apps.main.train", "-m apps.mamba.train"), Manner(overrides=True), config=("config",)),
    Program(
        "torchtune",
        ("tune run",),
        Manner(switches=lambda name: name == "standalone", nested=True, overrides=True, positionals=("recipe",)),
        config=("config",),
    ),
    Program(
        "hf_trainer",
        (
            "trl sft",
            "trl dpo",
            "trl grpo",
            "trl kto",
            "trl orpo",
            "trl reward",
            "trl rloo",
            "trl ppo",
            "trl cpo",
            "trl/scripts/sft.py",
            "trl/scripts/dpo.py",
            "trl/scripts/grpo.py",
            "trl/scripts/kto.py",
            "trl/scripts/rloo.py",
            "-m trl.scripts.sft",
            "-m trl.scripts.dpo",
            "-m trl.scripts.grpo",
            "-m trl.scripts.kto",
            "-m trl.scripts.rloo",
            "open_r1/sft.py",
            "open_r1/grpo.py",
            "run_clm.py",
            "run_mlm.py",
            "run_glue.py",
            "run_classification.py",
            "run_ner.py",
            "run_qa.py",
            "run_summarization.py",
            "run_translation.py",
            "run_speech_recognition_ctc.py",
            "run_speech_recognition_seq2seq.py",
            "fastchat/train/train.py",
            "fastchat/train/train_mem.py",
            "fastchat/train/train_lora.py",
            "tuning/sft_trainer.py",
            "-m tuning.sft_trainer",
            "open_instruct/finetune.py",
            "open_instruct/dpo_tune_cache.py",
            "scripts/run_sft.py",
            "scripts/run_dpo.py",
            "scripts/run_orpo.py",
            "scripts/run_cpt.py",
        ),
        Manner(underscored=True),
        config=("config",),
    ),
    Program(
        "nemo_automodel",
        (
            "automodel",
            "am",
            "nemo_automodel/cli/app.py",
            "nemo_automodel/recipes/llm/train_ft.py",
            "nemo_automodel/recipes/vlm/finetune.py",
            "nemo_automodel/recipes/llm/benchmark.py",
            "nemo_automodel/recipes/llm/kd.py",
            "-m nemo_automodel.recipes.llm.train_ft",
            "-m nemo_automodel.recipes.vlm.finetune",
            "examples/llm_finetune/finetune.py",
            "examples/vlm_finetune/finetune.py",
            "examples/llm_pretrain/pretrain.py",
        ),
        Manner(short={"c": "config"}, nested=True),
        config=("config",),
        file=True,
    ),
    Program(
        "nemo_rl",
        (
            "examples/run_grpo.py",
            "examples/run_grpo_math.py",
            "examples/run_grpo_sliding_puzzle.py",
            "examples/run_vlm_grpo.py",
            "examples/run_sft.py",
            "examples/run_vlm_sft.py",
            "examples/run_dpo.py",
            "examples/run_rm.py",
            "examples/run_ppo.py",
            "examples/run_distillation.py",
        ),
        Manner(overrides=True, nested=True),
        config=("config",),
    ),
    Program(
        "oumi",
        (
            "oumi train",
            "oumi infer",
            "oumi evaluate",
            "oumi eval",
            "-m oumi train",
            "-m oumi infer",
            "-m oumi evaluate",
        ),
        Manner(short={"c": "config"}, nested=True),
        config=("config",),
    ),
    Program(
        "skyrl",
        (
            "-m skyrl.train.entrypoints.main_base",
            "-m skyrl_train.entrypoints.main_base",
            "-m examples.train.algorithms.dapo.main_dapo",
            "-m examples.algorithms.dapo.main_dapo",
            "-m examples.train.fully_async.main_fully_async",
            "-m examples.train.async.main_async",
            "-m examples.async.main_async",
            "-m skyrl_agent.integrations.skyrl_train.skyrl_train_main",
        ),
        Manner(overrides=True),
    ),
    Program(
        "verl",
        (
            "-m verl.trainer.main_ppo",
            "-m recipe.dapo.main_dapo",
            "-m verl.experimental.fully_async_policy.fully_async_main",
            "-m verl.experimental.one_step_off_policy.main_ppo",
            "verl/trainer/main_ppo.py",
        ),
        Manner(overrides=True),
    ),
    Program(
        "verl_sft",
        (
            "-m verl.trainer.fsdp_sft_trainer",
            "-m verl.trainer.sft_trainer",
            "verl/trainer/fsdp_sft_trainer.py",
            "verl/trainer/sft_trainer.py",
        ),
        Manner(overrides=True),
    ),
    Program(
        "ms_swift",
        ("swift", "-m swift.cli.main"),
        Manner(underscored=True, positionals=("command",)),
        config=("config",),
    ),
    Program(
        "megatron_swift",
        ("megatron", "-m swift.cli._megatron.main"),
        Manner(underscored=True, positionals=("command",)),
        config=("config",),
    ),
    Program(
        "openrlhf",
        (
            "-m openrlhf.cli.train_sft",
            "-m openrlhf.cli.train_dpo",
            "-m openrlhf.cli.train_kto",
            "-m openrlhf.cli.train_rm",
            "-m openrlhf.cli.train_ppo_ray",
            "openrlhf/cli/train_sft.py",
            "openrlhf/cli/train_dpo.py",
            "openrlhf/cli/train_rm.py",
            "openrlhf/cli/train_ppo_ray.py",
        ),
        Manner(nested=True),
    ),
)
