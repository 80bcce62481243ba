"""The training job of an Oumi config, in terms of the Trainer's arguments that it becomes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.backends.fsdp import FsdpDefaults, Section, apply_fsdp
from ..core.backends.lora import lora
from ..core.backends.trainer import BATCH, optimizer
from ..core.bindings.kinds import FLAG, POSITIVE, TEXT, WORD, WORDS, Unsaid
from ..core.bindings.rows import NEVER, Default, Derived, Fixed, Key, only, renamed, within
from ..core.bindings.spelling import MIXED_PRECISION
from ..core.key_changes import OFFLOADS, ZERO
from ..core.references import plain_document
from ..core.world_size import set_hardware
from ..deepspeed.config import apply
from ..hf_trainer import trl
from ..hf_trainer.format import _set_loss as set_loss
from ..hf_trainer.sharding import auto_values
from ..hf_trainer.trainer_reader import run_of
from ..hf_trainer.training_arguments import launch_of_run, set_evaluation

if TYPE_CHECKING:
    from ...job.job import Job
    from ..core.bindings.reader import Reader
    from ..core.format import Reading
    from ..core.key_changes import Keys

_PLACES = ("training", "training.trainer_kwargs")
_SAME = (
    "per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps", "learning_rate",
    "eval_strategy", "max_grad_norm", "weight_decay",
)  # fmt: skip

NAMES: dict[str, tuple[str, ...]] = {
    **{name: tuple(f"{place}.{name}" for place in _PLACES) for name in _SAME},
    **{name: (f"training.trainer_kwargs.{name}",) for name in ("beta", "precompute_ref_log_probs")},
    **{name: (f"training.grpo.{name}",) for name in ("max_prompt_length", "max_completion_length", "num_generations",
                                                     "use_vllm", "vllm_mode", "vllm_gpu_memory_utilization")},
    "use_liger_kernel": ("model.enable_liger_kernel",),
    "max_length": ("training.trainer_kwargs.max_length", "training.trainer_kwargs.max_seq_length",
                   "model.model_max_length"),
}  # fmt: skip
"""Arguments of the Trainer and of TRL -> the keys of an Oumi config that fill them."""

VERSIONS = {"transformers": "5.7.0", "trl": "1.4.0", "peft": "0.19.0", "accelerate": "1.15.0", "vllm": "0.21.0"}
"""The newest that its pyproject.toml allows."""

DEFAULTS: dict[str, Any] = {
    "bf16": False, "loss": "torch", "loss_chunk": None, "max_length": None, "num_generations": 8,
    "max_completion_length": 256, "vllm_mode": "server", "vllm_gpu_memory_utilization": 0.9, "grpo_beta": 0.0,
    "max_prompt_length": None,
}  # fmt: skip

_OBJECTIVES = {
    "trl_sft": "sft", "trl_dpo": "dpo", "trl_kto": "kto", "trl_grpo": "grpo", "verl_grpo": "grpo", "trl_gkd": "sft",
    "trl_gold": "sft", "hf": "sft", "oumi": "sft",
}  # fmt: skip
"""`trainer_type` -> objective; GKD and GOLD distil, with a loss over whole distributions."""


def trains(job: Job) -> bool:
    """Whether there is a `training` section."""
    return job.kind == "training"


def _trainer(reader: Reader) -> str:
    return str(reader.value(WORD, "training.trainer_type", default=""))


def _set_precision(reader: Reader) -> None:
    """`mixed_precision_dtype`, or what launches the run; none by default."""
    given, launch = reader.given(TEXT, "training.mixed_precision_dtype"), launch_of_run(run_of(reader))
    if (given is None or MIXED_PRECISION.read(given.value) is Unsaid.OTHER) and launch is not None:
        given = launch.precision or given
    reader.set("precision.autocast", given, _WORDS.get(given.value.lower()) if given else None)


_WORDS = {"bf16": "bfloat16", "fp16": "float16"}


def _set_quantization(reader: Reader) -> None:
    """`peft.q_lora` with `q_lora_bits`; TRL's own keys do not exist here."""
    if reader.job.method == "lora" and reader.on("peft.q_lora"):
        reader.bind(_EIGHT_BIT if reader.value(POSITIVE, "peft.q_lora_bits") == 8 else _FOUR_BIT)


_METHOD, _BITS = "weights.quantization.method", "weights.quantization.bits"

_EIGHT_BIT = within(
    "peft", Key(_METHOD, "q_lora_bits", POSITIVE, to={8: "bnb-int8"}), Key(_BITS, "q_lora_bits", POSITIVE)
)
_FOUR_BIT = within(
    "peft",
    Key(_METHOD, "bnb_4bit_quant_type", TEXT, to=lambda word, _: f"bnb-{word}"),
    Key(_METHOD, "q_lora", FLAG, to={True: "bnb-fp4"}),
    Key(_BITS, "q_lora", FLAG, to={True: 4}),
    Key("weights.quantization.double_quant", "use_bnb_nested_quant", FLAG, default=False),
    Key(
        "weights.quantization.storage_dtype", "bnb_4bit_quant_storage", TEXT,
        to=lambda word, _: Unsaid.OTHER if word == "uint8" else word.removeprefix("torch."),
    ),
)  # fmt: skip


