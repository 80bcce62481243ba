"""verl's supervised fine-tuning: `sft_trainer.yaml` of `fsdp_sft_trainer.py`, and `sft_trainer_engine.yaml`.

Facts from verl 0.10.0.dev (trainer/sft_trainer.py, trainer/config/sft_trainer_engine.yaml, trainer/config/engine/)
and, for the older trainer, from 0.7.0, the last that has it (trainer/fsdp_sft_trainer.py, trainer/config/
sft_trainer.yaml), read statically. The older one names its model in `model.partial_pretrain`; the newer one has an
`engine` section and says its GPUs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...upstream.behaviour import default_of, is_release
from ...upstream.rl import verl
from ..core.backends.fsdp import FSDP, fsdp2
from ..core.backends.lora import lora
from ..core.backends.training_loop import USUAL, runs_on
from ..core.bindings.kinds import FLAG, POSITIVE, TEXT, WHOLE_TEXT
from ..core.bindings.reader import Reader
from ..core.bindings.rows import NEVER, Assumed, Default, Derived, Fixed, Key, Table, Written, only
from ..core.format import Format, Reading
from ..core.interpolation import interpolated
from ..core.sections import Moved, moved
from ..core.world_size import Stated, set_hardware
from .actor import WEIGHTS
from .keys import verl_problems

if TYPE_CHECKING:
    from typing import Any

    from ...source.document import Document
    from ..core.format import Project
    from ..core.key_changes import Keys

NAME = "verl_sft"
UPSTREAM = "verl 0.10.0.dev"


def read(document: Document, project: Project) -> Reading:
    """The Job of a fine-tune."""
    filled = interpolated(document)
    reader = Reader(filled, project, NAME, UPSTREAM, checked=document, keys=Moved(filled.root, _places(filled)))
    reader.bind(TABLE.rows)
    reader.reading.problems = verl_problems(document, NAME)
    return reader.reading


def _is_newer(document: Document) -> bool:
    return document.root.find("model.partial_pretrain") is None


def _places(document: Document) -> dict[str, str]:
    """What the newer trainer has in `engine`, the older one has in the section of FSDP."""
    return {} if _is_newer(document) else {"engine": "model.fsdp_config"}


def _default(reader: Reader, name: str, usual: Any) -> Any:
    return default_of(verl.SFT_DEFAULTS, reader.project.versions.get("verl", ""), name, usual)


def _set_gpus(reader: Reader) -> None:
    each, nodes = reader.given(POSITIVE, "trainer.n_gpus_per_node"), reader.value(POSITIVE, "trainer.nnodes", default=1)
    stated = Stated(each.value * nodes, each.entry, each.key, f"GPUs x {nodes} nodes") if each else None
    set_hardware(reader, reader.project, stated, sharded=True)


def _set_sync(reader: Reader) -> None:
    path, stated = f"{FSDP}sync_each_batch", reader.project.versions.get(verl.NAME)
    defers = reader.given(FLAG, "engine.use_no_sync_for_gradient_accumulation")
    if defers:
        reader.set(path, defers, not defers.value)
        return
    deferring = _is_newer(reader.document) and is_release(stated) and verl.DEFERS_GRADIENTS.at(stated)
    if _is_newer(reader.document) and not is_release(stated):
        reader.job.unstated.append(path)
    reader.default(
        path, not deferring, "the engine of 0.9.0 defers (#7095), later ones where told to, the trainer never"
    )


def _set_rows(reader: Reader) -> None:
    """With `use_dynamic_bsz` as many rows as `max_token_len_per_gpu` holds."""
    job, tokens = reader.job, reader.given(POSITIVE, "data.max_token_len_per_gpu")
    if not reader.value(FLAG, "data.use_dynamic_bsz", default=_is_newer(reader.document)):
        return
    held = (tokens.value if tokens else 8192) * job.parallelism.context
    rows, note = max(1, held // (job.sequence_length or 1)), "rows of full length in the tokens of a GPU"
    source = Written(rows, note) if tokens else Default(rows, "max_token_len_per_gpu 8192")
    reader.put("micro_batch_size", source, tokens)
    reader.derived("packing", True, "rows are packed", "micro_batch_size")


def _set_steps(reader: Reader) -> None:
    job, whole = reader.job, reader.given(POSITIVE, "data.train_batch_size")
    ranks = max(1, (job.hardware.gpus or 1) // job.parallelism.context)
    steps = max(1, (whole.value if whole else 256) // (ranks * (job.micro_batch_size or 1)))
    source = Written(steps, f"over {ranks} ranks") if whole else Default(steps, "train_batch_size 256")
    reader.put("gradient_accumulation_steps", source, whole)


def _set_checkpointing(reader: Reader) -> None:
    stated = reader.given(FLAG, "model.enable_gradient_checkpointing")
    on = stated.value if stated else _default(reader, "enable_gradient_checkpointing", usual=True)
    offload = reader.value(FLAG, "model.enable_activation_offload", default=False)
    mode = "none" if not on else "offload" if offload else "full"
    reader.put("activation_checkpointing", Written(mode) if stated else mode, stated)


def _batch(reading: Reading, value: int) -> Keys:
    tokens = value * (reading.job.sequence_length or 0) // reading.job.parallelism.context
    return {"data.max_token_len_per_gpu": tokens} if reading.job.packing else {"data.micro_batch_size_per_gpu": value}


def _checkpointing(reading: Reading, value: str) -> Keys | None:
    if value not in ("full", "none", "offload") or (value == "offload" and not _is_newer(reading.config)):
        return None
    offload = {"model.enable_activation_offload": True} if value == "offload" else {}
    return {"model.enable_gradient_checkpointing": value != "none", **offload}


def _method(reading: Reading, value: str) -> Keys | None:
    if value == "full":
        return {"model.lora_rank": 0}
    new = {"model.lora_rank": 16, "model.lora_alpha": 32} if reading.job.method != "lora" else {}
    return new if value == "lora" else None


def _loss(reading: Reading, value: str) -> Keys | None:
    switch = "use_fused_kernels" if _is_newer(reading.config) else "use_liger"
    return {f"model.{switch}": True} if value == "liger" else None


TABLE = Table(
    (
        *runs_on(),
        Fixed("kind", Derived("training", "a run of verl's SFT trainer")),
        Fixed("objective", Derived("sft", "verl's SFT trainer")),
        Fixed("framework", Derived(verl.NAME, "its own steps around Transformers' models")),
        Key(
            "model", ("model.partial_pretrain", "model.path"), WHOLE_TEXT, Assumed(None, "the model is to be filled in")
        ),
        _set_gpus,
        Key("weights.dtype", "engine.model_dtype", WEIGHTS, "float32", other="float32"),
        Fixed("precision.autocast", Default("bfloat16", "the trainer's autocast")),
        Key(
            "parallelism.context", ("engine.ulysses_sequence_parallel_size", "ulysses_sequence_parallel_size"),
            POSITIVE, 1, back=NEVER,
        ),
        Fixed("parallelism.fsdp", Default(None, "one GPU"), when=lambda job: (job.hardware.gpus or 1) < 2),
        *only(
            lambda job: (job.hardware.gpus or 1) > 1,
            Key(
                f"{FSDP}version", ("engine.strategy", "model.strategy"), TEXT,
                lambda reader: 1 if _is_newer(reader.document) else _default(reader, "fsdp_version", 2),
                lambda word, _: 2 if "2" in word else 1, NEVER,
            ),
            _set_sync,
            Key(
                f"{FSDP}offload", ("engine.offload_policy", "model.fsdp_config.cpu_offload"), FLAG, default=False,
                back=NEVER,
            ),
            *fsdp2(),
        ),
        Key("method", "model.lora_rank", POSITIVE, Default("full", "lora_rank 0"), lambda *_: "lora", NEVER),
        *lora(rank="model.lora_rank", alpha="model.lora_alpha", targets="model.target_modules", cast=False),
        Key("sequence_length", "data.max_length", POSITIVE, 1024),
        _set_rows,
        Key("micro_batch_size", "data.micro_batch_size_per_gpu", POSITIVE, 4),
        Fixed("padded", Default(True, "rows are padded to max_length"), when=lambda job: not job.packing),
        _set_steps,
        _set_checkpointing,
        Fixed("attention", Default("flash_attention_2", "attn_implementation of the trainer")),
        Key("loss.kernel", "model.use_liger", FLAG, to={True: "liger"}, back=NEVER),
        Key("loss.kernel", "model.use_fused_kernels", FLAG, to={True: "chunked"}, back=NEVER),
        *USUAL,
    ),
    says={
        "activation_checkpointing": _checkpointing,
        "loss.kernel": _loss,
        "method": _method,
        "micro_batch_size": _batch,
    },
    total="data.train_batch_size",
    spelled=lambda reading, key: moved(key, _places(reading.config)),
)  # fmt: skip
"""FSDP over all ranks, one unit a layer; bfloat16 is computed in, and sums are reduced in float32."""

FORMAT = Format.of_table(
    NAME, "verl SFT config", UPSTREAM, read, TABLE,
    "`trainer.n_gpus_per_node` x `trainer.nnodes`; the launcher of the older trainer",
)  # fmt: skip
