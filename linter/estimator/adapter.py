"""What PEFT adds to a model: low-rank pairs, and trained copies of whole modules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..models.llama_adapter import PROMPT, TYPES, added
from .division import divided_adapter
from .estimate import NotEstimable
from .parameter import Parameter, pieces_of
from .quantization import FUSED_BEFORE_5
from .versions import older

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..job import Adapter, Job
    from ..models.lora import AdaptedModule
    from ..models.lora_targets import Experts
    from ..models.model import Model


LOW_RANK = frozenset({"lora", "qlora", "dora", "qdora", "rslora", "loftq", "pissa", "olora", "eva", "corda", "lora-ga"})
"""Adapters that are a low-rank pair a module; but for DoRA's magnitudes they differ in how the pair begins."""


def adapter_of(job: Job) -> Adapter | None:
    """The job's adapter; PEFT's defaults for a LoRA job that names none."""
    if job.adapter is None and job.method == "lora":
        from ..job import Adapter

        return Adapter()
    return job.adapter


def adapter_parameters(job: Job, model: Model, dtype: str) -> list[Parameter]:
    """lora_A [r, in] and lora_B [out, r] of each adapted module, and DoRA's magnitudes, in `dtype`.

    Of LLaMA-Adapter its own tensors. Raises NotEstimable where PEFT would refuse the targets, and for adapters of
    another kind than LoRA's.
    """
    adapter = adapter_of(job)
    if adapter is None:
        return []
    if adapter.type in TYPES:
        return _llama_adapter(adapter.type, job, model, dtype)
    if adapter.type.lower().replace("_", "-") not in LOW_RANK:
        raise NotEstimable(f"adapters of type {adapter.type} are not modelled, only LoRA and what has its shapes")
    from ..models.lora import NotAdaptable, adapted

    try:
        modules = adapted(model, adapter, expert_targets(job, model))
    except NotAdaptable as error:
        raise NotEstimable(str(error)) from None
    return [item for module in modules for item in _pair(module, job, model, dtype)]


def expert_targets(job: Job, model: Model) -> Experts:
    """How PEFT's targets meet experts at the job's releases (peft 0.19 tuners_utils.py inject_adapter)."""
    if job.framework == "megatron":
        return "fused"
    if older(job.versions.get("transformers"), "5.0"):
        return "parameters" if model.model_type in FUSED_BEFORE_5 else "modules"
    return "parameters" if older(job.versions.get("peft"), "0.19") else "converted"


def _llama_adapter(kind: str, job: Job, model: Model, dtype: str) -> list[Parameter]:
    """LitGPT's; the prompt gets no gradient, its keys and values are those that the first validation has cached.

    The cache is kept from a forward pass without autograd on (litgpt/adapter.py `adapter_kv_cache`; litgpt/finetune/
    adapter.py `fit` validates first): one projection of the prompt, q's part of which is in the same storage.
    """
    if job.framework != "litgpt":
        raise NotEstimable(f"adapters of type {kind} are modelled as LitGPT has them, nowhere else")
    found = []
    for tensor in added(model, kind):
        idle = tensor.name.endswith("adapter_wte.weight")
        whole = Parameter(
            tensor.name, tensor.shape, tensor.copies, tensor.layers, "adapter", dtype, pieces_of(tensor.shape, dtype)
        )
        found.append(whole._replace(part="adapter", trainable=not idle, idle=idle))
        if idle:
            heads = model.shape.heads + 2 * model.shape.kv_heads
            shape = (PROMPT, heads * model.shape.head_dim)
            name = tensor.name.replace("adapter_wte.weight", "adapter_kv_cache")
            found.append(whole._replace(name=name, shape=shape, pieces=pieces_of(shape, dtype), part="buffer"))
    return found


def _pair(module: AdaptedModule, job: Job, model: Model, dtype: str) -> list[Parameter]:
    every = tuple(module.layers) if module.layers else None
    inner, outer, layers = divided_adapter(module.in_features, module.out_features, module.role, every, job, model)
    copies = module.copies if layers is every or layers is None else len(layers)
    if copies == 0:
        return []
    rank, outer_rank = module.rank, module.outer_rank
    if module.role.startswith("expert_"):
        rank, outer_rank = -(-rank // job.parallelism.expert), -(-outer_rank // job.parallelism.expert)
    shapes: dict[str, tuple[int, ...]] = {"lora_A": (rank, inner), "lora_B": (outer, outer_rank)}
    pair = module.rank * module.in_features + module.outer_rank * module.out_features
    magnitudes = module.elements // max(1, module.copies) - pair
    if magnitudes > 0:
        shapes["lora_magnitude_vector"] = (magnitudes,)
    return [
        Parameter(
            f"{module.name}.{part}", shape, copies, layers, module.role, dtype, pieces_of(shape, dtype), "adapter", True
        )
        for part, shape in shapes.items()
    ]


def saved_copies(base: Sequence[Parameter], job: Job, model: Model) -> list[Parameter]:
    """`modules_to_save`: PEFT trains a deep copy and keeps the original (ModulesToSaveWrapper), on this rank's share.

    A tied head that is saved becomes a copy of its own.
    """
    adapter = adapter_of(job)
    if adapter is None or not adapter.modules_to_save:
        return []
    from ..models.lora import saved_tensors

    names = [tensor.name for tensor in saved_tensors(model, adapter)]
    found = [item._replace(part="copy", trainable=True) for item in base if item.part == "base" and item.name in names]
    if len(names) > len({item.name for item in found}) and model.shape.tied:
        heads = [item for item in base if item.role == "embedding"]
        found += [item._replace(name="lm_head.weight", role="head", part="copy", trainable=True) for item in heads[:1]]
    return found
