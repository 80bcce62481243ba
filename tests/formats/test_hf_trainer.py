import pytest

from gpulint.formats.core.format import NoJobError
from gpulint.formats.core.registry import recognise
from gpulint.formats.hf_trainer import sharding as training_sharding
from gpulint.launchers.reading import open_jobs, recognise_file
from gpulint.settings.settings import Settings
from gpulint.source.read import parse

from .origins import TRAINING, missing


@pytest.fixture(autouse=True)
def known_hidden_size(monkeypatch):
    monkeypatch.setattr(training_sharding, "hidden_size", lambda *_: 4096)


@pytest.fixture
def hf(bench):
    return bench("hf_trainer")


@pytest.fixture
def hf_json(bench):
    return bench("hf_trainer", "json")


TRL = """\
model_name_or_path: Qwen/Qwen2.5-0.5B
dataset_name: a/b
learning_rate: 2e-4
"""
PLAIN = """\
model_name_or_path: org/model
train_folder: data        # the script's own
output_dir: out
learning_rate: 2.0e-5
"""


def name_of(text, syntax="yaml"):
    found = recognise(parse(text, f"config.{syntax}", syntax))
    return found.name if found else None


class TestRecognition:
    @pytest.mark.parametrize(
        "text",
        [
            TRL,
            PLAIN,
            "per_device_train_batch_size: 4\nlearning_rate: 1e-5\noutput_dir: x\nbf16: true\n",
            "model_name_or_path: a/b\nuse_peft: true\nper_device_train_batch_size: 1\n",
        ],
    )
    def test_training_arguments_are_found(self, text):
        assert name_of(text) == "hf_trainer"

    @pytest.mark.parametrize(
        "text",
        [
            "base_model: a/b\nlearning_rate: 1e-5\noutput_dir: x\ndatasets: []\n",
            "model:\n  _component_: x\noutput_dir: x\nbatch_size: 2\ngradient_accumulation_steps: 1\n",
            "model_name_or_path: a/b\n",
            "learning_rate: 1e-5\noutput_dir: x\n",
            "compute_environment: LOCAL_MACHINE\nnum_processes: 8\nmixed_precision: bf16\n",
        ],
    )
    def test_other_files_are_left_alone(self, text):
        assert name_of(text) != "hf_trainer"

    def test_a_model_config_is_no_training_config(self):
        assert name_of('{"architectures": ["A"], "model_type": "llama", "hidden_size": 8}', "json") is None

    def test_an_adapter_config_is_no_training_config(self):
        text = '{"peft_type": "LORA", "r": 8, "base_model_name_or_path": "a/b", "lora_alpha": 16}'
        assert name_of(text, "json") is None


class TestOrigins:
    @pytest.mark.parametrize(
        "text", [TRL, PLAIN, TRL + "num_generations: 4\n", TRL + "beta: 0.1\nmax_prompt_length: 8\n"]
    )
    def test_every_field_that_decides_memory_has_one(self, hf, text):
        assert missing(hf.job(text), TRAINING) == []

    def test_a_key_of_the_file_gives_its_place(self, hf):
        text = TRL + "per_device_train_batch_size: 3\n"
        origin = hf.job(text).origins["micro_batch_size"]
        assert (origin.kind, origin.key, origin.span.line) == ("file", "per_device_train_batch_size", 4)
        assert text[origin.span.start : origin.span.end] == "3"

    def test_defaults_name_tool_and_version(self, hf):
        assert hf.job(TRL).origins["micro_batch_size"].note == "default of trl 1.16.0"
        assert hf.job(PLAIN).origins["micro_batch_size"].note == "default of transformers 5.23.0"


