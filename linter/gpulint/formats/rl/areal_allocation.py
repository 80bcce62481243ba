"""AReaL's words for GPUs and degrees: `fsdp:d4t2`, `sglang:d4p1t1+d4p1t1`, `megatron:(attn:d4p4t2|ffn:d2p4e4)`.

Facts from AReaL 1.0.4 (`api/alloc_mode.py`, ALLOCATION_GRAMMAR); 0.3 wrote `sglang.d4p1t1`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ..core.bindings.kinds import TEXT

if TYPE_CHECKING:
    from ..core.bindings.reader import Reader

ALLOCATIONS = ("actor.backend", "allocation_mode")

SERVERS = frozenset({"sglang", "vllm"})
TRAINERS = frozenset({"fsdp", "megatron", "archon"})

_COMPONENT = re.compile(r"\s*(?:([a-z]+)(?:\[(\w+)\])?[:.]|\[(\w+)\]:)?\s*(.+?)\s*")
_DIGITS = re.compile(r"([dptce])([1-9]\d{0,4})")


class Allocation(NamedTuple):
    """What trains: its backend and its degrees; `shared` where a server stands on the same GPUs."""

    backend: str
    data: int
    tensor: int
    pipeline: int
    context: int
    expert: int
    expert_tensor: int | None
    shared: bool

    @property
    def gpus(self) -> int:
        """GPUs that train."""
        return self.data * self.tensor * self.pipeline * self.context


ALONE = Allocation("fsdp", 1, 1, 1, 1, 1, None, False)
"""FSDP over GPUs that the config does not count."""


def plan_of(reader: Reader) -> Allocation:
    """What the config says that trains."""
    text = reader.value(TEXT, *ALLOCATIONS)
    return (training_part(text) if text else None) or ALONE


def training_part(text: str) -> Allocation | None:
    """The first part that trains; None where the text has none or says something else."""
    for chain in _split(text, "+"):
        parts = _split(chain, "|")
        kinds = [_component(part) for part in parts]
        if None in kinds:
            return None
        shared = any(kind is not None and kind[0] in SERVERS for kind in kinds)
        for kind in kinds:
            if kind is not None and kind[0] not in SERVERS and kind[0] not in ("eval", "cpu"):
                return _allocation(*kind, shared=shared)
    return None


def _component(text: str) -> tuple[str, str] | None:
    match = _COMPONENT.fullmatch(text)
    if match is None:
        return None
    backend, degrees = match[1] or "", match[4]
    if backend == "attn":
        backend, degrees = "", text
    return (backend, degrees) if backend in TRAINERS | SERVERS or not backend else None


def _allocation(backend: str, degrees: str, *, shared: bool) -> Allocation | None:
    """Attention's degrees and those of the experts are written apart where they differ."""
    attention, _, experts = degrees.strip("()").partition("|")
    own = {name: int(size) for name, size in _DIGITS.findall(attention.replace("attn", ""))}
    routed = {name: int(size) for name, size in _DIGITS.findall(experts.replace("ffn", ""))} if experts else own
    if not own:
        return None
    chosen = backend or ("megatron" if own.get("p", 1) > 1 or routed.get("e", 1) > 1 else "fsdp")
    tensor = routed.get("t", 1) if experts else None
    data, dense, stages, context = (own.get(name, 1) for name in "dtpc")
    return Allocation(chosen, data, dense, stages, context, routed.get("e", 1), tensor, shared)


def _split(text: str, at: str) -> list[str]:
    """The parts between a sign, except inside parentheses and beside `ffn`."""
    parts, depth = [""], 0
    for index, letter in enumerate(text):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == at and depth == 0 and not text[index + 1 :].lstrip().startswith("ffn"):
            parts.append("")
        else:
            parts[-1] += letter
    return [part for part in parts if part.strip()]
