"""What a DeepSpeed config means for a Job: the file itself, one that another config names, or one held inline.

Facts from DeepSpeed 0.19.8 (`runtime/config.py`, `runtime/zero/config.py`, `runtime/precision_config.py`,
`runtime/engine.py`), Transformers 5.23.0 (`integrations/deepspeed.py`) and accelerate 1.15.0
(`utils/dataclasses.py`), read statically.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.coercion import as_boolean, as_integer, as_number
from ..core.keys import key_problems, load
from ..core.placeholders import is_blank
from ..core.releases import still_known
from .values import AUTO, AutoValues, Reference, Writer, first, is_on, scalar
from .zero import apply_zero

if TYPE_CHECKING:
    from ...source.document import Document
    from ...source.node import Entry
    from ..core.format import JobBuilder, Problem

_OPTIMIZERS = {
    "adam": "fused_adam", "adamw": "fused_adam", "onebitadam": "onebitadam", "zerooneadam": "zerooneadam",
    "lamb": "lamb", "onebitlamb": "onebitlamb", "muadam": "mup_adam", "muadamw": "mup_adamw", "lion": "lion_32bit",
    "adagrad": "adagrad", "sgd": "sgd", "musgd": "sgd", "rmsprop": "rmsprop", "muon": "muon",
}  # fmt: skip
"""DeepSpeed's `optimizer.type` -> the optimizer of the Job (`runtime/engine.py: _configure_basic_optimizer`).

