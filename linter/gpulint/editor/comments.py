"""Completion within gpulint's own comments: the names of GPUs and rules."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..units import bytes_text
from .offer import Item

if TYPE_CHECKING:
    from collections.abc import Iterator

_COMMENT = re.compile(r"(?:#|//)\s*gpulint:\s*(?P<said>.*)$")
_GPU = re.compile(r"(?:^|[\s,])gpu=([\w.-]*)$")
_RULES = re.compile(r"ignore(?:-file|-start|-end)?\[(?:[^\]]*,)?\s*([\w-]*)$")
_WORD = re.compile(r"(?:^|\s)([\w-]*)$")

WORDS = {
    "gpu=": "the GPU to check against",
    "gpus=": "number of GPUs of the job",
    "nodes=": "number of nodes",
    "ignore[": "suppresses rules on this line or the next",
    "ignore-start[": "suppresses rules from here on",
    "ignore-end": "ends ignore-start",
    "ignore-file[": "suppresses rules in this file",
}


def within_comment(text: str, offset: int) -> list[Item] | None:
    """What may follow in a `# gpulint:` comment; None outside of one."""
    begin = text.rfind("\n", 0, offset) + 1
    comment = _COMMENT.search(text[begin:offset])
    if comment is None:
        return None
    said = comment["said"]
    for pattern, items in ((_GPU, gpus), (_RULES, _rules), (_WORD, _words)):
        match = pattern.search(said)
        if match is not None:
            return [*items(offset - len(match[1]), offset)]
    return []


def gpus(start: int, end: int) -> Iterator[Item]:
    """The names of the catalogue."""
    from ..hardware.catalogue import gpus as known

    for gpu in known():
        yield Item(gpu.name, gpu.name, start, end, "value", f"{gpu.title}, {bytes_text(gpu.usable)} usable")


def _rules(start: int, end: int) -> Iterator[Item]:
    from ..rules.load import bundled

    for rule in bundled()[0]:
        yield Item(rule.name, rule.name, start, end, "value", f"{rule.id} {rule.severity}")


def _words(start: int, end: int) -> Iterator[Item]:
    for word, meaning in WORDS.items():
        yield Item(word, word, start, end, "word", meaning)
