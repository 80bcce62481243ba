"""Which modules PEFT adapts, and how many parameters a job trains.

Follows peft 0.21.2 (`tuners/tuners_utils.py`) on models built by transformers 5:

    names        a target fits a module when it is its whole dotted name or its last part(s); a string is a regular
                 expression over the whole name
    all-linear   every nn.Linear and GPT-2 Conv1D but the output head
    None         the mapping by model type in `lora_targets.json`; none for the types in `moe`, whose rewriting comes
                 first and leaves nothing (Mixtral)
    experts      transformers 5 keeps them as 3-D parameters, which are no modules. For the model types in `moe`, PEFT
                 rewrites the old projection names (`gate_proj`, `w1` ...) to those parameters and multiplies the rank
                 by the number of projections that were fused into one (`utils/transformers_weight_conversion.py`);
                 all-linear includes them there. For other types they stay as they are.

Elements of one copy, with rank r:

    linear        r * (in + out)                DoRA adds one magnitude per output: + out
    embedding     r * (vocabulary + width)      DoRA adds the width
    convolution   r * (in * kernel + out)
    experts       E * r * (in + out)
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from .tables import read_data

if TYPE_CHECKING:
    from ..job import Adapter, Job
    from .model import Model, Tensor

MAX_REGEX = 2000
"""Longest regular expression that is matched."""

MAX_REPEATS = 12
"""Most unbounded repetitions in a regular expression; more could take forever on one name."""

_data: dict[str, Any] = {}


class NotAdaptable(Exception):
    """Targets that PEFT refuses: the job stops when it attaches the adapter. The message says why."""


class AdaptedModule(NamedTuple):
    """A module with an adapter, once for every layer that has it.

    name       the module's dotted name, `{0}` for the layer index; for experts the parameter's
    rank       of one copy, after `rank_pattern` and the fusion of expert projections
    copies     how many layers have it; `layers` which, None outside a stack
    elements   trainable elements of all copies
    """

    name: str
    in_features: int
    out_features: int
    rank: int
    copies: int
    layers: tuple[int, ...] | None
    role: str
    elements: int


class _Targets(NamedTuple):
    """What to look for: module names or a regular expression, and parameters with the factor of their rank."""

    names: frozenset[str]
    regex: re.Pattern[str] | None
    every_linear: bool
    parameters: dict[str, int]


def adapted(model: Model, adapter: Adapter) -> tuple[AdaptedModule, ...]:
    """The modules that `adapter` adds weights to. Names that the model lacks are skipped, as PEFT skips them.

    Raises NotAdaptable where nothing fits or PEFT refuses the combination.
    """
    targets = _targets(model, adapter)
    found: list[AdaptedModule] = []
    for tensor in model.tensors:
        if tensor.buffer or tensor.role == "bias" or _is_saved(tensor, adapter):
            continue
        factor = _parameter_factor(tensor, targets)
        if factor:
            found.extend(_modules(tensor, tensor.name, tensor.layers, adapter, factor))
            continue
        if not _adaptable(tensor):
            continue
        chosen = _chosen(tensor, targets, adapter)
        if chosen is not None:
            found.extend(_modules(tensor, tensor.module, chosen or None, adapter, 1))
    if not found:
        raise NotAdaptable(f"PEFT finds no module for {_shown(adapter)} in {model.id}")
    _refuse_mamba(model, found)
    return tuple(found)


def trainable_parameters(model: Model, job: Job) -> int:
    """Parameters that the optimizer updates.

    All of them; with an adapter its elements and one copy of each module in `modules_to_save` (a tied head that is
    saved becomes a copy of its own); with `trainable` the parameters whose name one of its regular expressions is
    found in. Raises NotAdaptable like `adapted`.
    """
    if job.adapter is not None:
        saved = sum(tensor.size * tensor.copies for tensor in saved_tensors(model, job.adapter))
        return sum(module.elements for module in adapted(model, job.adapter)) + saved
    if job.trainable is not None:
        patterns = [_expression(pattern) for pattern in job.trainable]
        return sum(tensor.size * _matching_copies(tensor, patterns) for tensor in model.tensors if not tensor.buffer)
    return model.parameters


def saved_tensors(model: Model, adapter: Adapter) -> list[Tensor]:
    """The parameters that `modules_to_save` copies and trains whole (PEFT `_set_trainable`)."""
    saved = [tensor for tensor in model.tensors if not tensor.buffer and _is_saved(tensor, adapter)]
    if model.shape.tied:
        embedding = next((tensor for tensor in model.tensors if tensor.role == "embedding"), None)
        if embedding is not None and any(name == "lm_head" for name in adapter.modules_to_save):
            saved.append(embedding._replace(name="lm_head.weight", role="head"))
    return saved


def linear_leaf_names(model: Model) -> tuple[str, ...]:
    """Last names of every linear module but the head, as tools collect them that pass PEFT a list."""
    return tuple(dict.fromkeys(t.leaf for t in model.tensors if t.linear and t.role != "head"))


def _table() -> dict[str, Any]:
    if not _data:
        _data.update(json.loads(read_data("lora_targets.json")))
    return _data


def _targets(model: Model, adapter: Adapter) -> _Targets:
    stated = adapter.targets
    fusion = _table()["moe"].get(_peft_type(model))
    if stated is None:
        stated = _table()["defaults"].get(_peft_type(model)) if fusion is None else None
        if stated is None:
            raise NotAdaptable(f"PEFT has no default target modules for {model.model_type} models; name them")
    if isinstance(stated, list) and len(stated) == 1 and stated[0] == "all-linear":
        stated = "all-linear"
    every = isinstance(stated, str) and stated.lower() == "all-linear"
    if fusion is not None:
        names = _leaves(model, stated, _table()["fused"][fusion])
        return _fused(names, _table()["fused"][fusion])
    if every:
        return _Targets(frozenset(), None, True, {})
    if isinstance(stated, str):
        return _Targets(frozenset(), _expression(stated), False, {})
    return _Targets(frozenset(stated), None, False, {})


def _peft_type(model: Model) -> str:
    """The `config.model_type` of the built model: remote-code types are built as the type of their table."""
    from .tables import table_name

    return table_name(model.model_type)


def _leaves(model: Model, stated: str | list[str], fused: dict[str, Any]) -> set[str]:
    """Target names in the spelling of transformers 4: a string is resolved to the last names it stands for."""
    if not isinstance(stated, str):
        return set(stated)
    linear = [tensor for tensor in model.tensors if tensor.linear and tensor.role != "head"]
    if stated.lower() == "all-linear":
        return {tensor.leaf for tensor in linear} | set(fused["names"])
    regex = _expression(stated)
    names = {tensor.leaf for tensor in linear if _first_match(regex, tensor.module, tensor)}
    for tensor in model.tensors:
        if tensor.role in ("expert_gate_up", "expert_down") and not tensor.linear:
            container = tensor.name.rpartition(".")[0]
            names |= {old for old in fused["names"] if _first_match(regex, f"{container}.{old}", tensor)}
    return names


def _first_match(regex: re.Pattern[str], name: str, tensor: Tensor) -> bool:
    layers = tensor.layers if tensor.layers is not None else ("",)
    return any(regex.fullmatch(name.replace("{0}", str(layer))) for layer in layers)


def _fused(names: set[str], fused: dict[str, Any]) -> _Targets:
    """Old projection names turned into parameters; a fused parameter needs all of its projections named."""
    renamed: dict[str, str] = fused["names"]
    matched: dict[str, set[str]] = {}
    remaining = set()
    for target in names:
        old = next((old for old in renamed if target == old or target.endswith("." + old)), None)
        if old is None:
            remaining.add(target)
        else:
            matched.setdefault(renamed[old], set()).add(old)
    parameters = dict.fromkeys(matched, 1)
    for new, required in fused["together"].items():
        present = matched.get(new, set())
        if present and len(present) < len(required):
            missing = ", ".join(sorted(set(required) - present))
            raise NotAdaptable(
                f"PEFT refuses {', '.join(sorted(present))} without {missing}: both are fused into {new}"
            )
        if present:
            parameters[new] = len(required)
    return _Targets(frozenset(remaining), None, False, parameters)


def _adaptable(tensor: Tensor) -> bool:
    if tensor.linear:
        return True
    if not tensor.name.endswith(".weight"):
        return False
    return tensor.role == "embedding" or (len(tensor.shape) >= 4 and tensor.role in ("vision", "conv", "audio"))


def _parameter_factor(tensor: Tensor, targets: _Targets) -> int:
    for name, factor in targets.parameters.items():
        if tensor.name == name or tensor.name.endswith("." + name):
            return factor
    return 0


def _chosen(tensor: Tensor, targets: _Targets, adapter: Adapter) -> tuple[int, ...] | None:
    """The layers whose copy is adapted, () for a module outside a stack, None when it is not."""
    name = tensor.module
    if targets.every_linear:
        return (tensor.layers or ()) if tensor.linear and tensor.role != "head" else None
    if tensor.layers is None:
        if targets.regex is not None:
            return () if targets.regex.fullmatch(name) else None
        return () if _suffix(name, targets.names) and not adapter.layers else None
    if targets.regex is not None:
        chosen = tuple(i for i in tensor.layers if targets.regex.fullmatch(name.replace("{0}", str(i))))
        return chosen or None
    if _suffix(name, targets.names):
        wanted = adapter.layers
        chosen = tensor.layers if not wanted else tuple(i for i in tensor.layers if i in wanted)
        return chosen or None
    numbered = [target for target in targets.names if any(char.isdigit() for char in target)]
    if numbered:
        names = {i: name.replace("{0}", str(i)) for i in tensor.layers}
        chosen = tuple(i for i, full in names.items() if _suffix(full, numbered))
        return chosen or None
    return None


def _suffix(name: str, targets: Any) -> bool:
    return any(name == target or name.endswith("." + target) for target in targets)


def _modules(
    tensor: Tensor, name: str, layers: tuple[int, ...] | None, adapter: Adapter, factor: int
) -> list[AdaptedModule]:
    """One entry a rank: `rank_pattern` may give layers of one module different ranks."""
    inner, outer, count = _features(tensor)
    ranks: dict[int, list[int]] = {}
    for layer in layers if layers is not None else (-1,):
        full = name.replace("{0}", str(layer))
        rank = next((value for key, value in adapter.rank_pattern.items() if _pattern(key, full)), adapter.r * factor)
        ranks.setdefault(rank, []).append(layer)
    dora = outer if adapter.type == "dora" and not _bare(tensor) else 0
    found = []
    for rank, members in ranks.items():
        copies = len(members)
        elements = copies * (count * rank * (inner + outer) + dora)
        chosen = tuple(members) if layers is not None else None
        found.append(AdaptedModule(name, inner, outer, rank * count, copies, chosen, tensor.role, elements))
    return found


def _bare(tensor: Tensor) -> bool:
    """Whether PEFT wraps it as a bare parameter, which DoRA does not support."""
    return not tensor.linear and tensor.role != "embedding" and len(tensor.shape) < 4


def _features(tensor: Tensor) -> tuple[int, int, int]:
    """Inputs, outputs and how many matrices: experts are one matrix each, a kernel counts into the inputs."""
    shape = tensor.shape
    if not tensor.linear and len(shape) == 3:
        return shape[2], shape[1], shape[0]
    inner = 1
    for dim in shape[1:]:
        inner *= dim
    return (shape[0], shape[1], 1) if tensor.role == "embedding" else (inner, shape[0], 1)


def _pattern(key: str, name: str) -> bool:
    return _expression(rf"(.*\.)?({key})").fullmatch(name) is not None


def _is_saved(tensor: Tensor, adapter: Adapter) -> bool:
    return any(
        tensor.module == name or tensor.module.endswith("." + name) or f".{name}." in f".{tensor.module}."
        for name in adapter.modules_to_save
    )


def _refuse_mamba(model: Model, found: list[AdaptedModule]) -> None:
    if model.model_type in _table()["mamba"]["model_types"]:
        for module in found:
            leaf = module.name.rpartition(".")[2]
            if leaf in _table()["mamba"]["modules"]:
                raise NotAdaptable(f"PEFT refuses LoRA on {leaf} of {model.model_type} models")


def _matching_copies(tensor: Tensor, patterns: list[re.Pattern[str]]) -> int:
    if tensor.layers is None:
        return int(any(pattern.search(tensor.name) for pattern in patterns))
    names = (tensor.name.replace("{0}", str(layer)) for layer in tensor.layers)
    return sum(any(pattern.search(name) for pattern in patterns) for name in names)


def _expression(text: str) -> re.Pattern[str]:
    """A regular expression from a config, refused where matching it could take forever."""
    text = re.sub(r"\[\d*:\d*\]$", "", text)
    repeats = len(re.findall(r"[*+]|\{\d*,\}", text))
    if len(text) > MAX_REGEX or repeats > MAX_REPEATS or re.search(r"[*+}][^(|]*\)[*+{]", text):
        raise NotAdaptable(f"the target pattern {text[:60]!r} is too costly to match")
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise NotAdaptable(f"the target pattern {text[:60]!r} is no regular expression ({error})") from None


def _shown(adapter: Adapter) -> str:
    if adapter.targets is None:
        return "its default targets"
    names = adapter.targets if isinstance(adapter.targets, str) else ", ".join(adapter.targets[:6])
    return f"target modules {names[:120]!r}"
