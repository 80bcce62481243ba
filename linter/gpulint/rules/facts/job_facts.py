"""Facts that follow from the Job, the model and the GPU without an estimate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..expression import UNKNOWN
from .facts import Facts, fact, filled_at_launch

if TYPE_CHECKING:
    from collections.abc import Callable


@fact("format")
def _format(facts: Facts) -> Any:
    """The config format of the checked file."""
    return facts.reading.format


@fact("upstream")
def _upstream(facts: Facts) -> Any:
    """The tool and version whose defaults apply."""
    return facts.reading.upstream


@fact("gpus", type="whole number")
def _gpus(facts: Facts) -> Any:
    """GPUs of the whole job."""
    return facts.job.world_size


@fact("gpus.assumed")
def _gpus_assumed(facts: Facts) -> Any:
    """Whether the number of GPUs is assumed, because nothing sets it."""
    origin = facts.job.origins.get("hardware.gpus")
    return facts.job.hardware.gpus is None or (origin is not None and origin.kind == "assumed")


@fact("data_parallel", type="whole number")
def _data_parallel(facts: Facts) -> Any:
    """Ranks over which ZeRO or FSDP can shard."""
    return facts.job.data_parallel


@fact("weights.quantized")
def _quantized(facts: Facts) -> Any:
    """Whether the base weights are stored in fewer bits than their dtype."""
    return facts.job.weights.quantization is not None


@fact("zero.stage", type="whole number")
def _zero_stage(facts: Facts) -> Any:
    """The DeepSpeed ZeRO stage, 0 without DeepSpeed."""
    zero = facts.job.parallelism.zero
    return zero.stage if zero is not None else 0


@fact("zero.offloads")
def _zero_offloads(facts: Facts) -> Any:
    """Whether ZeRO keeps optimizer states or parameters outside the GPU."""
    zero = facts.job.parallelism.zero
    return zero is not None and (zero.offload_optimizer.device != "none" or zero.offload_parameters.device != "none")


@fact("fsdp.version", type="whole number")
def _fsdp_version(facts: Facts) -> Any:
    """The FSDP version, 1 or 2; 0 without FSDP."""
    fsdp = facts.job.parallelism.fsdp
    return fsdp.version if fsdp is not None else 0


@fact("sharded.weights")
def _shards_weights(facts: Facts) -> Any:
    """Whether each GPU holds only its part of the weights (ZeRO-3, FSDP full or hybrid shard)."""
    parallelism = facts.job.parallelism
    zero = parallelism.zero is not None and parallelism.zero.stage >= 3
    fsdp = parallelism.fsdp is not None and parallelism.fsdp.sharding in ("full_shard", "hybrid_shard")
    return zero or fsdp


@fact("sharded.optimizer")
def _shards_states(facts: Facts) -> Any:
    """Whether each GPU holds only its part of the optimizer states (ZeRO 1 to 3, sharding FSDP)."""
    parallelism = facts.job.parallelism
    zero = parallelism.zero is not None and parallelism.zero.stage >= 1
    fsdp = parallelism.fsdp is not None and parallelism.fsdp.sharding not in ("no_shard", "")
    return zero or fsdp


@fact("micro_batch.tokens", "tokens")
def _row_tokens(facts: Facts) -> Any:
    """Tokens of one micro batch: micro batch size x sequence length."""
    job = facts.job
    if job.micro_batch_size is None or job.sequence_length is None:
        return UNKNOWN
    return job.micro_batch_size * job.sequence_length


@fact("effective_batch_size", type="whole number")
def _effective_batch(facts: Facts) -> Any:
    """Micro batch size x gradient accumulation x data-parallel size (context-parallel ranks share samples)."""
    job = facts.job
    if job.micro_batch_size is None:
        return UNKNOWN
    replicas = max(1, job.data_parallel // max(1, job.parallelism.context))
    return job.micro_batch_size * job.gradient_accumulation_steps * replicas


@fact("model.known")
def _model_known(facts: Facts) -> Any:
    """Whether the model's tensors are known."""
    return facts.model is not None


@fact("model.named")
def _model_named(facts: Facts) -> Any:
    """Whether the config names a model; placeholders and template texts (`path to your model`) do not count."""
    name = facts.job.model
    if isinstance(name, str) and (len(name.split()) > 1 or "path/to" in name.lower().replace("_", "/")):
        return False
    return name is not None and not filled_at_launch(name)