class TestTrl:
    def test_defaults(self, hf):
        job = hf.job(TRL)
        assert job.weights.dtype == "float32"
        assert job.precision.autocast == "bfloat16"
        assert job.activation_checkpointing == "full"
        assert (job.micro_batch_size, job.gradient_accumulation_steps, job.sequence_length) == (8, 1, 1024)
        assert job.optimizer.name == "adamw_torch_fused"
        assert job.loss.kernel == "chunked"
        assert job.reentrant is False
        assert job.method == "full"
        assert job.evaluation.micro_batch_size is None
        assert job.hardware.gpus == 1

    def test_fp16_turns_the_bf16_default_off(self, hf):
        assert hf.job(TRL + "fp16: true\n").precision.autocast == "float16"
        assert hf.job(TRL + "bf16: false\n").precision.autocast is None

    def test_the_evaluation_batch_stays_8(self, hf):
        job = hf.job(TRL + "eval_strategy: steps\nper_device_train_batch_size: 1\n")
        assert job.evaluation.micro_batch_size == 8
        assert job.origins["evaluation.micro_batch_size"].kind == "default"

    def test_no_as_yaml_reads_it_is_no_evaluation(self, hf):
        assert hf.job(TRL + "eval_strategy: no\nper_device_eval_batch_size: 4\n").evaluation.micro_batch_size is None

    def test_lora_needs_the_switch(self, hf):
        assert hf.job(TRL + "lora_r: 8\n").method == "full"
        job = hf.job(TRL + "use_peft: true\n")
        assert job.method == "lora"
        assert (job.adapter.r, job.adapter.alpha, job.adapter.dropout, job.adapter.targets) == (16, 32, 0.05, None)
        assert job.adapter.prepare_kbit is False

    def test_all_linear_and_lists_of_targets(self, hf):
        lora = TRL + "use_peft: true\nlora_target_modules: "
        assert hf.job(lora + "all-linear\n").adapter.targets == "all-linear"
        assert hf.job(lora + "[q_proj, v_proj]\n").adapter.targets == ["q_proj", "v_proj"]

    def test_qlora_casts_adapters_to_bf16_and_keeps_float32_around(self, hf):
        job = hf.job(TRL + "use_peft: true\nload_in_4bit: true\n")
        assert (job.weights.quantization.method, job.weights.quantization.bits) == ("bnb-nf4", 4)
        assert job.weights.quantization.double_quant is False
        assert job.weights.dtype == "float32"
        assert job.adapter.dtype == "bfloat16"
        assert job.origins["weights.quantization.method"].key == "load_in_4bit"

    def test_label_smoothing_brings_the_logits_back(self, hf):
        assert hf.job(TRL + "label_smoothing_factor: 0.1\n").loss.kernel == "smoothed"

    def test_keys_of_an_older_trl_mean_whole_logits(self, hf):
        job = hf.job(TRL + "max_seq_length: 2048\n")
        assert (job.loss.kernel, job.sequence_length, job.versions["trl"]) == ("torch", 2048, "0.19.1")

    def test_rows_that_are_never_cut_have_no_known_length(self, hf):
        job = hf.job(TRL + "max_length: null\n")
        assert job.sequence_length is None
        assert job.origins["sequence_length"].kind == "file"

    def test_model_init_kwargs_win(self, hf):
        job = hf.job(TRL + "model_init_kwargs:\n  dtype: bfloat16\n  attn_implementation: flash_attention_2\n")
        assert (job.weights.dtype, job.attention) == ("bfloat16", "flash_attention_2")

    def test_selective_checkpointing_and_offload(self, hf):
        assert (
            hf.job(
                TRL + "gradient_checkpointing_kwargs: {selective: true}\ngradient_checkpointing: true\n"
            ).activation_checkpointing
            == "selective"
        )
        assert hf.job(TRL + "activation_offloading: true\n").activation_checkpointing == "offload"

    def test_an_accelerate_config_that_trl_ships(self, hf):
        job = hf.job(TRL + "accelerate_config: zero3\nnum_processes: 4\n")
        assert (job.parallelism.zero.stage, job.hardware.gpus) == (3, 4)
        assert (job.weights.dtype, job.precision.master_weights) == ("bfloat16", True)
        assert job.origins["parallelism.zero.stage"].key == "accelerate_config"
        assert hf.job(TRL + "accelerate_config: fsdp2\n").hardware.gpus == 8
        assert hf.job(TRL + "accelerate_config: fsdp2\n").parallelism.fsdp.version == 2

    def test_an_accelerate_config_of_the_project(self, hf):
        config = (
            "distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  fsdp_version: 1\n  fsdp_offload_params: true\n"
        )
        reading = hf.read(TRL + "accelerate_config: acc.yaml\n", files={"acc.yaml": config})
        assert reading.job.parallelism.fsdp.offload is True
        origin = reading.job.origins["parallelism.fsdp.offload"]
        assert (origin.file, origin.key, origin.span.line) == ("acc.yaml", "fsdp_config.fsdp_offload_params", 5)
        assert reading.references["accelerate_config"].path == "acc.yaml"
        assert reading.job.hardware.gpus == 2

    def test_peft_under_zero3_is_reentrant(self, hf):
        text = TRL + "use_peft: true\ngradient_checkpointing_kwargs: {use_reentrant: false}\n"
        assert hf.job(text).reentrant is False
        assert hf.job(text + "deepspeed: {zero_optimization: {stage: 3}}\n").reentrant is True


