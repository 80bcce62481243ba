"""Masks and rotary tables that layers share, where kinds of layers alternate."""

from __future__ import annotations

import pytest

from gpulint.estimator.estimate_job import estimate
from gpulint.job.job import Job

WORKSPACES = 2 * int(8.125 * (1 << 20))
TABLES = 8 << 20


def model(layers: int) -> dict[str, object]:
    """Gemma 3 1B with a smaller vocabulary, sliding and full layers in turn."""
    return {
        "model_type": "gemma3_text", "hidden_size": 1152, "intermediate_size": 6912, "num_hidden_layers": layers,
        "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256, "vocab_size": 32000,
        "max_position_embeddings": 32768, "sliding_window": 512, "query_pre_attn_scalar": 256,
        "tie_word_embeddings": True, "layer_types": (["sliding_attention", "full_attention"] * layers)[:layers],
    }  # fmt: skip


def backward(layers: int, **fields: object) -> int:
    """Bytes at the peak of the backward pass, without what no trace on fake tensors has."""
    run = {
        "model": model(layers), "precision": {"autocast": "bfloat16"}, "optimizer": {"name": "adamw_torch"},
        "micro_batch_size": 1, "sequence_length": 4096, "padded": True, "activation_checkpointing": "full",
        "reentrant": False, **fields,
    }  # fmt: skip
    found = estimate(Job.validate(run))
    return next(phase.allocated for phase in found.phases if phase.name == "backward") - WORKSPACES


LORA = {
    "method": "lora",
    "adapter": {"r": 16, "alpha": 32, "targets": ["q_proj", "v_proj"]},
    "weights": {"dtype": "bfloat16"},
}
FULL = {"weights": {"dtype": "float32"}, "attention": "eager"}

TRACED = [(LORA, 4, 1871.8), (LORA, 16, 2602.0), (FULL, 4, 3482.0), (FULL, 16, 8097.6)]
"""MiB that Transformers 5.23 allocates at the peak of backward (traced on fake CUDA tensors)."""


@pytest.mark.parametrize(("changes", "layers", "traced"), TRACED)
def test_a_mask_is_counted_once_however_many_layers_read_it(changes, layers, traced):
    """A mask of 4,096 x 4,096 for each second layer would be 0.2 to 1 GiB too much with 16 layers."""
    assert backward(layers, **changes) == pytest.approx(traced * (1 << 20), abs=TABLES + (1 << 18))