@fact("model.error")
def _model_reason(facts: Facts) -> Any:
    """Why the model is unknown."""
    return facts.model_reason if facts.model is None else UNKNOWN


@fact("model.id")
def _model_id(facts: Facts) -> Any:
    """The model as the config names it."""
    if facts.model is not None:
        return facts.model.id
    return facts.job.model if isinstance(facts.job.model, str) else UNKNOWN


@fact("model.hub_id")
def _hub_id(facts: Facts) -> Any:
    """The model as the config names it, if it has the form `ORG/NAME`."""
    from ...models.resolve import may_be_on_hub

    name = facts.job.model
    return name if isinstance(name, str) and "/" in name and may_be_on_hub(name) else UNKNOWN


@fact("model.architecture_known")
def _model_exact(facts: Facts) -> Any:
    """Whether the architecture itself is known, rather than approximated by a similar one."""
    return facts.model.exact if facts.model is not None else UNKNOWN


@fact("model.parameters", "parameters")
def _model_parameters(facts: Facts) -> Any:
    """Exact number of parameters."""
    return facts.model.parameters if facts.model is not None else UNKNOWN


@fact("model.type")
def _model_type(facts: Facts) -> Any:
    """`model_type` of the model's config.json."""
    return facts.model.model_type if facts.model is not None else UNKNOWN


@fact("model.max_position_embeddings", "tokens")
def _max_positions(facts: Facts) -> Any:
    """Longest sequence that the model's config.json sets; a default of the config class does not count."""
    shape = facts.model.shape if facts.model is not None else None
    known = shape is not None and shape.positions_stated and shape.max_positions is not None
    return shape.max_positions if shape is not None and known else UNKNOWN


@fact("model.rope_scaling")
def _rope_scaling(facts: Facts) -> Any:
    """The RoPE scaling type in the model's config.json (`yarn`, `llama3` ...); null without scaling."""
    if facts.model is None:
        return UNKNOWN
    for key in ("rope_scaling", "rope_parameters"):
        scaling = facts.model.config.get(key)
        if isinstance(scaling, dict):
            kind = scaling.get("rope_type", scaling.get("type", "default"))
            return None if kind == "default" else kind
    return None


@fact("model.longest_rope", type="number")
def _longest_rope(facts: Facts) -> Any:
    """Longest sequence that vLLM derives from the model's config.json: its positions times the RoPE scaling's factor,
    but for types whose positions are those after scaling (llama3, longrope, su); yarn starts from the original ones.

    vLLM 0.33 `config/model.py` `_get_and_verify_max_len`.
    """
    positions = facts.get("model.max_position_embeddings")
    if facts.model is None or not isinstance(positions, int):
        return UNKNOWN
    scaling = facts.model.config.get("rope_scaling") or facts.model.config.get("rope_parameters")
    kind = facts.get("model.rope_scaling")
    if kind in (None, "llama3", "longrope", "su"):
        return positions
    if not isinstance(scaling, dict) or kind not in ("linear", "dynamic", "yarn"):
        return UNKNOWN
    factor = scaling.get("factor")
    first = scaling.get("original_max_position_embeddings", positions) if kind == "yarn" else positions
    if not isinstance(factor, int | float):
        return UNKNOWN
    return int(first * factor) if isinstance(first, int) else UNKNOWN


@fact("model.text_only")
def _text_only(facts: Facts) -> Any:
    """Whether the model takes text alone: its config.json has no part for images, audio or video."""
    if facts.model is None or not facts.model.exact:
        return UNKNOWN
    told = ("vision", "visual", "image", "video", "audio", "speech", "text_config", "thinker", "mm_", "encoder")
    return not any(part in key for key in facts.model.config for part in told)


@fact("model.sliding_window", type="whole number")
def _sliding_window(facts: Facts) -> Any:
    """Tokens that every layer looks back; null if a layer attends to all."""
    windows = facts.model.shape.windows if facts.model is not None else None
    return UNKNOWN if windows is None else windows[0] if windows and None not in windows else None


@fact("model.checkpoint_quantization")
def _checkpoint_quantization(facts: Facts) -> Any:
    """`quantization_config.quant_method` of the model's own config.json, else the method in its id (`-GPTQ`, `-AWQ`,
    `-bnb-4bit`, `-FP8`); null if neither names one. An id that the catalogue does not list is a guess."""
    from ...estimator.states.guessed import method_named, method_of
    from ...models.names import named_quantization

    if facts.job.weights.stored is not None:
        return method_of(facts.job.weights.stored)
    config = facts.model.config.get("quantization_config") if facts.model is not None else None
    if isinstance(config, dict):
        return config.get("quant_method")
    if facts.model is not None:
        named = facts.model.named_quantization
        return method_named(named) if named is not None else None
    named = named_quantization(facts.job.model) if isinstance(facts.job.model, str) else None
    return method_named(named) if named is not None else UNKNOWN


