"""Container images: the program that one starts, the device it is made for."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from ...repository.images import name_of, named_after
from ...source.tables import read_table


def entrypoint(image: str) -> list[str]:
    """The program that an image starts by itself, as far as `images.json` knows it; empty otherwise."""
    name = name_of(image)
    for row in _rows("images"):
        ends = any(name == end or name.endswith("/" + end) for end in row["ends"])
        if row.get("tag", "") not in image.removeprefix(name).partition("@")[0]:
            continue
        if ends or any(part in name for part in row.get("holds", ())):
            command: list[str] = row["command"]
            return command
    return []


def upstream(image: str) -> bool:
    """Whether an image is a program's own, as far as `images.json` knows it; others may be built from any fork."""
    return bool(entrypoint(image)) or named_after(image)


def why_alone(image: str) -> str:
    """Why an image that is given no command is no job: "" where `images.json` does not know it."""
    name = name_of(image)
    return next((str(row["reason"]) for row in _rows("alone") if re.search(row["image"], name)), "")


def elsewhere(image: str) -> str:
    """The device that an image is made for, where that is no GPU: `opea/vllm-gaudi:1.22.0` -> Intel Gaudi; else ""."""
    name = image.partition("@")[0].lower()
    return next((row["device"] for row in _rows("devices") if re.search(row["image"], name)), "")


def not_estimated(device: str) -> str:
    """Why what runs on such a device is no job."""
    return f"its servers run on {device}, which gpulint does not estimate"


@cache
def _rows(section: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = read_table(__file__, "images.json")[section]
    return rows
