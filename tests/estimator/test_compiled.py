"""Which layers torch.compile makes graphs of."""

from __future__ import annotations

import pytest

from gpulint.estimator.activations import instants
from gpulint.estimator.compiled import traced
from gpulint.job import Job, Weights


def compiled(**fields) -> Job:
    usual = {"activation_checkpointing": "full", "attention": "flash_attention_2", "micro_batch_size": 1}
    return Job(compile=True, sequence_length=2048, weights=Weights("bfloat16"), **{**usual, **fields})


@pytest.mark.parametrize(
    ("fields", "model_type", "graph"),
    [
        ({}, "qwen3", False),  # its flash attention branches on position_ids
        ({"activation_checkpointing": "offload"}, "qwen3", False),
        ({"activation_checkpointing": "none"}, "qwen3", True),  # a graph before and one behind attention
        ({"checkpoint_every": 2}, "qwen3", True),
        ({"attention": "sdpa"}, "qwen3", True),
        ({"micro_batch_size": 2}, "qwen3", True),  # looks at shapes alone
        ({"framework": "torchtitan"}, "qwen3", True),
        ({"versions": {"prime-rl": "0.4.0"}}, "qwen3", False),
        ({"versions": {"prime-rl": "0.8.0"}}, "qwen3", True),  # code of its own
        ({"versions": {"prime-rl": "0.4.0"}}, "qwen3_moe", True),
        ({"compile": False}, "qwen3_moe", False),
    ],
)
def test_a_checkpointed_layer_is_compiled_whole_or_not_at_all(fields, model_type, graph):
    job = compiled()
    for name, value in fields.items():
        setattr(job, name, value)
    assert traced(job, model_type) == graph


def test_flash_attention_leaves_a_checkpointed_layer_eager(llama_8b):
    def peak(**fields) -> int:
        return max(item.activations + item.logits for item in instants(compiled(**fields), llama_8b))

    assert peak() == max(
        item.activations + item.logits
        for item in instants(compiled().with_changes({"compile": False, "loss.compiled": True}), llama_8b)
    )
    assert peak(micro_batch_size=2) < 2 * peak()
