"""Reads the config classes of an upstream with `ast`, without importing them, as JSON Schema.

What is understood: pydantic models and dataclasses with their bases, `Field(...)`, `field(...)`, `Annotated`, unions,
`Literal`, enums, containers, aliases and `deprecated=`. What is not understood becomes a schema that allows anything,
so a schema made here never refuses what upstream takes.
"""

from __future__ import annotations

import ast
from typing import Any

from .schema import Json as JsonObject

_SCALARS = {
    "int": "integer", "float": "number", "bool": "boolean", "str": "string", "Path": "string",
    "PositiveInt": "integer", "NonNegativeInt": "integer", "StrictBool": "boolean",
}  # fmt: skip
_LISTS = {"list", "List", "Sequence", "tuple", "Tuple", "set", "Set", "Iterable"}
_MAPPINGS = {"dict", "Dict", "Mapping"}
_CONSTRUCTORS = {"Field", "field", "HfArg"}


class Classes:
    """The classes and constants of some modules, and the JSON Schemas of the ones that get used."""

    def __init__(self, sources: dict[str, str], unknown_keys: str = "ignored") -> None:
        """`sources` are module texts by name; `unknown_keys` is how models without `extra=` treat unknown keys."""
        self.unknown_keys = unknown_keys
        self.classes: dict[str, ast.ClassDef] = {}
        self.constants: dict[str, ast.expr] = {}
        self.definitions: dict[str, JsonObject] = {}
        for name in sorted(sources):
            for node in ast.parse(sources[name]).body:
                if isinstance(node, ast.ClassDef):
                    self.classes.setdefault(node.name, node)
                elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    self.constants.setdefault(node.targets[0].id, node.value)
                elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
                    self.constants.setdefault(node.target.id, node.value)

    def properties(self, name: str) -> JsonObject:
        """The properties of a class, those of its bases first; aliases stand beside the field's own name."""
        node = self.classes.get(name)
        if node is None:
            return {}
        found: JsonObject = {}
        for base in reversed(node.bases):
            found.update(self.properties(_name(base)))
        for item in node.body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                if _name(item.annotation) == "ClassVar" or item.target.id == "model_config":
                    continue
                schema, aliases = self.field(item.annotation, item.value)
                found[item.target.id] = schema
                for alias in aliases:
                    found[alias] = dict(schema)
        return found

    def object(self, name: str) -> JsonObject:
        """A class as an object schema."""
        closed = self.treatment(name)
        schema: JsonObject = {"type": "object", "properties": self.properties(name)}
        if closed:
            schema["x-unknown-keys"] = closed
        return schema

    def treatment(self, name: str) -> str:
        """`refused`, `ignored` or "" (kept) for unknown keys of a class: its `extra=`, a base's, or the usual one."""
        node = self.classes.get(name)
        if node is None:
            return self.unknown_keys
        for item in node.body:
            value = getattr(item, "value", None)
            if _target(item) == "model_config" and value is not None:
                extra = _mapping(value).get("extra")
                if extra:
                    return {"forbid": "refused", "ignore": "ignored"}.get(str(self.value(extra)), "")
        for base in node.bases:
            if _name(base) in self.classes:
                return self.treatment(_name(base))
        return self.unknown_keys

    def field(self, annotation: ast.expr, value: ast.expr | None) -> tuple[JsonObject, list[str]]:
        """The schema of one field with its default, and its aliases."""
        schema = self.annotation(annotation)
        aliases: list[str] = []
        default: Any = _ABSENT
        if isinstance(value, ast.Call) and _name(value.func) in _CONSTRUCTORS:
            default = self.value(value.args[0]) if value.args else _ABSENT
            for keyword in value.keywords:
                if keyword.arg == "default":
                    default = self.value(keyword.value)
                elif keyword.arg in ("alias", "validation_alias"):
                    aliases += self.names(keyword.value)
                else:
                    schema.update(self.deprecation(keyword))
        elif value is not None:
            default = self.value(value)
        if default is not _ABSENT and default is not Ellipsis and _is_plain(default):
            if default is None:
                schema = {**_union([_plain_part(schema), {"type": "null"}]), **_annotations(schema)}
            schema["default"] = default
        return schema, aliases

    def deprecation(self, keyword: ast.keyword) -> JsonObject:
        """What `deprecated=` or DeepSpeed's `json_schema_extra={"deprecated": True, "new_param": ...}` says."""
        if keyword.arg == "deprecated":
            return {"deprecated": True}
        extra = _mapping(keyword.value) if keyword.arg == "json_schema_extra" else {}
        if "deprecated" not in extra:
            return {}
        if "new_param" not in extra:
            return {"deprecated": True}
        successor = str(self.value(extra["new_param"]))
        if "new_param_fn" in extra or " " in successor:
            return {"deprecated": True, "x-instead": f"`{'` or `'.join(successor.split(' or '))}` says it now"}
        return {"deprecated": True, "x-replacement": successor}

    def names(self, node: ast.expr) -> list[str]:
        """The strings of an alias or of `AliasChoices(...)`."""
        parts = node.args if isinstance(node, ast.Call) else [node]
        return [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]

    def annotation(self, node: ast.expr) -> JsonObject:
        """A type annotation as a schema."""
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                return self.annotation(ast.parse(node.value, mode="eval").body)
            return {"type": "null"} if node.value is None else {}
        if isinstance(node, ast.BinOp):
            return _union([self.annotation(node.left), self.annotation(node.right)])
        if isinstance(node, ast.Subscript):
            return self.subscript(node)
        name = _name(node)
        if name in _SCALARS:
            return {"type": _SCALARS[name]}
        if name in _LISTS:
            return {"type": "array"}
        if name in _MAPPINGS:
            return {"type": "object"}
        if name in self.classes:
            return self.reference(name)
        if name in self.constants and isinstance(self.constants[name], (ast.Subscript, ast.BinOp)):
            return self.annotation(self.constants[name])
        return {}

    def subscript(self, node: ast.Subscript) -> JsonObject:
        """`Optional[X]`, `Union[...]`, `Literal[...]`, `Annotated[X, ...]` and containers."""
        name = _name(node.value)
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if name == "Optional":
            return _union([self.annotation(parts[0]), {"type": "null"}])
        if name == "Union":
            return _union([self.annotation(part) for part in parts])
        if name == "Literal":
            return {"enum": [self.value(part) for part in parts]}
        if name in ("Annotated", "Required", "NotRequired"):
            return self.annotation(parts[0])
        if name in _LISTS:
            items = self.annotation(parts[0]) if name not in ("tuple", "Tuple") else {}
            return {"type": "array", "items": items} if items else {"type": "array"}
        if name in _MAPPINGS:
            values = self.annotation(parts[1]) if len(parts) > 1 else {}
            return {"type": "object", "additionalProperties": values} if values else {"type": "object"}
        return {}

    def reference(self, name: str) -> JsonObject:
        """A class that a field names: an enum by its values, a model by `$ref`."""
        node = self.classes[name]
        if any(_name(base).endswith("Enum") for base in node.bases):
            values = [self.value(item.value) for item in node.body if isinstance(item, ast.Assign)]
            return {"enum": values} if values and all(_is_plain(value) for value in values) else {}
        if name not in self.definitions:
            self.definitions[name] = {}
            self.definitions[name] = self.object(name)
        return {"$ref": f"#/$defs/{name}"}

    def value(self, node: ast.expr) -> Any:
        """A literal, a number like `pp_int(5e8)`, a named constant or an enum member; an object for anything else."""
        if isinstance(node, ast.Name) and node.id in self.constants:
            return self.value(self.constants[node.id])
        if isinstance(node, ast.Attribute) and _name(node.value) in self.classes:
            for item in self.classes[_name(node.value)].body:
                if _target(item) == node.attr and isinstance(item, ast.Assign):
                    return self.value(item.value)
        if isinstance(node, ast.Call) and _name(node.func) in ("pp_int", "int") and node.args:
            number = self.value(node.args[0])
            return int(number) if isinstance(number, (int, float)) else _ABSENT
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError):
            return _ABSENT


