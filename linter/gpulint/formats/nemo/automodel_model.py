"""Model, adapter, optimizer and loss of a NeMo Automodel recipe."""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING, Any

from ...upstream import nemo_automodel
from ...upstream.behaviour import default_of
from ..core.backends.lora import TRAINABLE
from ..core.bindings.kinds import ANYTHING, FLAG, NUMBER, POSITIVE, SECTION, TEXT, WORDS, Unsaid
from ..core.bindings.rows import LEAVE, NEVER, Assumed, Default, Derived, Fixed, Key, only
from ..core.bindings.spelling import DTYPE, attention, optimizer

if TYPE_CHECKING:
    from ...job.job import Job
    from ..core.bindings.reader import Reader

_OPTIMIZER = optimizer(any_other=True)
_LOSSES = {"FusedLinearCrossEntropy": "cut_cross_entropy", "MaskedCrossEntropy": "torch"}
"""The last part of `loss_fn._target_` -> the Job's kernel; PyTorch's for any other."""

_CHUNKS = 512
"""`chunk_len` of ChunkedCrossEntropy 0.7.0, which makes the logits of a chunk and makes them again in backward.

0.6.0 walks over whole logits and keeps them; before, chunks are cut out of them and autograd keeps float32 ones
(`components/loss/chunked_ce.py`).
"""

_DTYPES = ("model.torch_dtype", "model.dtype")


def _from_config(reader: Reader) -> Any:
    scratch = reader.value(TEXT, "model._target_", default="").endswith("from_config")
    return Default("bfloat16", f"from_config: default of {reader.upstream}") if scratch else LEAVE


def _own_dtype(reader: Reader) -> Default:
    return Default(None, f"the checkpoint's own: default of {reader.upstream}")


def _own_code(reader: Reader) -> Any:
    own = reader.given(SECTION, "model.backend")
    return Derived(False, "its own model code, as `model.backend` asks") if own else LEAVE


def _set_quantization(reader: Reader) -> None:
    """`quantization` becomes a BitsAndBytesConfig (`components/quantization/qlora.py`); frozen experts in 4 bits under
    LoRA are `peft.expert_weight_format` (from 0.7.0 on).
    """
    four, eight = reader.on("quantization.load_in_4bit"), reader.on("quantization.load_in_8bit")
    experts, path = reader.given(TEXT, "peft.expert_weight_format"), "weights.quantization."
    if four:
        kind = reader.given(TEXT, "quantization.bnb_4bit_quant_type")
        word = kind.value if kind and kind.value in ("nf4", "fp4") else "nf4"
        reader.set(f"{path}method", kind or four, f"bnb-{word}")
        reader.set(f"{path}bits", four, 4)
        reader.bind(_FOUR_BIT)
    elif eight:
        reader.set(f"{path}method", eight, "bnb-int8")
        reader.set(f"{path}bits", eight, 8)
    elif experts and experts.value == "mxfp4":
        reader.set(f"{path}method", experts, "mxfp4")
        reader.set(f"{path}bits", experts, 4)


_FOUR_BIT = (
    Key("weights.quantization.double_quant", "quantization.bnb_4bit_use_double_quant", FLAG, default=True),
    Key(
        "weights.quantization.storage_dtype", "quantization.bnb_4bit_quant_storage", DTYPE, "bfloat16",
        other=lambda written: written,
    ),
)  # fmt: skip

WEIGHTS = (
    Key(
        "model",
        ("model.pretrained_model_name_or_path", "model.config.pretrained_model_name_or_path", "model.config"), TEXT,
        Assumed(None, "no key names the model"), back=NEVER,
    ),
    Key("weights.dtype", _DTYPES, DTYPE),
    Fixed("weights.dtype", _from_config),
    Key(
        "weights.dtype", _DTYPES, TEXT, _own_dtype, lambda _word, _job: None, NEVER, note="the checkpoint's own dtype"
    ),
    _set_quantization,
    Fixed("weights.quantization", None),
    Key(
        "attention", ("model.backend.attn", "model.attn_implementation"), attention(),
        Default("flash_attention_2", "flash_attention_2 where it is installed"), other=lambda written: written,
    ),
    Fixed("liger_kernels", _own_code),
    Key("liger_kernels", "model.use_liger_kernel", FLAG, True, back=NEVER),
    Key("compile", ("compile.enabled", "distributed.enable_compile"), FLAG, False),
)  # fmt: skip
"""The model, the dtype of its weights, packing by bitsandbytes, attention, Liger kernels and compilation."""


def _set_targets(reader: Reader) -> None:
    """All linear layers but those excluded, or the modules that are named; projections where nothing says which."""
    every, targets = reader.on("peft.match_all_linear"), reader.given(WORDS, "peft.target_modules")
    excluded = reader.given(WORDS, "peft.exclude_modules")
    if excluded and not targets:
        reader.set("adapter.targets", excluded, "all-linear", "all linear layers but those excluded")
    elif every:
        reader.set("adapter.targets", every, "all-linear")
    else:
        reader.set("adapter.targets", targets, _patterns(targets.value if targets else ["*_proj"]))


def _patterns(names: list[str], *, whole: bool = True) -> list[str] | str:
    """Globs over whole module names as names where they are plain ones, else as one regular expression."""
    if whole and set(names) <= {"*", "*.*"}:
        return "all-linear"
    if all(re.fullmatch(r"(\*\.)?\w+", name) for name in names):
        return [name.removeprefix("*.") for name in names]
    return "|".join(fnmatch.translate(name).removesuffix(r"\Z").removesuffix(r"\z") for name in names)


