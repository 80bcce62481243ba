"""Every option of Megatron-LM's training scripts.

Options are the constants of `add_argument` calls and the fields of dataclasses that `ArgumentGroupFactory` turns into
options (megatron/training/argument_utils.py).
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from .schema import whole

if TYPE_CHECKING:
    from .schema import Json
    from .source import Source

FILES = re.compile(
    r"^(megatron/(training/)?arguments\.py|megatron/training/config/.*\.py|pretrain_.*\.py|tasks/main\.py"
    r"|megatron/core/(transformer/transformer_config|model_parallel_config|tokenizers/.*config)\.py|gpt_builders\.py"
    r"|megatron/(training/)?(tokenizer|checkpointing|inprocess_restart)[^/]*\.py|examples/.*/arguments\.py)$"
)


def options(text: str) -> tuple[set[str], set[str]]:
    """The options of a module, and those among them that take no value, with underscores."""
    found: set[str] = set()
    switches: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("add_argument"):
            names = {a.value for a in node.args if isinstance(a, ast.Constant) and str(a.value).startswith("--")}
            spelled = {str(name)[2:].replace("-", "_") for name in names}
            found |= spelled
            if any(k.arg == "action" and "store_" in ast.unparse(k.value) for k in node.keywords):
                switches |= spelled
        elif isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(d) for d in node.decorator_list):
            for item in node.body:
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                    name = item.target.id
                    found.add(name)
                    named = re.findall(r"'--([a-z0-9_-]+)'", ast.unparse(item.value) if item.value else "")
                    found |= {other.replace("-", "_") for other in named}
                    if ast.unparse(item.annotation).startswith(("bool", "Optional[bool]")):
                        switches |= {name, f"no_{name}", f"disable_{name}"}
                        found |= {f"no_{name}", f"disable_{name}"}
    return found, switches


def megatron(source: Source) -> Json:
    """The options of all argument modules, switches as booleans."""
    found: set[str] = set()
    switches: set[str] = set()
    for path in source.paths:
        if FILES.match(path):
            names, flags = options(source.need(path))
            found |= names
            switches |= flags
    properties: Json = {name: {"type": "boolean"} if name in switches else {} for name in sorted(found)}
    return whole("Megatron-LM arguments", properties, "refused")
