"""Compare tables with the models Transformers builds, on the class default and on changed configs.

Each number of the config is doubled, then incremented, a missing head_dim is given, and each boolean flipped, one at a
time; configs that Transformers refuses are skipped. Needs torch and transformers, and gpulint installed.
"""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING, Any

from . import architecture_parts, architecture_trace

if TYPE_CHECKING:
    from collections.abc import Iterator

Table = dict[str, Any]
_INERT = re.compile(
    r"(token_id|token_index|dropout|eps$|rope_(?!head)|initializer|_coef$|use_cache|output_|return_dict|loss|softcap|"
    r"theta|aux_|jitter|norm_topk|seed|chunk_size_feed|pretraining_tp|is_decoder|is_encoder_decoder|scaling|"
    r"add_cross_attention|tie_encoder_decoder|transformers_version|grid|seq_length|factor$|is_gated_act)"
)


def differences(config: Table, auto_class: str) -> list[str]:
    """Names of tensors that the table and Transformers make differently."""
    build = importlib.import_module("gpulint.models.build").build
    made = {}
    for row in architecture_trace.build(config, auto_class):
        shape = row.shape[::-1] if row.kind == "Conv1D" and len(row.shape) == 2 else row.shape
        if not row.buffer and 0 not in shape:
            made[row.name] = (shape, row.kind in ("Linear", "Conv1D") and row.name.endswith(".weight"))
    table = {}
    for tensor in build(config, "verify", "verify", auto_class).tensors:
        for layer in tensor.layers if tensor.layers is not None else ("",):
            if not tensor.buffer:
                table[tensor.name.replace("{0}", str(layer))] = (tensor.shape, tensor.linear)
    return sorted(name for name in made.keys() | table.keys() if made.get(name) != table.get(name))


def changed_configs(model_type: str, base: Table) -> Iterator[tuple[str, Table]]:
    """The base config, and it with one field changed at a time."""
    yield "default", base
    made = architecture_parts.config_class(model_type).from_dict({k: v for k, v in base.items() if k != "model_type"})
    for field, value in architecture_parts.flat(made).items():
        leaf = field.rpartition(".")[2]
        if _INERT.search(leaf) or leaf.startswith("_"):
            continue
        if leaf == "head_dim" and value is None:
            yield f"{field}=48", architecture_parts.changed(base, field, 48)
        elif isinstance(value, bool):
            yield f"{field}={not value}", architecture_parts.changed(base, field, not value)
        elif isinstance(value, int) and value > 0:
            for new in (2 * value, value + 1):
                yield f"{field}={new}", architecture_parts.changed(base, field, new)


def check(model_type: str, base: Table, auto_class: str, limit: int = 400) -> tuple[int, int, list[str]]:
    """How many configs agree, how many were built, and what the first disagreements are."""
    good = built = 0
    problems: list[str] = []
    for name, config in changed_configs(model_type, base):
        try:
            different = differences(config, auto_class)
        except Exception as error:
            if type(error).__name__ in ("UnknownModel", "ExpressionError"):
                built += 1
                problems.append(f"{name}: {error}")
            continue
        built += 1
        good += not different
        if different and len(problems) < 12:
            problems.append(f"{name}: {len(different)} tensors, {different[0]}")
        if built >= limit:
            break
    return good, built, problems
