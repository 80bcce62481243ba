"""Model, adapter, optimizer and loss of a NeMo Automodel recipe."""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING

from ...upstream import nemo_automodel
from ...upstream.behaviour import default_of
from ..core.sections import dtype_of

if TYPE_CHECKING:
    from ..core.sections import Filling, Sections

_ATTENTION = {
    "sdpa": "sdpa", "eager": "eager", "flash_attention_2": "flash_attention_2", "flex_attention": "flex",
    "flash_attention_3": "flash_attention_3", "te": "flash_attention_2", "flex": "flex",
}  # fmt: skip
"""`attn_implementation` and `backend.attn` -> the Job's; Transformer Engine runs a fused flash kernel."""

_OPTIMIZERS = {
    "torch.optim.adam": "adamw_torch", "torch.optim.adamw": "adamw_torch", "flashoptim.flashadamw": "flash_adamw",
    "torch.optim.sgd": "sgd",
}  # fmt: skip

_LOSSES = {
    "FusedLinearCrossEntropy": "cut_cross_entropy",
    "MaskedCrossEntropy": "torch",
    "TEParallelCrossEntropy": "torch",
}
"""The last part of `loss_fn._target_` -> the Job's kernel."""

_CHUNKS = 512
"""`chunk_len` of ChunkedCrossEntropy 0.7.0, which makes the logits of a chunk and makes them again in backward.

0.6.0 walks over whole logits and keeps them; before, chunks are cut out of them and autograd keeps float32 ones
(`components/loss/chunked_ce.py`).
"""


def set_model(filling: Filling, values: Sections) -> None:
    """The model, the dtype of its weights, packing by bitsandbytes, attention, Liger kernels and compilation."""
    builder = filling.builder
    given = values.text(
        "model.pretrained_model_name_or_path", "model.config.pretrained_model_name_or_path", "model.config"
    )
    if given:
        filling.put("model", given)
    else:
        builder.assumed("model", None, "no key names the model")
    dtype = values.text("model.torch_dtype", "model.dtype")
    target = values.text("model._target_")
    scratch = bool(target and target.value.endswith("from_config"))
    if dtype and dtype_of(dtype):
        filling.put("weights.dtype", dtype, dtype_of(dtype))
    elif scratch:
        builder.default("weights.dtype", "bfloat16", f"from_config: default of {builder.upstream}")
    elif dtype:
        filling.nothing("weights.dtype", dtype, "the checkpoint's own dtype")
    else:
        builder.default("weights.dtype", None, f"the checkpoint's own: default of {builder.upstream}")
    _set_quantization(filling, values)
    attention = values.text("model.backend.attn", "model.attn_implementation")
    if attention:
        filling.put("attention", attention, _ATTENTION.get(attention.value, attention.value))
    else:
        builder.default("attention", "flash_attention_2", "flash_attention_2 where it is installed")
    liger = values.flag("model.use_liger_kernel")
    own = values.is_mapping("model.backend")
    if liger and not own:
        filling.put("liger_kernels", liger)
    elif own:
        builder.derived("liger_kernels", False, "its own model code, as `model.backend` asks")
    else:
        builder.default("liger_kernels", True)
    compiled = values.flag("compile.enabled", "distributed.enable_compile")
    filling.fill("compile", compiled, False)


