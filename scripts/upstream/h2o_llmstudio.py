"""The config dataclasses of H2O LLM Studio."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from .arguments import fields, kind_only
from .schema import section, whole

if TYPE_CHECKING:
    from .schema import Json
    from .source import Source


def h2o_llmstudio(source: Source) -> Json:
    """The config dataclasses of every problem type; a YAML file's other keys are dropped (`config_utils.py`)."""
    classes: dict[str, ast.ClassDef] = {}
    for path in source.below("text_"):
        classes |= {f"{path.removesuffix('.py')}.{name}": cls for name, cls in source.classes(path).items()}
    sections: dict[str, dict[str, Json]] = {}
    top: dict[str, Json] = {"problem_type": {"type": "string"}}
    for name, node in classes.items():
        if not name.endswith(".ConfigProblemBase"):
            continue
        for field in node.body:
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                kind = ast.unparse(field.annotation)
                held = [cls for key, cls in classes.items() if key.endswith(f".{kind}")]
                if not held:
                    top[field.target.id] = {}
                    continue
                for cls in held:
                    own = {key: kind_only(value) for key, value in fields(cls, {}).items()}
                    merged = sections.setdefault(field.target.id, {})
                    merged |= {key: value for key, value in own.items() if key not in merged}
    top |= {name: section(own, "ignored") for name, own in sections.items()}
    return whole("H2O LLM Studio experiment", top, "ignored")
