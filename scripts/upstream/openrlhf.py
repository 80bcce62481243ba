"""The options of OpenRLHF's training programs; argparse refuses others."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from .schema import section, whole

if TYPE_CHECKING:
    from .schema import Json
    from .source import Source


def openrlhf(source: Source) -> Json:
    """The options of `cli/train_*.py`, their dots as sections."""
    properties: dict[str, Json] = {}

    def put(name: str, schema: Json) -> None:
        node, parts = properties, name.split(".")
        for part in parts[:-1]:
            node = node.setdefault(part, section({}, "refused"))["properties"]
        node.setdefault(parts[-1], schema)

    for path in source.below("cli/train_"):
        for name, schema in options(ast.parse(source.need(path))):
            put(name, schema)
    return whole("OpenRLHF command", properties, "refused")


def options(tree: ast.Module) -> list[tuple[str, Json]]:
    """The long options of `add_argument` calls with their kind; `{prefix}` in a name is that of actor and critic."""
    found: list[tuple[str, Json]] = []
    kinds = {"int": "integer", "float": "number"}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".add_argument") and node.args):
            continue
        keywords = {word.arg: ast.unparse(word.value) for word in node.keywords}
        schema: Json = {"type": kinds[keywords["type"]]} if keywords.get("type") in kinds else {}
        if "nargs" in keywords:
            schema = {}
        if keywords.get("action") in ("'store_true'", "'store_false'"):
            schema = {"type": "boolean"}
        first = node.args[0]
        texts = [first.value] if isinstance(first, ast.Constant) and isinstance(first.value, str) else []
        if isinstance(first, ast.JoinedStr):
            written = "".join(str(part.value) if isinstance(part, ast.Constant) else "\0" for part in first.values)
            texts = [written.replace("\0", prefix) for prefix in ("actor", "critic")]
        found += [(text[2:], schema) for text in texts if text.startswith("--")]
    return found