class TestPlainTrainer:
    def test_defaults(self, hf):
        job = hf.job(PLAIN)
        assert job.weights.dtype is None
        assert job.precision.autocast is None
        assert job.activation_checkpointing == "none"
        assert job.loss.kernel == "torch"
        assert job.sequence_length is None
        assert job.objective == "sft"
        assert job.origins["objective"].kind == "assumed"

    def test_the_new_name_of_checkpointing_wins_over_the_old(self, hf):
        text = PLAIN + "activation_checkpointing: false\ngradient_checkpointing: true\n"
        assert hf.job(text).activation_checkpointing == "none"

    def test_liger_fuses_head_and_loss(self, hf):
        job = hf.job(PLAIN + "use_liger_kernel: true\n")
        assert (job.loss.kernel, job.liger_kernels) == ("liger", True)
        off = hf.job(PLAIN + "use_liger_kernel: true\nliger_kernel_config: {fused_linear_cross_entropy: false}\n")
        assert (off.loss.kernel, off.liger_kernels) == ("torch", True)

    @pytest.mark.parametrize(
        ("config", "kernel", "parts"),
        [
            ("{fused_linear_cross_entropy: false, cross_entropy: true}", "liger_cross_entropy", None),
            ("{cross_entropy: false, swiglu: false}", "liger", ["norm", "rope"]),
            ("{rope: false, rms_norm: false, swiglu: true}", "liger", ["mlp"]),
            ("{rope: true}", "liger", None),
        ],
    )
    def test_which_of_liger_s_kernels_run(self, hf, config, kernel, parts):
        job = hf.job(PLAIN + f"use_liger_kernel: true\nliger_kernel_config: {config}\n")
        assert (job.loss.kernel, job.liger_parts) == (kernel, parts)

    def test_low_rank_optimizers(self, hf):
        job = hf.job(PLAIN + "optim: galore_adamw_layerwise\noptim_args: rank=64, update_proj_gap=100\n")
        assert (job.optimizer.name, job.optimizer.rank, job.optimizer.in_backward) == (
            "galore_adamw_layerwise",
            64,
            True,
        )

    def test_numbers_written_as_strings(self, hf_json):
        text = '{"model_name_or_path": "a/b", "per_device_train_batch_size": "2", "learning_rate": "1e-5", "x": 1}'
        assert hf_json.job(text).micro_batch_size == 2


