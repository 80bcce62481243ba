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
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("add_argument", "reset_arg")):
            names = {a.value for a in node.args if isinstance(a, ast.Constant) and str(a.value).startswith("--")}
            spelled = {str(name)[2:].replace("-", "_") for name in names}
            found |= spelled
            actions = [ast.unparse(k.value) for k in node.keywords if k.arg == "action"]
            if any("store_" in action or action.endswith("BooleanOptionalAction") for action in actions):
                switches |= spelled
            if any(action.endswith("BooleanOptionalAction") for action in actions):
                switches |= {f"no_{name}" for name in spelled}
                found |= {f"no_{name}" for name in spelled}
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
    return whole("Megatron-LM arguments", _properties(_texts(source)), "refused")


def slime(source: Source, megatron: Source) -> Json:
    """slime's options beside Megatron-LM's, whose parser passes over what neither knows."""
    own = [source.need(path) for path in ("utils/arguments.py", "backends/sglang_utils/arguments.py")]
    return whole("slime arguments", _properties([*_texts(megatron), *own]), "ignored")


def _texts(source: Source) -> list[str]:
    return [source.need(path) for path in source.paths if FILES.match(path)]


def _properties(texts: list[str]) -> Json:
    found: set[str] = set()
    switches: set[str] = set()
    for text in texts:
        names, flags = options(text)
        found |= names
        switches |= flags
    return {name: {"type": "boolean"} if name in switches else {} for name in sorted(found)}
