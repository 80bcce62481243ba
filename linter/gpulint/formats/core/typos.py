"""Names and words that were probably meant: how near two of them are, and the problems that say which one is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ...source.closest import closest
from .format import Problem

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ...source.node import Entry

MAX_LENGTH = 80
"""A longer key or word gets no did-you-mean."""

SHORT = 5
"""A shorter key with a wrong letter may be any other word."""

SHORT_WORD = 6
"""From this length on two wrong letters of a word may be slips."""


_DEGREES = {
    "tensor": ("tp", "tp_size", "tensor_parallel", "tensor_parallel_size", "tensor_model_parallel_size"),
    "pipeline": ("pp", "pp_size", "pipeline_parallel", "pipeline_parallel_size", "pipeline_model_parallel_size"),
    "data": ("dp", "dp_size", "data_parallel", "data_parallel_size"),
    "context": ("cp", "cp_size", "context_parallel", "context_parallel_size"),
    "expert": (
        "ep", "ep_size", "expert_parallel", "expert_parallel_size", "moe_expert_parallel_size",
        "expert_model_parallel_size",
    ),
}  # fmt: skip
"""What tools call the same degree of parallelism."""


def same_degree(key: str, known: Collection[str]) -> str:
    """The known key for the degree of parallelism that `key` is another tool's word for; "" for none."""
    spelled = key.replace("-", "_").lower()
    words = next((words for words in _DEGREES.values() if spelled in words), ())
    return next((name for name in known if name.replace("-", "_") in words), "")


def begun(key: str, known: Collection[str]) -> list[str]:
    """The known keys that begin with the words of `key`."""
    spelled = key.replace("-", "_") + "_"
    return [name for name in known if name.replace("-", "_").startswith(spelled)] if len(spelled) > 2 else []


def nearest(key: str, known: Collection[str]) -> str:
    """The known key that `key` was probably meant to be; "" when none comes near."""
    if len(key) > MAX_LENGTH:
        return ""
    spelled = key.replace("-", "_").lower()
    for name in known:
        if name.replace("-", "_").lower() == spelled:
            return name
    matches = closest(key, (name for name in known if len(name) <= MAX_LENGTH), 1, 0.8)
    return matches[0] if matches else ""


def slip(key: str, name: str) -> bool:
    """Whether `key` is `name` but for a slip of the hand: one letter more, less, other, or swapped with the next.

    Not where both may well be words: another ending (`profile`, `profiler`), beginning (`patch_size`, `batch_size`) or
    digit (`load_in_4bit`), or a short one. Such a key is as likely one of another release or fork.
    """
    key, name = key.replace("-", "_").lower(), name.replace("-", "_").lower()
    if min(len(key), len(name)) < SHORT or abs(len(key) - len(name)) > 1 or key[0] != name[0]:
        return False
    longer = max(key, name, key=len)
    inflected = longer[:-1] in (key, name) and re.search(r"[^s]s$|e[dr]$", longer)
    if inflected or re.sub(r"\d", "", key) == re.sub(r"\d", "", name):
        return key == name
    return len(key) <= MAX_LENGTH and slips(key, name) <= 1


def nearest_word(text: str, known: Sequence[str]) -> str:
    """The known word that `text` is but for a slip or two of letters, "" for none; figures are never slips."""
    if len(text) > MAX_LENGTH:
        return ""
    digits = _digits(text)
    allowed = 1 if len(text) < SHORT_WORD else 2
    near = [word for word in known if abs(len(word) - len(text)) <= allowed and _digits(word) == digits]
    found = [(slips(text.lower(), word.lower()), word) for word in near]
    close = [(count, word) for count, word in found if count <= allowed and count < len(word) - 1]
    return min(close)[1] if close else ""


def slips(one: str, other: str) -> int:
    """Letters that were left out, added, mistaken or swapped between two words (optimal string alignment)."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, left in enumerate(one, 1):
        last, before, row = before, row, [i]
        for j, right in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (left != right))
            if i > 1 and j > 1 and left == other[j - 2] and one[i - 2] == right:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
    return row[-1]


def _digits(text: str) -> str:
    return "".join(letter for letter in text if letter.isdigit())


def unknown_key(
    entry: Entry, dotted: str, suggestion: str, treatment: str, upstream: str, path: str | None = None
) -> Problem:
    """The problem of a key that upstream does not know; `suggestion` is the dotted key that was probably meant."""
    spelling = _spelling(dotted, suggestion)
    values = {
        "suggestion": suggestion,
        "spelling": spelling,
        "treatment": treatment,
        "slip": "yes" if spelling and slip(dotted.rpartition(".")[2], spelling) else "no",
        "stated": "no",
        "since": "",
        "until": "",
        "upstream": upstream,
    }
    return Problem("unknown-key", dotted, entry.key.span, values, entry.key.path or path)


def old_key(entry: Entry, dotted: str, part: Mapping[str, Any], upstream: str, path: str | None = None) -> Problem:
    """The problem of a key that is renamed or gone, as its property in the schema says."""
    successor: str = part.get("x-replacement", "")
    if "_" in dotted and "-" not in dotted:
        successor = successor.replace("-", "_")
    replacement = successor if "." in successor else beside(dotted, successor)
    values = {
        "replacement": replacement,
        "spelling": _spelling(dotted, replacement),
        "instead": part.get("x-instead", ""),
        "treatment": "refused" if "x-removed" in part else "ignored" if "x-dropped" in part else "accepted",
        "reason": part.get("x-removed", "") or part.get("x-dropped", ""),
        "upstream": upstream,
        "stated": "no",
    }
    return Problem("deprecated-key", dotted, entry.key.span, values, entry.key.path or path)


def beside(dotted: str, name: str) -> str:
    """The dotted place of a key beside another one; "" for no key."""
    section = dotted.rpartition(".")[0]
    return f"{section}.{name}" if section and name else name


def _spelling(dotted: str, wanted: str) -> str:
    """The name to give a key in its place so that it becomes the wanted one; "" where it would have to move."""
    section, _, name = wanted.rpartition(".")
    return name if section == dotted.rpartition(".")[0] else ""
