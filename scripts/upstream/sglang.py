"""Every long option of `sglang serve`. Options of one meaning share `x-option`, the first of their spellings."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from .arguments import annotation, as_list, literal, option_names
from .schema import whole

if TYPE_CHECKING:
    from .schema import Json
    from .source import Source

NAMESPACES = (
    "device", "disagg", "exec_", "lora", "memory", "mm", "model", "observability", "parallel", "schedule", "serving",
    "spec",
)  # fmt: skip
"""The modules of sglang/srt/arg_groups/fields that `ServerArgs` is assembled from."""


def sglang(source: Source) -> Json:
    """One option for each annotated field of a namespace, and its aliases."""
    properties: dict[str, Json] = {}
    for module in NAMESPACES:
        for cls in source.classes(f"srt/arg_groups/fields/{module}.py").values():
            for node in cls.body:
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    properties.update(field_options(node, node.target.id))
    for name in option_names(source, "srt/server_args.py"):
        properties.setdefault(name, {})
    return whole("SGLang server arguments", properties, "refused")


def field_options(node: ast.AnnAssign, name: str) -> dict[str, Json]:
    """The options of one field `name: A[type, Arg(...)] = default`; none where it is not for the command line."""
    noted = node.annotation
    if not (isinstance(noted, ast.Subscript) and ast.unparse(noted.value) in ("A", "Annotated")):
        return {}
    parts = noted.slice.elts if isinstance(noted.slice, ast.Tuple) else [noted.slice]
    argument = next((part for part in parts[1:] if isinstance(part, ast.Call)), None)
    said = {k.arg: k.value for k in argument.keywords} if argument is not None else {}
    if name.startswith("_") or ast.unparse(said.get("no_cli", ast.Constant(False))) == "True":
        return {}
    found = annotation(parts[0], {})
    if "type_parser" in said and found:
        found = {"type": list(dict.fromkeys([*as_list(found["type"]), "string"]))}
    known, default = literal(node.value, {}) if node.value is not None else (False, None)
    if known:
        found["default"] = default
    written = ast.literal_eval(said["cli_name"]) if "cli_name" in said else "--" + name.replace("_", "-")
    aliases = ast.literal_eval(said["aliases"]) if "aliases" in said else []
    names = [option[2:] for option in (written, *aliases) if option.startswith("--")]
    same = {"x-option": names[0]} if len(names) > 1 else {}
    return {option: {**found, **same} for option in names}
