"""The fields of GPT-NeoX's argument dataclasses; it refuses other keys."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from .classes import Classes
from .schema import whole

if TYPE_CHECKING:
    from .schema import Json
    from .source import Source


def gpt_neox(source: Source) -> Json:
    """The fields of all dataclasses in megatron/neox_arguments."""
    classes = Classes(source.texts(source.below("", "_args.py")))
    names: set[str] = set()
    for name, node in classes.classes.items():
        if any("dataclass" in ast.unparse(item) for item in node.decorator_list):
            names |= set(classes.properties(name))
    return whole("GPT-NeoX config", {name: {} for name in sorted(names)}, "refused")
