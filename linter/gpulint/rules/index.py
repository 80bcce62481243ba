"""`rules/index.json`: every bundled rule compiled, so that a run parses neither YAML nor expressions.

`scripts/build.py` writes it; a test fails when it is stale.
"""

from __future__ import annotations

import json
import os
from typing import Any

from ..source.read import read
from .compile import compile_recipes
from .load import RuleFile, read_rule_file, rule_paths, rules_folder
from .rule import Advice, RuleError


def rule_files(folder: str | None = None) -> list[RuleFile]:
    """Every rule file of a folder (the bundled one by default), whole; ids and names are unique."""
    files = [read_rule_file(path) for path in rule_paths(folder or rules_folder())]
    seen: dict[str, str] = {}
    for file in files:
        for word in (file.rule.id, file.rule.name):
            if word in seen:
                raise RuleError(file.rule.file, f"{word} is already defined in {seen[word]}")
            seen[word] = file.rule.file
    return sorted(files, key=lambda file: file.rule.id)


def recipes(folder: str | None = None) -> dict[str, Advice]:
    """The recipes of `recipes.yaml`."""
    return compile_recipes(read(os.path.join(folder or rules_folder(), "recipes.yaml")))


def index_text(folder: str | None = None) -> str:
    """The content of `index.json`: one line a rule, for readable diffs."""
    folder = folder or rules_folder()
    known = recipes(folder)
    lines: list[str] = []
    for file in rule_files(folder):
        for advice in file.rule.suggest:
            if advice.recipe and advice.recipe not in (*known, "search"):
                raise RuleError(file.rule.file, f"unknown recipe {advice.recipe}")
        fields = file.rule._asdict()
        fields["file"] = os.path.relpath(file.rule.file, folder).replace(os.sep, "/")
        fields["suggest"] = [_advice(advice) for advice in file.rule.suggest]
        del fields["cases"]
        if file.rule.cases:
            fields["cases"] = [
                case._replace(suggest=[_advice(advice) for advice in case.suggest])._asdict()  # type: ignore[arg-type]
                for case in file.rule.cases
            ]
        lines.append(json.dumps(fields, separators=(",", ":"), ensure_ascii=False))
    recipe_lines = [
        f"{json.dumps(name)}:{json.dumps(_advice(advice), separators=(',', ':'))}" for name, advice in known.items()
    ]
    body = ",\n".join(lines)
    return f'{{"rules":[\n{body}\n],\n"recipes":{{\n' + ",\n".join(recipe_lines) + "\n}}\n"


def _advice(advice: Advice) -> dict[str, Any]:
    """The fields that are not the default."""
    default = Advice()
    return {name: value for name, value in advice._asdict().items() if value != getattr(default, name)}