class TestSharding:
    def test_deepspeed_inline(self, hf):
        job = hf.job(PLAIN + "bf16: true\ndeepspeed:\n  bf16: {enabled: auto}\n  zero_optimization: {stage: 3}\n")
        assert (job.parallelism.zero.stage, job.weights.dtype, job.precision.autocast) == (3, "bfloat16", None)
        assert job.precision.master_weights is True
        assert job.origins["parallelism.zero.stage"].key == "deepspeed.zero_optimization.stage"

    def test_deepspeed_file_and_auto(self, hf):
        ds = '{"zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"}, "bf16": {"enabled": "auto"}}'
        reading = hf.read(PLAIN + "bf16: true\ndeepspeed: ds.json\n", files={"ds.json": ds})
        assert reading.job.parallelism.zero.reduce_bucket_size == 4096 * 4096
        assert reading.references["deepspeed"].path == "ds.json"
        assert reading.job.origins["parallelism.zero.stage"].file == "ds.json"

    def test_deepspeed_as_json_text(self, hf):
        job = hf.job(PLAIN + 'deepspeed: \'{"zero_optimization": {"stage": 2}}\'\n')
        assert job.parallelism.zero.stage == 2
        assert job.origins["parallelism.zero.stage"].key == "deepspeed"

    def test_a_contradiction_between_the_two_files(self, hf):
        ds = '{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 4}'
        found = hf.problems(
            PLAIN + "per_device_train_batch_size: 2\ndeepspeed: ds.json\n", "contradiction", files={"ds.json": ds}
        )
        assert [(item.key, item.path) for item in found] == [("train_micro_batch_size_per_gpu", "ds.json")]

    def test_a_missing_file_is_reported(self, hf):
        found = hf.problems(PLAIN + "deepspeed: configs/zero2.json\n", "unresolved-reference")
        assert [item.key for item in found] == ["deepspeed"]
        assert hf.job(PLAIN + "deepspeed: configs/zero2.json\n").parallelism.zero.stage == 2

    @pytest.mark.parametrize(
        ("keys", "reshard", "offload", "version"),
        [
            ("fsdp: true", True, False, 2),
            ("fsdp: full_shard auto_wrap offload", True, True, 2),
            ("fsdp: [shard_grad_op, auto_wrap]", False, False, 2),
            ("fsdp: true\nfsdp_config: {version: 1, reshard_after_forward: shard_grad_op}", False, False, 1),
            ("fsdp: true\nfsdp_config: '{\"cpu_offload\": true}'", True, True, 2),
        ],
    )
    def test_fsdp(self, hf, keys, reshard, offload, version):
        job = hf.job(PLAIN + f"bf16: true\n{keys}\n")
        fsdp = job.parallelism.fsdp
        assert (fsdp.reshard_after_forward, fsdp.offload, fsdp.version, fsdp.wrap) == (
            reshard,
            offload,
            version,
            "transformer",
        )
        assert fsdp.upcast_trainable is True
        assert fsdp.mixed_precision.param_dtype == "bfloat16"

    @pytest.mark.parametrize(
        ("version", "section", "offload", "second"),
        [
            (None, "{offload_params: true}", False, True),
            (None, "{fsdp_cpu_offload: true}", True, True),
            ("5.10.0", "{cpu_offload: true}", True, True),
            ("5.9.0", "{cpu_offload: true, version: 2}", False, True),
            ("4.57.1", "{cpu_offload: true, version: 2}", False, False),
        ],
    )
    def test_fsdp_keys_are_those_that_the_release_reads(self, hf, version, section, offload, second):
        versions = {"transformers": version} if version else {}
        job = hf.job(PLAIN + f"fsdp: full_shard auto_wrap\nfsdp_config: {section}\n", versions=versions)
        assert (job.parallelism.fsdp.offload, job.parallelism.fsdp.version == 2) == (offload, second)

    @pytest.mark.parametrize(
        ("version", "section", "found"),
        [
            (
                None,
                "{fsdp_offload_params: true}",
                [("fsdp_config.fsdp_offload_params", "fsdp_config.fsdp_cpu_offload")],
            ),
            (None, "{offload_params: false, cpu_offload: true, version: 2}", []),
            (None, "{sharding_strategy: FULL_SHARD}", [("fsdp_config.sharding_strategy", "")]),
            ("4.57.1", "{offload_params: true}", [("fsdp_config.offload_params", "")]),
            ("4.57.1", "{cpu_offload: true, min_num_params: 1000}", [("fsdp_config.cpu_offload", "")]),
            (None, "{note_of_ours: 1}", []),
        ],
    )
    def test_keys_of_accelerate_that_the_trainer_drops(self, hf, version, section, found):
        versions = {"transformers": version} if version else {}
        text = PLAIN + f"fsdp: full_shard auto_wrap\nfsdp_config: {section}\n"
        problems = hf.problems(text, "unknown-key", versions=versions)
        assert [(item.key, item.values["suggestion"]) for item in problems] == found
        assert all(item.values["treatment"] == "ignored" for item in problems)

    def test_fsdp_in_pure_float32_upcasts_nothing(self, hf):
        assert hf.job(PLAIN + "fsdp: true\n").parallelism.fsdp.upcast_trainable is False

    def test_fsdp_config_in_a_file(self, hf):
        reading = hf.read(PLAIN + "fsdp: true\nfsdp_config: f.json\n", files={"f.json": '{"cpu_offload": true}'})
        assert reading.job.parallelism.fsdp.offload is True
        assert reading.job.origins["parallelism.fsdp.offload"].file == "f.json"

    @pytest.mark.parametrize("word", ["''", "false", "none"])
    def test_fsdp_that_is_off(self, hf, word):
        assert hf.job(PLAIN + f"fsdp: {word}\n").parallelism.fsdp is None

    def test_world_size(self, hf):
        assert hf.job(PLAIN).origins["hardware.gpus"].kind == "assumed"
        sharded = hf.job(PLAIN + "deepspeed: {zero_optimization: {stage: 3}}\n")
        assert (sharded.hardware.gpus, sharded.origins["hardware.gpus"].kind) == (8, "assumed")
        assert hf.job(PLAIN + "fsdp: true\n", gpus=16).hardware.gpus == 16


