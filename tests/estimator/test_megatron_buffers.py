"""What Megatron's layers never free: the scores' buffer of its own attention, Transformer Engine's workspace."""

import pytest

from gpulint.estimator.states.buffers.megatron import held
from gpulint.hardware.catalogue import find
from gpulint.job.job import Job
from gpulint.models.resolve import resolve
from gpulint.units import KIB, MIB

MODEL = {
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 2,
    "num_attention_heads": 16,
    "vocab_size": 32000,
}


@pytest.mark.parametrize(
    ("gpu", "changes", "size"),
    [
        ("a100-80gb", {}, 4 * MIB),
        ("h100-80gb", {}, 32 * MIB + KIB),
        ("h100-80gb", {"without_transformer_engine": True}, 0),
        ("h100-80gb", {"without_transformer_engine": True, "attention": "eager"}, 2 * 4 * 8 * 1024 * 1024),
        ("h100-80gb", {"framework": None}, 0),
    ],
)
def test_buffers(gpu, changes, size):
    job = Job(framework="megatron", model=MODEL, attention="flash_attention_2")
    job.weights.dtype = "bfloat16"
    job = job.with_changes({"micro_batch_size": 4, "sequence_length": 1024, "parallelism.tensor": 2, **changes})
    assert held(job, resolve(MODEL), find(gpu)) == size