`torch_adam: true` among the parameters keeps torch's AdamW. Other names are torch's own classes.
"""

_ARGUMENTS = (
    ("optimizer.params.lr", "learning_rate"),
    ("optimizer.params.weight_decay", "weight_decay"),
    ("gradient_clipping", "max_grad_norm"),
)
"""DeepSpeed keys that the Trainer compares with its own arguments (`trainer_config_process`)."""

_BFLOAT16 = ("bf16", "bfloat16")
_FLOAT16 = ("fp16",)


def apply(
    builder: JobBuilder,
    document: Document,
    values: AutoValues,
    prefix: str = "",
    *,
    reference: Reference | None = None,
) -> list[Problem]:
    """Fill the Job from a DeepSpeed config and return what is odd about it.

    `prefix` is the dotted place of the config inside `document` when it is held inline. `reference` is given for a
    file that is not in the project (`references.find` made `document` from known facts): then every origin is the
    key that names it. Call it after the client's own keys have been read. It sets `parallelism.zero`,
    `weights.dtype` and `precision` where fp16 or bf16 is enabled, `adapter.dtype` where DeepSpeed casts it,
    `optimizer.name` where the file has an optimizer, the batch sizes that `values` leaves open, and
    `parallelism.tensor` for AutoTP.
    """
    entry = document.root.find(prefix) if prefix else None
    root = entry.value if entry is not None else None if prefix else document.root
    if root is None or not root.is_mapping:
        return []
    writer = Writer(builder, document, root, values, prefix, reference)
    if reference is None:
        found = key_problems(document, "deepspeed", node=root, prefix=prefix, path=writer.path)
        stated = builder.job.versions.get("deepspeed")
        writer.problems += [item for item in found if not still_known(item, _schema_of(item), stated)]
    apply_zero(writer)
    _precision(writer)
    _optimizer(writer)
    _batch(writer)
    _arguments(writer)
    size = root.find("tensor_parallel.autotp_size")
    degree = as_integer(scalar(size))
    if size is not None and degree is not None and degree > 1:
        writer.put("parallelism.tensor", degree, size, "tensor_parallel.autotp_size")
        writer.builder.derived("loss.parallel", False, "AutoTP's head gathers the logits", "parallelism.tensor")
    return writer.problems


def _schema_of(problem: Problem) -> dict[str, Any]:
    """What the schema says of a key of the top level or of `zero_optimization`."""
    schema = load("deepspeed")
    name = problem.key.rpartition(".")[2]
    sections = (schema["$defs"]["DeepSpeedZeroConfig"], schema)
    return next((part["properties"][name] for part in sections if name in part["properties"]), {})


def _precision(writer: Writer) -> None:
    """16-bit weights where fp16 or bf16 is enabled, with fp32 master weights unless a flag says otherwise.

    A section that is missing or "auto" is what the client's mixed precision says (accelerate's
    `set_mixed_precision`, Transformers' `trainer_config_process`). DeepSpeed casts the parameters
    (`_cast_module_mixed_precision`) and no autocast runs.
    """
    bf16, bf16_entry, bf16_key = _enabled(writer, _BFLOAT16, writer.values.bf16)
    fp16, fp16_entry, fp16_key = _enabled(writer, _FLOAT16, writer.values.fp16)
    if bf16 and fp16 and bf16_entry is not None and fp16_entry is not None:
        writer.contradiction(fp16_key, fp16_entry, True, bf16_key, True)
    if bf16 or fp16:
        dtype, entry, key = ("bfloat16", bf16_entry, bf16_key) if bf16 else ("float16", fp16_entry, fp16_key)
        writer.put("weights.dtype", dtype, entry, key, "DeepSpeed casts every parameter to it")
        writer.put("precision.autocast", None, entry, key, "DeepSpeed casts instead of autocast")
        _master_weights(writer, dtype, entry, key)
        _adapter(writer, dtype, entry, key)
    elif is_on(writer.child("torch_autocast"), "enabled") is not None:
        _autocast(writer)
    elif _made_in_float32(writer):
        writer.builder.derived("weights.dtype", "float32", _FLOAT32_INIT, "parallelism.zero.stage")
    elif writer.stage and writer.builder.job.weights.dtype not in (None, "float32"):
        note = "ZeRO keeps an fp32 partition of 16-bit weights"
        writer.builder.derived("precision.master_weights", True, note, "parallelism.zero.stage")
    accumulate = writer.root.find("data_types.grad_accum_dtype")
    names = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
    if accumulate is not None and scalar(accumulate) in names:
        writer.put("precision.gradients", names[scalar(accumulate)], accumulate, "data_types.grad_accum_dtype")
    immediate = next((name for name in _BFLOAT16 if is_on(writer.child(name), "immediate_grad_update")), None)
    if immediate is not None:
        flag = is_on(writer.child(immediate), "immediate_grad_update")
        writer.put("parallelism.zero.immediate_gradients", True, flag, f"{immediate}.immediate_grad_update")


_FLOAT32_INIT = "zero.Init makes float32 parameters where neither bf16 nor fp16 is enabled"


def _made_in_float32(writer: Writer) -> bool:
    """Whether zero.Init decides the dtype, whatever the script asks for (`partition_parameters.py: _set_dtype`).

    Transformers passes the file to it as it loads the model; other clients need not make the model under it.
    """
    weights, zero = writer.builder.job.weights, writer.builder.job.parallelism.zero
    if writer.stage != 3 or zero is None or not zero.init or writer.values.client != "transformers":
        return False
    return weights.quantization is None and weights.dtype != "float32"


def _enabled(writer: Writer, sections: tuple[str, ...], client: bool | None) -> tuple[bool, Entry | None, str]:
    section, name = first(writer.root, sections)
    flag = section.value.entry("enabled") if section is not None else None
    key = f"{name}.enabled"
    if section is None or scalar(flag) == AUTO or is_blank(scalar(flag)):
        return bool(client and writer.values.client), flag, key
    value = bool(as_boolean(scalar(flag)))
    if flag is not None and client is not None and value != client and writer.values.client == "transformers":
        writer.contradiction(key, flag, value, sections[0], client)
    return value, flag, key


def _master_weights(writer: Writer, dtype: str, entry: Entry | None, key: str) -> None:
    section = key.partition(".")[0]
    node = writer.child(section)
    name = "bf16_master_weights_and_grads" if dtype == "bfloat16" else "fp16_master_weights_and_grads"
    flag = is_on(node, name)
    if flag is None:
        writer.put("precision.master_weights", True, entry, key, "DeepSpeed keeps an fp32 master copy")
        return
    writer.put("precision.master_weights", False, flag, f"{section}.{name}", "no fp32 copy")
    states = is_on(node, "bf16_optimizer_states")
    if states is not None:
        writer.put("optimizer.state_dtype", "bfloat16", states, f"{section}.bf16_optimizer_states")


def _adapter(writer: Writer, dtype: str, entry: Entry | None, key: str) -> None:
    """The cast takes LoRA weights and fp32 upcasts along, but for ZeRO-3, where zero.Init keeps the engine off."""
    job = writer.builder.job
    if job.adapter is None or writer.stage == 3:
        return
    writer.put("adapter.dtype", dtype, entry, key, "DeepSpeed casts every parameter to it")
    if job.adapter.prepare_kbit:
        writer.put("adapter.prepare_kbit", False, entry, key, "DeepSpeed casts fp32 modules back")


def _autocast(writer: Writer) -> None:
    section = writer.child("torch_autocast")
    flag = is_on(section, "enabled")
    written = section.get("dtype") if section is not None else None
    name = str(written.value).removeprefix("torch.") if written is not None else "float16"
    dtype = "bfloat16" if name in ("bf16", "bfloat16") else "float16"
    writer.put("precision.autocast", dtype, flag, "torch_autocast.enabled")
    writer.put("precision.master_weights", False, flag, "torch_autocast.enabled", "the weights themselves stay fp32")


def _optimizer(writer: Writer) -> None:
    entry = writer.root.find("optimizer.type")
    written = scalar(entry)
    if entry is None or not isinstance(written, str):
        return
    name = _OPTIMIZERS.get(written.lower().replace("_", ""), written.lower())
    parameters = writer.root.find("optimizer.params")
    if name == "fused_adam" and parameters is not None and is_on(parameters.value, "torch_adam") is not None:
        name = "adamw_torch"
    writer.put("optimizer.name", name, entry, "optimizer.type", f"{written} of DeepSpeed")


def _batch(writer: Writer) -> None:
    """Micro batch and accumulation: the client's where it has them, else the file's and its arithmetic.

    train_batch_size = micro batch x accumulation x GPUs (`_set_batch_related_parameters`), where the GPUs of one
    sequence count once (`world_size / sequence_parallel_size`).
    """
    values = writer.values
    micro = _size(writer, "train_micro_batch_size_per_gpu", "micro_batch_size", values.micro_batch_size)
    steps = _size(
        writer, "gradient_accumulation_steps", "gradient_accumulation_steps", values.gradient_accumulation_steps
    )
    entry = writer.root.entry("train_batch_size")
    total, world = as_integer(scalar(entry)), values.world_size
    if entry is None or not total or not world:
        return
    world = max(1, world // (as_integer(scalar(writer.root.entry("sequence_parallel_size"))) or 1))
    if micro and steps:
        if micro * steps * world != total:
            product = f"{micro} x {steps} x {world}"
            writer.contradiction("train_batch_size", entry, total, "micro batch x accumulation x GPUs", product)
    elif micro:
        note = f"{total} over {micro} x {world} GPUs"
        writer.put("gradient_accumulation_steps", max(1, total // micro // world), entry, "train_batch_size", note)
    else:
        note = f"{total} over {world} GPUs"
        size = max(1, total // world // (steps or 1))
        writer.put("micro_batch_size", size, entry, "train_batch_size", note)


def _size(writer: Writer, key: str, field: str, client: int | None) -> int | None:
    entry = writer.root.entry(key)
    value = as_integer(scalar(entry))
    if entry is None or value is None or value < 1:
        return client
    if client is None or writer.values.client != "transformers":
        writer.put(field, value, entry, key)
    elif client != value:
        writer.contradiction(key, entry, value, field, client)
        return client
    return value


def _arguments(writer: Writer) -> None:
    if writer.values.client != "transformers":
        return
    for key, name in _ARGUMENTS:
        entry = writer.root.find(key)
        value, client = as_number(scalar(entry)), getattr(writer.values, name)
        if entry is not None and value is not None and client is not None and value != client:
            writer.contradiction(key, entry, value, name, client)
