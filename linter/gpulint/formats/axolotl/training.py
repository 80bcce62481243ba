"""Batches, checkpointing, attention, optimizer and evaluation of an axolotl run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.bindings.kinds import ANYTHING, FLAG, NUMBER, POSITIVE, TEXT, Unsaid
from ..core.bindings.reader import by_schema
from ..core.bindings.rows import NEVER, Default, Derived, Fixed, Key, Written
from ..core.bindings.spelling import attention
from ..core.coercion import as_boolean
from ..hf_trainer.image_inputs import reads_images
from .parallel import NAME, places

if TYPE_CHECKING:
    from typing import Any

    from ...job.job import Job
    from ..core.arguments import Given
    from ..core.bindings.reader import Reader
    from ..core.format import Reading
    from ..core.key_changes import Keys


def _accumulation(rows: int, job: Job) -> Written:
    return Written(max(1, rows // (job.micro_batch_size or 1)), "batch_size over micro_batch_size")


def set_images(reader: Reader) -> None:
    """Without `processor_type` samples are text whatever the model (core/builders/causal.py `build_collator`).

    `image_size` is what each image is resized to: the length of both sides, or height and width.
    """
    if not reads_images(reader, reader.project.root):
        return
    if not reader.keys.raw("processor_type"):
        reader.derived("images", 0, "no processor_type: samples are text", "model")
    elif size := reader.keys.raw("image_size"):
        sides = size.value if isinstance(size.value, list) else [size.value, size.value]
        lengths = [side for side in sides if isinstance(side, int) and side > 0]
        if len(lengths) == len(sides) == 2:
            reader.set("image_pixels", size, lengths[0] * lengths[1])


BATCH = (
    Key("micro_batch_size", "micro_batch_size", POSITIVE, by_schema(NAME, "micro_batch_size")),
    Key("gradient_accumulation_steps", "gradient_accumulation_steps", POSITIVE),
    Key(
        "gradient_accumulation_steps", "batch_size", POSITIVE, by_schema(NAME, "gradient_accumulation_steps"),
        _accumulation, NEVER,
    ),
    Key("sequence_length", "sequence_len", POSITIVE, by_schema(NAME, "sequence_len")),
    Key("packing", "sample_packing", FLAG, default=False),
    Fixed(
        "padded", Derived(False, "packed rows are full and keep samples apart without a mask", "packing"),
        when=lambda job: job.packing,
    ),
    Key("padded", "pad_to_sequence_len", FLAG, to={True: True}, back=NEVER),
    Fixed(
        "padded", Derived(True, "rows of a batch are padded to its longest", "micro_batch_size"),
        when=lambda job: (job.micro_batch_size or 1) > 1,
    ),
    Fixed("padded", Derived(False, "one row a batch", "micro_batch_size")),
    set_images,
)  # fmt: skip
"""`batch_size` without accumulation means accumulation = batch_size // micro_batch_size (`normalize_config`).

