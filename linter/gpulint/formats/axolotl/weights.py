"""Base weights and precision of an axolotl run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...job.job import Quantization
from ..core.bindings.kinds import ANYTHING, FLAG, TEXT, Unsaid
from ..core.bindings.rows import NEVER, Fixed, Key, Written, only, within
from ..core.coercion import as_boolean
from ..core.model_facts import find_model
from .parallel import is_deepspeed, is_fsdp

if TYPE_CHECKING:
    from typing import Any

    from ...job.job import Job
    from ..core.bindings.reader import Reader
    from ..core.format import Reading
    from ..core.key_changes import Keys


def set_dtypes(reader: Reader) -> None:
    """`weights.dtype` and `precision.autocast` (`resolve_dtype`, `_configure_precision_settings`).

    bf16 true or "auto" on a GPU that has it, or `bfloat16`: bfloat16; else fp16, float16 or load_in_8bit: float16;
    else float32. The Trainer's autocast follows bf16, bfloat16 and fp16 alone.
    """
    asked, gpu = reader.ask(ANYTHING, "bf16"), reader.project.gpu
    bf16 = None if asked.value is Unsaid.BLANK else asked.given
    automatic = not asked.says or asked.value == "auto"
    amp, pure = reader.given(FLAG, "fp16"), reader.on("bfloat16")
    half = next((flag for key in ("fp16", "float16", "load_in_8bit") if (flag := reader.on(key))), None)
    if automatic:
        on = not (amp and amp.value) and (gpu is None or gpu.bf16)
    else:
        on = bool(as_boolean(asked.value)) or asked.value == "full"
    autocast: str | None
    if on or pure:
        dtype, autocast, given = "bfloat16", "bfloat16", bf16 if on and bf16 else pure
        automatic = automatic and on
    elif half:
        dtype, autocast, given, automatic = "float16", "float16" if half.key == "fp16" else None, half, False
    elif automatic and amp is None:
        dtype, autocast, given = "float16", "float16", bf16
    else:
        dtype, autocast, given, automatic = "float32", None, bf16, False
    note = f'"auto" on {gpu.title}' if gpu is not None else '"auto", taken to be a GPU with bfloat16'
    told = "" if not automatic else note if given else f"bf16 {note}, the default of {reader.upstream}"
    reader.set("weights.dtype", given, dtype, told)
    reader.set("precision.autocast", given, autocast, told)


def dtype_keys(_reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """`bf16` and `fp16` decide both the weights and the autocast."""
    value = changes.get("weights.dtype") or changes.get("precision.autocast")
    if value == "bfloat16":
        return {"bf16": True, "fp16": None, "float32": None}
    return {"bf16": False, "fp16": True} if value == "float16" else None


def _packed(method: str, bits: float) -> Any:
    return lambda on, _job: Quantization(method, bits) if on else Unsaid.OTHER


def _named(word: str, _job: Job) -> Any:
    """Checkpoints that are loaded packed: FP8, and MXFP4 unless it is taken apart."""
    found = {"FineGrainedFP8Config": ("fp8", 8.0), "Mxfp4Config": ("mxfp4", 4.0)}.get(word)
    return Quantization(*found) if found else Unsaid.OTHER


def _is_packed(job: Job) -> bool:
    return job.weights.quantization is not None and job.weights.quantization.method.startswith("bnb")


_EXPERTS = Key("weights.quantization.experts", "quantize_moe_experts", FLAG, default=False, when=_is_packed)
"""Every 3-D expert parameter is packed as it is loaded (monkeypatch/moe_quant.py)."""

_FOUR_BIT = (
    Key(
        "weights.quantization", "load_in_4bit", FLAG, to=_packed("bnb-nf4", 4.0), note="QLoRA",
        blank=lambda *_: Written(Quantization("bnb-nf4", 4.0), "QLoRA"),
    ),
    *only(
        _is_packed,
        *within(
            "bnb_config_kwargs",
            Key(
                "weights.quantization.method", "bnb_4bit_quant_type", TEXT, "bnb-nf4",
                {"nf4": "bnb-nf4", "fp4": "bnb-fp4"},
            ),
            Key("weights.quantization.double_quant", "bnb_4bit_use_double_quant", FLAG, default=True),
            Key(
                "weights.quantization.storage_dtype", "bnb_4bit_quant_storage", TEXT, "bfloat16",
                lambda word, _: word.removeprefix("torch."),
            ),
        ),
    ),
    _EXPERTS,
)  # fmt: skip
"""NF4 with double quantisation, stored as bfloat16; `bnb_config_kwargs` overrides."""

_EIGHT_BIT = (
    Key("weights.quantization", "load_in_8bit", FLAG, to=_packed("bnb-int8", 8.0)),
    Key("weights.quantization.method", "load_in_8bit", FLAG, to={True: "bnb-int8"}),
    _EXPERTS,
)


def _set_quantization(reader: Reader) -> None:
    """Only `qlora` with 4 bits and `lora` with 8 bits quantise (`_set_quantization_config`)."""
    adapter = reader.value(TEXT, "adapter")
    reader.bind({"qlora": _FOUR_BIT, "lora": _EIGHT_BIT}.get(adapter, ()))
    if not reader.on("model_quantization_config_kwargs.dequantize"):
        reader.bind([_NAMED])


_NAMED = Key("weights.quantization", "model_quantization_config", TEXT, to=_named)

WEIGHTS = (
    set_dtypes,
    Fixed("precision.master_weights", False),
    Fixed("precision.gradients", None),
    Key(
        "precision.compute", "fp8", FLAG, None, {True: "float8"}, NEVER,
        note="torchao's float8 linear layers (core/fp8.py)",
    ),
    Key("weights.frozen_layers_offloaded", "layer_offloading", FLAG, back=NEVER),
    _set_quantization,
    Fixed("weights.quantization", None),
)  # fmt: skip
"""Without FSDP and DeepSpeed the optimizer works on these weights directly; there is no float32 copy."""


def check_weights(reader: Reader) -> None:
    """4-bit loading that axolotl does not carry out: with `adapter: lora` the weights stay unpacked.

    It quantises nothing, but `_prepare_model_for_quantization` still runs and casts every 16-bit weight to float32.
    """
    four = reader.on("load_in_4bit")
    if four is None or reader.value(TEXT, "adapter") != "lora" or _is_prequantized(reader):
        return
    message = "only adapter: qlora quantises to 4 bits; the base weights are loaded unpacked and cast to float32"
    reader.contradiction(four, "adapter: lora", message)
    if not is_fsdp(reader) and not is_deepspeed(reader):
        reader.set("weights.dtype", four, "float32", "k-bit preparation over unpacked weights")


def _is_prequantized(reader: Reader) -> bool:
    model = reader.job.model
    if not isinstance(model, str):
        return False
    if "bnb" in model.lower() or "4bit" in model.lower():
        return True
    found = find_model(model, reader.document.path, reader.project.root)
    return found is not None and "quantization_config" in found.config


_EMBEDDINGS = ("embed_tokens", "embed_in", "embed_out", "word_embeddings", "lm_head")
"""`get_linear_embedding_layers` over the model types."""


def set_upcast(reader: Reader) -> None:
    """`weights.float32`: norms, embeddings and head of a full fine-tune (`_configure_embedding_dtypes`).

    Everything starts in float32 there and only goes back to 16 bits for an adapter, for an attention that asks for it,
    and for cut cross entropy: `weights.float32_once`. Attentions that take float32 norms are eager and SDPA
    (`ATTN_IMPLS_WITHOUT_DTYPE_CAST`). FSDP skips both ways, DeepSpeed casts every parameter anyway, of which stage 3
    has none whole by then. `embeddings_skip_upcast` over 4 bits leaves embeddings alone.
    """
    job = reader.job
    zero, fsdp = job.parallelism.zero, job.parallelism.fsdp
    narrow = job.weights.dtype in ("bfloat16", "float16") and fsdp is None
    stays = job.adapter is None and job.attention in ("eager", "sdpa") and job.loss.kernel != "cut_cross_entropy"
    if narrow and stays and zero is None:
        note = f"{reader.upstream} leaves norms, embeddings and head of a full fine-tune in float32"
        reader.derived("weights.float32", ["norm", *_EMBEDDINGS], note, "attention")
    else:
        reader.default("weights.float32", [])
    alone = reader.on("embeddings_skip_upcast") and reader.on("load_in_4bit")
    if narrow and not stays and not alone and not (zero is not None and zero.stage == 3):
        note = f"{reader.upstream} makes embeddings and head float32 and narrows them again before training"
        reader.default("weights.float32_once", list(_EMBEDDINGS), note)
    else:
        reader.default("weights.float32_once", [])
