"""The training job of an Oumi config, in terms of the Trainer's arguments that it becomes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..accelerate.launch import launch_of
from ..core.backends.fsdp import FsdpDefaults, Section, apply_fsdp
from ..core.bindings.kinds import Unsaid
from ..core.bindings.spelling import MIXED_PRECISION
from ..core.key_changes import OFFLOADS
from ..core.sections import Renamed, Sections
from ..core.world_size import set_hardware
from ..deepspeed.config import apply
from ..hf_trainer import trl
from ..hf_trainer.format import _set_loss as set_loss
from ..hf_trainer.peft_arguments import set_adapter, set_dtype, set_method, set_quantization
from ..hf_trainer.sharding import auto_values
from ..hf_trainer.training_arguments import (
    Run,
    set_attention,
    set_batch,
    set_checkpointing,
    set_compile,
    set_evaluation,
    set_model,
    set_optimizer,
    set_versions,
)

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.format import JobBuilder, Project, Reading

_SAME = (
    "per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps", "learning_rate",
    "gradient_checkpointing_kwargs", "eval_strategy", "max_grad_norm", "weight_decay", "use_peft",
)  # fmt: skip

NAMES: dict[str, tuple[str, ...]] = {
    **{name: (f"training.{name}", f"training.trainer_kwargs.{name}") for name in _SAME},
    "gradient_checkpointing": ("training.enable_gradient_checkpointing",),
    "optim": ("training.optimizer",),
    "torch_compile": ("training.compile",),
    "model_name_or_path": ("model.model_name",),
    "dtype": ("model.torch_dtype_str",),
    "attn_implementation": ("model.attn_implementation",),
    "use_liger_kernel": ("model.enable_liger_kernel",),
    "max_length": ("training.trainer_kwargs.max_length", "training.trainer_kwargs.max_seq_length",
                   "model.model_max_length"),
    "packing": ("training.trainer_kwargs.packing",),
    "loss_type": ("training.trainer_kwargs.loss_type",),
    "beta": ("training.trainer_kwargs.beta",),
    "precompute_ref_log_probs": ("training.trainer_kwargs.precompute_ref_log_probs",),
    **{name: (f"peft.{name}",) for name in ("lora_r", "lora_alpha", "lora_dropout", "lora_target_modules",
                                            "lora_modules_to_save", "use_bnb_nested_quant", "bnb_4bit_quant_type",
                                            "bnb_4bit_quant_storage")},
    **{name: (f"training.grpo.{name}",) for name in ("max_prompt_length", "max_completion_length", "num_generations",
                                                     "use_vllm", "vllm_mode", "vllm_gpu_memory_utilization")},
}  # fmt: skip
"""Arguments of the Trainer, of TRL and of PEFT -> the keys of an Oumi config that fill them."""

VERSIONS = {"transformers": "5.7.0", "trl": "1.4.0", "peft": "0.19.0", "accelerate": "1.15.0", "vllm": "0.21.0"}
"""The newest that its pyproject.toml allows."""

DEFAULTS: dict[str, Any] = {
    "bf16": False, "gradient_checkpointing": False, "reentrant": None, "optim": "adamw_torch", "attention": "sdpa",
    "dtype": "checkpoint", "loss": "torch", "loss_chunk": None, "max_length": None, "lora_r": 8, "lora_alpha": 8,
    "lora_dropout": 0.0, "lora_targets": None, "prepare_kbit": True, "quant_type": "fp4", "double_quant": False,
    "num_generations": 8, "max_completion_length": 256, "vllm_mode": "server", "vllm_gpu_memory_utilization": 0.9,
    "grpo_beta": 0.0, "max_prompt_length": None,
}  # fmt: skip

_OBJECTIVES = {
    "trl_sft": "sft", "trl_dpo": "dpo", "trl_kto": "kto", "trl_grpo": "grpo", "verl_grpo": "grpo", "trl_gkd": "sft",
    "trl_gold": "sft", "hf": "sft", "oumi": "sft",
}  # fmt: skip
"""`trainer_type` -> objective; GKD and GOLD distil, with a loss over whole distributions."""


def train(builder: JobBuilder, document: Document, reading: Reading, project: Project) -> None:
    """Fill the Job of a `training` section."""
    values = Sections(document.root)
    run = Run(builder, Renamed(document.root, NAMES), project, reading, DEFAULTS, launch_of(reading, project))
    builder.derived("kind", "training", "a `training` section")
    set_versions(run, VERSIONS, f"the newest that {builder.upstream} allows")
    set_model(run)
    kind = values.text("training.trainer_type")
    objective = _OBJECTIVES.get(kind.value.lower(), "sft") if kind else "sft"
    if kind:
        run.put("objective", kind, objective)
    else:
        builder.default("objective", "sft")
    set_batch(run)
    word = _set_precision(run, values)
    set_dtype(run)
    set_method(run)
    if run.builder.job.method == "lora" and "training.use_peft" not in values:
        builder.default("method", "full", "use_peft is off")
    _set_quantization(run, values)
    set_adapter(run)
    _set_frozen(run, values)
    set_optimizer(run)
    set_checkpointing(run)
    set_attention(run)
    set_compile(run)
    set_loss(run, _Plain, objective)
    packing = run.arguments.flag("packing")
    builder.default("packing", False) if packing is None else run.put("packing", packing)
    builder.default("padded", False, "rows are padded to the longest of a batch")
    trl.set_rl(builder, run.arguments, DEFAULTS, objective)
    trl.set_lengths(builder, run.arguments, DEFAULTS, objective)
    theirs = kind is not None and kind.value.lower().startswith("trl_")
    set_evaluation(run, trainers=("transformers", "trl") if theirs else ("transformers",))
    metrics = values.text("training.metrics_function")
    if metrics and builder.job.evaluation.micro_batch_size and (theirs or kind is None or kind.value.lower() == "hf"):
        run.put("evaluation.keeps_logits", metrics, value=True, note="the Trainer's `compute_metrics` gets the logits")
    _set_sharding(run, values, word)


class _Plain:
    """What `set_loss` asks of a flavour."""

    defaults = DEFAULTS
    name = "oumi"


def _set_precision(run: Run, values: Sections) -> str:
    """`mixed_precision_dtype`, or what launches the run; none by default. Returns accelerate's word for it."""
    given = values.text("training.mixed_precision_dtype")
    if (given is None or MIXED_PRECISION.read(given.value) is Unsaid.OTHER) and run.launch is not None:
        given = run.launch.precision or given
    word = given.value.lower() if given else "none"
    dtype = {"bf16": "bfloat16", "fp16": "float16"}.get(word)
    if given:
        run.builder.from_entry("precision.autocast", dtype, given.entry, given.key)
    else:
        run.builder.default("precision.autocast", None)
    run.builder.default("precision.master_weights", False)
    run.builder.derived("precision.gradients", None, "gradients have the dtype of their weight")
    return word if dtype else "no"


