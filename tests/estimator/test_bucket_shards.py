"""States that Megatron's optimizer makes in its first step, and what they leave of the blocks that a pass freed."""

import pytest

from gpulint.estimator.estimate_job import estimate
from gpulint.estimator.sharding.streams import _slices, first_step
from gpulint.estimator.states.parameters import parameters
from gpulint.job.job import Job, Zero
from gpulint.models.resolve import resolve
from gpulint.units import GIB

MODEL = {
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1792,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}


def job(stage=1, library="megatron", **changes):
    given = Job(framework="megatron", model=MODEL, objective="pretrain", attention="flash_attention_2")
    given.weights.dtype, given.optimizer.name = "bfloat16", "adamw_torch_fused"
    given.precision.master_weights, given.precision.gradients = True, "float32"
    given.parallelism.zero = Zero(stage=stage, library=library)
    given.hardware.gpu, given.hardware.gpus = "a100-80gb", 8
    return given.with_changes({"micro_batch_size": 8, "sequence_length": 2048, **changes})


@pytest.mark.parametrize(
    ("sizes", "over", "found"),
    [
        ([80_000_000, 10_000_000, 30_000_000], 8, [10_000_000, 5_000_000]),
        ([10_000_000, 10_000_000], 1, [10_000_000, 10_000_000]),
        ([10_000_000, 10_000_000, 20_000_000], 2, [10_000_000, 10_000_000]),
    ],
)
def test_a_rank_has_the_first_part_of_each_bucket(sizes, over, found):
    """A bucket is closed by the parameter that fills it."""
    assert [*_slices(sizes, over)] == found


@pytest.mark.parametrize(("stage", "ranks"), [(0, 1), (1, 8)])
def test_two_moments_of_what_the_rank_has(stage, ranks):
    given, model = job(stage), resolve(MODEL)
    made = first_step(given, parameters(given, model))
    assert sum(size * count for size, count in made) == pytest.approx(8 * model.parameters / ranks, rel=0.001)
    away = given.with_changes({"parallelism.zero.offload_optimizer.device": "cpu"})
    assert first_step(away, parameters(away, model)) == []


def test_the_largest_block_is_opened_anew_behind_the_first_step():
    """Moments take blocks of activations, these the block of 16-bit logits, those that of the float32 ones."""
    logits = 8 * 2048 * 128256
    tiers = estimate(job()).per_gpu
    assert tiers.reserved - tiers.allocated == pytest.approx(4 * logits, rel=0.1)
    assert tiers.allocated < 20 * GIB


def test_deepspeed_has_its_states_before_the_first_step():
    tiers = estimate(job(library="deepspeed", framework=None)).per_gpu
    plain = estimate(job(library="deepspeed", framework=None, **{"optimizer.name": "sgd"})).per_gpu
    assert tiers.reserved - plain.reserved == pytest.approx(tiers.allocated - plain.allocated, rel=0.2)
