"""Which modules PEFT adapts, and how many parameters it adds.

Elements of one copy, with rank r (peft 0.21.2, `tuners/lora/layer.py`):

    linear        r * (in + out)                DoRA adds one magnitude per output: + out
    embedding     r * (vocabulary + width)      DoRA adds the width
    convolution   r * (in * kernel + out)
    experts       E * r * (in + out)

The parts of other types are those of `adapter_parts.py`.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from ..upstream import nemo_automodel
from ..upstream.stack import Stack
from .adapted_module import AdaptedModule
from .adapter_parts import Part, parts_of, prompt_parts, shared_parts
from .adapter_types import COPIED, FROZEN_SIDE, INSIDE, LOW_RANK, PROMPTS, kind_of
from .lora_targets import (
    ONE,
    NotAdaptable,
    NotModelled,
    expression,
    peft_data,
    read_targets,
    suffixed,
    target_names,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..job.job import Adapter
    from .lora_targets import Experts, Ranks
    from .model import Model, Tensor

__all__ = [
    "AdaptedModule", "NotAdaptable", "NotModelled", "adapted", "common_parts", "module_parts",
    "saved_tensors",
]  # fmt: skip


def adapted(
    model: Model, adapter: Adapter, experts: Experts = "converted", stack: Stack | None = None
) -> tuple[AdaptedModule, ...]:
    """The modules that `adapter` adds weights to. Names that the model lacks are skipped, as PEFT skips them.

    None for types that add nothing to modules. Raises NotAdaptable where nothing fits or PEFT refuses the combination;
    of `stack` a framework whose LoRA is its own refuses none.
    """
    if kind_of(adapter) in PROMPTS | COPIED:
        return ()
    targets = read_targets(model, adapter, experts)
    found: list[AdaptedModule] = []
    for owned in (*model.tensors, *_tied_head(model)):
        tensor = _of_every_use(model, owned, experts)
        if tensor.buffer or tensor.role == "bias" or _is_saved(tensor, adapter):
            continue
        ranks = targets.ranks(tensor)
        if ranks is not None:
            found.extend(_modules(model, tensor, tensor.name, tensor.layers, adapter, ranks))
            continue
        if not (_adaptable(tensor) if kind_of(adapter) in LOW_RANK else tensor.linear):
            continue
        chosen = targets.layers(tensor, adapter)
        if chosen:
            chosen = tuple(layer for layer in chosen if targets.keeps(tensor.module.replace("{0}", str(layer))))
            found.extend(_modules(model, tensor, tensor.module, chosen, adapter) if chosen else ())
        elif chosen is not None and targets.keeps(tensor.module):
            found.extend(_modules(model, tensor, tensor.module, None, adapter))
    if not found and adapter.targets is not None and not adapter.targets:
        raise NotAdaptable("no target modules are set, and PEFT rejects an empty list")
    if not found:
        raise NotAdaptable(f"PEFT finds no module for {_shown(adapter)} in {model.id}")
    if stack is None or not stack.does(nemo_automodel.OWN_LORA):
        _refuse_mamba(model, found)
    return tuple(found)


def _of_every_use(model: Model, tensor: Tensor, experts: Experts) -> Tensor:
    """A weight of Zamba 2's shared block with every hybrid layer, each of which has modules of its own over it.

    In transformers 4 the layers had one and the same module, which PEFT finds once (modeling_zamba2.py `get_layers`).
    """
    if model.model_type != "zamba2" or experts == "modules" or ".shared_transformer." not in tensor.name:
        return tensor
    hybrid = next(other for other in model.tensors if other.module.endswith("layers.{0}.linear"))
    return tensor._replace(layers=hybrid.layers)


def module_parts(model: Model, adapter: Adapter, module: AdaptedModule) -> list[Part]:
    """The tensors of an adapter that is no low-rank pair in one module."""
    if kind_of(adapter) == "glora" and any(tensor.name == f"{module.name}.bias" for tensor in model.tensors):
        raise NotModelled("GLoRA over modules with a bias is not modelled")
    fed = kind_of(adapter) == "ia3" and _feeds_forward(model, adapter, module.name)
    return parts_of(adapter, module.in_features, module.out_features, module.rank, fed)


def common_parts(model: Model, adapter: Adapter, modules: Sequence[AdaptedModule]) -> list[Part]:
    """The tensors of an adapter that it has once: virtual tokens and their encoder, projections of all modules."""
    if kind_of(adapter) in PROMPTS:
        return prompt_parts(adapter, model)
    if kind_of(adapter) not in INSIDE:
        return []
    return shared_parts(adapter, modules)


def size_of(part: Part) -> int:
    """Elements of a part."""
    return prod(part.shape)


def _feeds_forward(model: Model, adapter: Adapter, name: str) -> bool:
    """Whether IA3 scales the inputs of a module rather than its outputs (`feedforward_modules`)."""
    named = adapter.options.get("feedforward_modules")
    if named is not None and not isinstance(named, (str, list)):
        raise NotAdaptable(f"`feedforward_modules` is not a list of names: {named!r}")
    if isinstance(named, str):
        return expression(named).fullmatch(name) is not None
    return suffixed(name, target_names(model, "feedforward") or [] if named is None else named)


def saved_tensors(model: Model, adapter: Adapter) -> list[Tensor]:
    """The parameters that are copied and trained whole: those of `modules_to_save`, and LN tuning's targets."""
    saved = [tensor for tensor in model.tensors if not tensor.buffer and _is_saved(tensor, adapter)]
    if kind_of(adapter) in COPIED:
        named = adapter.targets if isinstance(adapter.targets, list) else target_names(model, kind_of(adapter))
        if not named:
            raise NotAdaptable(f"{adapter.type} has no default target modules for {model.model_type} models; set them")
        found = [t for t in model.tensors if not t.buffer and t not in saved and suffixed(t.module, named)]
        return saved + found
    if any("lm_head".endswith(name) for name in adapter.modules_to_save):
        saved.extend(_tied_head(model))
    return saved


