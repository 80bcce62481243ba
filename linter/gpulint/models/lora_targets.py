"""What an adapter's `targets` mean for a model, as peft 0.21.2 reads them.

names        a target fits a module when it is its whole dotted name or its last part(s); a string is a regular
             expression over the whole name
all-linear   every nn.Linear and GPT-2 Conv1D but the output head
None         the mapping by model type in `lora_targets.json`, of some types of adapters another one; none for the
             types in `moe`, whose rewriting comes first and leaves nothing (Mixtral) and is LoRA's alone
experts      transformers 5 keeps them as 3-D parameters, which are no modules. For the model types in `moe`, PEFT
             rewrites the old projection names (`gate_proj`, `w1` ...) to those parameters and multiplies the rank
             by the number of projections that were fused into one (`utils/transformers_weight_conversion.py`);
             all-linear includes them there. For other types they stay as they are.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from .adapter_types import LOW_RANK, kind_of
from .remote import own_code
from .tables import read_data, table_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..job.job import Adapter
    from .model import Model, Tensor

MAX_REGEX = 2000
"""Longest regular expression that is matched."""

MAX_REPEATS = 12
"""Most unbounded repetitions in a regular expression; more could take forever on one name."""

_SAME_CONFIG = {"gpt-sw3": "gpt2"}
"""Names to which Transformers 5.23 gives another type's config class: the built model says that type."""

_TEXT_ALONE = frozenset({"gemma3n_text", "ministral3"})
"""Types that the catalogue has in the place of a model that sees or hears, whose other parts it does not know."""

_WITHIN = re.compile(r"model\\?\.language_model\\?\.")
"""Where such a model has its text part, in a pattern with or without escaped dots."""

_data: dict[str, Any] = {}


class NotAdaptable(Exception):  # noqa: N818
    """Targets that PEFT refuses: the job stops when it attaches the adapter. The message says why."""


class NotModelled(NotAdaptable):
    """A form of an adapter that PEFT takes and nobody has read. The message says which."""


Experts = Literal["converted", "parameters", "modules", "fused"]
"""How targets meet the experts of a mixture, by release:

converted    PEFT 0.19 and later on transformers 5: names of projections become the fused parameters
parameters   PEFT before, on transformers 5: only `target_parameters` reach them
modules      transformers 4: each expert's projections are linear modules like any other
fused        Megatron: gate and up of an expert are one linear module with one pair (mcore_bridge/tuners/lora.py 1.6)
"""


class Ranks(NamedTuple):
    """Multiples of r of the pair of a parameter that is adapted as such: rows of lora_A, columns of lora_B.

    A fused pair of projections that are adapted one by one has two lora_A, and lora_B of half the outputs each.
    """

    inner: int
    outer: float


ONE = Ranks(1, 1)


class Targets(NamedTuple):
    """What to look for: module names, a regular expression or every linear module; parameters with their ranks."""

    names: frozenset[str]
    regex: re.Pattern[str] | None
    every_linear: bool
    parameters: dict[str, Ranks]
    excluded: frozenset[str] | re.Pattern[str] = frozenset()

    def keeps(self, module: str) -> bool:
        """Whether `exclude_modules` lets a module through: its whole name or last parts, or a regular expression."""
        if isinstance(self.excluded, re.Pattern):
            return self.excluded.fullmatch(module) is None
        return not suffixed(module, self.excluded)

    def ranks(self, tensor: Tensor) -> Ranks | None:
        """The ranks of a parameter that is adapted as such, None when it is not."""
        for name, ranks in self.parameters.items():
            if tensor.name == name or tensor.name.endswith("." + name):
                return ranks
        return None

    def layers(self, tensor: Tensor, adapter: Adapter) -> tuple[int, ...] | None:
        """The layers whose copy is adapted, () for a module outside a stack, None when it is not."""
        name = tensor.module
        if self.every_linear:
            return (tensor.layers or ()) if tensor.linear and tensor.role not in ("head", "embedding") else None
        if tensor.layers is None:
            if self.regex is not None:
                return () if self.regex.fullmatch(name) else None
            return () if suffixed(name, self.names) and not adapter.layers else None
        if self.regex is not None:
            chosen = tuple(i for i in tensor.layers if self.regex.fullmatch(name.replace("{0}", str(i))))
            return chosen or None
        if suffixed(name, self.names):
            wanted = adapter.layers
            chosen = tensor.layers if not wanted else tuple(i for i in tensor.layers if i in wanted)
            return chosen or None
        numbered = [target for target in self.names if any(char.isdigit() for char in target)]
        if numbered:
            names = {i: name.replace("{0}", str(i)) for i in tensor.layers}
            chosen = tuple(i for i, full in names.items() if suffixed(full, numbered))
            return chosen or None
        return None


def read_targets(model: Model, adapter: Adapter, experts: Experts = "converted") -> Targets:
    """The targets of `adapter` on `model`. Raises NotAdaptable where PEFT has none or refuses them."""
    targets = _targets(model, adapter, experts)
    if adapter.parameters:
        stated = dict.fromkeys(adapter.parameters, ONE)
        targets = targets._replace(parameters={**targets.parameters, **stated})
    if adapter.exclude:
        left = adapter.exclude
        targets = targets._replace(excluded=expression(left) if isinstance(left, str) else frozenset(left))
    return targets


