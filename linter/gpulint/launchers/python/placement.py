"""Where a loaded model is put, and in which dtype, by the methods that are called on it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...repository.script_options import dotted
from .module import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...source.node import Entry
    from .call_table import Found
    from .module import Module

_DTYPES = {"half": "float16", "bfloat16": "bfloat16", "float": "float32"}
"""Methods of a module that change its dtype."""

_FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})


def is_on_gpu(module: Module, model: Found) -> bool:
    """Whether a model is put on a GPU: by an argument, as bitsandbytes does, or by a method."""
    said = model.said
    if model.row.on_gpu or "tp_plan" in said:
        return not _cpu(said.get("device"))
    for key in ("device_map", "device"):
        if key in said:
            return not _cpu(said[key])
    if any(key in said for key in ("load_in_4bit", "load_in_8bit", "quantization_config")):
        return True
    return any(_moves(module, call) for call in _called(module, model)) or _by_default(module)


def method_dtype(module: Module, model: Found) -> Entry | None:
    """The dtype that a method gives the loaded model: `.half()`, `.to(torch.float16)`."""
    for call in _called(module, model):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        dtype = _DTYPES.get(name, "") if not call.args else ""
        values = [module.value(value, model.call.scope) for value in _values(call)] if name == "to" else []
        dtype = dtype or next((value for value in values if isinstance(value, str) and value in _FLOATS), "")
        if dtype:
            return module.implied("dtype", dtype, call.func)
    return None


def _cpu(entry: Entry | None) -> bool:
    value = entry.value.plain() if entry is not None else None
    values = list(value.values()) if isinstance(value, dict) else [value]
    return bool(values) and all(str(item) in ("cpu", "disk", "-1", "meta") for item in values)


def _called(module: Module, model: Found) -> Iterator[ast.Call]:
    """The methods that are called on a loaded model, at once or by its name."""
    node: ast.AST = model.call.node
    while isinstance(attribute := module.parents.get(node), ast.Attribute):
        call = module.parents.get(attribute)
        if not isinstance(call, ast.Call) or call.func is not attribute:
            break
        yield call
        node = call
    target = model.call.target
    for made in module.calls:
        function = made.node.func
        inner: ast.expr = function.value if isinstance(function, ast.Attribute) else function
        while isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute):
            inner = inner.func.value
        if target and isinstance(function, ast.Attribute) and dotted(inner) == target:
            yield made.node


def _moves(module: Module, call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if name == "cuda":
        return True
    values = [module.value(value, module.scope) for value in _values(call)]
    devices = [value for value in values if not (isinstance(value, str) and value in _FLOATS)]
    return name == "to" and any(value is UNKNOWN or str(value).startswith("cuda") for value in devices)


def _by_default(module: Module) -> bool:
    """Whether everything that the file makes is on the GPU."""
    named = (call for call in module.calls if call.name == "torch.set_default_device")
    return any(str(module.value(value, call.scope)).startswith("cuda") for call in named for value in call.node.args)


def _values(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(word.value for word in call.keywords)]