def _is_quantized(reader: Reader) -> bool:
    return reader.job.weights.quantization is not None


def _targets(names: list[str], _job: Job) -> Any:
    return "all-linear" if names in (["all-linear"], ["all"]) else names


def _thawed(names: list[str], _job: Job) -> list[str]:
    escaped = "|".join(name.replace(".", r"\.") for name in names)
    return [rf"^(?!(?:{escaped})\.)"]


_ADAPTER = (
    *only(
        lambda job: job.method == "lora",
        Key(
            "adapter.targets", "peft.lora_target_modules", WORDS,
            Default(None, "what PEFT targets in this architecture"), _targets, NEVER,
        ),
        Key("adapter.modules_to_save", "peft.lora_modules_to_save", WORDS, default=[], back=NEVER),
        Fixed("adapter.prepare_kbit", _is_quantized),
        Fixed("adapter.dtype", Default(None, "as PEFT chooses")),
    ),
    *within("peft", *lora(rank="lora_r", alpha="lora_alpha", dropout="lora_dropout", r=8, scale=8, cast=False)),
    Key("trainable", "model.freeze_layers", WORDS, to=_thawed, back=NEVER, when=lambda job: job.method == "full"),
    Fixed("trainable", Default(None, "all weights"), when=lambda job: job.method == "full"),
    Fixed("trainable", Default(None, "the adapter alone")),
)  # fmt: skip
"""`model.freeze_layers` names modules whose parameters are not trained."""


class _Plain:
    """What `set_loss` asks of a flavour."""

    defaults = DEFAULTS
    name = "oumi"


def _set_objectives(reader: Reader) -> None:
    """The loss, and what TRL's trainers add."""
    run, objective = run_of(reader), reader.job.objective
    set_loss(run, _Plain, str(objective))
    run.bind((*trl.RL, *trl.LENGTHS))


def _set_evaluation(reader: Reader) -> None:
    kind, field = _trainer(reader), "evaluation.keeps_logits"
    theirs, metrics = kind.startswith("trl_"), reader.given(TEXT, "training.metrics_function")
    set_evaluation(run_of(reader), trainers=("transformers", "trl") if theirs else ("transformers",))
    if metrics and reader.job.evaluation.micro_batch_size and (theirs or kind in ("", "hf")):
        reader.set(field, metrics, True, "the Trainer's `compute_metrics` gets the logits")


def _set_sharding(reader: Reader) -> None:
    """`accelerate launch`, `fsdp.enable_fsdp`, which becomes its environment, or `deepspeed.enable_deepspeed`.

    Under accelerate's launcher Oumi's own FSDP is not looked at (train.py, `is_using_accelerate`).
    """
    run = run_of(reader)
    launch = launch_of_run(run)
    fsdp, deepspeed = reader.on("fsdp.enable_fsdp"), reader.on("deepspeed.enable_deepspeed")
    own = bool(fsdp or deepspeed)
    launched = launch is not None and launch.kind in ("DEEPSPEED", "FSDP")
    stated = launch.stated if launch is not None else None
    unknown = launch is not None and launch.unknown and not own
    set_hardware(reader, reader.project, stated, sharded=own or launched, unknown=unknown)
    for name in ("tensor", "pipeline", "context"):
        reader.default(f"parallelism.{name}", 1)
    reader.default("parallelism.zero", None)
    word = {"bfloat16": "bf16", "float16": "fp16"}.get(reader.job.precision.autocast or "", "no")
    if launch is not None and (launched or not own):
        reader.default("parallelism.fsdp", None)
        launch.apply(reader, auto_values(run), word)
    elif deepspeed:
        reader.default("parallelism.fsdp", None)
        _set_deepspeed(reader)
    elif fsdp:
        _set_fsdp(reader, word)
    else:
        reader.default("parallelism.fsdp", None)


def _set_deepspeed(reader: Reader) -> None:
    stage = reader.given(TEXT, "deepspeed.zero_stage")
    number = int(stage.value[-1]) if stage and stage.value[-1:].isdigit() else 0
    offloads = {path: reader.given(WORD, f"deepspeed.{name}.device") for path, name in OFFLOADS.items()}
    zero: dict[str, Any] = {"stage": number}
    zero |= {OFFLOADS[path]: {"device": given.value} for path, given in offloads.items() if given}
    inline = plain_document({"zero_optimization": zero, "bf16": {"enabled": "auto"}}, "deepspeed")
    reader.reading.problems += apply(reader, inline, auto_values(run_of(reader)))
    if stage:
        reader.set(f"{ZERO}stage", stage, number)
    for path, given in offloads.items():
        if given:
            reader.set(path, given)


