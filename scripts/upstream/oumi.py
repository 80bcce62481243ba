"""The dataclasses of Oumi's configs."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from .arguments import fields
from .schema import section, whole

if TYPE_CHECKING:
    from .schema import Json
    from .source import Source


def oumi(source: Source) -> Json:
    """The dataclasses of `core/configs`; OmegaConf merges a file into them and refuses what they lack."""
    classes: dict[str, ast.ClassDef] = {}
    enums: dict[str, Json] = {}
    for path in source.below("core/configs/"):
        classes |= source.classes(path)

    def properties(name: str) -> dict[str, Json]:
        out: dict[str, Json] = {}
        for base in classes[name].bases:
            if ast.unparse(base).rpartition(".")[2] in classes:
                out |= properties(ast.unparse(base).rpartition(".")[2])
        own = fields(classes[name], enums)
        for node in classes[name].body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id in own:
                kinds = [kind for kind in re.findall(r"\w+", ast.unparse(node.annotation)) if kind in classes]
                many = re.search(r"(?i)\b(list|dict)\[", ast.unparse(node.annotation))
                bases = [ast.unparse(base) for kind in kinds for base in classes[kind].bases]
                if kinds and not many and not any("Enum" in base for base in bases):
                    own[node.target.id] = section(properties(kinds[0]), "refused")
                elif kinds or own[node.target.id].get("type") in (["array", "string"], ["object", "string"]):
                    own[node.target.id] = {}
        return out | own

    merged: dict[str, Json] = {}
    for name in ("TrainingConfig", "InferenceConfig", "EvaluationConfig"):
        merged |= {key: value for key, value in properties(name).items() if key not in merged}
    return whole("Oumi config", merged, "refused")
