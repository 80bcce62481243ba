"""What PEFT adds to a model: low-rank pairs, the parts of other types, and trained copies of whole modules."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...models.adapter_types import COPIED, FROZEN_SIDE, LOW_RANK, MODELLED, PROMPTS, WITH_TABLES, kind_of
from ...models.llama_adapter import PROMPT, TYPES, added
from ...models.lora_targets import NotAdaptable
from ...upstream import litgpt, megatron, peft
from ...upstream.stack import Stack
from ...upstream.transformers import GROUPED_EXPERTS
from ...upstream.transformers_models import FUSED_EXPERTS
from ..estimate import NotEstimable
from .parameter import Parameter, pieces_of
from .tensor_parallel import divided_adapter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...job.job import Adapter, Job
    from ...models.adapted_module import AdaptedModule
    from ...models.adapter_parts import Part
    from ...models.lora_targets import Experts
    from ...models.model import Model


def adapter_of(job: Job) -> Adapter | None:
    """The job's adapter; PEFT's defaults for a LoRA job that names none."""
    if job.adapter is None and job.method == "lora":
        from ...job.job import Adapter

        return Adapter()
    return job.adapter


def with_adapter(job: Job) -> Job:
    """The job with the adapter that it leaves out, see `adapter_of`: a reference model is the policy without it."""
    adapter = adapter_of(job)
    if adapter is job.adapter:
        return job
    changed = replace(job, adapter=adapter)
    changed.origins = job.origins
    return changed


def adapter_parameters(job: Job, model: Model, dtype: str) -> list[Parameter]:
    """lora_A [r, in] and lora_B [out, r] of each adapted module, and DoRA's magnitudes, in `dtype`; of other types
    what `models/adapter_parts.py` lists, and after the modules' what the adapter has once.

    Of LLaMA-Adapter its own tensors. Raises NotEstimable where PEFT would refuse the targets, and for types of
    adapters that are not modelled.
    """
    adapter = adapter_of(job)
    if adapter is None:
        return []
    if adapter.type in TYPES:
        try:
            return _llama_adapter(adapter.type, job, model, dtype)
        except NotAdaptable as error:
            raise NotEstimable(str(error)) from None
    kind = kind_of(adapter)
    if kind not in MODELLED:
        raise NotEstimable(f"adapters of type {adapter.type} are not modelled")
    if kind not in LOW_RANK:
        _refuse_division(job, adapter)
    from ...models.lora import adapted, common_parts

    try:
        modules = adapted(model, adapter, expert_targets(job, model), Stack(job))
        if kind in LOW_RANK:
            return [item for module in modules for item in _pair(module, adapter, job, model, dtype)]
        common = [_part(part, "", None, "adapter", dtype) for part in common_parts(model, adapter, modules)]
        inside = (item for module in modules for item in _inside(module, adapter, model, dtype))
        if _rank_is_trained(job, model):
            inside = (item._replace(trainable=True) if item.name.endswith(".ranknum") else item for item in inside)
        return [*inside, *common]
    except NotAdaptable as error:
        raise NotEstimable(str(error)) from None


def expert_targets(job: Job, model: Model) -> Experts:
    """How PEFT's targets meet experts at the job's releases (peft 0.19 tuners_utils.py inject_adapter)."""
    stack = Stack(job)
    if stack.runs(megatron.NAME):
        return "fused"
    if not stack.does(FUSED_EXPERTS, model.model_type):
        return "modules"
    converted = stack.does(GROUPED_EXPERTS) and stack.does(peft.CONVERTS_EXPERT_TARGETS)
    return "converted" if converted else "parameters"


def _llama_adapter(kind: str, job: Job, model: Model, dtype: str) -> list[Parameter]:
    """LitGPT's; the prompt gets no gradient, its keys and values are those that the first validation has cached.

    The cache is kept from a forward pass without autograd on (litgpt/adapter.py `adapter_kv_cache`; litgpt/finetune/
    adapter.py `fit` validates first): one projection of the prompt, q's part of which is in the same storage.
    """
    if not Stack(job).runs(litgpt.NAME):
        raise NotEstimable(f"{kind} is modelled as LitGPT has it; PEFT's adaption prompt, which it is here, is not")
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


def _rank_is_trained(job: Job, model: Model) -> bool:
    """Whether AdaLoRA's count of ranks wants a gradient, though nothing else of it is learned.

    Moved to the 16-bit dtype that a base computes in, a frozen parameter becomes one that is trained (torch's
    ParameterDict wraps the copy). Up to 0.20 PEFT froze it again, as its name has not the prefix of the adapter's;
    0.21 goes by the modules (tuners/tuners_utils.py `_mark_only_adapters_as_trainable`).
    """
    narrow = (job.weights.dtype or model.dtype) in ("bfloat16", "float16")
    return (narrow or job.weights.quantization is not None) and Stack(job).does(peft.TRAINS_RANK_COUNT)


def _refuse_division(job: Job, adapter: Adapter) -> None:
    """How tensor and pipeline parallelism, or an engine that serves, divide these types is not derived."""
    plan = job.parallelism
    sharded = plan.fsdp is not None or (plan.zero is not None and plan.zero.stage == 3)
    if job.kind != "training" or plan.tensor > 1 or plan.pipeline > 1 or (sharded and kind_of(adapter) in WITH_TABLES):
        raise NotEstimable(f"adapters of type {adapter.type} are modelled in training on whole models alone")
    if plan.context > 1 and kind_of(adapter) in PROMPTS:
        raise NotEstimable(f"how context parallelism divides the virtual tokens of {adapter.type} is not derived")


def _inside(module: AdaptedModule, adapter: Adapter, model: Model, dtype: str) -> list[Parameter]:
    from ...models.lora import module_parts

    every = tuple(module.layers) if module.layers else None
    return [_part(part, f"{module.name}.", every, module.role, dtype) for part in module_parts(model, adapter, module)]


def _part(part: Part, module: str, layers: tuple[int, ...] | None, role: str, dtype: str) -> Parameter:
    width = part.dtype or dtype
    copies = len(layers) if layers is not None else 1
    name, pieces = module + part.name, pieces_of(part.shape, width)
    return Parameter(name, part.shape, copies, layers, role, width, pieces, "adapter", part.trained)


def _pair(module: AdaptedModule, adapter: Adapter, job: Job, model: Model, dtype: str) -> list[Parameter]:
    every = tuple(module.layers) if module.layers else None
    leaf = module.name.removesuffix(".weight").rpartition(".")[2]
    inner, outer, layers = divided_adapter(
        module.in_features, module.out_features, module.role, leaf, every, job, model
    )
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
    frozen = FROZEN_SIDE.get(kind_of(adapter))
    return [
        Parameter(
            f"{module.name}.{part}",
            shape,
            copies,
            layers,
            module.role,
            dtype,
            pieces_of(shape, dtype),
            "adapter",
            part != frozen,
        )
        for part, shape in shapes.items()
    ]


def saved_copies(base: Sequence[Parameter], job: Job, model: Model) -> list[Parameter]:
    """`modules_to_save`: PEFT trains a deep copy and keeps the original (ModulesToSaveWrapper), on this rank's share.

    LN tuning does the same with its targets (tuners/ln_tuning/layer.py).

    A tied head that is saved becomes a copy of its own.
    """
    adapter = adapter_of(job)
    if adapter is None or not (adapter.modules_to_save or kind_of(adapter) in COPIED):
        return []
    from ...models.lora import NotAdaptable, saved_tensors

    try:
        names = [tensor.name for tensor in saved_tensors(model, adapter)]
    except NotAdaptable as error:
        raise NotEstimable(str(error)) from None
    found = [item._replace(part="copy", trainable=True) for item in base if item.part == "base" and item.name in names]
    if len(names) > len({item.name for item in found}) and model.shape.tied:
        heads = [item for item in base if item.role == "embedding"]
        found += [item._replace(name="lm_head.weight", role="head", part="copy", trainable=True) for item in heads[:1]]
    return found