class TestFlavours:
    def test_alignment_handbook_has_the_defaults_of_its_trl(self, hf):
        job = hf.job(TRL + "dataset_mixer:\n  a/b: 1.0\n")
        assert (job.versions["trl"], job.loss.kernel, job.activation_checkpointing) == ("0.19.1", "torch", "none")
        assert hf.job(TRL + "dataset_mixer:\n  a/b: 1.0\n", gpus=1).weights.dtype == "float32"

    def test_the_documented_launch_is_assumed_for_a_full_fine_tune(self, hf):
        job = hf.job(TRL + "dataset_mixer:\n  a/b: 1.0\n")
        assert (job.parallelism.zero.stage, job.hardware.gpus, job.precision.master_weights) == (3, 8, True)
        assert {job.origins[path].kind for path in ("parallelism.zero.stage", "weights.dtype", "hardware.gpus")} == {
            "assumed"
        }
        assert "zero3.yaml" in job.origins["parallelism.zero.stage"].note
        alone = hf.job(TRL + "dataset_mixer:\n  a/b: 1.0\n", gpus=1)
        assert (alone.parallelism.zero, alone.weights.dtype) == (None, "float32")
        assert hf.job(TRL + "use_peft: true\ndataset_mixer:\n  a/b: 1.0\n").parallelism.zero is None
        fsdp = hf.job(TRL + "fsdp: true\ndataset_mixer:\n  a/b: 1.0\n")
        assert (fsdp.parallelism.zero, fsdp.parallelism.fsdp.version) == (
            None,
            1,
        )  # its transformers is older than 5.10

    def test_open_instruct_loads_bf16(self, hf):
        job = hf.job(PLAIN + "with_tracking: true\nuse_slow_tokenizer: true\nmax_seq_length: 4096\n")
        assert (job.weights.dtype, job.attention, job.sequence_length) == ("bfloat16", "flash_attention_2", 4096)
        lora = hf.job(PLAIN + "with_tracking: true\nuse_slow_tokenizer: true\nuse_lora: true\nuse_qlora: true\n")
        assert (lora.adapter.r, lora.weights.quantization.method, lora.adapter.prepare_kbit) == (64, "bnb-nf4", True)

    def test_firefly_is_qlora_unless_told_otherwise(self, hf_json):
        base = '"model_name_or_path": "a/b", "train_file": "x", "max_seq_length": 512, "output_dir": "o", "bf16": true'
        job = hf_json.job("{" + base + "}")
        assert (job.method, job.weights.quantization.method, job.adapter.targets) == ("lora", "bnb-nf4", "all-linear")
        full = hf_json.job("{" + base + ', "train_mode": "full", "task_type": "dpo"}')
        assert (full.method, full.objective, full.weights.dtype, full.rl.reference_model) == (
            "full",
            "dpo",
            "bfloat16",
            True,
        )

    def test_firefly_s_unsloth_takes_the_place_of_the_k_bit_preparation(self, hf_json):
        base = '"model_name_or_path": "a/b", "train_file": "x", "max_seq_length": 512, "output_dir": "o", "bf16": true'
        job = hf_json.job("{" + base + ', "use_unsloth": true, "lora_dropout": 0}')
        assert (job.adapter.prepare_kbit, job.activation_checkpointing) == (False, "full")
        assert (job.loss.kernel, job.attention) == ("unsloth_cross_entropy", "sdpa")
        assert job.adapter.kernels == ["qkv", "o", "mlp"]
        assert hf_json.job("{" + base + "}").adapter.prepare_kbit is True