def _set_quantization(filling: Filling, values: Sections) -> None:
    """`quantization` becomes a BitsAndBytesConfig (`components/quantization/qlora.py`); frozen experts in 4 bits under
    LoRA are `peft.expert_weight_format` (from 0.7.0 on).
    """
    experts = values.text("peft.expert_weight_format")
    four, eight = values.flag("quantization.load_in_4bit"), values.flag("quantization.load_in_8bit")
    path = "weights.quantization."
    if four and four.value:
        kind = values.text("quantization.bnb_4bit_quant_type")
        named = kind.value if kind and kind.value in ("nf4", "fp4") else "nf4"
        filling.put(f"{path}method", kind or four, f"bnb-{named}")
        filling.put(f"{path}bits", four, 4)
        filling.fill(f"{path}double_quant", values.flag("quantization.bnb_4bit_use_double_quant"), True)
        storage = values.text("quantization.bnb_4bit_quant_storage")
        if storage:
            filling.put(f"{path}storage_dtype", storage, dtype_of(storage) or storage.value)
        else:
            filling.builder.default(f"{path}storage_dtype", "bfloat16")
    elif eight and eight.value:
        filling.put(f"{path}method", eight, "bnb-int8")
        filling.put(f"{path}bits", eight, 8)
    elif experts and experts.value == "mxfp4":
        filling.put(f"{path}method", experts, "mxfp4")
        filling.put(f"{path}bits", experts, 4)
    else:
        filling.builder.default("weights.quantization", None)


def set_adapter(filling: Filling, values: Sections) -> None:
    """`peft` is a `PeftConfig` of its own; adapters have the dtype of the weight that they stand beside."""
    builder = filling.builder
    section = values.raw("peft")
    if section is None or not section.entry.value.is_mapping:
        builder.default("method", "full", "no `peft` section")
        builder.derived("adapter", None, "no adapter", "method")
        return
    filling.put("method", section, "lora")
    dora = values.flag("peft.use_dora")
    if dora and dora.value:
        filling.put("adapter.type", dora, "dora")
    else:
        builder.derived("adapter.type", "lora", "LoRA", "method")
    filling.fill("adapter.r", values.integer("peft.dim", least=1), 8)
    filling.fill("adapter.alpha", values.number("peft.alpha"), 32)
    filling.fill("adapter.dropout", values.number("peft.dropout"), 0.0)
    every = values.flag("peft.match_all_linear")
    targets = values.words("peft.target_modules")
    if every and every.value:
        filling.put("adapter.targets", every, "all-linear")
    elif targets:
        filling.put("adapter.targets", targets, _patterns(targets.value))
    excluded = values.words("peft.exclude_modules")
    if excluded and not targets:
        filling.put("adapter.targets", excluded, "all-linear", "all linear layers but those excluded")
    elif not targets and not (every and every.value):
        builder.default("adapter.targets", _patterns(["*_proj"]))
    if excluded:
        filling.put("adapter.exclude", excluded, _patterns(excluded.value, whole=False))
    builder.default("adapter.modules_to_save", [])
    builder.default("adapter.prepare_kbit", False)
    stated = values.text("peft.lora_dtype")
    compute = values.text("quantization.bnb_4bit_compute_dtype")
    if stated and dtype_of(stated):
        filling.put("adapter.dtype", stated, dtype_of(stated))
    elif builder.job.weights.quantization is not None:
        dtype = dtype_of(compute) or "bfloat16"
        builder.derived(
            "adapter.dtype", dtype, "the compute dtype of the packed weights", "weights.quantization.method"
        )
    else:
        dtype = builder.job.weights.dtype or "bfloat16"
        builder.derived("adapter.dtype", dtype, "the dtype of the weight beside it", "weights.dtype")


def _patterns(names: list[str], *, whole: bool = True) -> list[str] | str:
    """Globs over whole module names as names where they are plain ones, else as one regular expression."""
    if whole and set(names) <= {"*", "*.*"}:
        return "all-linear"
    if all(re.fullmatch(r"(\*\.)?\w+", name) for name in names):
        return [name.removeprefix("*.") for name in names]
    return "|".join(fnmatch.translate(name).removesuffix(r"\Z").removesuffix(r"\z") for name in names)


