"""SGLang on AMD's cards: AITER's attention is given room."""

from __future__ import annotations

import pytest

from gpulint.estimator.serving.sglang.settings import computes_with_aiter, share
from gpulint.hardware.catalogue import find
from gpulint.job.job import Job
from gpulint.models.resolve import resolve

QWEN, KIMI = "Qwen/Qwen2.5-7B-Instruct", "moonshotai/Kimi-K2-Instruct"


def server(tensor=1, **fields):
    given = {"engine": "sglang", "version": "0.5.17", "max_model_len": 16384, **fields}
    return Job.validate({"kind": "inference", "parallelism": {"tensor": tensor}, "inference": given})


@pytest.mark.parametrize(
    ("model", "gpu", "tensor", "fields", "expected"),
    [
        (QWEN, "mi355x", 1, {}, True),
        (QWEN, "mi300x", 1, {}, True),
        (QWEN, "h200-141gb", 1, {}, False),
        (QWEN, "mi355x", 1, {"max_model_len": 8192}, False),
        (QWEN, "mi355x", 1, {"attention_backend": "triton"}, False),
        (QWEN, "mi355x", 1, {"version": "0.5.3"}, False),
        (KIMI, "mi355x", 4, {}, True),
        (KIMI, "mi355x", 8, {}, False),
        (KIMI, "mi355x", 8, {"attention_backend": "aiter"}, True),
    ],
)
def test_what_computes_attention(model, gpu, tensor, fields, expected):
    job = server(tensor, **fields)
    assert computes_with_aiter(job, resolve(model), find(gpu), job.inference.version) is expected


def test_a_stated_share_is_cut_too():
    """Qwen3.8-27B in FP8 on an MI355X at 0.85 with 0.5.17: 1,543,256 tokens, as of 0.7225 of the card."""
    model, card = resolve(QWEN), find("mi355x")
    assert share(server(gpu_memory_utilization=0.85), model, card).fraction == pytest.approx(0.85 * 0.85)
    assert share(server(gpu_memory_utilization=0.85, max_model_len=8192), model, card).fraction == 0.85


def test_kimi_k2_5_s_tower_is_read_by_its_own_names():
    """A log of 0.5.8 on eight MI355X prints mem_fraction_static=0.8260405859375."""
    job = Job.validate(
        {"kind": "inference", "parallelism": {"tensor": 8}, "inference": {"engine": "sglang", "version": "0.5.8"}}
    )
    assert share(job, resolve("moonshotai/Kimi-K2.5"), find("mi355x")).fraction == pytest.approx(
        0.8260405859375, abs=1e-9
    )