def _set_quantization(run: Run, values: Sections) -> None:
    """`peft.q_lora` with `q_lora_bits`; TRL's own keys do not exist here."""
    given = values.flag("peft.q_lora")
    bits = values.integer("peft.q_lora_bits", least=1)
    if run.builder.job.method != "lora" or not given or not given.value:
        set_quantization(run)
        return
    if bits and bits.value == 8:
        run.put("weights.quantization.method", bits, "bnb-int8")
        run.put("weights.quantization.bits", bits)
        return
    kind = values.text("peft.bnb_4bit_quant_type")
    run.put("weights.quantization.method", kind or given, f"bnb-{kind.value if kind else DEFAULTS['quant_type']}")
    run.put("weights.quantization.bits", given, 4)
    double = values.flag("peft.use_bnb_nested_quant")
    if double:
        run.put("weights.quantization.double_quant", double)
    else:
        run.builder.default("weights.quantization.double_quant", False)
    storage = values.text("peft.bnb_4bit_quant_storage")
    if storage and storage.value != "uint8":
        run.put("weights.quantization.storage_dtype", storage, storage.value.removeprefix("torch."))


def _set_frozen(run: Run, values: Sections) -> None:
    """`model.freeze_layers` names modules whose parameters are not trained."""
    given = values.words("model.freeze_layers")
    if given is None or run.builder.job.method != "full":
        run.builder.default(
            "trainable", None, "all weights" if run.builder.job.method == "full" else "the adapter alone"
        )
        return
    names = "|".join(name.replace(".", r"\.") for name in given.value)
    run.put("trainable", given, [rf"^(?!(?:{names})\.)"])


