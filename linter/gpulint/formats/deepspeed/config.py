"""What a DeepSpeed config means for a Job: the file itself, one that another config names, or one held inline.

Facts from DeepSpeed 0.19.8 (`runtime/config.py`, `runtime/zero/config.py`, `runtime/precision_config.py`,
`runtime/engine.py`), Transformers 5.23.0 (`integrations/deepspeed.py`) and accelerate 1.15.0
(`utils/dataclasses.py`), read statically.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...job.job import Zero
from ..core.backends.deepspeed import ROWS, SECTION, SIZE
from ..core.bindings.kinds import POSITIVE, TEXT, integer
from ..core.bindings.rows import Key
from ..core.bindings.spelling import dtype, optimizer
from ..core.keys import key_problems
from .matching import compare, compare_text
from .values import ConfigReader

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.arguments import Given
    from ..core.format import JobBuilder, Problem
    from .values import AutoValues, Reference

_OPTIMIZER = optimizer(
    own={
        "adam": "fused_adam", "adamw": "fused_adam", "onebitadam": "onebitadam", "zerooneadam": "zerooneadam",
        "lamb": "lamb", "onebitlamb": "onebitlamb", "muadam": "mup_adam", "muadamw": "mup_adamw", "lion": "lion_32bit",
        "musgd": "sgd",
    },
    any_other=True,
)  # fmt: skip
"""`optimizer.type` (`runtime/engine.py: _configure_basic_optimizer`); other names are torch's own classes."""

_BFLOAT16 = ("bf16", "bfloat16")
_FLOAT16 = ("fp16",)
_CAST = "DeepSpeed casts every parameter to it"


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
    reader = ConfigReader.of(builder, document, root, prefix, values, reference)
    if reference is None:
        found = key_problems(document, "deepspeed", node=root, prefix=prefix, path=reader.elsewhere)
        reader.reading.problems += found
    section = reader.keys.raw(SECTION)
    reader.say("parallelism.zero", Zero(), section, SECTION, "" if section else "a DeepSpeed config")
    reader.bind(ROWS)
    for step in (_precision, _optimizer, _batch, _arguments, _autotp):
        step(reader)
    return reader.reading.problems


def _precision(reader: ConfigReader) -> None:
    """16-bit weights where fp16 or bf16 is enabled, with fp32 master weights unless a flag says otherwise.

    A section that is missing or "auto" is what the client's mixed precision says (accelerate's
    `set_mixed_precision`, Transformers' `trainer_config_process`). DeepSpeed casts the parameters
    (`_cast_module_mixed_precision`) and no autocast runs.
    """
    bf16, bf16_flag, bf16_key = _enabled(reader, _BFLOAT16, reader.values.bf16)
    fp16, fp16_flag, fp16_key = _enabled(reader, _FLOAT16, reader.values.fp16)
    if bf16 and fp16 and bf16_flag and fp16_flag:
        reader.differs(fp16_flag, True, bf16_key, True)
    if bf16 or fp16:
        _cast(reader, *(("bfloat16", bf16_flag, bf16_key) if bf16 else ("float16", fp16_flag, fp16_key)))
    elif flag := reader.on("torch_autocast.enabled"):
        written = reader.keys.raw("torch_autocast.dtype")
        half = _AUTOCAST.read(written.value) if written else None
        reader.set("precision.autocast", flag, "bfloat16" if half == "bfloat16" else "float16")
        reader.set("precision.master_weights", flag, False, "the weights themselves stay fp32")
    elif _made_in_float32(reader):
        reader.derived("weights.dtype", "float32", _FLOAT32_INIT, "parallelism.zero.stage")
    elif reader.stage and reader.job.weights.dtype not in (None, "float32"):
        note = "ZeRO keeps an fp32 partition of 16-bit weights"
        reader.derived("precision.master_weights", True, note, "parallelism.zero.stage")
    reader.bind(_GRADIENTS)
    for name in _BFLOAT16:
        if flag := reader.on(f"{name}.immediate_grad_update"):
            reader.set("parallelism.zero.immediate_gradients", flag, True)
            return


_AUTOCAST = dtype()
_GRADIENTS = (
    Key(
        "precision.gradients", "data_types.grad_accum_dtype", TEXT,
        to={"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"},
    ),
)  # fmt: skip
_FLOAT32_INIT = "zero.Init makes float32 parameters where neither bf16 nor fp16 is enabled"