def set_trainable(filling: Filling, values: Sections) -> None:
    """`freeze_config` of multimodal recipes: by words in module names (`components/utils/model_utils.py`)."""
    builder = filling.builder
    section = values.raw("freeze_config")
    if builder.job.method != "full":
        builder.derived("trainable", None, "the adapter alone", "method")
        return
    if section is None or not section.entry.value.is_mapping:
        builder.default("trainable", None, "all weights")
        return
    words: list[str] = []
    for key, default, names in (
        ("freeze_vision_tower", True, ("vision", "visual", "image_encoder")),
        ("freeze_audio_tower", False, ("audio", "speech", "sound")),
        ("freeze_language_model", False, ("language", "text", "llm")),
        ("freeze_embeddings", False, ("embed_tokens",)),
    ):
        given = values.flag(f"freeze_config.{key}")
        if given.value if given else default:
            words += names
    if words:
        filling.put("trainable", section, [f"^(?!.*(?:{'|'.join(words)}))"])
    else:
        filling.nothing("trainable", section, "nothing is frozen")


def set_optimizer(filling: Filling, values: Sections) -> None:
    """`optimizer._target_`; Transformer Engine's FusedAdam keeps float32 master weights unless told otherwise."""
    builder = filling.builder
    target = values.text("optimizer._target_")
    written = target.value.lower() if target else ""
    fused = values.flag("optimizer.fused")
    if target is None:
        builder.assumed("optimizer.name", "adamw_torch", "no `optimizer` section")
    elif written in _OPTIMIZERS:
        name = "adamw_torch_fused" if fused and fused.value and "adam" in written else _OPTIMIZERS[written]
        filling.put("optimizer.name", target, name)
    else:
        last = target.value.rpartition(".")[2].removesuffix("Config")
        filling.put("optimizer.name", target, {"FusedAdam": "fused_adam"}.get(last, last.lower()))
    foreach = values.flag("optimizer.foreach")
    if foreach:
        filling.put("optimizer.foreach", foreach)
    elif (values.integer("distributed.tp_size") or _ONE).value > 1:
        builder.derived("optimizer.foreach", False, f"{builder.upstream} turns it off under tensor parallelism")
    else:
        builder.default("optimizer.foreach", None)
    state = values.text("optimizer.exp_avg_dtype")
    if state and dtype_of(state):
        filling.put("optimizer.state_dtype", state, dtype_of(state))
    else:
        builder.default("optimizer.state_dtype", None)
    masters = values.flag("optimizer.master_weights")
    if masters:
        filling.put("precision.master_weights", masters)
    else:
        builder.default("precision.master_weights", "FusedAdamConfig" in (target.value if target else ""))


class _ONE:
    value = 1


def set_loss(filling: Filling, values: Sections) -> None:
    """`loss_fn._target_`, and 8-bit products of `fp8` or of Transformer Engine."""
    builder = filling.builder
    target = values.text("loss_fn._target_")
    name = target.value.rpartition(".")[2] if target else ""
    release = builder.job.versions.get("nemo-automodel", "")
    logits = default_of(nemo_automodel.DEFAULTS, release, "chunked_loss_logits", "tiles")
    if target and name == "ChunkedCrossEntropy" and logits:
        filling.put("loss.kernel", target, "chunked")
        builder.derived("loss.logits", logits, f"nemo_automodel {release}", "loss.kernel")
        usual = default_of(nemo_automodel.DEFAULTS, release, "chunk_len", _CHUNKS)
        filling.fill("loss.chunk", values.integer("loss_fn.chunk_len"), usual)
    elif target and name == "ChunkedCrossEntropy":
        filling.put("loss.kernel", target, "torch")
    elif target and name in _LOSSES:
        filling.put("loss.kernel", target, _LOSSES[name])
    else:
        builder.default("loss.kernel", "torch")
    upcast = values.flag("loss_fn.fp32_upcast")
    if upcast and not upcast.value:
        filling.put("loss.upcast", upcast, "never")
    eight = values.flag("fp8.enabled")
    engine = values.raw("model.backend.te_fp8")
    if eight and eight.value:
        filling.put("precision.compute", eight, "float8")
    elif engine and engine.value:
        filling.put("precision.compute", engine, "float8-te")
    else:
        builder.default("precision.compute", None)