def _tied_head(model: Model) -> list[Tensor]:
    """The head of a causal model whose weight is that of its embeddings: a module of its own all the same.

    PEFT warns of it and adapts what is named (0.21.2 tuners/tuners_utils.py `_check_tied_modules`).
    """
    if not model.shape.tied or any(t.role == "head" or t.name.startswith("lm_head.") for t in model.tensors):
        return []
    embedding = next((tensor for tensor in model.tensors if tensor.role == "embedding"), None)
    return [] if embedding is None else [embedding._replace(name="lm_head.weight", role="head", linear=True)]


def _adaptable(tensor: Tensor) -> bool:
    if tensor.linear:
        return True
    if not tensor.name.endswith(".weight"):
        return False
    return tensor.role == "embedding" or (len(tensor.shape) >= 4 and tensor.role in ("vision", "conv", "audio"))


def _modules(
    model: Model,
    tensor: Tensor,
    name: str,
    layers: tuple[int, ...] | None,
    adapter: Adapter,
    multiples: Ranks = ONE,
) -> list[AdaptedModule]:
    """One entry a rank: `rank_pattern` may give layers of one module different ranks."""
    inner, outer, count = _features(tensor)
    dora = outer if kind_of(adapter) in ("dora", "qdora") and not _bare(tensor) else 0
    ranks: dict[tuple[int, Ranks], list[int]] = {}
    for layer in layers if layers is not None else (-1,):
        full = name.replace("{0}", str(layer))
        stated = next((value for key, value in adapter.rank_pattern.items() if _pattern(key, full)), None)
        ranks.setdefault((adapter.r, multiples) if stated is None else (stated, ONE), []).append(layer)
    found = []
    for (rank, times), members in ranks.items():
        copies = len(members)
        first, second = count * rank * times.inner, round(count * rank * times.outer)
        sides = {"lora_A": first * inner, "lora_B": second * outer}
        frozen = sides.get(FROZEN_SIDE.get(kind_of(adapter), ""), 0)
        elements = copies * (sum(sides.values()) - frozen + dora)
        chosen = tuple(members) if layers is not None else None
        module = AdaptedModule(name, inner, outer, first, second, copies, chosen, tensor.role, elements)
        if kind_of(adapter) in INSIDE:
            each = sum(size_of(part) for part in module_parts(model, adapter, module) if part.trained)
            module = module._replace(elements=copies * each)
        found.append(module)
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
    return expression(rf"(.*\.)?({key})").fullmatch(name) is not None


def _is_saved(tensor: Tensor, adapter: Adapter) -> bool:
    """Whether a module on the way to the parameter ends in one of the names: `head` also names `lm_head`."""
    if not adapter.modules_to_save:
        return False
    parts = tensor.module.split(".")
    paths = [".".join(parts[: count + 1]) for count in range(len(parts))]
    return any(path.endswith(name) for path in paths for name in adapter.modules_to_save)


def _refuse_mamba(model: Model, found: list[AdaptedModule]) -> None:
    if model.model_type in peft_data()["mamba"]["model_types"]:
        for module in found:
            leaf = module.name.rpartition(".")[2]
            if leaf in peft_data()["mamba"]["modules"]:
                raise NotAdaptable(f"PEFT rejects LoRA on {leaf} of {model.model_type} models")


def _shown(adapter: Adapter) -> str:
    if adapter.targets is None:
        return "its default targets"
    names = adapter.targets if isinstance(adapter.targets, str) else ", ".join(adapter.targets[:6])
    return f"target modules {names[:120]!r}"
