"""Architecture tables from generated ones: rows as the linter reads them, with role, `linear` and module order.

The input maps a model type to `{class, alias, defaults, derive, let, stacks, tensors}`, shapes written as text
(`"[1, 2*moe_intermediate_size, hidden_size]"`, first the number of inner copies in a stacked row). Roles come from
`model_roles.json`; `linear` and the order of the rows come from the modules that Transformers builds.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from . import architecture_trace

HERE = Path(__file__).resolve().parent
_ROLES = [
    (re.compile(pattern), role)
    for pattern, role in json.loads((HERE / "model_roles.json").read_text())["roles"]
]  # fmt: skip

Table = dict[str, Any]


def role(name: str) -> str:
    """The role of a tensor by its state-dict name."""
    return next((found for pattern, found in _ROLES if pattern.search(name)), "other")


def convert(model_type: str, generated: Table) -> Table:
    """One table in the form of `architectures.jsonl`, without `linear`."""
    stacks = {prefix: _length(rule) for prefix, rule in generated["stacks"].items()}
    table: Table = {"model_type": model_type, "class": generated["class"]}
    for key in ("alias", "defaults", "let"):
        if generated.get(key):
            table[key] = dict(sorted(generated[key].items()))
    if generated.get("derive"):
        table["derive"] = {name: _derive(rule) for name, rule in sorted(generated["derive"].items())}
    table["stacks"] = {prefix: length for prefix, length in stacks.items() if length is not None}
    table["tensors"] = [
        row
        for old in generated["tensors"]
        if "stack" not in old or stacks.get(old["stack"]) is not None
        for row in _rows(old)
    ]
    return table


def _length(rule: Any) -> str | None:
    if rule is None or isinstance(rule, str):
        return rule
    (when, first), (_, second) = rule
    return f"({first[0]} if {when} else {second[0]})"


def _derive(rule: Table) -> Table:
    if "list" not in rule:
        return {"cases": rule["cases"]}
    length = rule["list"]["len"]
    if not isinstance(length, str):
        length = [[when, expression[0]] for when, expression in length]
    return {"list": {"len": length, "items": rule["list"]["items"]}}


def split_dims(text: str) -> list[str]:
    """The dimensions of `"[a, f(b, c)]"`."""
    dims, depth, start = [], 0, 1
    for at, char in enumerate(text[1:-1], 1):
        depth += (char in "([") - (char in ")]")
        if char == "," and depth == 0:
            dims.append(text[start:at].strip())
            start = at + 1
    dims.append(text[start:-1].strip())
    return dims


def _rows(old: Table) -> list[Table]:
    name = old["name"]
    cases = [[when, split_dims(shape)] for when, shape in old.get("cases", [["True", old.get("shape")]])]
    names = [name]
    if "stack" in old:
        counts = {dims[0] for _, dims in cases}
        cases = [[when, dims[1:]] for when, dims in cases]
        if counts != {"1"}:
            count = counts.pop()
            if count.isdigit():
                names = [name.replace("{1}", str(copy)) for copy in range(int(count))]
            else:
                cases = [[when, [count, *dims]] for when, dims in cases]
                names = [name.replace(".{1}", "")]
    rows = []
    for each in names:
        row: Table = {"name": each, "role": role(each)}
        if old.get("buffer"):
            row["buffer"] = True
        if old.get("when", "True") != "True":
            row["when"] = old["when"]
        if len(cases) == 1:
            row["shape"] = cases[0][1]
        else:
            row["cases"] = cases
        rows.append(row)
    return rows


def annotate(table: Table, configs: list[tuple[Table, str]]) -> list[str]:
    """Set `linear` and `transposed` order of each row from built models; returns names that no config makes."""
    kinds: dict[str, str] = {}
    order: list[str] = []
    for config, auto_class in configs:
        try:
            built = architecture_trace.build(config, auto_class)
        except Exception as error:
            print(f"   {type(error).__name__}: {str(error)[:100]}")
            continue
        last = -1
        for built_row in built:
            name = architecture_trace.template(built_row.name)[0]
            kinds.setdefault(name, built_row.kind)
            if name not in order:
                order.insert(last + 1, name)
            last = order.index(name)
    unseen = []
    for row in table["tensors"]:
        kind = kinds.get(row["name"])
        if kind in ("Linear", "Conv1D") and row["name"].endswith(".weight"):
            row["linear"] = True
        if kind == "Conv1D" and "shape" in row and len(row["shape"]) == 2:
            row["shape"] = row["shape"][::-1]
        elif kind == "Conv1D" and "cases" in row:
            row["cases"] = [[when, dims[::-1]] for when, dims in row["cases"]]
        if kind is None:
            unseen.append(row["name"])
    table["tensors"].sort(key=lambda row: order.index(row["name"]) if row["name"] in order else len(order))
    return unseen


def change(table: Table, changes: Table) -> None:
    """Hand corrections of a generated table: entries of `defaults`, `alias`, `let` and `derive` are added or
    replaced, `dims` replaces dimensions (`name=old` to new), `rows` whole shapes and `when` conditions by regular
    expression over names, `frozen` ones are never trained, `tensors` are added, those whose name `drop` is found in go,
    `approximate` is an expression for the configs whose table is not exact.
    """
    for key in ("alias", "defaults", "let", "derive", "variants", "stacks"):
        if key in changes:
            table[key] = {**table.get(key, {}), **changes[key]}
    if "approximate" in changes:
        table["approximate"] = changes["approximate"]
    if "drop" in changes:
        table["tensors"] = [row for row in table["tensors"] if not re.search(changes["drop"], row["name"])]
    for row in table.get("tensors", ()):
        _change_row(row, changes)
    if "tensors" in changes:
        table["tensors"] += changes["tensors"]


def _change_row(row: Table, changes: Table) -> None:
    for pattern, shape in changes.get("rows", {}).items():
        if re.search(pattern + "$", row["name"]):
            row.pop("cases", None)
            row["shape"] = shape
    for pattern, new in changes.get("dims", {}).items():
        name, _, old = pattern.rpartition("=")
        if re.search(name, row["name"]):
            for case in row.get("cases", []):
                case[1] = [dim.replace(old, new) for dim in case[1]]
            if "shape" in row:
                row["shape"] = [dim.replace(old, new) for dim in row["shape"]]
    if "frozen" in changes and re.search(changes["frozen"], row["name"]):
        row["frozen"] = True
    for pattern, when in changes.get("when", {}).items():
        if re.search(pattern, row["name"]):
            row["when"] = when
