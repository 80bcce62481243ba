"""What is not read is said, and widens the interval."""

from __future__ import annotations

import pytest

from gpulint import estimate
from gpulint.estimator.estimate import NotEstimable
from gpulint.estimator.unmodeled import tower
from gpulint.job.job import Job
from gpulint.models.resolve import resolve

SMALL = {
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 8000,
}


def job(model_type: str, **fields) -> Job:
    found = Job(model={"model_type": model_type, **SMALL, **fields}, micro_batch_size=2, sequence_length=512)
    found.weights.dtype = "bfloat16"
    return found


def noted(result) -> set[str]:
    return {note.field for note in result.assumptions}


def test_a_family_that_is_read_assumes_nothing_about_its_layers():
    assert "model.layers" not in noted(estimate(job("llama")))


def test_a_family_that_is_not_read_is_said_and_wider():
    result = estimate(job("hrm_text"))
    assert "model.layers" in noted(result)
    assert result.per_gpu.high - result.per_gpu.low > 2.5 * result.peak.components["activations"]


def test_layers_that_run_again_or_keep_several_streams_may_keep_as_many_times_more():
    def room(**fields) -> int:
        found = estimate(job("doge", **fields))
        return next(note.high for note in found.assumptions if note.field == "model.layers")

    assert room(hc_mult=4) > 4 * room()
    assert room(H_cycles=2, L_cycles=3) > 8 * room()


def test_what_is_not_read_may_be_the_peak_where_the_optimizer_s_step_is_taken_for_it():
    small = job("doge", vocab_size=200)
    small.optimizer.name, small.micro_batch_size, small.sequence_length = "adamw_torch", 1, 256
    found = estimate(small)
    assert found.peak.name == "optimizer_step"
    assert next(note.high for note in found.assumptions if note.field == "model.layers") > 0


@pytest.mark.parametrize(
    ("model_type", "package", "fields"),
    [
        ("qwen3_5_text", "flash-linear-attention", {"linear_num_key_heads": 4, "linear_num_value_heads": 8}),
        ("kimi_linear", "flash-linear-attention", {"linear_num_heads": 8, "linear_head_dim": 64, "num_experts": 4}),
        ("bamba", "mamba-ssm", {"mamba_n_heads": 16, "mamba_d_head": 64, "attn_layer_indices": [1]}),
        ("jamba", "mamba-ssm", {"num_experts": 4, "num_experts_per_tok": 2}),
        ("apertus", "xielu", {}),
    ],
)
def test_kernels_that_the_job_names_keep_less_and_end_the_assumption(model_type, package, fields):
    without, named = job(model_type, **fields), job(model_type, **fields)
    named.versions[package] = "2.0"
    before, after = estimate(without), estimate(named)
    assert f"versions.{package}" in noted(before)
    assert f"versions.{package}" not in noted(after)
    assert after.peak.components["activations"] < before.peak.components["activations"]
    assert before.per_gpu.low < after.per_gpu.high
    (note,) = (item for item in before.assumptions if item.field == f"versions.{package}")
    assert note.low > 0 == note.high


@pytest.mark.parametrize(("checkpointing", "less"), [("none", 0.5), ("full", 0.0)])
def test_a_loss_of_unsloth_says_that_its_layers_keep_less(checkpointing, less):
    plan = job("llama")
    plan.loss.kernel, plan.activation_checkpointing = "unsloth_cross_entropy", checkpointing
    found = estimate(plan)
    lows = [item.low for item in found.assumptions if item.field == "loss.kernel"]
    assert sum(lows) == pytest.approx(less * found.peak.components["activations"], abs=1)


def test_a_family_with_modules_of_its_own_is_refused_in_words():
    with pytest.raises(NotEstimable, match="rwkv"):
        estimate(job("rwkv"))


def test_recomputed_recurrences_stay_until_the_next_step():
    plan = job("recurrent_gemma")
    steps = {}
    for mode in ("none", "full"):
        plan.activation_checkpointing = mode
        steps[mode] = next(phase for phase in estimate(plan).phases if phase.name == "optimizer_step")
    assert steps["none"].components["activations"] == 0
    assert steps["full"].components["activations"] > 0


def test_a_vision_tower_is_bounded_by_its_widths():
    """e P (n h + 8 h + 3 f) under checkpointing, P patches of which 2 x 2 make a token."""
    tower_of = {"depth": 4, "hidden_size": 64, "intermediate_size": 128}
    model = resolve({"model_type": "qwen2_5_vl", **SMALL, "vision_config": tower_of})
    plan = Job(micro_batch_size=2, sequence_length=512, activation_checkpointing="full")
    patches = 4 * 2 * 512
    assert tower(plan, model) == 2 * patches * (4 * 64 + 8 * 64 + 3 * 128)
    whole = plan.with_changes({"activation_checkpointing": "none"})
    assert tower(whole, model) == 2 * 4 * patches * (8 * 64 + 3 * 128)
    assert tower(Job(), model) == 0
    assert tower(plan, resolve({"model_type": "llama", **SMALL})) == 0
