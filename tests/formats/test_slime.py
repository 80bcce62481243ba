"""slime's options: Megatron's under slime's defaults, micro batches of tokens, what shares the GPUs."""

import pytest

from gpulint.formats.rl import slime
from gpulint.launchers.reading import open_jobs, recognise_file
from gpulint.settings.settings import Settings
from gpulint.source.edit.edit import apply

from .origins import TRAINING, missing

MODEL = {
    "num-layers": 24, "hidden-size": 2048, "num-attention-heads": 16, "ffn-hidden-size": 6144, "swiglu": True,
    "group-query-attention": True, "num-query-groups": 4, "vocab-size": 100000, "hf-checkpoint": "/models/own",
    "use-rotary-position-embeddings": True,
}  # fmt: skip
OPTIONS = {
    **MODEL, "actor-num-nodes": 2, "actor-num-gpus-per-node": 8, "colocate": True, "num-rollout": 100,
    "rollout-batch-size": 16, "n-samples-per-prompt": 8, "rollout-max-response-len": 4096, "global-batch-size": 128,
    "use-dynamic-batch-size": True, "max-tokens-per-gpu": 6144, "tensor-model-parallel-size": 2,
    "context-parallel-size": 2, "recompute-granularity": "full", "sglang-mem-fraction-static": 0.6,
}  # fmt: skip


def script(**changes):
    options = {**OPTIONS, **{key.replace("_", "-"): value for key, value in changes.items()}}
    words = [f"--{key}" if value is True else f"--{key} {value}" for key, value in options.items() if value is not None]
    return f"ray job submit -- python3 train.py {' '.join(words)}\n"


@pytest.fixture
def read(opened):
    return lambda **changes: opened("run.sh", script(**changes)).reading


def test_defaults_of_slime_over_megatron(read):
    reading = read()
    job = reading.job
    assert (reading.format, job.framework, job.objective) == ("slime", "megatron", "grpo")
    assert (job.hardware.gpus, job.hardware.nodes) == (16, 2)
    assert job.model["num_hidden_layers"] == 24
    assert (job.weights.dtype, job.precision.gradients, job.precision.master_weights) == ("bfloat16", "float32", True)
    assert (job.parallelism.zero.stage, job.parallelism.zero.library) == (1, "megatron")  # without being asked for
    assert job.activation_checkpointing == "full"
    assert missing(job, TRAINING) == []
    assert not reading.problems


def test_a_micro_batch_of_tokens_is_one_packed_row(read):
    job = read().job
    assert (job.sequence_length, job.micro_batch_size, job.packing) == (2 * 6144, 1, True)  # on both ranks of context
    long = read(rollout_max_response_len=20000).job
    assert long.sequence_length == 20000  # longer than a micro batch: one of its own
    rows = read(use_dynamic_batch_size=None, micro_batch_size=2, rollout_max_prompt_len=512).job
    assert (rows.sequence_length, rows.micro_batch_size, rows.packing) == (4608, 2, False)
    assert rows.gradient_accumulation_steps == 128 // (4 * 2)
    assert read(global_batch_size=None, num_steps_per_rollout=2).job.gradient_accumulation_steps == 64 // 4


def test_what_shares_the_gpus(read):
    job = read().job
    assert (job.rl.vllm, job.rl.vllm_gpu_memory_utilization, job.rl.vllm_sleep) == ("colocate", 0.6, True)
    assert job.rl.policy_offload
    assert job.rl.reference_model is False
    assert not read(no_offload_train=True).job.rl.policy_offload
    apart = read(colocate=None, rollout_num_gpus=8, advantage_estimator="ppo").job
    assert (apart.rl.vllm, apart.objective, apart.rl.value_model) == ("server", "ppo", "apart")


def test_supervised_tuning(read):
    job = read(loss_type="sft_loss", debug_train_only=True, rollout_max_response_len=None).job
    assert (job.objective, job.rl.vllm, job.sequence_length) == ("sft", None, 2 * 6144)


def test_states_in_main_memory(read):
    zero = read(optimizer_cpu_offload=True, optimizer_offload_fraction=0.5).job.parallelism.zero
    assert (zero.offload_optimizer.device, zero.offload_optimizer.ratio) == ("cpu", 0.5)


def test_a_model_of_a_plugin_is_not_its_dimensions(read):
    assert read(spec="'slime_plugins.models.own get_spec'").job.model is None
    assert read(hf_checkpoint="Qwen/Qwen3-4B").job.model == "Qwen/Qwen3-4B"


def test_only_slips_of_options_are_told(read):
    (problem,) = read(sglang_any="1", of_another_branch="1", max_tokens_per_gpuu="1").problems
    assert (problem.key, problem.values["suggestion"], problem.values["treatment"]) == (
        "max-tokens-per-gpuu", "max-tokens-per-gpu", "ignored",
    )  # fmt: skip


def test_generation_alone_is_no_training(tmp_path):
    path = tmp_path / "run.sh"
    path.write_text(script(debug_rollout_only=True))
    found = open_jobs(recognise_file(str(path)), Settings(root=str(tmp_path)))
    assert not found.opened
    assert "trains nothing" in found.reason


def test_changes_are_written_as_options(opened, tmp_path):
    def changed(text, changes):
        found = opened("run.sh", text)
        edits = slime.FORMAT.edits(found.reading, changes)
        assert bool(slime.FORMAT.describe(found.reading, changes)) == bool(edits)
        return opened("run.sh", apply(text, edits)).reading.job if edits else None

    assert changed(script(), {"sequence_length": 8192}).sequence_length == 8192
    assert changed(script(), {"sequence_length": 2048}) is None  # a row has more
    assert changed(script(), {"micro_batch_size": 2}) is None
    assert changed(script(), {"parallelism.tensor": 4}).parallelism.tensor == 4
    rows = script(use_dynamic_batch_size=None, micro_batch_size=2)
    assert changed(rows, {"micro_batch_size": 1, "gradient_accumulation_steps": 32}).micro_batch_size == 1
    device = {"parallelism.zero.offload_optimizer.device": "cpu"}
    assert changed(script(), device).parallelism.zero.offload_optimizer.device == "cpu"