class TestKeys:
    def test_a_misspelt_key_of_a_trl_config_is_refused_and_another_may_be_its_script_s_own(self, hf):
        found = hf.problems(TRL + "packing: true\ngradient_acumulation_steps: 2\nnonsense_key: 1\n", "unknown-key")
        assert [(item.key, item.values["suggestion"], item.values["slip"]) for item in found] == [
            ("gradient_acumulation_steps", "gradient_accumulation_steps", "yes"),
        ]

    def test_a_removed_key_names_its_successor(self, hf):
        found = hf.problems(TRL + "packing: true\nevaluation_strategy: epoch\n", "deprecated-key")
        assert [(item.key, item.values["replacement"], item.values["treatment"]) for item in found] == [
            ("evaluation_strategy", "eval_strategy", "refused")
        ]

    def test_a_program_with_its_own_keys_gets_only_misspellings(self, hf):
        text = PLAIN + "use_lora: true\nwarmup_ratio: 0.1\nlearning_rte: 1\ngradient_acumulation_steps: 2\n"
        assert [item.key for item in hf.problems(text, "unknown-key")] == ["gradient_acumulation_steps"]
        assert hf.problems(text, "deprecated-key") == []

    def test_a_value_of_the_wrong_kind(self, hf):
        found = hf.problems(TRL + "per_device_train_batch_size: [1, 2]\n", "wrong-type")
        assert [item.key for item in found] == ["per_device_train_batch_size"]
        assert hf.job(TRL + "per_device_train_batch_size: [1, 2]\n").micro_batch_size == 8


LLAVA = "model_name_or_path: meta-llama/Llama-3.1-8B\nper_device_train_batch_size: 1\nlora_enable: {on}\nbits: {bits}\n"


@pytest.mark.parametrize(
    ("on", "bits", "expected"), [("true", 4, ("lora", 4)), ("true", 8, ("lora", 8)), ("false", 16, ("full", None))]
)
def test_switches_of_widely_copied_scripts(hf, on, bits, expected):
    job = hf.job(LLAVA.format(on=on, bits=bits))
    assert (job.method, job.weights.quantization.bits if job.weights.quantization else None) == expected


def test_words_that_many_scripts_have_do_not_say_trl(hf):
    text = "model_name_or_path: m/x\nper_device_train_batch_size: 1\ntrain_data: d\n"
    assert hf.read(text + "temperature: 0.02\npad_to_multiple_of: 8\n").upstream.startswith("transformers")


def test_prefixes_of_chatglm_are_no_full_fine_tune(hf):
    with pytest.raises(NoJobError, match="P-Tuning"):
        hf.job(PLAIN + "pre_seq_len: 128\nquantization_bit: 4\n")


def test_targets_as_chinese_llama_names_them(hf):
    job = hf.job(PLAIN + "lora_rank: 8\ntrainable: q_proj,v_proj,up_proj\n")
    assert job.adapter.targets == ["q_proj", "v_proj", "up_proj"]


CLM = (
    "run_clm.py --model_name_or_path openai-community/gpt2 --dataset_name wikitext --do_train --output_dir out "
    "--per_device_train_batch_size 8 --learning_rate 1e-5\n"
)