def _set_fsdp(reader: Reader, word: str) -> None:
    section = reader.keys.raw("fsdp")
    defaults = FsdpDefaults(
        reader.upstream, 1, "size", use_orig_params=False, state_dict_type="FULL_STATE_DICT",
        backward_prefetch="BACKWARD_PRE", cpu_ram_efficient_loading=True,
    )  # fmt: skip
    reader.default("parallelism.fsdp.min_num_params", 100_000)
    apply_fsdp(reader, Section(section.entry.value if section else None, "fsdp"), defaults, word)
    if reader.job.activation_checkpointing == "full":
        note = (
            "Oumi leaves checkpointing to accelerate, which puts torch's wrapper into its units (core/distributed.py)"
        )
        reader.derived("parallelism.fsdp.checkpoints_inside", True, note, "activation_checkpointing")
        reader.derived("reentrant", False, note, "activation_checkpointing")
    layers = reader.given(WORDS, "fsdp.transformer_layer_cls")
    if layers:
        reader.set("parallelism.fsdp.layer_classes", layers, [name.rpartition(".")[2] for name in layers.value])


_REENTRANT = "gradient_checkpointing_kwargs.use_reentrant"
_LENGTHS = ("training.trainer_kwargs.max_length", "training.trainer_kwargs.max_seq_length")

TRAINING = only(
    trains,
    Key("objective", "training.trainer_type", WORD, "sft", _OBJECTIVES, NEVER, other="sft"),
    *renamed(NAMES, *BATCH),
    _set_precision,
    Fixed("precision.master_weights", False),
    Fixed("precision.gradients", Derived(None, "gradients have the dtype of their weight")),
    Key("method", "training.use_peft", FLAG, "full", {True: "lora", False: "full"}, NEVER),
    _set_quantization,
    Fixed("weights.quantization", None),
    *_ADAPTER,
    *optimizer("training.optimizer", "adamw_torch"),
    Key(
        "activation_checkpointing", "training.enable_gradient_checkpointing", FLAG, "none",
        {True: "full", False: "none"},
    ),
    Key("reentrant", tuple(f"{place}.{_REENTRANT}" for place in _PLACES), FLAG, None, back=NEVER),
    Key("compile", "training.compile", FLAG, default=False, back=NEVER),
    Key("packing", "training.trainer_kwargs.packing", FLAG, default=False, back=NEVER),
    Fixed("padded", Default(False, "rows are padded to the longest of a batch")),
    _set_objectives,
    Key("sequence_length", _LENGTHS, POSITIVE, adds=False),
    Key("sequence_length", "model.model_max_length", POSITIVE),
    _set_evaluation,
    *renamed(NAMES, Key("evaluation.micro_batch_size", "per_device_eval_batch_size", POSITIVE)),
    _set_sharding,
    Key("parallelism.fsdp.offload", "fsdp.cpu_offload", FLAG, when=lambda job: job.parallelism.fsdp is not None),
)  # fmt: skip


def method(reading: Reading, value: str) -> Keys | None:
    """LoRA with a rank of its own where the file has none."""
    if value == "full":
        return {"training.use_peft": False}
    own = {} if reading.job.method == "lora" else {"peft.lora_r": 16, "peft.lora_alpha": 32}
    return {"training.use_peft": True, **own} if value == "lora" else None


def quantization(_reading: Reading, value: str | None) -> Keys | None:
    """QLoRA, whose type of 4 bits is fp4 unless it is stated."""
    said: dict[str | None, Keys] = {
        None: {"peft.q_lora": False},
        "bnb-nf4": {"peft.q_lora": True, "peft.q_lora_bits": 4, "peft.bnb_4bit_quant_type": "nf4"},
        "bnb-int8": {"peft.q_lora": True, "peft.q_lora_bits": 8},
    }
    return said.get(value)


def fsdp(_reading: Reading, value: str) -> Keys | None:
    """Oumi's FSDP section, layer by layer."""
    if value != "full_shard":
        return None
    return {"fsdp.enable_fsdp": True, "fsdp.sharding_strategy": "FULL_SHARD",
            "fsdp.auto_wrap_policy": "TRANSFORMER_BASED_WRAP"}  # fmt: skip


def zero(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """Oumi's DeepSpeed section, whose stages and devices are names of enums; FSDP goes."""
    stage = changes.get(f"{ZERO}stage", reading.job.get(f"{ZERO}stage"))
    if stage is None or not trains(reading.job):
        return None
    wanted: Keys = {"deepspeed.enable_deepspeed": True, "deepspeed.zero_stage": f"ZERO_{stage}"}
    wanted |= {f"deepspeed.{name}.device": changes[path].upper() for path, name in OFFLOADS.items() if path in changes}
    enabled = reading.config.root.find("fsdp.enable_fsdp")
    return {**wanted, "fsdp.enable_fsdp": False} if enabled is not None else wanted


def loss(reading: Reading, value: str) -> Keys | None:
    """Liger's, where labels reach the model."""
    takes = value == "liger" and trains(reading.job) and reading.job.objective in ("sft", "pretrain")
    return {"model.enable_liger_kernel": True} if takes else None


def autocast(reading: Reading, value: str | None) -> Keys | None:
    """`mixed_precision_dtype` casts over weights of another dtype."""
    word = {"bfloat16": "BF16", "float16": "FP16", None: "NONE"}.get(value)
    return {"training.mixed_precision_dtype": word} if word and trains(reading.job) else None