def _targets(model: Model, adapter: Adapter, experts: Experts) -> Targets:
    stated = adapter.targets
    pair = kind_of(adapter) in LOW_RANK
    fusion = peft_data()["moe"].get(_peft_type(model)) if pair and experts != "parameters" else None
    if stated is None and adapter.parameters:
        return Targets(frozenset(), None, False, {})
    if stated is None:
        stated = target_names(model, "lora" if pair else kind_of(adapter)) if fusion is None else None
        if stated is None:
            raise NotAdaptable(f"PEFT has no default target modules for {_peft_type(model)} models; set them")
    if isinstance(stated, list) and len(stated) == 1 and stated[0] == "all-linear":
        stated = "all-linear"
    every = isinstance(stated, str) and stated.lower() == "all-linear"
    if isinstance(stated, str) and model.model_type in _TEXT_ALONE:
        stated = _WITHIN.sub("model.", stated)
    if fusion is not None and experts == "modules":
        return _modules(model, stated, every, peft_data()["fused"][fusion])
    if fusion is not None:
        names = _leaves(model, stated, peft_data()["fused"][fusion])
        found = _fused(names, peft_data()["fused"][fusion])
        return found if experts == "converted" else found._replace(parameters=dict.fromkeys(found.parameters, ONE))
    if every:
        return Targets(frozenset(), None, True, {})
    if isinstance(stated, str):
        return Targets(frozenset(), expression(stated), False, {})
    return Targets(frozenset(stated), None, False, {})


def target_names(model: Model, kind: str) -> list[str] | None:
    """What PEFT targets in a model by default: of LoRA, of a type with targets of its own, IA3's `feedforward`."""
    data = peft_data()
    table = data["feedforward"] if kind == "feedforward" else data["by_type"].get(kind, data["defaults"])
    found: list[str] | None = table.get(_peft_type(model))
    return found


def peft_data() -> dict[str, Any]:
    """`lora_targets.json`."""
    if not _data:
        _data.update(json.loads(read_data("lora_targets.json")))
    return _data


def _peft_type(model: Model) -> str:
    """The `config.model_type` of the built model, of remote code the code's own."""
    code = own_code(model.config, model.repository)
    if code is not None:
        own: str = code["model_types"][0]
        return own
    return table_name(_SAME_CONFIG.get(model.model_type, model.model_type))


def _leaves(model: Model, stated: str | list[str], fused: dict[str, Any]) -> set[str]:
    """Target names in the spelling of transformers 4: a string is resolved to the last names it stands for."""
    if not isinstance(stated, str):
        return set(stated)
    linear = [tensor for tensor in model.tensors if tensor.linear and tensor.role != "head"]
    if stated.lower() == "all-linear":
        return {tensor.leaf for tensor in linear} | set(fused["names"])
    regex = expression(stated)
    names = {tensor.leaf for tensor in linear if _first_match(regex, tensor.module, tensor)}
    for tensor in model.tensors:
        if tensor.role in ("expert_gate_up", "expert_down") and not tensor.linear:
            container = tensor.name.rpartition(".")[0]
            names |= {old for old in fused["names"] if _first_match(regex, f"{container}.{old}", tensor)}
    return names


def _first_match(regex: re.Pattern[str], name: str, tensor: Tensor) -> bool:
    layers = tensor.layers if tensor.layers is not None else ("",)
    return any(regex.fullmatch(name.replace("{0}", str(layer))) for layer in layers)


def _fused(names: set[str], fused: dict[str, Any]) -> Targets:
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
    parameters = dict.fromkeys(matched, ONE)
    for new, required in fused["together"].items():
        present = matched.get(new, set())
        if present and len(present) < len(required):
            missing = ", ".join(sorted(set(required) - present))
            raise NotAdaptable(
                f"PEFT rejects {', '.join(sorted(present))} without {missing}: both are fused into {new}"
            )
        if present:
            parameters[new] = Ranks(len(required), len(required))
    return Targets(frozenset(remaining), None, False, parameters)


def _modules(model: Model, stated: str | list[str], every: bool, fused: dict[str, Any]) -> Targets:
    """The same names where every expert has linear modules of its own, which are adapted one by one."""
    renamed: dict[str, str] = fused["names"]
    together: dict[str, list[str]] = fused["together"]
    regex = expression(stated) if isinstance(stated, str) and not every else None
    names = frozenset() if isinstance(stated, str) else frozenset(stated)
    fitting = {old for old in renamed if every or old in names}
    for tensor in model.tensors:
        if regex is not None and tensor.role in ("expert_gate_up", "expert_down") and not tensor.linear:
            experts = tensor.name.rpartition(".")[0]
            fitting |= {old for old in renamed if _first_match(regex, f"{experts}.0.{old}", tensor)}
    parameters: dict[str, Ranks] = {}
    for new in dict.fromkeys(renamed[old] for old in renamed if old in fitting):
        found = sum(renamed[old] == new for old in fitting)
        parameters[new] = Ranks(found, found / len(together.get(new, "1")))
    return Targets(names, regex, every, parameters)


def suffixed(name: str, targets: Iterable[str]) -> bool:
    """Whether a dotted name is a target or ends in one."""
    return any(name == target or name.endswith("." + target) for target in targets)


def expression(text: str) -> re.Pattern[str]:
    """A regular expression from a config, refused where matching it could take forever."""
    text = re.sub(r"\[\d*:\d*\]$", "", text)
    repeats = len(re.findall(r"[*+]|\{\d*,\}", text))
    if len(text) > MAX_REGEX or repeats > MAX_REPEATS or re.search(r"[*+}][^(|]*\)[*+{]", text):
        raise NotAdaptable(f"the target pattern {text[:60]!r} is too costly to match")
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise NotAdaptable(f"the target pattern {text[:60]!r} is not a valid regular expression ({error})") from None
