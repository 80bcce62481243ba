"""What an axolotl run trains: an adapter, in fused kernels or not, all weights, or some of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...upstream import axolotl
from ..core.bindings.kinds import ANYTHING, FLAG, NUMBER, POSITIVE, TEXT, WORDS, Kind, Unsaid
from ..core.bindings.reader import by_schema
from ..core.bindings.rows import NEVER, Assumed, Default, Fixed, Key, Written, only
from .parallel import NAME, UPSTREAM, places

if TYPE_CHECKING:
    from ...job.job import Job
    from ..core.bindings.reader import Reader
    from ..core.format import Reading
    from ..core.key_changes import Keys


def _type(name: str, _job: Job) -> str:
    return "lora" if name in ("lora", "qlora") else name


def _adapts(job: Job) -> bool:
    return job.method not in ("full", "freeze")


def _names(value: Any) -> Any:
    found = [name for name in (value if isinstance(value, list) else [value]) if isinstance(name, str)]
    return found or Unsaid.WRONG


def _ranks(value: Any, _job: Job) -> Any:
    if not isinstance(value, dict):
        return Unsaid.OTHER
    return {str(name): rank for name, rank in value.items() if isinstance(rank, int)}


def _layers(value: Any, _job: Job) -> Any:
    is_list = isinstance(value, list) and all(isinstance(layer, int) for layer in value)
    return value if is_list else Unsaid.OTHER


_NAMES = Kind("names of modules", _names, blank=lambda _: False, samples=(["q_proj"],))
_TARGETS = Kind(
    "names of modules, or a regular expression of them",
    lambda value: value if isinstance(value, str) and value else _names(value) if value else Unsaid.WRONG,
    blank=lambda _: False,
    samples=(["q_proj"], "all-linear"),
)

METHOD = (
    Key("method", "adapter", TEXT, to=_type, back=NEVER),
    Key("method", "unfrozen_parameters", WORDS, to=lambda *_: "freeze", back=NEVER),
    Key(
        "method", "adapter", ANYTHING, "full", lambda *_: Written("full", "no adapter"), NEVER,
        null=Written("full", "no adapter"),
    ),
    Key("trainable", "unfrozen_parameters", WORDS, back=NEVER, when=lambda job: job.method == "freeze"),
    Key(
        "trainable", "freeze_mm_modules", FLAG, back=NEVER, when=lambda job: job.method == "full",
        to={True: [r"^(?!.*(vision|visual|audio|multi_modal_projector|image_newline))"]},
        note="vision and audio towers and projectors are frozen",
    ),
    Fixed("adapter", None, when=lambda job: not _adapts(job)),
    *only(
        _adapts,
        Key("adapter.type", "peft_use_dora", FLAG, to={True: "dora"}, back=NEVER),
        Key("adapter.type", "adapter", TEXT, to=_type, back=NEVER),
        Key("adapter.r", "lora_r", POSITIVE, Assumed(8, f"{UPSTREAM} has no default for lora_r; PEFT's is 8")),
        Key("adapter.alpha", "lora_alpha", NUMBER, by_schema(NAME, "lora_alpha"), back=NEVER),
        Key("adapter.dropout", "lora_dropout", NUMBER, by_schema(NAME, "lora_dropout")),
        Key("adapter.parameters", "lora_target_parameters", _NAMES, back=NEVER),
        Key("adapter.targets", "lora_target_linear", FLAG, to={True: "all-linear"}, back=NEVER),
        Key("adapter.targets", "lora_target_modules", _TARGETS, back=NEVER),
        Fixed(
            "adapter.targets", Default([], f"{UPSTREAM} adapts nothing that is not named"),
            when=lambda job: job.adapter is None or not job.adapter.parameters,
        ),
        Key("adapter.modules_to_save", "lora_modules_to_save", WORDS, default=[], back=NEVER),
        Key("adapter.layers", "peft_layers_to_transform", ANYTHING, to=_layers, back=NEVER),
        Key("adapter.rank_pattern", "lora_rank_pattern", ANYTHING, to=_ranks, back=NEVER),
        Key(
            "adapter.dtype", "peft_autocast_adapter_dtype", FLAG,
            Default(None, f"default of {UPSTREAM}: float32 as PEFT casts"),
            lambda casts, job: Unsaid.OTHER if casts else job.weights.dtype, NEVER,
        ),
        Key(
            "adapter.prepare_kbit", "embeddings_skip_upcast", FLAG,
            Default(False, f"{UPSTREAM} casts norms, embeddings and head back to 16 bits"), {True: False}, NEVER,
            note="PEFT's preparation leaves embeddings and head as they are",
        ),
    ),
)  # fmt: skip
"""`lora_target_linear` finds every nn.Linear but the head; otherwise names, or one regular expression.