@pytest.mark.parametrize(
    ("script", "whole"),
    [
        (f"CUDA_VISIBLE_DEVICES=0,1 python {CLM}", True),
        (f"CUDA_VISIBLE_DEVICES=0 python {CLM}", False),
        (f"CUDA_VISIBLE_DEVICES=0,1 LOCAL_RANK=0 python {CLM}", False),
        (f"CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2 {CLM}", False),
        (f"CUDA_VISIBLE_DEVICES=0,1 srun python {CLM}", False),
        (f"CUDA_VISIBLE_DEVICES=0,1 python {CLM.replace('run_clm', 'open_instruct/finetune')}", False),
    ],
)
def test_a_script_without_a_launcher_is_one_process_on_all_gpus(opened, script, whole):
    job = opened("run.sh", script).reading.job
    assert job.parallelism.one_process is whole
    assert "parallelism.one_process" not in job.unstated


def test_a_script_that_no_table_names_may_spread_the_model_itself(opened):
    job = opened("run.sh", f"CUDA_VISIBLE_DEVICES=0,1 python {CLM.replace('run_clm', 'mine')}").reading.job
    assert not job.parallelism.one_process
    assert "parallelism.one_process" in job.unstated


@pytest.mark.parametrize(
    ("start", "program", "options"),
    [
        ("CUDA_VISIBLE_DEVICES=0 ", "run_clm", ""),
        ("CUDA_VISIBLE_DEVICES=$GPU ", "run_clm", ""),
        ("HIP_VISIBLE_DEVICES=0 ", "run_clm", ""),
        ("", "run_clm", " --use_cpu"),
        ("", "trl/scripts/sft", ""),
    ],
)
def test_one_gpu_of_several_no_gpu_and_what_trl_refuses_are_not_one_process_on_all(tmp_path, start, program, options):
    path = tmp_path / "run.sh"
    path.write_text(f"{start}python {CLM.replace('run_clm', program).strip()}{options}\n")
    (found,) = open_jobs(recognise_file(str(path)), Settings(root=str(tmp_path), gpus=8)).opened
    assert not found.reading.job.parallelism.one_process
    assert "parallelism.one_process" not in found.reading.job.unstated


@pytest.mark.parametrize(
    ("program", "version", "caches", "open_"),
    [("run_clm", "4.40.0", True, False), ("run_clm", "5.1.0", False, False), ("mine", "4.40.0", False, True)],
)
def test_models_cache_in_evaluation_until_transformers_5(tmp_path, program, version, caches, open_):
    path = tmp_path / "run.sh"
    path.write_text(f"python {CLM.replace('run_clm', program).strip()} --do_eval --eval_strategy steps\n")
    (found,) = open_jobs(
        recognise_file(str(path)), Settings(root=str(tmp_path), versions={"transformers": version})
    ).opened
    job = found.reading.job
    assert job.evaluation.caches is caches
    assert ("evaluation.caches" in job.unstated) is open_


def test_peft_type_names_another_adapter(bench):
    keys = "model_name_or_path: Qwen/Qwen3-8B\nper_device_train_batch_size: 1\noutput_dir: out\n"
    adapter = bench("hf_trainer").job(keys + "peft_type: PROMPT_TUNING\nnum_virtual_tokens: 20\n").adapter
    assert (adapter.type, adapter.options) == ("prompt_tuning", {"num_virtual_tokens": 20})


@pytest.mark.parametrize(
    ("keys", "options", "rank"),
    [
        ("peft_type: VERA\nr: abc", {}, 256),
        ("peft_type: ADALORA\ninit_r: [1]", {}, 12),
        ("peft_type: LOKR\nr: 0", {}, 0),
        ("peft_type: VBLORA\ntopk: 3", {"topk": 3}, 4),
    ],
)
def test_a_value_of_another_type_than_peft_has_is_left_to_its_default(bench, keys, options, rank):
    start = "model_name_or_path: Qwen/Qwen3-8B\nper_device_train_batch_size: 1\noutput_dir: out\n"
    adapter = bench("hf_trainer").job(f"{start}{keys}\n").adapter
    assert (adapter.options, adapter.r) == (options, rank)
