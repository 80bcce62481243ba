"""The releases that a container image's name and tag state."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from ..source.tables import read_table
from ..upstream.behaviour import at_release

_RELEASE = r"\d{1,2}\.\d+(?:\.\d+)?(?:\.?(?:post|rc)\d+)?"
_PLAIN = re.compile(rf":v?({_RELEASE})")
_INSIDE = re.compile(rf"(?<![A-Za-z0-9.])v({_RELEASE})(?![0-9.])")
"""A release inside a longer tag wears a `v`: other numbers there are dates, CUDA and Python."""


def tag(image: str) -> str | None:
    """The release that a tag states: `vllm-openai:v0.9.1` and `vllm-openai:kv-v0.9.1-20250401` -> `0.9.1`."""
    name = image.partition("@")[0].rpartition("/")[2]
    match = _PLAIN.search(name)
    if match:
        return match[1]
    inside = _INSIDE.findall(name.partition(":")[2])
    return inside[0] if len(set(inside)) == 1 else None


def name_of(image: str) -> str:
    """An image's name without its tag and digest."""
    name = image.partition("@")[0]
    return name.rpartition(":")[0] if ":" in name.rpartition("/")[2] else name


def versions(image: str) -> dict[str, str]:
    """The release of the program that an image is named after: `vllm/vllm-openai:v0.9.1` -> vllm 0.9.1.

    With packages beside it that decide about memory, where a program does not require them.
    """
    stated, name = tag(image), name_of(image)
    for row in rows("ships"):
        if stated and re.search(row["image"], name):
            whole = f"{stated}."
            found = next((version for start, version in row["releases"].items() if whole.startswith(start)), None)
            return {row["program"]: found} if found else {}
    for row in rows("versions"):
        match = re.search(row["image"], name)
        if match is None:
            continue
        if "version" in match.groupdict():
            stated = match["version"].replace("-", ".")
        return {row["program"]: stated, **_carried(name, row["program"], stated)} if stated else {}
    return {}


def named_after(image: str) -> bool:
    """Whether an image is one whose tag is the release of a program."""
    name = name_of(image)
    return any(re.search(row["image"], name) for row in rows("versions"))


def _carried(name: str, program: str, version: str) -> dict[str, str]:
    carried = [row for row in rows("carries") if row["program"] == program and re.search(row["image"], name)]
    return {row["package"]: row["version"] for row in at_release(carried, version)}


@cache
def rows(section: str) -> list[dict[str, Any]]:
    """A section of the table."""
    found: list[dict[str, Any]] = read_table(__file__, "images.json")[section]
    return found
