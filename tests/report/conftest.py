"""A small report and an estimate, made by hand, that show everything a renderer must handle."""

from __future__ import annotations

import pytest

from gpulint.estimator.estimate import Assumption, Capacity, Estimate, KvCache, Phase, Tiers
from gpulint.estimator.terms import Term, line, tier
from gpulint.finding import FileResult, Finding, Location, Report, Suggestion
from gpulint.source.edit.replacement import Edit
from gpulint.source.node import Span
from gpulint.units import GIB

TEXT = """base_model: org/model-8b
hf_token: hf_abcdefghijklmnop
optimizer: adamw_torch
note: "##[error]x \\u202e"
"""


EDIT = Edit("train.yaml", 25, 25, "a: 1\n")


def span_of(text: str, piece: str) -> Span:
    start = text.index(piece)
    line = text.count("\n", 0, start) + 1
    column = start - text.rfind("\n", 0, start)
    return Span(line, column, line, column + len(piece), start, start + len(piece))


@pytest.fixture
def estimate() -> Estimate:
    weights = Term("weights", "2 B x 8,030,261,248 parameters", 15 * GIB, "torch: one tensor a parameter")
    states = Term("optimizer", "2 tensors x 4 B x 8,030,261,248", 60 * GIB, "torch/optim/adam.py", "mean and variance")
    step = Phase("optimizer_step", (weights, states, line("gradients", 15 * GIB, "one a parameter", "torch autograd")))
    passed = line("activations", 4 * GIB, "of a pass"), line("logits", 6 * GIB, "of a pass")
    loss = Phase("loss", (weights, states, *passed))
    return Estimate(
        kind="training",
        model_id="org/model-8b",
        parameters=8_030_261_248,
        trainable_parameters=8_030_261_248,
        tiers=Tiers(
            tier("reserved", (90 * GIB, "allocated at the peak"), (GIB, "free blocks")),
            tier("process", (91 * GIB, "reserved"), (GIB, "runtime")),
            tier("low", (90 * GIB, "allocated")),
            tier("high", (91 * GIB, "reserved"), (4 * GIB, "what the replay may be short of")),
        ),
        phases=(loss, step),
        peak=step,
        verdict="exceeds",
        capacity=Capacity("h100-80gb", 85520809984, 84972929843),
        kv_cache=KvCache(131072, 52000, 1.59),
        assumptions=(Assumption("sequence_length", "512", "default of axolotl 0.19.0"),),
        beside=(
            Term("runtime", "504,365,056 B", 504_365_056, "A100, torch 2.1: " + "0.47 GiB; " * 12, "CUDA context"),
            Term("runtime", "569,376,768 B", 569_376_768, "vllm PR 14447", "libraries \u202e"),
        ),
    )


@pytest.fixture
def report(estimate) -> Report:
    finding = Finding(
        rule="GPU101",
        name="optimizer-states-exceed-gpu",
        severity="error",
        confidence="high",
        message="adamw_torch keeps 60.0 GiB of states on each H100 80GB, which has 79.1 GiB",
        location=Location("train.yaml", span_of(TEXT, "adamw_torch")),
        related=(Location("train.yaml", span_of(TEXT, "org/model-8b"), "8.03 B parameters"),),
        suggestions=(
            Suggestion("adapter: qlora, load_in_4bit: true", 10 * GIB, "unsafe", (EDIT,)),
            Suggestion("a GPU with more memory: h200-141gb", 92 * GIB),
        ),
        estimate=estimate,
        fingerprint="0123456789abcdef",
    )
    odd = Finding(
        rule="GPU001",
        name="unknown-key",
        severity="warning",
        confidence="high",
        message="::error::nobody reads `note`, 50% \r\n\x1b[31m ##[add-mask]x",
        location=Location("train.yaml", span_of(TEXT, "note")),
        notes=("did you mean `notes`?",),
        fingerprint="fedcba9876543210",
    )
    return Report(
        files=[
            FileResult("train.yaml", "axolotl", "checked"),
            FileResult("broken.yaml", None, "error", "found a tab where indentation was expected", 3, 1),
            FileResult("other.yaml", None, "skipped", "unknown format"),
        ],
        findings=[finding, odd],
        texts={"train.yaml": TEXT},
        suppressed=1,
    )
