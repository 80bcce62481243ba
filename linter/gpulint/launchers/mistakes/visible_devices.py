"""Lists of devices that hide the GPUs: `CUDA_VISIBLE_DEVICES` with quotes, blanks, an index twice or beyond the last.

CUDA stops at the first entry that names no device (CUDA programming guide, "CUDA environment variables"); torch takes a
list with an index twice for none (`cuda/__init__.py` `_parse_visible_devices`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...formats.core.format import Problem
    from .starts import Start

_NAME = "CUDA_VISIBLE_DEVICES"
_CUT = re.compile(r"[ \t]+(\d[\d, \t]*)")
_FULL_NODE = 8
"""GPUs of a node from which on a job of Slurm that asks for as many has all of it, so that no index is beyond them."""


def broken_devices(start: Start) -> Iterator[Problem]:
    """The problem of the list of devices that a program is started with."""
    word = start.environment.get(_NAME)
    span = start.at(word) if word is not None else None
    if word is None or span is None or not word.known or not word.text:
        return
    reason = _reason(word.text, start) or _cut_off(start, word.at[-1] + 1, word.text)
    if reason:
        yield start.problem("broken-devices", _NAME, span, value=word.text, reason=reason)


def _reason(text: str, start: Start) -> str:
    if text[0] in "\"'":
        return "the quotes are part of the value, so that its first entry names no device and none is visible"
    listed = [part.strip() for part in text.split(",")]
    if sum(part.startswith("MIG-") for part in listed) > 1:
        return "a process sees the first MIG slice only, whatever else is listed"
    if not all(part.isdigit() for part in listed):
        return ""
    if len(set(listed)) < len(listed):
        return "a device is listed twice, and torch takes such a list for none at all"
    given = start.resources.gpus_per_node
    if given is None or not _numbered(start, given):
        return ""
    beyond = next((at for at, part in enumerate(listed) if int(part) >= given), None)
    if beyond is None:
        return ""
    left = "none is" if not beyond else f"only the {beyond} before it {'are' if beyond > 1 else 'is'}"
    return f"there is no device {listed[beyond]} among the {given} GPUs, which begin at 0: {left} visible"


def _numbered(start: Start, given: int) -> bool:
    """Whether the GPUs of the job are numbered from 0: always within a pod; Slurm may leave those of the whole node."""
    kind = start.resources.told
    return "container.gpu_limit" in kind or ("batch" in kind and given >= _FULL_NODE)


def _cut_off(start: Start, end: int, text: str) -> str:
    """`export CUDA_VISIBLE_DEVICES=0, 1`: the shell ends the value at the blank."""
    if not text.endswith(","):
        return ""
    found = _CUT.match(start.file.text, end)
    return f"the value ends at the blank: {found[1].strip()} is not part of it" if found is not None else ""
