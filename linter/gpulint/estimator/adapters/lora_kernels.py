"""Which parts of a layer run their LoRA in fused autograd functions, and whose functions those are."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...upstream import axolotl, unsloth
from ...upstream.stack import Stack

if TYPE_CHECKING:
    from ...job.job import Job

PARTS = ("qkv", "o", "mlp")


class Style(NamedTuple):
    """What a library's functions do differently.

    in_place       the gradient of x takes the bytes of x, which the function has saved
    additions      low-rank terms are made in full before they are added, T x h or T x o
    scaled_input   the scale multiplies x before the low-rank weights, a copy of T x h
    own_dropout    dropout is drawn in the function, anew for each projection; its mask is read off zeros in backward
    biased         layers with a bias (Qwen2's queries, keys and values) are replaced too
    with_dropout   layers with dropout are
    """

    in_place: bool = False
    additions: bool = False
    scaled_input: bool = False
    own_dropout: bool = False
    biased: bool = True
    with_dropout: bool = True


class LoraKernels(NamedTuple):
    """The parts of a layer (`PARTS`) that are fused, and how."""

    parts: frozenset[str] = frozenset()
    style: Style = Style()


FMS = Style(in_place=True, additions=True, own_dropout=True)
"""fms-acceleration's, made of Unsloth's."""

UNSLOTH = Style(in_place=True, additions=True, biased=False, with_dropout=False)
"""Unsloth's own replace no layer with a bias or dropout (2026.8 unsloth/models/llama.py `get_peft_model`)."""


def lora_kernels(job: Job) -> LoraKernels:
    """Those of a job."""
    return LoraKernels(parts(job), style(job))


def parts(job: Job) -> frozenset[str]:
    """The parts of a layer whose LoRA a job runs in fused functions."""
    adapter = job.adapter
    named = adapter.kernels if adapter is not None and adapter.type == "lora" else ()
    return frozenset(PARTS).intersection(named)


def style(job: Job) -> Style:
    """Whose functions a job's are: axolotl's at its release, Unsloth's, or fms-acceleration's."""
    stack = Stack(job)
    if not stack.runs(axolotl.NAME):
        return UNSLOTH if stack.runs(unsloth.NAME) else FMS
    lean = stack.does(axolotl.LEAN_KERNELS)
    return Style(
        in_place=not lean,
        additions=not lean,
        scaled_input=not lean,
        biased=stack.does(axolotl.KERNELS_WITH_BIAS),
        with_dropout=stack.does(axolotl.KERNELS_WITH_DROPOUT),
    )
