"""Every option of `lmdeploy serve api_server`: what its parser and the helpers that it calls add."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from .arguments import literal
from .schema import whole

if TYPE_CHECKING:
    from .schema import Json
    from .source import Source


def lmdeploy(source: Source) -> Json:
    """The options of `SubCliServe.add_parser_api_server`, those of `ArgumentHelper` included."""
    helpers = {
        node.name: node
        for cls in source.classes("cli/utils.py").values()
        for node in cls.body
        if isinstance(node, ast.FunctionDef)
    }
    serve = source.classes("cli/serve.py")["SubCliServe"]
    parser = next(n for n in serve.body if isinstance(n, ast.FunctionDef) and n.name == "add_parser_api_server")
    found: dict[str, Json] = {}
    for node in ast.walk(parser):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "add_argument":
                found.update(added(node))
            elif ast.unparse(node.func.value) == "ArgumentHelper" and node.func.attr in helpers:
                for inner in ast.walk(helpers[node.func.attr]):
                    if isinstance(inner, ast.Call) and ast.unparse(inner.func).endswith("add_argument"):
                        found.update(added(inner))
    return whole("LMDeploy api_server", found, "refused")


def added(call: ast.Call) -> dict[str, Json]:
    """The option of one `add_argument` call with its type and default."""
    names = [ast.literal_eval(arg) for arg in call.args if isinstance(arg, ast.Constant)]
    said = {k.arg: k.value for k in call.keywords}
    kinds = {"int": "integer", "float": "number", "str": "string"}
    kind = kinds.get(ast.unparse(said["type"])) if "type" in said else None
    found: Json = {"type": kind} if kind else {}
    if "action" in said and "store_true" in ast.unparse(said["action"]):
        found = {"type": "boolean"}
    if "nargs" in said:
        found = {"type": ["array", *([kind] if kind else ["string"])]}
    known, default = literal(said["default"], {}) if "default" in said else (False, None)
    if known:
        found["default"] = default
    return {name.removeprefix("--").replace("_", "-"): dict(found) for name in names if not re.match("-[a-z]", name)}
