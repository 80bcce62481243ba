"""Rows and lengths of an AReaL run, and the models that share the GPUs of the one that is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.bindings.kinds import FLAG, NUMBER, POSITIVE, TEXT, Unsaid
from ..core.bindings.rows import NEVER, Assumed, Default, Derived, Fixed, Key, only
from ..hf_trainer.trl import ASSUMED_PROMPT
from .areal_allocation import plan_of

if TYPE_CHECKING:
    from typing import Any

    from ...job.job import Job
    from ..core.bindings.reader import Reader
    from ..core.format import Reading
    from ..core.key_changes import Keys

_TOKENS = "actor.mb_spec.max_tokens_per_mb"


def is_online(job: Job) -> bool:
    """Whether the rows are generated."""
    return job.objective in ("grpo", "ppo")


def is_section(reader: Reader, name: str) -> bool:
    """Whether the file has the section."""
    given = reader.keys.raw(name)
    return given is not None and given.entry.value.is_mapping


def _length(job: Job) -> int:
    return (job.rl.prompt_length or 0) + (job.rl.completion_length or 0)


def _rows_of(tokens: int, job: Job) -> Any:
    return max(1, tokens // job.sequence_length) if job.sequence_length else Unsaid.OTHER


def _tokens_of(rows: int, job: Job) -> Any:
    return rows * job.sequence_length if job.sequence_length else Unsaid.OTHER


def _rows_of_step(reader: Reader) -> int | None:
    """Rows between two optimizer steps of all ranks."""
    whole = reader.value(POSITIVE, "train_dataset.batch_size")
    if whole is None:
        return None
    online = is_section(reader, "gconfig") or is_section(reader, "rollout")
    samples = reader.value(POSITIVE, "gconfig.n_samples", "actor.group_size", default=1) if online else 1
    parts = reader.value(POSITIVE, "actor.ppo_n_minibatches", default=4 if online else 1)
    return max(1, int(whole * samples // parts))


def _set_steps(reader: Reader) -> None:
    """Without a bound of tokens a micro batch is a share `n_mbs` of all rows of a rank."""
    job, rows, ranks = (
        reader.job,
        _rows_of_step(reader),
        max(1, reader.job.data_parallel // reader.job.parallelism.context),
    )
    if "micro_batch_size" not in job.origins:
        parts, whole = reader.given(POSITIVE, "actor.mb_spec.n_mbs"), reader.given(POSITIVE, "train_dataset.batch_size")
        note = "the rows of a rank over n_mbs" if parts else "no max_tokens_per_mb: a rank takes its rows at once"
        if whole and rows:
            size = max(1, rows // ranks // (parts.value if parts else 1))
            reader.set("micro_batch_size", parts or whole, size, note)
        else:
            reader.assumed("micro_batch_size", None, note)
    steps = max(1, rows // (ranks * (job.micro_batch_size or 1))) if rows else 1
    reader.derived("gradient_accumulation_steps", steps, "rows of a step over ranks and micro batches")


BATCHES = (
    Fixed("packing", Derived(True, "rows of a micro batch are packed without padding", "objective")),
    Key("padded", "actor.pad_to_maximum", FLAG, default=False),
    *only(
        is_online,
        Key("rl.completion_length", "gconfig.max_new_tokens", POSITIVE, 16384),
        Key("rl.generations", "gconfig.n_samples", POSITIVE, 1),
        Key(
            "rl.prompt_length", "train_dataset.max_length", POSITIVE,
            Assumed(ASSUMED_PROMPT, f"prompts are not bounded; {ASSUMED_PROMPT} tokens"),
        ),
        Fixed(
            "sequence_length",
            lambda reader: Derived(_length(reader.job), "prompt and answer", "rl.completion_length"),
        ),
    ),
    Key("sequence_length", "train_dataset.max_length", POSITIVE),
    Key(
        "sequence_length", _TOKENS, POSITIVE, Assumed(None, "no key bounds the length of a row"),
        note="rows of any length fill a micro batch",
    ),
    Key("micro_batch_size", _TOKENS, POSITIVE, to=_rows_of, back=_tokens_of, note="rows of full length in its tokens"),
    _set_steps,
)  # fmt: skip
"""Rows are packed: up to `mb_spec.max_tokens_per_mb` tokens; `max_tokens` bounds prompt and answer together."""


def length_keys(reading: Reading, value: int) -> Keys | None:
    """The key that bounds the rows, where it is one."""
    origin = reading.job.origins.get("sequence_length")
    return {origin.key: value} if origin is not None and origin.kind == "file" and origin.key else None


def _beside(reader: Reader, section: str, target: str) -> bool:
    """Whether a section is colocated with another."""
    kind, other = (reader.value(TEXT, f"{section}.scheduling_strategy.{name}") for name in ("type", "target"))
    return bool(kind == "colocation" and other in (None, target))


def _set_reference(reader: Reader) -> None:
    """`ref` stands on the actor's GPUs where it is colocated, in main memory with `offload`."""
    field, entry, away = "rl.reference_model", reader.keys.raw("ref"), reader.given(FLAG, "ref.offload")
    if reader.job.objective != "dpo" and not is_online(reader.job):
        reader.default(field, False, "no reference")
    elif entry is None or not entry.entry.value.is_mapping:
        reader.default(field, False, "no `ref`")
    elif is_online(reader.job) and reader.value(NUMBER, "actor.kl_ctl") == 0:
        reader.default(field, False, "kl_ctl 0")
    elif reader.given(TEXT, "allocation_mode") is None and not _beside(reader, "ref", "actor"):
        reader.set(field, entry, False, "on GPUs of its own")
    elif away and away.value:
        reader.set(field, away, False, "in main memory but for its own pass")
    else:
        reader.set(field, entry, True, "a frozen model beside the actor")


def _set_places(reader: Reader) -> None:
    """Whether the server, and with PPO the critic, stand on the actor's GPUs while it trains."""
    if not is_online(reader.job):
        return
    actor = "actor" if reader.document.root.entry("actor") else "model"
    if plan_of(reader).shared or _beside(reader, "rollout", actor) or _beside(reader, "actor", "rollout"):
        reader.derived("rl.vllm", "colocate", "the server shares the GPUs")
    else:
        reader.default("rl.vllm", "server", "the server has GPUs of its own")
    if reader.job.objective == "ppo":
        former = reader.given(TEXT, "allocation_mode") is not None
        beside = former or _beside(reader, "critic", actor)
        apart = not beside or reader.value(FLAG, "critic.offload", default=False)
        reader.derived("rl.value_model", "apart" if apart else "model", "where the critic is while the actor trains")
        reader.default("rl.reward_model", "none", "rewards come from a function")


ROLLOUT = (
    _set_reference,
    _set_places,
    *only(
        lambda job: job.rl.vllm == "colocate",
        Key(
            "rl.vllm_gpu_memory_utilization", ("sglang.mem_fraction_static", "vllm.gpu_memory_utilization"), NUMBER,
            0.9, back=NEVER,
        ),
        Key("rl.vllm_sleep", "enable_offload", FLAG, default=False, back=NEVER),
    ),
    Fixed("evaluation.micro_batch_size", Default(None, "it generates, or scores without a backward pass")),
)  # fmt: skip
"""Where the server, the reference model and the critic are while the actor trains."""