def _made_in_float32(reader: ConfigReader) -> bool:
    """Whether zero.Init decides the dtype, whatever the script asks for (`partition_parameters.py: _set_dtype`).

    Transformers passes the file to it as it loads the model; other clients need not make the model under it.
    """
    weights, zero = reader.job.weights, reader.job.parallelism.zero
    if reader.stage != 3 or zero is None or not zero.init or reader.values.client != "transformers":
        return False
    return weights.quantization is None and weights.dtype != "float32"


def _enabled(reader: ConfigReader, sections: tuple[str, ...], client: bool | None) -> tuple[bool, Given | None, str]:
    """Whether a section is enabled, and the key that says so."""
    name = next((section for section in sections if section in reader.keys), None)
    key = f"{name or sections[0]}.enabled"
    flag = reader.keys.raw(key)
    if name is None or (flag is not None and SIZE.blank(flag.value)):
        return bool(client and reader.values.client), flag, key
    value = reader.on(key) is not None
    if flag is not None and client is not None and value != client and reader.values.client == "transformers":
        reader.differs(flag, value, sections[0], client)
    return value, flag, key


def _cast(reader: ConfigReader, dtype: str, flag: Given | None, key: str) -> None:
    """Every parameter in 16 bits. LoRA weights and fp32 upcasts come along, but for ZeRO-3, where zero.Init keeps the
    engine off.
    """
    section, job = key.partition(".")[0], reader.job
    reader.say("weights.dtype", dtype, flag, key, _CAST)
    reader.say("precision.autocast", None, flag, key, "DeepSpeed casts instead of autocast")
    alone = reader.on(f"{section}.{'bf16' if dtype == 'bfloat16' else 'fp16'}_master_weights_and_grads")
    if alone is None:
        reader.say("precision.master_weights", True, flag, key, "DeepSpeed keeps an fp32 master copy")
    else:
        reader.set("precision.master_weights", alone, False, "no fp32 copy")
        if states := reader.on(f"{section}.bf16_optimizer_states"):
            reader.set("optimizer.state_dtype", states, "bfloat16")
    if job.adapter is not None and reader.stage != 3:
        reader.say("adapter.dtype", dtype, flag, key, _CAST)
        if job.adapter.prepare_kbit:
            reader.say("adapter.prepare_kbit", False, flag, key, "DeepSpeed casts fp32 modules back")


def _optimizer(reader: ConfigReader) -> None:
    """`torch_adam: true` among the parameters keeps torch's AdamW."""
    given = reader.given(TEXT, "optimizer.type")
    if given:
        name = _OPTIMIZER.read(given.value)
        name = "adamw_torch" if name == "fused_adam" and reader.on("optimizer.params.torch_adam") else name
        reader.set("optimizer.name", given, name, f"{given.value} of DeepSpeed")


def _batch(reader: ConfigReader) -> None:
    """Micro batch and accumulation: the client's where it has them, else the file's and its arithmetic.

    train_batch_size = micro batch x accumulation x GPUs (`_set_batch_related_parameters`), where the GPUs of one
    sequence count once (`world_size / sequence_parallel_size`).
    """
    micro = _size(reader, "micro_batch_size", reader.values.micro_batch_size)
    steps = _size(reader, "gradient_accumulation_steps", reader.values.gradient_accumulation_steps)
    whole, world = reader.given(POSITIVE, "train_batch_size"), reader.values.world_size
    if whole is None or not world:
        return
    total, world = whole.value, max(1, world // reader.value(POSITIVE, "sequence_parallel_size", default=1))
    if micro and steps:
        if micro * steps * world != total:
            reader.differs(whole, total, "micro batch x accumulation x GPUs", f"{micro} x {steps} x {world}")
    elif micro:
        note = f"{total} over {micro} x {world} GPUs"
        reader.set("gradient_accumulation_steps", whole, max(1, total // micro // world), note)
    else:
        reader.set("micro_batch_size", whole, max(1, total // world // (steps or 1)), f"{total} over {world} GPUs")


SIZES = {
    "micro_batch_size": "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
}
"""Job field -> DeepSpeed's key."""


def _size(reader: ConfigReader, field: str, client: int | None) -> int | None:
    given = reader.given(POSITIVE, SIZES[field])
    if given is None:
        return client
    if client is None or reader.values.client != "transformers":
        reader.set(field, given)
    elif client != given.value:
        reader.differs(given, given.value, field, client)
        return client
    return int(given.value)


def _arguments(reader: ConfigReader) -> None:
    if reader.values.client == "transformers":
        compare_text(reader)
        compare(reader)


def _autotp(reader: ConfigReader) -> None:
    degree = reader.given(integer(2), "tensor_parallel.autotp_size")
    if degree:
        reader.set("parallelism.tensor", degree)
        reader.derived("loss.parallel", False, "AutoTP's head gathers the logits", "parallelism.tensor")
