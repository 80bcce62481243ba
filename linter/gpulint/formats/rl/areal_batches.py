"""Rows and lengths of an AReaL run, and the models that share the GPUs of the one that is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..hf_trainer.trl import ASSUMED_PROMPT

if TYPE_CHECKING:
    from ..core.sections import Filling, Sections

_ONLINE = ("grpo", "ppo")
_NEW_TOKENS = 16384
"""Default of `gconfig.max_new_tokens`."""


def set_batches(filling: Filling, values: Sections, section: str) -> None:
    """Rows are packed: up to `mb_spec.max_tokens_per_mb` tokens, else a share `n_mbs` of all rows of a rank."""
    builder, job = filling.builder, filling.builder.job
    longest = values.integer("train_dataset.max_length", least=1)
    tokens = values.integer(f"{section}.mb_spec.max_tokens_per_mb", least=1)
    builder.derived("packing", True, "rows of a micro batch are packed without padding", "objective")
    filling.fill("padded", values.flag(f"{section}.pad_to_maximum"), False)
    length: int | None
    if job.objective in _ONLINE:
        length = _set_answers(filling, values)
    elif longest:
        filling.put("sequence_length", longest)
        length = longest.value
    elif tokens:
        length = tokens.value
        filling.put("sequence_length", tokens, note="rows of any length fill a micro batch")
    else:
        length = None
        builder.assumed("sequence_length", None, "no key bounds the length of a row")
    plan = job.parallelism
    ranks = max(1, job.data_parallel // plan.context)
    rows = _rows_of_step(values, section)
    if tokens and length:
        filling.put("micro_batch_size", tokens, max(1, tokens.value // length), "rows of full length in its tokens")
    else:
        parts = values.integer(f"{section}.mb_spec.n_mbs", least=1)
        whole = values.integer("train_dataset.batch_size", least=1)
        size = max(1, rows // ranks // (parts.value if parts else 1)) if rows else None
        note = "no max_tokens_per_mb: a rank takes its rows at once" if not parts else "the rows of a rank over n_mbs"
        if whole and size:
            filling.put("micro_batch_size", parts or whole, size, note)
        else:
            builder.assumed("micro_batch_size", None, note)
    steps = max(1, rows // (ranks * (job.micro_batch_size or 1))) if rows else 1
    builder.derived("gradient_accumulation_steps", steps, "rows of a step over ranks and micro batches")


def _rows_of_step(values: Sections, section: str) -> int | None:
    """Rows between two optimizer steps of all ranks."""
    whole = values.integer("train_dataset.batch_size", least=1)
    if whole is None:
        return None
    several = values.integer("gconfig.n_samples", f"{section}.group_size", least=1)
    parts = values.integer(f"{section}.ppo_n_minibatches", least=1)
    online = values.is_mapping("gconfig") or values.is_mapping("rollout")
    samples = several.value if several and online else 1
    split = parts.value if parts else 4 if online else 1
    return max(1, int(whole.value) * samples // split)


def _set_answers(filling: Filling, values: Sections) -> int:
    """Prompt and answer of RL; `max_tokens` bounds both together."""
    builder = filling.builder
    prompt = values.integer("train_dataset.max_length", least=1)
    filling.fill("rl.completion_length", values.integer("gconfig.max_new_tokens", least=1), _NEW_TOKENS)
    filling.fill("rl.generations", values.integer("gconfig.n_samples", least=1), 1)
    answer = builder.job.rl.completion_length or _NEW_TOKENS
    if prompt:
        filling.put("rl.prompt_length", prompt)
    else:
        builder.assumed("rl.prompt_length", ASSUMED_PROMPT, f"prompts are not bounded; {ASSUMED_PROMPT} tokens")
    length = (builder.job.rl.prompt_length or 0) + answer
    builder.derived("sequence_length", length, "prompt and answer", "rl.completion_length")
    return length


def set_rollout(filling: Filling, values: Sections, section: str, *, shared: bool) -> None:
    """Where the server, the reference model and the critic are while the actor trains."""
    builder, job = filling.builder, filling.builder.job
    former = values.text("allocation_mode") is not None
    if job.objective == "dpo":
        _set_reference(filling, values, former=former)
        return
    if job.objective not in _ONLINE:
        builder.default("rl.reference_model", False, "no reference")
        return
    kl = values.number(f"{section}.kl_ctl")
    if not values.is_mapping("ref") or (kl and kl.value == 0):
        note = "kl_ctl 0" if values.is_mapping("ref") else "no `ref`"
        builder.default("rl.reference_model", False, note)
    else:
        _set_reference(filling, values, former=former)
    together = shared or _beside(values, "rollout", section) or _beside(values, section, "rollout")
    if not together:
        builder.default("rl.vllm", "server", "the server has GPUs of its own")
    else:
        builder.derived("rl.vllm", "colocate", "the server shares the GPUs")
        share = values.number("sglang.mem_fraction_static", "vllm.gpu_memory_utilization")
        filling.fill("rl.vllm_gpu_memory_utilization", share, 0.9)
        filling.fill("rl.vllm_sleep", values.flag("enable_offload"), False)
    if job.objective == "ppo":
        with_actor = former or _beside(values, "critic", section)
        away = values.flag("critic.offload")
        apart = not with_actor or bool(away and away.value)
        builder.derived("rl.value_model", "apart" if apart else "model", "where the critic is while the actor trains")
        builder.default("rl.reward_model", "none", "rewards come from a function")


def _set_reference(filling: Filling, values: Sections, *, former: bool) -> None:
    """`ref` stands on the actor's GPUs where it is colocated, in main memory with `offload`."""
    builder, entry, away = filling.builder, values.raw("ref"), values.flag("ref.offload")
    if entry is None:
        return
    if not former and not _beside(values, "ref", "actor"):
        filling.put("rl.reference_model", entry, value=False, note="on GPUs of its own")
    elif away and away.value:
        filling.put("rl.reference_model", away, value=False, note="in main memory but for its own pass")
    else:
        builder.from_entry("rl.reference_model", True, entry.entry, entry.key, "a frozen model beside the actor")


def _beside(values: Sections, section: str, target: str) -> bool:
    """Whether a section is colocated with another."""
    kind, other = (values.text(f"{section}.scheduling_strategy.{name}") for name in ("type", "target"))
    return bool(kind and kind.value == "colocation" and (other is None or other.value == target))