def _adapter_dtype(reader: Reader) -> Derived:
    if reader.job.weights.quantization is not None:
        dtype = reader.value(DTYPE, "quantization.bnb_4bit_compute_dtype", default="bfloat16")
        return Derived(dtype, "the compute dtype of the packed weights", "weights.quantization.method")
    return Derived(reader.job.weights.dtype or "bfloat16", "the dtype of the weight beside it", "weights.dtype")


def _set_frozen(reader: Reader) -> None:
    """`freeze_config` of multimodal recipes: by words in module names (`components/utils/model_utils.py`)."""
    section = reader.keys.raw("freeze_config")
    if reader.job.method != "full" or section is None or not section.entry.value.is_mapping:
        return
    words: list[str] = []
    for key, default, names in (
        ("freeze_vision_tower", True, ("vision", "visual", "image_encoder")),
        ("freeze_audio_tower", False, ("audio", "speech", "sound")),
        ("freeze_language_model", False, ("language", "text", "llm")),
        ("freeze_embeddings", False, ("embed_tokens",)),
    ):
        words += names if reader.value(FLAG, f"freeze_config.{key}", default=default) else ()
    pattern = [f"^(?!.*(?:{'|'.join(words)}))"] if words else None
    reader.set("trainable", section, pattern, "" if words else "nothing is frozen")


def _has_lora(job: Job) -> bool:
    return job.method == "lora"


ADAPTER = (
    Key("method", "peft", SECTION, Default("full", "no `peft` section"), lambda _section, _job: "lora"),
    Fixed("adapter", Derived(None, "no adapter", "method"), when=lambda job: not _has_lora(job)),
    *only(
        _has_lora,
        Key("adapter.type", "peft.use_dora", FLAG, Derived("lora", "LoRA", "method"), {True: "dora"}, NEVER),
        Key("adapter.r", "peft.dim", POSITIVE, 8),
        Key("adapter.alpha", "peft.alpha", NUMBER, 32),
        Key("adapter.dropout", "peft.dropout", NUMBER, 0.0),
        _set_targets,
        Key("adapter.exclude", "peft.exclude_modules", WORDS, to=lambda names, _: _patterns(names, whole=False)),
        Fixed("adapter.modules_to_save", []),
        Fixed("adapter.prepare_kbit", False),
        Key("adapter.dtype", "peft.lora_dtype", DTYPE, _adapter_dtype),
    ),
    _set_frozen,
    *TRAINABLE,
)
"""`peft` is a `PeftConfig` of its own; adapters have the dtype of the weight that they stand beside."""


def _set_optimizer(reader: Reader) -> None:
    """`optimizer._target_`, fused where its arguments say so."""
    target = reader.given(_OPTIMIZER, "optimizer._target_")
    if target is None:
        return
    plain = str(target.entry.value.value).lower() in ("torch.optim.adam", "torch.optim.adamw", "flashoptim.flashadamw")
    name = target.value.removesuffix("config")
    if plain and reader.on("optimizer.fused"):
        name = "adamw_torch_fused"
    reader.set("optimizer.name", target, {"fusedadam": "fused_adam"}.get(name, name))


def _foreach(reader: Reader) -> Any:
    divided = reader.job.parallelism.tensor > 1
    return Derived(False, f"{reader.upstream} turns it off under tensor parallelism") if divided else None


def _has_masters(reader: Reader) -> bool:
    """Transformer Engine's FusedAdam keeps float32 master weights unless told otherwise."""
    return "FusedAdamConfig" in reader.value(TEXT, "optimizer._target_", default="")


OPTIMIZER = (
    _set_optimizer,
    Fixed("optimizer.name", Assumed("adamw_torch", "no `optimizer` section")),
    Key("optimizer.foreach", "optimizer.foreach", FLAG, _foreach),
    Key("optimizer.state_dtype", "optimizer.exp_avg_dtype", DTYPE, None),
    Key("precision.master_weights", "optimizer.master_weights", FLAG, _has_masters),
)


def _set_kernel(reader: Reader) -> None:
    """`loss_fn._target_`; what chunks keep differs by release."""
    target, release = reader.given(TEXT, "loss_fn._target_"), reader.job.versions.get(nemo_automodel.NAME, "")
    name = target.value.rpartition(".")[2] if target else ""
    logits = default_of(nemo_automodel.DEFAULTS, release, "chunked_loss_logits", "tiles")
    if name == "ChunkedCrossEntropy" and logits:
        reader.set("loss.kernel", target, "chunked")
        reader.derived("loss.logits", logits, f"nemo_automodel {release}", "loss.kernel")
        usual = default_of(nemo_automodel.DEFAULTS, release, "chunk_len", _CHUNKS)
        reader.bind((Key("loss.chunk", "loss_fn.chunk_len", POSITIVE, usual),))
    elif name in (*_LOSSES, "ChunkedCrossEntropy", "TEParallelCrossEntropy"):
        reader.set("loss.kernel", target, _LOSSES.get(name, "torch"))


LOSS = (
    _set_kernel,
    Fixed("loss.kernel", "torch"),
    Key("loss.upcast", "loss_fn.fp32_upcast", FLAG, to={False: "never"}, back=NEVER),
    Key("precision.compute", "fp8.enabled", FLAG, to={True: "float8"}, back=NEVER),
    Key(
        "precision.compute", "model.backend.te_fp8", ANYTHING, None,
        lambda engine, _: "float8-te" if engine else Unsaid.OTHER,
    ),
)  # fmt: skip
"""The loss, and 8-bit products of `fp8` or of Transformer Engine."""
