"""What LLaMA-Factory trains: base weights as loaded and upcast, adapter, frozen parts, reference models.

Facts from llamafactory 0.9.5 (`model/loader.py`, `model/adapter.py`, `model/model_utils/quantization.py`,
`train/trainer_utils.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...upstream.llamafactory import STORED_DTYPE
from ..core.model_facts import find_model
from ..hf_trainer.peft_types import FACTORY, set_tuner
from ..hf_trainer.training_arguments import mixed_precision

if TYPE_CHECKING:
    from ..core.arguments import Given
    from ..hf_trainer.training_arguments import Run

_TOWERS = {"vision": ("vision", "audio"), "projector": ("projector",)}


def set_method(run: Run) -> None:
    """`finetuning_type`: lora unless stated; QLoRA is lora with `quantization_bit`."""
    given = run.arguments.text("finetuning_type")
    if given:
        run.put("method", given)
    else:
        run.builder.default("method", "lora")
    _set_quantization(run)
    _set_adapter(run)
    _set_trainable(run)


def _set_quantization(run: Run) -> None:
    """`quantization_bit` with bitsandbytes (nf4, double quantised, stored in the compute dtype), HQQ or EETQ."""
    bits = run.arguments.integer("quantization_bit", least=1)
    if bits is None:
        run.builder.default("weights.quantization", None)
        return
    method = run.arguments.text("quantization_method")
    name = {"bitsandbytes": "bnb"}.get(method.value, method.value) if method else "bnb"
    if name == "bnb" and bits.value == 4:
        kind = run.arguments.text("quantization_type")
        if kind and kind.value in ("nf4", "fp4"):
            run.put("weights.quantization.method", kind, f"bnb-{kind.value}")
        else:
            run.put("weights.quantization.method", bits, "bnb-nf4", f"nf4: default of {run.builder.upstream}")
        double = run.arguments.flag("double_quantization")
        if double:
            run.put("weights.quantization.double_quant", double)
        else:
            run.builder.default("weights.quantization.double_quant", True)
        dtype, _ = _compute_dtype(run)
        note = "packed weights are stored in the compute dtype"
        run.builder.derived("weights.quantization.storage_dtype", dtype or "bfloat16", note, "precision.autocast")
    elif name == "bnb":
        run.put("weights.quantization.method", bits, "bnb-int8")
    else:
        assert method is not None
        run.put("weights.quantization.method", method)
    run.put("weights.quantization.bits", bits)


def _compute_dtype(run: Run) -> tuple[str | None, Given | None]:
    pure = run.arguments.flag("pure_bf16")
    if pure and pure.value:
        return "bfloat16", pure
    return mixed_precision(run)


def _set_adapter(run: Run) -> None:
    builder, arguments = run.builder, run.arguments
    if builder.job.method not in ("lora", "oft"):
        builder.derived("adapter", None, "no adapter", "method")
        return
    dora = arguments.flag("use_dora")
    if dora and dora.value:
        run.put("adapter.type", dora, "dora")
    else:
        builder.derived("adapter.type", builder.job.method, "no DoRA", "method")
    rank = arguments.integer("lora_rank", least=1)
    if rank:
        run.put("adapter.r", rank)
    else:
        builder.default("adapter.r", 8)
    alpha = arguments.number("lora_alpha")
    if alpha:
        run.put("adapter.alpha", alpha)
    else:
        builder.derived("adapter.alpha", 2 * builder.job.get("adapter.r"), "twice the rank", "adapter.r")
    dropout = arguments.number("lora_dropout")
    if dropout:
        run.put("adapter.dropout", dropout)
    else:
        builder.default("adapter.dropout", 0.0)
    targets = arguments.words("oft_target" if builder.job.method == "oft" else "lora_target")
    if targets and targets.value != ["all"]:
        run.put("adapter.targets", targets)
    elif targets:
        run.put("adapter.targets", targets, "all-linear")
    else:
        builder.default("adapter.targets", "all-linear")
    _set_saved_modules(run)
    builder.default("adapter.prepare_kbit", False)
    kind = arguments.text("finetuning_type")
    if kind and builder.job.method == "oft":
        set_tuner(run, kind, FACTORY)


def _set_saved_modules(run: Run) -> None:
    """`additional_target`; with new tokens LLaMA-Factory trains embeddings and head by itself (`adapter.py`)."""
    saved = run.arguments.words("additional_target")
    grows = next(
        (
            given
            for key in ("resize_vocab", "add_tokens", "add_special_tokens", "new_special_tokens_config")
            if (given := run.arguments.raw(key)) and given.value
        ),
        None,
    )
    if saved:
        run.put("adapter.modules_to_save", saved)
    elif grows:
        note = "a resized vocabulary makes embeddings and head trainable"
        run.put("adapter.modules_to_save", grows, ["embed_tokens", "lm_head"], note)
    else:
        run.builder.default("adapter.modules_to_save", [])


def _set_trainable(run: Run) -> None:
    """Patterns of what is trained: the last or first layers for `freeze`; not the towers of a multimodal model.

    A full fine-tune of a multimodal model leaves vision tower and projector frozen unless told otherwise.
    """
    builder, arguments = run.builder, run.arguments
    method = builder.job.method
    if method not in ("full", "freeze"):
        builder.derived("trainable", None, "the adapter alone", "method")
        return
    model = find_model(builder.job.model, builder.document.path, run.project.root)
    if method == "freeze":
        layers = model.shape.layers if model is not None else None
        given = arguments.integer("freeze_trainable_layers")
        count = given.value if given else 2
        patterns = _layer_patterns(run, layers, count)
        if given:
            run.put("trainable", given, patterns)
        else:
            builder.default("trainable", patterns, f"the last 2 layers: default of {builder.upstream}")
        return
    frozen = []
    for key, roles in (("freeze_vision_tower", "vision"), ("freeze_multi_modal_projector", "projector")):
        flag = arguments.flag(key)
        if flag is None or flag.value:
            frozen += [t.module for t in model.tensors if t.role in _TOWERS[roles]] if model is not None else []
    heads = sorted({".".join(name.split(".")[:2]) for name in frozen})
    if heads:
        names = "|".join(head.replace(".", r"\.") for head in heads)
        builder.default("trainable", [rf"^(?!(?:{names})\.)"], f"vision tower frozen: default of {builder.upstream}")
    else:
        builder.derived("trainable", None, "all weights", "method")


def _layer_patterns(run: Run, layers: int | None, count: int) -> list[str]:
    """Regular expressions for the layers that `freeze` trains, as `adapter.py` matches names."""
    if layers is None:
        return ["model is not known"]
    indices = range(max(0, layers - count), layers) if count > 0 else range(min(-count, layers))
    modules = run.arguments.words("freeze_trainable_modules")
    names = [""] if modules is None or modules.value == ["all"] else modules.value
    extra = run.arguments.words("freeze_extra_modules")
    patterns = [rf"\.{index}\.{name}" for index in indices for name in names]
    return patterns + (extra.value if extra else [])


def set_base(run: Run) -> None:
    """`weights.dtype`: the checkpoint's own, except that trainable weights become float32.

    `adapter.py`: trainable parameters are cast to float32 unless `pure_bf16`, BAdam, or an unquantised model under
    ZeRO-3, where DeepSpeed keeps the float32 copy.
    """
    builder, arguments = run.builder, run.arguments
    pure = next((g for key in ("pure_bf16", "use_badam") if (g := arguments.flag(key)) and g.value), None)
    own = "the checkpoint's own dtype"
    job = builder.job
    zero3 = job.weights.quantization is None and _is_zero3(run)
    release = job.versions.get("llamafactory", "")
    computed = not STORED_DTYPE.at(release) and not zero3
    if pure and pure.key == "pure_bf16" and computed:
        note = f"llamafactory {release} loads it so; nothing is upcast"
        builder.from_entry("weights.dtype", "bfloat16", pure.entry, pure.key, note)
        builder.from_entry("precision.autocast", None, pure.entry, pure.key, "no autocast")
    elif pure:
        run.builder.from_entry("weights.dtype", None, pure.entry, pure.key, f"{own}; nothing is upcast")
        if pure.key == "pure_bf16":
            builder.from_entry("precision.autocast", None, pure.entry, pure.key, "no autocast")
    elif job.method == "full" and not zero3:
        builder.derived("weights.dtype", "float32", f"{builder.upstream} upcasts trainable weights", "method")
    else:
        dtype = job.precision.autocast
        if computed and dtype is not None:
            builder.derived("weights.dtype", dtype, f"llamafactory {release} loads it so", "precision.autocast")
        else:
            builder.default("weights.dtype", None, own)
        if job.method == "freeze" and not zero3:
            builder.derived("weights.trainable_dtype", "float32", "trainable weights are upcast", "method")
    if job.adapter is not None:
        if pure or zero3:
            builder.default("adapter.dtype", None, "as PEFT chooses")
        else:
            builder.default("adapter.dtype", "float32", f"{builder.upstream} upcasts trainable weights")


def _is_zero3(run: Run) -> bool:
    """Whether DeepSpeed will run stage 3, before the DeepSpeed config is applied."""
    from ..core import references

    given = run.arguments.raw("deepspeed")
    if given is None or not given.value:
        return run.launch is not None and run.launch.stage == 3
    if given.entry.value.is_mapping:
        section = given.entry.value.find("zero_optimization.stage")
    else:
        found = references.find(str(given.value), run.builder.document.path, run.project)
        if found.document is None:
            stage = references.hint_from_name(str(given.value)).stage
            return stage is None or stage == 3
        section = found.document.root.find("zero_optimization.stage")
    return section is not None and section.value.value == 3


_BASE_OPTIMIZERS = {"adamw_8bit": "_8bit", "adamw_bnb_8bit": "_8bit", "paged_adamw_8bit": "_8bit"}


def set_low_rank(run: Run) -> None:
    """GaLore, APOLLO, BAdam, Adam-mini, Muon: switches that replace the optimizer (`train/trainer_utils.py`)."""
    base = run.builder.job.optimizer.name
    for name in ("galore", "apollo"):
        switch = run.arguments.flag(f"use_{name}")
        if not switch or not switch.value:
            continue
        suffix = _BASE_OPTIMIZERS.get(base, "") if name == "galore" else ""
        kind = "galore_adafactor" if base == "adafactor" and name == "galore" else f"{name}_adamw{suffix}"
        layerwise = run.arguments.flag(f"{name}_layerwise")
        if layerwise and layerwise.value:
            run.put("optimizer.in_backward", layerwise, value=True)
            kind += "_layerwise"
        run.put("optimizer.name", switch, kind)
        rank = run.arguments.integer(f"{name}_rank", least=1)
        if rank:
            run.put("optimizer.rank", rank)
        else:
            run.builder.default("optimizer.rank", 16)
    for key, optimizer in (("use_badam", "badam"), ("use_adam_mini", "adam_mini"), ("use_muon", "muon")):
        switch = run.arguments.flag(key)
        if switch and switch.value:
            run.put("optimizer.name", switch, optimizer)


def set_rl(run: Run, objective: str) -> None:
    """Reference and reward models (`create_ref_model`): none for LoRA, ORPO and SimPO, a copy of the policy else."""
    builder, path = run.builder, "rl.reference_model"
    named = run.arguments.text("ref_model")
    if objective not in ("dpo", "kto", "ppo"):
        builder.derived(path, False, f"{objective} has no reference model", "objective")
    elif named:
        builder.from_entry(path, True, named.entry, named.key)
    elif builder.job.method == "lora":
        builder.derived(path, False, "the base model without its adapter is the reference", "method")
    else:
        builder.derived(path, True, "a frozen copy of the model is the reference", "objective")
    builder.default("rl.precompute_reference", False)
    reward = run.arguments.text("reward_model")
    if objective == "ppo" and reward:
        run.put("rl.reward_model", reward)
        run.builder.default("rl.value_model", "head", "trl's AutoModelForCausalLMWithValueHead")
        length = run.arguments.integer("max_new_tokens", least=1)
        if length:
            run.put("rl.completion_length", length)
        else:
            builder.default("rl.completion_length", 1024)