class _Absent:
    """A value that is not known statically."""


_ABSENT = _Absent()


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript):
        return _name(node.value)
    return ""


def _target(node: ast.stmt) -> str:
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    return ""


def _mapping(node: ast.expr) -> dict[str, ast.expr]:
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return {str(key.value): value for key, value in pairs if isinstance(key, ast.Constant)}
    if isinstance(node, ast.Call):
        return {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
    return {}


def _union(parts: list[JsonObject]) -> JsonObject:
    """Several schemas as one: simple types in one list, the rest in `anyOf`; anything goes if one part allows it."""
    flat: list[JsonObject] = []
    for part in parts:
        flat += part["anyOf"] if set(part) == {"anyOf"} else [part]
    if any(not part for part in flat):
        return {}
    types: list[str] = []
    others: list[JsonObject] = []
    for part in flat:
        if set(part) == {"type"}:
            names = part["type"] if isinstance(part["type"], list) else [part["type"]]
            types += [name for name in names if name not in types]
        elif part not in others:
            others.append(part)
    simple: list[JsonObject] = [{"type": types[0] if len(types) == 1 else types}] if types else []
    whole = others + simple
    return whole[0] if len(whole) == 1 else {"anyOf": whole}


def _plain_part(schema: JsonObject) -> JsonObject:
    return {key: value for key, value in schema.items() if key not in _annotations(schema)}


def _annotations(schema: JsonObject) -> JsonObject:
    return {key: value for key, value in schema.items() if key in ("deprecated", "x-replacement", "x-instead")}


def _is_plain(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_plain(item) for item in value)
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    return value is None or isinstance(value, (bool, int, float, str))
