"""What LLaMA-Factory trains: base weights as loaded and upcast, adapter, frozen parts, reference models.

Facts from llamafactory 0.9.5 (`model/loader.py`, `model/adapter.py`, `model/model_utils/quantization.py`,
`train/trainer_utils.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...upstream.llamafactory import STORED_DTYPE
from ..core import references
from ..core.bindings.kinds import ANYTHING, FLAG, INTEGER, NUMBER, POSITIVE, TEXT, WORDS, Unsaid
from ..core.bindings.rows import NEVER, Default, Derived, Fixed, Key, Written, only
from ..core.model_facts import find_model
from ..hf_trainer.peft_types import FACTORY, set_tuner
from ..hf_trainer.training_arguments import launch_of_run, mixed_precision
from .inference import UPSTREAM

if TYPE_CHECKING:
    from ...job.job import Job
    from ..core.bindings.reader import Reader
    from ..core.format import Reading
    from ..core.key_changes import Keys

_TOWERS = {"vision": ("vision", "audio"), "projector": ("projector",)}


def _bits(job: Job) -> float | None:
    packed = job.weights.quantization
    return packed.bits if packed is not None else None


def _is_four_bit(job: Job) -> bool:
    return _bits(job) == 4 and job.get("weights.quantization.method") in ("bnb-nf4", "bnb-fp4")


def _bitsandbytes(bits: int, _job: Job) -> Any:
    return Written("bnb-nf4", f"nf4: default of {UPSTREAM}") if bits == 4 else "bnb-int8"


def _stored(reader: Reader) -> Derived:
    dtype = "bfloat16" if reader.on("pure_bf16") else mixed_precision(reader)[0]
    note = "packed weights are stored in the compute dtype"
    return Derived(dtype or "bfloat16", note, "precision.autocast")


_QUANTIZATION = (
    Key("weights.quantization.bits", "quantization_bit", POSITIVE, back=NEVER),
    *only(
        lambda job: _bits(job) is not None,
        Key(
            "weights.quantization.method", "quantization_method", TEXT, back=NEVER,
            to=lambda name, _: Unsaid.OTHER if name in ("bitsandbytes", "bnb") else name,
        ),
        Key(
            "weights.quantization.method", "quantization_type", TEXT, to={"nf4": "bnb-nf4", "fp4": "bnb-fp4"},
            back=NEVER, when=lambda job: _bits(job) == 4,
        ),
        Key("weights.quantization.method", "quantization_bit", POSITIVE, to=_bitsandbytes, back=NEVER),
    ),
    *only(
        _is_four_bit,
        Key("weights.quantization.double_quant", "double_quantization", FLAG, default=True, back=NEVER),
        Fixed("weights.quantization.storage_dtype", _stored),
    ),
    Fixed("weights.quantization", None),
)  # fmt: skip
"""`quantization_bit` with bitsandbytes (nf4, double quantised, stored in the compute dtype), HQQ or EETQ."""


def _adapts(job: Job) -> bool:
    return job.method in ("lora", "oft")


def _targets(key: str, method: str) -> Key:
    return Key(
        "adapter.targets", key, WORDS, "all-linear", lambda names, _: "all-linear" if names == ["all"] else names,
        NEVER, when=lambda job: job.method == method,
    )  # fmt: skip


def _grown(key: str) -> Key:
    return Key(
        "adapter.modules_to_save", key, ANYTHING, back=NEVER,
        to=lambda said, _: ["embed_tokens", "lm_head"] if said else Unsaid.OTHER,
        note="a resized vocabulary makes embeddings and head trainable",
    )  # fmt: skip


def _set_oft(reader: Reader) -> None:
    kind = reader.given(TEXT, "finetuning_type")
    if kind and reader.job.method == "oft":
        set_tuner(reader, kind, FACTORY)


_ADAPTER = (
    Fixed("adapter", Derived(None, "no adapter", "method"), when=lambda job: not _adapts(job)),
    *only(
        _adapts,
        Key("adapter.type", "use_dora", FLAG, to={True: "dora"}, back=NEVER),
        Fixed("adapter.type", lambda reader: Derived(reader.job.method, "no DoRA", "method")),
        Key("adapter.r", "lora_rank", POSITIVE, 8, back=NEVER),
        Key(
            "adapter.alpha", "lora_alpha", NUMBER, back=NEVER,
            default=lambda reader: Derived(2 * reader.job.get("adapter.r"), "twice the rank", "adapter.r"),
        ),
        Key("adapter.dropout", "lora_dropout", NUMBER, 0.0, back=NEVER),
        _targets("oft_target", "oft"),
        _targets("lora_target", "lora"),
        Key("adapter.modules_to_save", "additional_target", WORDS, back=NEVER),
        *map(_grown, ("resize_vocab", "add_tokens", "add_special_tokens", "new_special_tokens_config")),
        Fixed("adapter.modules_to_save", []),
        Fixed("adapter.prepare_kbit", False),
        _set_oft,
    ),
)  # fmt: skip
"""With new tokens LLaMA-Factory trains embeddings and head by itself (`adapter.py`)."""


def _set_trainable(reader: Reader) -> None:
    """Patterns of what is trained: the last or first layers for `freeze`; not the towers of a multimodal model.

    A full fine-tune of a multimodal model leaves vision tower and projector frozen unless told otherwise.
    """
    method = reader.job.method
    if method not in ("full", "freeze"):
        reader.derived("trainable", None, "the adapter alone", "method")
        return
    model = find_model(reader.job.model, reader.document.path, reader.project.root)
    if method == "freeze":
        given = reader.given(INTEGER, "freeze_trainable_layers")
        patterns = _layer_patterns(
            reader, model.shape.layers if model is not None else None, given.value if given else 2
        )
        reader.set("trainable", given, patterns, "" if given else f"the last 2 layers: default of {UPSTREAM}")
        return
    frozen = []
    for key, roles in (("freeze_vision_tower", "vision"), ("freeze_multi_modal_projector", "projector")):
        if reader.value(FLAG, key, default=True) and model is not None:
            frozen += [tensor.module for tensor in model.tensors if tensor.role in _TOWERS[roles]]
    heads = sorted({".".join(name.split(".")[:2]) for name in frozen})
    if heads:
        names = "|".join(head.replace(".", r"\.") for head in heads)
        reader.default("trainable", [rf"^(?!(?:{names})\.)"], f"vision tower frozen: default of {UPSTREAM}")
    else:
        reader.derived("trainable", None, "all weights", "method")


def _layer_patterns(reader: Reader, layers: int | None, count: int) -> list[str]:
    """Regular expressions for the layers that `freeze` trains, as `adapter.py` matches names."""
    if layers is None:
        return ["model is not known"]
    indices = range(max(0, layers - count), layers) if count > 0 else range(min(-count, layers))
    modules = reader.value(WORDS, "freeze_trainable_modules", default=["all"])
    names = [""] if modules == ["all"] else modules
    extra: list[str] = reader.value(WORDS, "freeze_extra_modules", default=[])
    return [rf"\.{index}\.{name}" for index in indices for name in names] + extra


def _set_dtypes(reader: Reader) -> None:
    """`weights.dtype`: the checkpoint's own, except that trainable weights become float32.

    `adapter.py`: trainable parameters are cast to float32 unless `pure_bf16`, BAdam, or an unquantised model under
    ZeRO-3, where DeepSpeed keeps the float32 copy.
    """
    job, own = reader.job, "the checkpoint's own dtype"
    pure = reader.on("pure_bf16") or reader.on("use_badam")
    zero3 = job.weights.quantization is None and _is_zero3(reader)
    release = job.versions.get("llamafactory", "")
    computed = not STORED_DTYPE.at(release) and not zero3
    if pure and pure.key == "pure_bf16":
        kept = ("bfloat16", f"llamafactory {release} loads it so") if computed else (None, own)
        reader.set("weights.dtype", pure, kept[0], f"{kept[1]}; nothing is upcast")
        reader.set("precision.autocast", pure, None, "no autocast")
    elif pure:
        reader.set("weights.dtype", pure, None, f"{own}; nothing is upcast")
    elif job.method == "full" and not zero3:
        reader.derived("weights.dtype", "float32", f"{UPSTREAM} upcasts trainable weights", "method")
    elif computed and job.precision.autocast is not None:
        note = f"llamafactory {release} loads it so"
        reader.derived("weights.dtype", job.precision.autocast, note, "precision.autocast")
    else:
        reader.default("weights.dtype", None, own)
    if job.method == "freeze" and not pure and not zero3:
        reader.derived("weights.trainable_dtype", "float32", "trainable weights are upcast", "method")
    if job.adapter is not None and (pure or zero3):
        reader.default("adapter.dtype", None, "as PEFT chooses")
    elif job.adapter is not None:
        reader.default("adapter.dtype", "float32", f"{UPSTREAM} upcasts trainable weights")


def _is_zero3(reader: Reader) -> bool:
    """Whether DeepSpeed will run stage 3, before the DeepSpeed config is applied."""
    given, launch = reader.keys.raw("deepspeed"), launch_of_run(reader)
    if given is None or not given.value:
        return launch is not None and launch.stage == 3
    if given.entry.value.is_mapping:
        section = given.entry.value.find("zero_optimization.stage")
    else:
        found = references.find(str(given.value), reader.document.path, reader.project)
        if found.document is None:
            return references.hint_from_name(str(given.value)).stage in (None, 3)
        section = found.document.root.find("zero_optimization.stage")
    return section is not None and section.value.value == 3


METHOD = (
    Key("method", "finetuning_type", TEXT, "lora", back=NEVER),
    *_QUANTIZATION,
    *_ADAPTER,
    _set_trainable,
    _set_dtypes,
)
"""`finetuning_type`: lora unless stated; QLoRA is lora with `quantization_bit`."""


def set_low_rank(reader: Reader) -> None:
    """GaLore, APOLLO, BAdam, Adam-mini, Muon: switches that replace the optimizer (`train/trainer_utils.py`)."""
    base = reader.job.optimizer.name
    for name in ("galore", "apollo"):
        switch = reader.on(f"use_{name}")
        if switch is None:
            continue
        narrow = name == "galore" and base in ("adamw_8bit", "adamw_bnb_8bit", "paged_adamw_8bit")
        kind = "galore_adafactor" if base == "adafactor" and name == "galore" else f"{name}_adamw{'_8bit' * narrow}"
        if layerwise := reader.on(f"{name}_layerwise"):
            reader.set("optimizer.in_backward", layerwise)
            kind += "_layerwise"
        reader.set("optimizer.name", switch, kind)
        rank = reader.given(POSITIVE, f"{name}_rank")
        reader.set("optimizer.rank", rank, rank.value if rank else 16)
    for name in ("badam", "adam_mini", "muon"):
        if switch := reader.on(f"use_{name}"):
            reader.set("optimizer.name", switch, name)


def _compares(job: Job) -> bool:
    return job.objective in ("dpo", "kto", "ppo")


def _has_reward_model(job: Job) -> bool:
    return job.objective == "ppo" and job.rl.reward_model not in (None, "none")


RL = (
    Fixed(
        "rl.reference_model",
        lambda reader: Derived(False, f"{reader.job.objective} has no reference model", "objective"),
        when=lambda job: not _compares(job),
    ),
    Key("rl.reference_model", "ref_model", TEXT, to=lambda *_: True, back=NEVER),
    Fixed(
        "rl.reference_model", Derived(False, "the base model without its adapter is the reference", "method"),
        when=lambda job: job.method == "lora",
    ),
    Fixed("rl.reference_model", Derived(True, "a frozen copy of the model is the reference", "objective")),
    Fixed("rl.precompute_reference", False),
    Key("rl.reward_model", "reward_model", TEXT, back=NEVER, when=lambda job: job.objective == "ppo"),
    *only(
        _has_reward_model,
        Fixed("rl.value_model", Default("head", "trl's AutoModelForCausalLMWithValueHead")),
        Key("rl.completion_length", "max_new_tokens", POSITIVE, 1024, back=NEVER),
    ),
)  # fmt: skip
"""Reference and reward models (`create_ref_model`): none for LoRA, ORPO and SimPO, a copy of the policy else."""


def method_keys(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """LoRA on all linear layers with rank 16, over a quantised base where the change says so; or a full fine-tune."""
    job, rank = reading.job, changes.get("adapter.r", 16)
    if set(changes) == {"adapter.r"}:
        return {"lora_rank": rank} if job.adapter is not None else None
    method, packed = changes.get("method", job.method), changes.get("weights.quantization.method")
    bits = {None: None, "bnb-nf4": 4, "bnb-int8": 8}
    if packed not in bits or method not in ("lora", "full") or (method == "full" and packed):
        return None
    wanted: Keys = {"finetuning_type": method}
    if packed or method == "full":
        wanted["quantization_bit"] = bits[packed]
    if method == "lora" and job.method != "lora":
        wanted |= {"lora_rank": rank, "lora_target": "all"}
        wanted |= dict.fromkeys(("use_galore", "use_apollo", "use_badam", "use_llama_pro"))
    elif "adapter.r" in changes:
        wanted["lora_rank"] = rank
    return wanted
