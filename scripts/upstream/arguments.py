"""Reads the argument classes of an upstream package with `ast`, without importing it, as JSON Schema properties.

What is understood: dataclass fields with their annotations, defaults, `choices` in their metadata, string enums, and
the option names of `add_argument` calls. What is not understood becomes a property that allows anything.
"""

from __future__ import annotations

import ast
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .schema import Json
    from .source import Source

DEFAULTS = {"default_optim": "adamw_torch_fused"}
"""transformers/training_args.py sets `default_optim` to this for torch >= 2.8."""


def fields(cls: ast.ClassDef, enums: dict[str, Json]) -> dict[str, Json]:
    """The schema of each annotated field that a parser fills (`init=False` and private ones are none)."""
    out: dict[str, Json] = {}
    for node in cls.body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        name = node.target.id
        if name.startswith("_") or ast.unparse(node.annotation).startswith("ClassVar"):
            continue
        keywords = {k.arg: k.value for k in node.value.keywords} if isinstance(node.value, ast.Call) else {}
        if isinstance(node.value, ast.Call) and ast.unparse(keywords.get("init", ast.Constant(True))) == "False":
            continue
        schema = annotation(node.annotation, enums)
        value = keywords.get("default") if isinstance(node.value, ast.Call) else node.value
        if isinstance(node.value, ast.Call) and "default_factory" in keywords:
            value = factory_value(keywords["default_factory"])
        if value is not None:
            known, default = literal(value, enums)
            if known:
                schema["default"] = default
        metadata = keywords.get("metadata")
        choices = choices_of(metadata) if isinstance(metadata, ast.Dict) else None
        if choices and "enum" not in schema:
            schema["enum"] = choices + ([None] if "null" in as_list(schema.get("type")) else [])
        out[name] = schema
    return out


def choices_of(metadata: ast.Dict) -> list[Any] | None:
    """The `choices` of a field's metadata."""
    for key, value in zip(metadata.keys, metadata.values, strict=True):
        if isinstance(key, ast.Constant) and key.value == "choices":
            try:
                return list(ast.literal_eval(value))
            except ValueError:
                return None
    return None


def factory_value(node: ast.expr) -> ast.expr | None:
    """What a `default_factory` makes, as an expression."""
    if isinstance(node, ast.Lambda):
        return node.body
    return {"list": ast.List([], ast.Load()), "dict": ast.Dict([], [])}.get(ast.unparse(node))


def literal(node: ast.expr, enums: dict[str, Json]) -> tuple[bool, Any]:
    """Whether an expression has a value that JSON can say, and the value."""
    if isinstance(node, ast.Name) and node.id in DEFAULTS:
        return True, DEFAULTS[node.id]
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in enums:
        return True, enums[node.value.id][node.attr]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        (left_known, left), (right_known, right) = literal(node.left, enums), literal(node.right, enums)
        return left_known and right_known, left * right if left_known and right_known else None
    try:
        value = ast.literal_eval(node)
        json.dumps(value)
    except (ValueError, TypeError):
        return False, None
    return True, value


_TYPES = {"int": "integer", "float": "number", "bool": "boolean", "str": "string", "None": "null", "list": "array",
          "List": "array", "tuple": "array", "set": "array", "dict": "object", "Dict": "object"}  # fmt: skip


def annotation(node: ast.expr, enums: dict[str, Json]) -> Json:
    """The JSON Schema of an annotation; {} (anything) for what it does not know.

    A list may be written as one value and a mapping as JSON text or a path: argparse takes both.
    """
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return annotation(ast.parse(node.value, mode="eval").body, enums)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return union([annotation(node.left, enums), annotation(node.right, enums)])
    if isinstance(node, ast.Subscript):
        head = ast.unparse(node.value).rpartition(".")[2]
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if head == "Literal":
            return enumeration([ast.literal_eval(item) for item in inner])
        if head == "Optional":
            return union([annotation(inner[0], enums), {"type": "null"}])
        if head == "Union":
            return union([annotation(item, enums) for item in inner])
        if head == "Annotated":
            return annotation(inner[0], enums)
        kind = _TYPES.get(head)
        return {"type": [kind, "string"]} if kind in ("array", "object") else {}
    text = ast.unparse(node).rpartition(".")[2]
    if text in enums:
        return enumeration(list(enums[text].values()))
    kind = _TYPES.get(text)
    if kind in ("array", "object"):
        return {"type": [kind, "string"]}
    return {"type": kind} if kind else {}


def as_list(value: Any) -> list[Any]:
    """A value as a list; none of it for None."""
    return value if isinstance(value, list) else [] if value is None else [value]


def union(parts: list[Json]) -> Json:
    """The schema that accepts what any of several accepts."""
    if any(not part for part in parts):
        return {}
    types = list(dict.fromkeys(name for part in parts for name in as_list(part.get("type"))))
    if all("enum" in part or part.get("type") == "null" for part in parts):
        values = list(dict.fromkeys(item for part in parts for item in part.get("enum", [None])))
        return {"type": types[0] if len(types) == 1 else types, "enum": values}
    return {"type": types[0] if len(types) == 1 else types}


def enumeration(values: list[Any]) -> Json:
    """A schema of listed values; their kind stands beside them, because most parsers check no more than that."""
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
    types = list(dict.fromkeys(kinds[type(value)] for value in values))
    return {"type": types[0] if len(types) == 1 else types, "enum": values}


def enum_values(source: Source, path: str) -> dict[str, Json]:
    """The members of every string enum of a file."""
    out: dict[str, Json] = {}
    for name, cls in source.classes(path).items():
        if any("Enum" in ast.unparse(base) for base in cls.bases):
            out[name] = {
                node.targets[0].id: node.value.value
                for node in cls.body
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
                and isinstance(node.value, ast.Constant)
            }  # fmt: skip
    return out


def option_names(source: Source, path: str) -> list[str]:
    """The long options of every `add_argument` call of a file, in order, without their dashes."""
    tree = source.tree(path)
    names: list[str] = []
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            names += [
                arg.value[2:]
                for arg in node.args
                if isinstance(arg, ast.Constant) and isinstance(arg.value, str) and arg.value.startswith("--")
            ]
    return list(dict.fromkeys(names))


def kind_only(value: Json) -> Json:
    """Only the kind of numbers and switches is checked; lists and strings stand for each other in the files."""
    return value if value.get("type") in ("integer", "number", "boolean") else {}