Unpacked rows are padded: to `sequence_len` with `pad_to_sequence_len`, else to the longest row of the batch.
"""


def _set_checkpointing(reader: Reader) -> None:
    """`activation_checkpointing` (`_configure_gradient_checkpointing`, `normalize_config`)."""
    field, asked = "activation_checkpointing", reader.ask(ANYTHING, "gradient_checkpointing")
    given = asked.given
    if given is None or asked.value is Unsaid.BLANK:
        reader.default(field, "none")
        return
    if given.value in ("offload", "offload_disk"):
        reader.set(field, given, "offload", "old spelling of activation_offloading")
        return
    on = bool(as_boolean(given.value))
    for key, mode in (("activation_offloading", "offload"), ("selective_checkpointing", "selective")):
        other = reader.keys.raw(key)
        if on and other is not None and other.value not in (None, False):
            reader.set(field, other, mode)
            return
    reader.set(field, given, "full" if on else "none")


def _reentrance(reader: Reader) -> Default:
    """Without `gradient_checkpointing_kwargs` supervised runs checkpoint reentrantly, others not."""
    if any(reader.keys.raw(key) for key in ("gradient_checkpointing_kwargs", "rl", "unfrozen_parameters")):
        return Default(False)
    return Default(True, f"{reader.upstream} sets it for supervised runs")


CHECKPOINTING = (
    _set_checkpointing,
    Fixed(
        "checkpoint_policy",
        lambda reader: Derived(
            "attention", f"{reader.upstream} keeps the outputs of attention kernels", "activation_checkpointing"
        ),
        when=lambda job: job.activation_checkpointing == "selective",
    ),
    Key("reentrant", "gradient_checkpointing_kwargs.use_reentrant", FLAG, _reentrance, back=NEVER),
)

_ATTENTION = attention(
    own={
        "flash_attention_4": "flash_attention_3", "flash_attention_torch": "flash_attention_2", "fp8": "sdpa",
    },
    refuses={"fa2", "fa3", "flash_attn", "disabled", "te"}, any_other=True,
)  # fmt: skip
"""Flash Attention 4 saves what Flash Attention 3 saves."""

_SWITCHES = {
    "xformers_attention": "xformers", "sage_attention": "sage", "flex_attention": "flex",
    "flash_attention": "flash_attention_2", "sdp_attention": "sdpa", "eager_attention": "eager",
}  # fmt: skip
"""Old switches in the order in which `normalize_attn_implementation` lets them win."""


def attention_keys(_reading: Reading, name: str) -> Keys:
    """`attn_implementation` in place of the old switches."""
    return {**dict.fromkeys(_SWITCHES), "attn_implementation": "flex_attention" if name == "flex" else name}


def _compiles(written: Any, _job: Job) -> bool:
    return written == "auto" or bool(as_boolean(written))


KERNELS = (
    Key("attention", "attn_implementation", _ATTENTION, back=NEVER),
    *(Key("attention", key, FLAG, to={True: name}, back=NEVER) for key, name in _SWITCHES.items()),
    Key(
        "attention", "gemma4_hybrid_attn_impl", FLAG,
        Default("sdpa", "default of Transformers 5.16.1, which axolotl leaves it to"), {True: "flash_attention_2"},
        NEVER,
    ),
    Key("compile", "torch_compile", ANYTHING, default=False, to=_compiles, back=NEVER),
)  # fmt: skip
"""`attn_implementation`, else the old switches, else what Transformers takes."""

OPTIMIZER = (
    Key(
        "optimizer.name", "optimizer", TEXT, by_schema(NAME, "optimizer"), lambda name, _: name.strip(),
        lambda name, _: name,
    ),
    Key(
        "optimizer.rank", "qgalore_rank", POSITIVE, by_schema(NAME, "qgalore_rank"), back=NEVER,
        when=lambda job: job.optimizer.name == "q_galore_adamw8bit",
    ),
    Fixed("optimizer.embeddings_32bit", Default(True, "the Trainer's override for nn.Embedding")),
)  # fmt: skip
"""The Transformers spelling, or one of axolotl's own names."""


def _data(reader: Reader) -> Given | None:
    """The key that names data to evaluate on."""
    share, tests = reader.given(NUMBER, "val_set_size"), reader.keys.raw("test_datasets")
    return share if share and share.value else tests if tests and tests.value else None


def _is_scheduled(reader: Reader) -> bool:
    for key in ("eval_steps", "evals_per_epoch"):
        if reader.value(NUMBER, key, default=0):
            return True
    return bool(reader.value(TEXT, "eval_strategy", "evaluation_strategy", default="no") != "no")


def _unless_evaluated(reader: Reader) -> None:
    """Data and a schedule make an evaluation (`_configure_save_and_eval_strategy`)."""
    if _data(reader) is None:
        reader.derived("evaluation.micro_batch_size", None, "no evaluation data")
    elif not _is_scheduled(reader):
        reader.derived("evaluation.micro_batch_size", None, "nothing schedules an evaluation")


def _training_batch(reader: Reader) -> Derived:
    data = _data(reader)
    note = f"micro_batch_size, as {data.key if data else ''} asks for an evaluation"
    return Derived(reader.job.micro_batch_size, note, "micro_batch_size")


def _evaluates(job: Job) -> bool:
    return job.evaluation.micro_batch_size is not None


EVALUATION = (
    _unless_evaluated,
    Key("evaluation.micro_batch_size", "eval_batch_size", POSITIVE, _training_batch),
    Fixed(
        "evaluation.accumulation_steps",
        lambda reader: Derived(
            reader.job.gradient_accumulation_steps, f"{reader.upstream} takes gradient_accumulation_steps",
            "gradient_accumulation_steps",
        ),
        when=_evaluates,
    ),
    Fixed("evaluation.keeps_logits", Default(False, "no metrics: only the loss is kept"), when=_evaluates),
    Fixed(
        "evaluation.unfused",
        Derived(
            True, "Liger's models make the logits outside of training, and axolotl does not tell the Trainer of Liger",
            "loss.kernel",
        ),
        when=lambda job: _evaluates(job) and job.loss.kernel == "liger" and job.objective in ("sft", "pretrain"),
    ),
)  # fmt: skip
"""The micro batch is the training one unless `eval_batch_size` says otherwise; predictions move to the host after
`gradient_accumulation_steps` batches."""


def checkpointing_keys(reading: Reading, value: str) -> Keys | None:
    """One way of checkpointing and no other; off in `fsdp_config` too."""
    if value not in ("full", "offload", "none"):
        return None
    wanted: Keys = {
        "gradient_checkpointing": value != "none",
        "activation_offloading": True if value == "offload" else None,
        "selective_checkpointing": None,
    }
    return wanted | (dict.fromkeys(places(reading, "activation_checkpointing"), False) if value == "none" else {})
