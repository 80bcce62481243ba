"""The hardware that an index entry states: only what is clear."""

from __future__ import annotations

import pytest

from benchmarks.corpus.stated import stated


@pytest.mark.parametrize(
    ("hardware", "text", "expected"),
    [
        ({"comment": "# NOTE: this toml config is a preset for 64 H100 GPUs."}, "", ("h100-80gb", 64, None)),
        ({"comment": "# Multi-node: 8 nodes x 8 H100-80GB = 64 GPUs, TP=8"}, "", ("h100-80gb", 64, 8)),
        ({"stated": "256x H100 80GB (32 nodes) -- 47 GB/rank"}, "", ("h100-80gb", 256, 32)),
        ({"stated": "8xH100."}, "", ("h100-80gb", 8, 1)),
        ({"stated": "8xH100 nodes"}, "", ("h100-80gb", None, None)),
        ({"stated": "8xA100 machine."}, "", (None, 8, 1)),
        ({"comment": "### Single GPU (H100/H200/B200, BF16)"}, "", (None, None, None)),
        ({"nproc_per_node": 4}, "# tune run --nproc_per_node 4 full", (None, 4, 1)),
        ({"nproc_per_node": 4}, "# torchrun --nnodes 2 --nproc_per_node 4", (None, None, None)),
        ({"path_hint": "a100_40gb"}, "", ("a100-40gb", None, None)),
    ],
)
def test_what_is_clear_counts(hardware, text, expected):
    assert tuple(stated({"path": "x.yaml", "format": "torchtune", "hardware": hardware}, text)) == expected


def test_a_recipe_of_variants_states_nothing():
    entry = {"path": "x.yaml", "format": "vllm_recipe", "hardware": {"stated": "8xH200 (recommended)"}}
    assert tuple(stated(entry, "")) == (None, None, None)
