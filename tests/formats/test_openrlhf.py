import pytest

from gpulint.launchers.reading import open_jobs, recognise_file
from gpulint.settings.settings import Settings
from gpulint.source.edit.edit import apply

from .origins import TRAINING, missing

SFT = """\
deepspeed --num_gpus 4 --module openrlhf.cli.train_sft \\
   --data.max_len 4096 --model.model_name_or_path x/y \\
   --train.micro_batch_size 2 --train.batch_size 256 --ds.zero_stage 3 --model.gradient_checkpointing_enable
"""
PPO = """\
ray job submit -- python3 -m openrlhf.cli.train_ppo_ray --pretrain x/y \\
   --actor_num_nodes 2 --actor_num_gpus_per_node 8 --vllm_num_engines 4 --colocate_all_models \\
   --vllm_gpu_memory_utilization 0.6 --vllm_enable_sleep --deepspeed_enable_sleep --micro_train_batch_size 2 \\
   --prompt_max_len 1024 --generate_max_len 2048 --zero_stage 3 --adam_offload --bf16
"""


@pytest.fixture
def opened(tmp_path):
    def read(text):
        (tmp_path / "run.sh").write_text(text)
        (found,) = open_jobs(recognise_file(str(tmp_path / "run.sh")), Settings(root=str(tmp_path))).opened
        return found

    return read


def test_sft(opened):
    reading = opened(SFT).reading
    job = reading.job
    assert (reading.format, job.model, job.objective, job.hardware.gpus) == ("openrlhf", "x/y", "sft", 4)
    assert (job.micro_batch_size, job.gradient_accumulation_steps, job.sequence_length) == (2, 32, 4096)
    assert (job.parallelism.zero.stage, job.activation_checkpointing) == (3, "full")
    assert (job.weights.dtype, job.precision.master_weights) == ("bfloat16", True)
    assert missing(job, TRAINING) == []
    assert reading.problems == []


def test_flags_of_a_former_release(opened):
    reading = opened(PPO).reading
    job = reading.job
    assert (job.objective, job.sequence_length, job.rl.vllm, job.rl.vllm_gpu_memory_utilization) == (
        "ppo", 3072, "colocate", 0.6,
    )  # fmt: skip
    assert (job.rl.vllm_sleep, job.rl.policy_offload, job.rl.value_model) == (True, True, "apart")
    assert (job.rl.reference_model, job.parallelism.zero.offload_optimizer.device) == (True, "cpu")
    assert reading.problems == []
    assert missing(job, TRAINING) == []


@pytest.mark.parametrize(
    ("before", "model", "micro", "share"),
    [
        ("", "--actor.model_name_or_path", 1, 0.95),
        ("", "--pretrain", 4, 0.95),
        ("pip install openrlhf==0.6.4\n", "--pretrain", 4, 0.9),
        ("pip install openrlhf==0.10.0\n", "--actor.model_name_or_path", 1, 0.95),
    ],
)
def test_ppo_of_former_releases_has_their_defaults(opened, before, model, micro, share):
    name = ("--vllm.num_engines", "--train.colocate_all") if "actor" in model else (
        "--vllm_num_engines", "--colocate_all_models"
    )  # fmt: skip
    job = opened(f"{before}python -m openrlhf.cli.train_ppo_ray {model} x/y {name[0]} 4 {name[1]}\n").reading.job
    assert (job.micro_batch_size, job.rl.vllm_gpu_memory_utilization) == (micro, share)


def test_programs_have_their_own_defaults(opened):
    job = opened("python -m openrlhf.cli.train_dpo --model.model_name_or_path x/y\n").reading.job
    assert (job.objective, job.micro_batch_size, job.sequence_length, job.rl.reference_model) == ("dpo", 8, 512, True)


def test_an_unknown_flag_is_refused(opened):
    (problem,) = opened(SFT.replace("zero_stage", "zero_stge")).reading.problems
    assert (problem.values["spelling"], problem.values["treatment"], problem.span.line) == (
        "zero_stage",
        "refused",
        3,
    )


@pytest.mark.parametrize(
    ("text", "changes", "written"),
    [
        (SFT, {"micro_batch_size": 1}, "--train.micro_batch_size 1 "),
        (SFT, {"sequence_length": 2048}, "--data.max_len 2048 "),
        (PPO, {"rl.vllm_gpu_memory_utilization": 0.4}, "--vllm_gpu_memory_utilization 0.4 "),
        (PPO, {"micro_batch_size": 1}, "--micro_train_batch_size 1 "),
    ],
)
def test_edits(opened, text, changes, written):
    from gpulint.formats.rl.openrlhf import FORMAT

    edits = FORMAT.edits(opened(text).reading, changes)
    assert written in apply(text, edits)


@pytest.mark.parametrize(("flags", "rows"), [("--pretrain x/y", 8), ("--pretrain x/y --micro_rollout_batch_size 4", 4),
                                             ("--actor.model_name_or_path x/y", 1)])  # fmt: skip
def test_rollouts_are_scored_in_batches_of_their_own(opened, flags, rows):
    job = opened(f"python3 -m openrlhf.cli.train_ppo_ray {flags}\n").reading.job
    assert (job.evaluation.micro_batch_size, job.evaluation.keeps_logits, job.framework) == (rows, False, "openrlhf")


@pytest.mark.parametrize(
    ("versions", "flags", "attention"),
    [
        ({}, "", "flash_attention_2"),
        ({"openrlhf": "0.8.9"}, "", "eager"),
        ({"openrlhf": "0.8.10"}, "", "flash_attention_2"),
        ({"transformers": "4.42.4"}, "", "eager"),
        ({"transformers": "4.42.4"}, "--flash_attn", "flash_attention_2"),
        ({"transformers": "4.42.4"}, "--packing_samples", "flash_attention_2"),
    ],
)
def test_flash_attention_was_a_switch(tmp_path, versions, flags, attention):
    """Up to 0.8.9 models without `--flash_attn` are `eager`; packed rows turn it on (cli/train_*.py)."""
    path = tmp_path / "run.sh"
    path.write_text(f"deepspeed --module openrlhf.cli.train_dpo --pretrain x/y {flags}\n")
    settings = Settings(root=str(tmp_path), versions=versions)
    (found,) = open_jobs(recognise_file(str(path)), settings).opened
    assert found.reading.job.attention == attention
