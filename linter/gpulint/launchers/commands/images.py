"""Container images: the program that one starts, the version that its tag states, the device it is made for."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from ...source.tables import read_table
from ...upstream.behaviour import at_release


def entrypoint(image: str) -> list[str]:
    """The program that an image starts by itself, as far as `images.json` knows it; empty otherwise."""
    name = repository(image)
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
    name = repository(image)
    return bool(entrypoint(image)) or any(re.search(row["image"], name) for row in _rows("versions"))


def why_alone(image: str) -> str:
    """Why an image that is given no command is no job: "" where `images.json` does not know it."""
    name = repository(image)
    return next((str(row["reason"]) for row in _rows("alone") if re.search(row["image"], name)), "")


def tag(image: str) -> str | None:
    """The version that an image's tag states: `vllm/vllm-openai:v0.9.1` -> `0.9.1`."""
    match = re.search(r":v?(\d+\.\d+(?:\.\d+)?(?:\.post\d+)?)", image.rpartition("/")[2])
    return match[1] if match else None


def versions(image: str) -> dict[str, str]:
    """The version of the program that an image is named after: `vllm/vllm-openai:v0.9.1` -> vllm 0.9.1.

    With packages beside it that decide about memory, where a program does not require them.
    """
    stated, name = tag(image), repository(image)
    for row in _rows("ships"):
        if stated and re.search(row["image"], name):
            whole = f"{stated}."
            found = next((version for start, version in row["releases"].items() if whole.startswith(start)), None)
            return {row["program"]: found} if found else {}
    for row in _rows("versions"):
        match = re.search(row["image"], name)
        if match is None:
            continue
        if "version" in match.groupdict():
            stated = match["version"].replace("-", ".")
        return {row["program"]: stated, **_carried(name, row["program"], stated)} if stated else {}
    return {}


def _carried(name: str, program: str, version: str) -> dict[str, str]:
    rows = [row for row in _rows("carries") if row["program"] == program and re.search(row["image"], name)]
    return {row["package"]: row["version"] for row in at_release(rows, version)}


def elsewhere(image: str) -> str:
    """The device that an image is made for, where that is no GPU: `opea/vllm-gaudi:1.22.0` -> Intel Gaudi; else ""."""
    name = image.partition("@")[0].lower()
    return next((row["device"] for row in _rows("devices") if re.search(row["image"], name)), "")


def not_estimated(device: str) -> str:
    """Why what runs on such a device is no job."""
    return f"its servers run on {device}, which gpulint does not estimate"


def repository(image: str) -> str:
    """An image's name without its tag and digest."""
    name = image.partition("@")[0]
    return name.rpartition(":")[0] if ":" in name.rpartition("/")[2] else name


@cache
def _rows(section: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = read_table(__file__, "images.json")[section]
    return rows