def _attribute(of: Callable[[Facts], Any], path: str, name: str, meaning: str, unit: str, type_: str) -> None:
    """A fact that is an attribute of what `of` gives, unknown where that is None."""

    def derive(facts: Facts) -> Any:
        value = getattr(of(facts), name, None)
        return UNKNOWN if value is None else value

    derive.__doc__ = meaning
    fact(path, unit, type_)(derive)


for _path, _name, _meaning, _unit in (
    ("model.hidden_size", "hidden", "Hidden size.", ""),
    ("model.layers", "layers", "Decoder layers.", ""),
    ("model.heads", "heads", "Attention heads.", ""),
    ("model.kv_heads", "kv_heads", "Key/value heads.", ""),
    ("model.vocab_size", "vocabulary", "Vocabulary size.", ""),
    ("model.experts", "experts", "Experts of a mixture-of-experts layer; 0 for dense models.", ""),
    ("model.tie_word_embeddings", "tied", "Whether the LM head shares the embedding's weights.", ""),
):
    _attribute(
        lambda facts: facts.model and facts.model.shape,
        _path,
        _name,
        _meaning,
        _unit,
        "" if _name == "tied" else "whole number",
    )


@fact("trainable.parameters", "parameters")
def _trainable(facts: Facts) -> Any:
    """Parameters that the optimizer updates."""
    if facts.model is None:
        return UNKNOWN
    from ...estimator.estimate import NotEstimable
    from ...estimator.loaded_model import as_run, loaded_model
    from ...estimator.states.parameters import trainable_parameters

    job = as_run(facts.job, facts.model)
    try:
        return trainable_parameters(job, loaded_model(job, facts.model))
    except NotEstimable:
        return UNKNOWN


@fact("adapter.error")
def _adapter_refusal(facts: Facts) -> Any:
    """Why PEFT rejects the adapter's targets on this model; null if it accepts them.

    Unknown for patterns and dotted names: they depend on the class that the model is loaded with. Also unknown for
    adapter types that are not modelled, which need not have targets (PEFT's adaption prompt).
    """
    from ...models.adapter_types import MODELLED, kind_of

    if facts.model is None or facts.job.adapter is None or kind_of(facts.job.adapter) not in MODELLED:
        return UNKNOWN
    targets = facts.job.adapter.targets
    if not isinstance(targets, list) or any("." in str(name) for name in targets):
        return UNKNOWN
    from ...estimator.states.adapter_parameters import expert_targets
    from ...models.lora import NotAdaptable, NotModelled, adapted
    from ...upstream.stack import Stack

    try:
        adapted(facts.model, facts.job.adapter, expert_targets(facts.job, facts.model), Stack(facts.job))
    except NotModelled:
        return UNKNOWN
    except NotAdaptable as error:
        return str(error)
    return None


for _path, _name, _meaning, _unit in (
    ("gpu.name", "name", "Catalogue name of the GPU (`h100-80gb`).", ""),
    ("gpu.title", "title", "Display name of the GPU (`H100 80GB`).", ""),
    ("gpu.vendor", "vendor", "Vendor of the GPU (`nvidia`, `amd`).", ""),
    ("gpu.usable", "usable", "GPU memory that torch reports as the total.", "bytes"),
    ("gpu.total", "total", "GPU memory that nvidia-smi reports as the total.", "bytes"),
    ("gpu.compute_capability", "compute_capability", "CUDA compute capability (`8.0`).", "capability"),
    ("gpu.bf16", "bf16", "Whether the GPU supports bfloat16.", ""),
    ("gpu.fp8", "fp8", "Whether the GPU supports float8.", ""),
    ("gpu.flash_attention_2", "flash_attention_2", "Whether FlashAttention 2 runs on the GPU.", ""),
    ("gpu.flash_attention_3", "flash_attention_3", "Whether FlashAttention 3 runs on the GPU.", ""),
):
    _attribute(
        lambda facts: facts.gpu, _path, _name, _meaning, _unit, "number" if _name == "compute_capability" else ""
    )