def _set_sharding(run: Run, values: Sections, word: str) -> None:
    """`accelerate launch`, `fsdp.enable_fsdp`, which becomes its environment, or `deepspeed.enable_deepspeed`.

    Under accelerate's launcher Oumi's own FSDP is not looked at (train.py, `is_using_accelerate`).
    """
    builder, launch = run.builder, run.launch
    on, deepspeed = values.flag("fsdp.enable_fsdp"), values.flag("deepspeed.enable_deepspeed")
    own = bool(on and on.value) or bool(deepspeed and deepspeed.value)
    launched = launch is not None and launch.kind in ("DEEPSPEED", "FSDP")
    unknown = launch is not None and launch.unknown and not own
    stated = launch.stated if launch is not None else None
    set_hardware(builder, run.project, stated, sharded=own or launched, unknown=unknown)
    for name in ("tensor", "pipeline", "context"):
        builder.default(f"parallelism.{name}", 1)
    builder.default("parallelism.zero", None)
    if launch is not None and (launched or not own):
        builder.default("parallelism.fsdp", None)
        launch.apply(builder, auto_values(run), word)
        return
    if deepspeed and deepspeed.value:
        from ..core.references import plain_document

        stage = values.text("deepspeed.zero_stage")
        number = int(stage.value[-1]) if stage and stage.value[-1:].isdigit() else 0
        offloads = {name: values.text(f"deepspeed.{name}.device") for name in OFFLOADS.values()}
        zero: dict[str, Any] = {"stage": number}
        zero |= {name: {"device": given.value.lower()} for name, given in offloads.items() if given}
        inline = plain_document({"zero_optimization": zero, "bf16": {"enabled": "auto"}}, "deepspeed")
        builder.default("parallelism.fsdp", None)
        run.reading.problems += apply(builder, inline, auto_values(run))
        if stage:
            run.put("parallelism.zero.stage", stage, number)
        for path, name in OFFLOADS.items():
            given = offloads[name]
            if given:
                run.put(path, given, given.value.lower())
        return
    if not on or not on.value:
        builder.default("parallelism.fsdp", None)
        return
    section = values.raw("fsdp")
    defaults = FsdpDefaults(
        builder.upstream, 1, "size", use_orig_params=False, state_dict_type="FULL_STATE_DICT",
        backward_prefetch="BACKWARD_PRE", cpu_ram_efficient_loading=True,
    )  # fmt: skip
    builder.default("parallelism.fsdp.min_num_params", 100_000)
    apply_fsdp(builder, Section(section.entry.value if section else None, "fsdp"), defaults, word)
    if builder.job.activation_checkpointing == "full":
        note = (
            "Oumi leaves checkpointing to accelerate, which puts torch's wrapper into its units (core/distributed.py)"
        )
        builder.derived("parallelism.fsdp.checkpoints_inside", True, note, "activation_checkpointing")
        builder.derived("reentrant", False, note, "activation_checkpointing")
    layers = values.words("fsdp.transformer_layer_cls")
    if layers:
        run.put("parallelism.fsdp.layer_classes", layers, [name.rpartition(".")[2] for name in layers.value])
