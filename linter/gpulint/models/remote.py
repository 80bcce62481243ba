"""Module names of models whose code comes with their repository, where their config is read by another type's table.

Users name these modules as targets of adapters, and one projection in place of several has one pair of matrices.
Source: modeling_baichuan.py, modeling_qwen.py, modeling_chatglm.py and modeling_internlm2.py on the Hub.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .fields import Fields
from .tables import aliases

if TYPE_CHECKING:
    from .model import Tensor

_FUSED = {"q": "qkv", "gate": "gate_up"}
"""The role of a projection in place of several, by that of the first."""


def remote_rule(config: dict[str, Any], model_type: Any) -> dict[str, Any] | None:
    """The entry of `aliases.json` by which a config of remote code is read."""
    for rule in aliases()["remote"]:
        if model_type in rule["model_types"] and Fields(config, {}).evaluate(rule["when"]):
            found: dict[str, Any] = rule
            return found
    return None


def own_code(config: dict[str, Any], name: str) -> dict[str, Any] | None:
    """The entry of a model whose repository has its code: by the config, or by the name of a known model."""
    rule = remote_rule(config, config.get("model_type"))
    if rule is None:
        rules = (rule for rule in aliases()["remote"] if rule.get("repositories"))
        named = (rule for rule in rules if re.fullmatch(rule["repositories"], name.lower()))
        rule = next(named, None)
    return rule


def normed_head(config: dict[str, Any], name: str) -> bool:
    """Whether the model's own code brings the rows of its output head to one length in training (Baichuan 2)."""
    rule = own_code(config, name)
    return rule is not None and bool(rule.get("normed_head"))


def renamed(tensors: list[Tensor], rule: dict[str, Any] | None) -> list[Tensor]:
    """The tensors under the code's own names: those that get the same name are rows of one matrix."""
    modules: dict[str, str] = rule.get("modules", {}) if rule is not None else {}
    made: dict[object, Tensor] = {}
    for tensor in tensors:
        if tensor.leaf not in modules:
            made[tensor] = tensor
            continue
        kind = tensor.name.rpartition(".")[2]
        name = f"{tensor.module.rpartition('.')[0]}.{modules[tensor.leaf]}.{kind}"
        first = made.get(name)
        if first is None:
            made[name] = tensor._replace(name=name)
        else:
            rows = first.shape[0] + tensor.shape[0]
            role = _FUSED.get(first.role, first.role)
            made[name] = first._replace(shape=(rows, *first.shape[1:]), role=role)
    return list(made.values())
