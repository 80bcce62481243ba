"""Files that a config names: found in the project, known because a tool ships them, or missing."""

from __future__ import annotations

import json
import os
import re
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ...source.document import Document, SourceError
from ...source.node import Entry, Node, Span
from .format import Problem

if TYPE_CHECKING:
    from .format import Project

JsonObject = dict[str, Any]

_NOWHERE = Span(1, 1, 1, 1, 0, 0)


class Found(NamedTuple):
    """What became of a reference.

    document  the file's tree; for a shipped file one made from the facts in `shipped.json`, without places
    shipped   `axolotl 0.19.0` when the file is known because that tool ships it and it is not in the project
    reason    why there is no document: "not found", or what was wrong with the file
    """

    document: Document | None
    shipped: str = ""
    reason: str = ""


def find(reference: str, from_path: str, project: Project) -> Found:
    """The file that `from_path` names as `reference`.

    A file of the project wins; then the files that axolotl and LLaMA-Factory ship, by the end of the path.
    """
    try:
        document = project.open(reference, from_path)
    except SourceError as error:
        return Found(None, reason=str(error))
    if document is not None:
        return Found(document)
    ending = "/" + reference.replace("\\", "/").lstrip("./")
    known = next((facts for name, facts in _shipped().items() if ending.endswith("/" + name)), None)
    if known is not None:
        path = f"{reference} (as {known['tool']} {known['version']} ships it)"
        return Found(plain_document(known["config"], path), shipped=f"{known['tool']} {known['version']}")
    return Found(None, reason="not found")


def unresolved(entry: Entry, key: str, reference: str, found: Found, assumption: str) -> Problem:
    """The problem to report for a reference without a document; `assumption` says what stands in."""
    values = {"reference": reference, "path": reference, "reason": found.reason, "assumption": assumption}
    return Problem("unresolved-reference", key, entry.value.span, values, entry.key.path)


def plain_document(value: JsonObject, path: str) -> Document:
    """A document of plain values that stand nowhere."""
    return Document(path, "json", "", [plain_node(value)], [], [])


def plain_node(value: Any) -> Node:
    """A tree of plain values that stand nowhere."""
    if isinstance(value, dict):
        entries = [Entry(plain_node(key), plain_node(item)) for key, item in value.items()]
        return Node("mapping", entries, _NOWHERE)
    if isinstance(value, list):
        return Node("sequence", [plain_node(item) for item in value], _NOWHERE)
    return Node("scalar", value, _NOWHERE, json.dumps(value))


class NameHint(NamedTuple):
    """What the name of a DeepSpeed file says: the ZeRO stage, and whether it offloads."""

    stage: int | None
    offload: bool


def hint_from_name(reference: str) -> NameHint:
    """What people put into the name of a DeepSpeed file: `ds_z3_offload.json` -> stage 3 with offload."""
    name = os.path.basename(reference.replace("\\", "/")).lower()
    match = re.search(r"(?:zero|stage|(?<![a-z])z)[-_]?(?:stage[-_]?)?([0-3])(?![0-9])", name)
    return NameHint(int(match[1]) if match else None, "offload" in name and "nooffload" not in name.replace("_", ""))


@cache
def _shipped() -> dict[str, JsonObject]:
    with open(os.path.join(os.path.dirname(__file__), "shipped.json"), encoding="utf-8") as file:
        files: dict[str, JsonObject] = json.load(file)["files"]
    return files


def is_here(document: Document, path: str, key: str) -> bool:
    """Whether a file that a tool ships is here: beside the config, in a folder above it, where the tool is run, or
    where `key` names a file of its folder already."""
    entry = document.root.entry(key)
    named = entry.value.value if entry is not None else None
    if isinstance(named, str) and os.path.dirname(named) == os.path.dirname(path):
        return True
    folder, above = "", os.path.dirname(os.path.abspath(document.path))
    while folder != above:
        folder, above = above, os.path.dirname(above)
        if os.path.isfile(os.path.join(folder, path)):
            return True
    return False