`_configure_embedding_dtypes` casts norms and embeddings to the compute dtype for every adapter, after
`prepare_model_for_kbit_training` had made them float32. With `embeddings_skip_upcast` over 4 bits that list of
embeddings is empty, and PEFT's preparation is patched to leave `embed_tokens` and `lm_head` as they are
(monkeypatch/peft/utils.py `patch_peft_prep_code`); FSDP QLoRA and ZeRO-3 skip the preparation.
"""

_KERNELS = {"lora_qkv_kernel": "qkv", "lora_o_kernel": "o", "lora_mlp_kernel": "mlp", "lora_embedding_kernel": ""}
"""LoRA in fused autograd functions, by the projections of a layer; the last says only that the user has chosen."""


def set_kernels(reader: Reader) -> None:
    """`adapter.kernels`: what the keys name, else all three where nothing is in the way; before 0.16 dropout is."""
    job = reader.job
    release = job.versions.get(NAME, "")
    if job.adapter is None or job.adapter.type != "lora":
        return
    stated = {key: flag for key in _KERNELS if (flag := reader.given(FLAG, key))}
    chosen = [key for key, flag in stated.items() if flag.value and _KERNELS[key]]
    if job.adapter.dropout and not axolotl.KERNELS_WITH_DROPOUT.at(release):
        reader.default("adapter.kernels", [])
    elif chosen:
        reader.set("adapter.kernels", stated[chosen[0]], [_KERNELS[key] for key in chosen])
    elif stated or not _by_itself(reader, release):
        reader.default("adapter.kernels", [])
    else:
        reader.default("adapter.kernels", ["qkv", "o", "mlp"], f"{NAME} {release} turns its LoRA kernels on")


def _by_itself(reader: Reader, release: str) -> bool:
    """Not with `rl`, LoRA over 8 bits, `trust_remote_code`, `nvfp4_merge_aware`, or FSDP1."""
    names = ["rl", "nvfp4_merge_aware", *(["trust_remote_code"] if axolotl.OFF_UNDER_REMOTE_CODE.at(release) else [])]
    packed, fsdp = reader.job.weights.quantization, reader.job.parallelism.fsdp
    if any(given is not None and given.value for given in map(reader.keys.raw, names)):
        return False
    if (packed and packed.method == "bnb-int8") or (fsdp and fsdp.version == 1) or not axolotl.LORA_KERNELS.at(release):
        return False
    return reader.given(NUMBER, "lora_dropout") is not None or not axolotl.WANTS_STATED_DROPOUT.at(release)


def method_keys(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """LoRA on all linear layers, rank 16; QLoRA with 4-bit quantisation; or no adapter."""
    job, method = reading.job, changes.get("method", reading.job.method)
    if set(changes) == {"adapter.r"}:
        return {"lora_r": changes["adapter.r"]}
    quantization = changes.get("weights.quantization.method")
    if method == "full":
        return None if quantization else {"adapter": None, "load_in_4bit": None, "load_in_8bit": None}
    if method != "lora" or quantization not in (None, "bnb-nf4", "bnb-int8"):
        return None
    keys: Keys = {"adapter": "qlora" if quantization == "bnb-nf4" else "lora"}
    if quantization == "bnb-nf4":
        keys |= {"load_in_4bit": True, "load_in_8bit": None}
        fsdp = job.parallelism.fsdp
        if fsdp is not None and fsdp.version == 2 and fsdp.cpu_ram_efficient_loading:
            keys |= dict.fromkeys(places(reading, "cpu_ram_efficient_loading"), False)
    elif quantization == "bnb-int8":
        keys |= {"load_in_8bit": True, "load_in_4bit": None}
    if job.adapter is None:
        rank = changes.get("adapter.r", 16)
        keys |= {"lora_r": rank, "lora_alpha": 2 * rank, "lora_target_linear": True, "unfrozen_parameters": None}
    return keys | ({"lora_r": changes["adapter.r"]} if "adapter.r" in changes else {})
