"""slime: the options of `train.py` and `train_async.py`, which are Megatron-LM's with those of its rollouts.

Facts from slime 0.3.1 at 624b824a8 (`utils/arguments.py`, `backends/megatron_utils/{arguments,actor,data}.py`), read
statically.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.arguments import Arguments
from ..core.backends.gpus import model_ranks
from ..core.backends.megatron import (
    BACKEND,
    chunks,
    fused_loss,
    gpus,
    granularity,
    mixed_precision,
    recomputed_modules,
    set_accumulation,
)
from ..core.backends.plain import packages, size
from ..core.backends.training_loop import USUAL, runs_on
from ..core.bindings.kinds import FLAG, NUMBER, POSITIVE, TEXT
from ..core.bindings.reader import Reader
from ..core.bindings.rows import NEVER, Assumed, Default, Derived, Fixed, Key, Table, only
from ..core.flat_keys import unknown_flat_keys
from ..core.format import Format, NoJobError, Reading
from ..core.model_facts import find_model
from ..core.typos import slip
from ..core.world_size import Stated
from ..megatron.format import LAYOUT, SAYS, optimizer_rows, set_chunks, set_model, spelled, zero_keys

if TYPE_CHECKING:
    from collections.abc import Collection

    from ...job.job import Job
    from ...source.document import Document
    from ..core.format import Project
    from ..core.key_changes import Keys

NAME = "slime"
UPSTREAM = "slime 0.3.1"
VERSIONS = {"megatron": "core 0.16.0"}
"""Its images hold a development branch of Megatron-LM of about that release."""

_GPUS_OF_A_NODE = 8
"""GPUs of a node where nothing says them."""

_SGLANG_SHARE = 0.85
"""About what SGLang takes of a GPU where nothing says it."""


def read(document: Document, project: Project) -> Reading:
    """The Job of the actor that Megatron trains. Raises NoJobError where nothing is trained."""
    reader = Reader(document, project, NAME, UPSTREAM, keys=Arguments(document.root, dashes=True))
    if reader.value(FLAG, "debug_rollout_only"):
        raise NoJobError(document.path, "--debug-rollout-only: it generates and trains nothing")
    reader.bind(TABLE.rows)
    reader.reading.problems[:0] = unknown_flat_keys(document, NAME, UPSTREAM, _passes, treatment="ignored")
    return reader.reading


def _is_online(job: Job) -> bool:
    return job.objective != "sft"


def _set_gpus(reader: Reader) -> None:
    """The actor's nodes and the GPUs of each, eight where nothing says them."""
    gpus(_stated)(reader)
    if _stated(reader) is None and reader.project.gpus is None:
        reader.default("hardware.gpus", _GPUS_OF_A_NODE, "actor_num_gpus_per_node 8")


def _stated(reader: Reader) -> Stated | None:
    each, nodes = (reader.given(POSITIVE, f"actor_num_{name}") for name in ("gpus_per_node", "nodes"))
    said, count, place = each or nodes, nodes.value if nodes else 1, each.value if each else _GPUS_OF_A_NODE
    return Stated(place * count, said.entry, said.key, f"{place} GPUs x {count} nodes", group=True) if said else None


def _set_model(reader: Reader) -> None:
    """`--hf-checkpoint` where that model is known; else the dimensions, unless a plugin builds another model."""
    named, plugin = reader.given(TEXT, "hf_checkpoint"), reader.keys.raw("spec")
    known = named and find_model(named.value, reader.document.path, reader.project.root) is not None
    if named and (known or (plugin is None and reader.keys.raw("num_layers") is None)):
        reader.set("model", named)
    elif plugin is not None:
        reader.assumed("model", None, "a plugin builds it, and the checkpoint is not here")
    else:
        set_model(reader)


def _is_filled(reader: Reader) -> bool:
    """Whether rows fill a micro batch of tokens."""
    return bool(reader.value(FLAG, "use_dynamic_batch_size") and reader.given(POSITIVE, "max_tokens_per_gpu"))


def _set_rows(reader: Reader) -> None:
    """Rows laid end to end: as many as `--max-tokens-per-gpu` holds, or `--micro-batch-size` of them.

    A row that is longer than what a micro batch may hold is one of its own.
    """
    whole, answer = (reader.given(POSITIVE, f"rollout_max_{name}_len") for name in ("context", "response"))
    longest, prompt = whole or answer, reader.value(POSITIVE, "rollout_max_prompt_len", default=0)
    row = whole.value if whole else (answer.value if answer else 0) + prompt
    tokens, context = reader.given(POSITIVE, "max_tokens_per_gpu"), reader.job.parallelism.context
    if tokens and _is_filled(reader):
        held = tokens.value * context
        note = f"tokens of a micro batch over {context} ranks" if context > 1 else "tokens of a micro batch"
        reader.derived("packing", True, "rows fill a micro batch", "micro_batch_size")
        reader.default("micro_batch_size", 1, "one sequence that holds the rows of a micro batch")
        if row > held and longest:
            reader.set("sequence_length", longest, row, "the longest row is a micro batch of its own")
        else:
            reader.set("sequence_length", tokens, held)
            reader.derived("sequence_length", held, note, "sequence_length")
    elif longest:
        reader.set("sequence_length", longest, row, "" if whole else "the answer and what is said of the prompt")


def _set_steps(reader: Reader) -> None:
    """`--global-batch-size` counts rows; in micro batches of tokens no number of them is certain."""
    given = reader.given(POSITIVE, "global_batch_size")
    per, prompts = reader.given(POSITIVE, "num_steps_per_rollout"), reader.given(POSITIVE, "rollout_batch_size")
    if given is None and per and prompts:
        rows = prompts.value * reader.value(POSITIVE, "n_samples_per_prompt", default=1) // per.value
        given = prompts._replace(value=max(1, rows))
    dynamic = reader.value(FLAG, "use_dynamic_batch_size", default=False)
    set_accumulation(reader, given, certain=not dynamic)
    if dynamic and given is not None:
        rows = max(1, given.value // model_ranks(reader.job))
        reader.set("gradient_accumulation_steps", given, rows, f"at most a micro batch for each of {rows} rows")


def _set_engine(reader: Reader) -> None:
    """With `--colocate` SGLang stands on the actor's GPUs."""
    together = reader.given(FLAG, "colocate")
    if together and together.value and not reader.value(FLAG, "debug_train_only"):
        reader.set("rl.vllm", together, "colocate", "SGLang on the GPUs of the actor")


_ROLLOUT = (
    Key("rl.prompt_length", "rollout_max_prompt_len", POSITIVE),
    Key("rl.completion_length", "rollout_max_response_len", POSITIVE),
    Key("rl.generations", "n_samples_per_prompt", POSITIVE),
    _set_engine,
    Fixed("rl.vllm", Default("server", "SGLang on GPUs of its own")),
    *only(
        lambda job: job.rl.vllm == "colocate",
        Key(
            "rl.vllm_gpu_memory_utilization", "sglang_mem_fraction_static", NUMBER,
            Assumed(_SGLANG_SHARE, "about what SGLang takes by itself"),
        ),
        Key(
            "rl.vllm_sleep", "offload_rollout", FLAG,
            Default(True, "SGLang gives its memory back while Megatron trains"),
        ),
        Key(
            "rl.policy_offload", "offload_train", FLAG,
            Default(True, "Megatron's memory is given back while SGLang generates"),
        ),
    ),
    Fixed("rl.reference_model", Default(False, "in main memory; its weights take the place of the actor's")),
    *only(
        lambda job: job.objective == "ppo",
        Fixed("rl.value_model", Default("apart", "in main memory while the actor trains")),
        Fixed("rl.reward_model", Default("none", "rewards come from a function or a server")),
    ),
)  # fmt: skip
"""SGLang and Megatron wait in main memory in turn."""


def _length_keys(reading: Reading, value: int) -> Keys | None:
    """The tokens of a micro batch on each rank, where they are more than the longest row has."""
    origin = reading.job.origins["sequence_length"].key or ""
    if origin.replace("-", "_") != "max_tokens_per_gpu" or value % reading.job.parallelism.context:
        return None
    row = (reading.job.rl.prompt_length or 0) + (reading.job.rl.completion_length or 0)
    return None if value < row else {"max_tokens_per_gpu": value // reading.job.parallelism.context}


TABLE = Table(
    (
        *runs_on("megatron"),
        packages(VERSIONS, UPSTREAM),
        Fixed("kind", Derived("training", "a training script of slime")),
        Key("objective", "loss_type", TEXT, to={"sft_loss": "sft"}, back=NEVER),
        Key(
            "objective", "advantage_estimator", TEXT, Default("grpo", "advantage_estimator grpo"), {"ppo": "ppo"},
            NEVER, other="grpo",
        ),
        *LAYOUT,
        _set_model,
        Key("further_heads", "mtp_num_layers", POSITIVE),
        _set_gpus,
        Key("hardware.nodes", "actor_num_nodes", POSITIVE, 1, back=NEVER),
        set_chunks,
        chunks("num_virtual_stages_per_pipeline_rank"),
        Key(
            "weights.dtype", "fp16", FLAG, Default("bfloat16", "bf16 unless --fp16"), {True: "float16"}, NEVER,
        ),
        *mixed_precision(),
        *optimizer_rows(Default(1)),
        *granularity("recompute_granularity"),
        recomputed_modules(),
        fused_loss(lambda _: False),
        Key(
            "attention", "attention_backend", BACKEND,
            Default("flash_attention_2", "Transformer Engine's, over rows laid end to end"),
        ),
        Fixed("padded", Default(False, "rows are laid end to end as they are")),
        Fixed("evaluation.micro_batch_size", Default(None, "it generates")),
        _set_rows,
        Fixed("packing", False),
        size("micro_batch_size", "micro_batch_size", 1),
        size("sequence_length", "seq_length"),
        _set_steps,
        *only(_is_online, *_ROLLOUT),
        *USUAL,
    ),
    says={
        "activation_checkpointing": SAYS["activation_checkpointing"],
        "micro_batch_size": lambda reading, value: None if reading.job.packing else {"micro_batch_size": value},
        "sequence_length": _length_keys,
    },
    total="global_batch_size",
    ignored=frozenset({"checkpoint_policy"}),
    zero=zero_keys,
    spelled=spelled,
)  # fmt: skip


def _passes(key: str, close: str, _known: Collection[str]) -> bool:
    """Megatron's parser passes over what it does not know, and another branch of it may: only slips are told."""
    return key.startswith(("sglang_", "router_")) or not close or not slip(key, close)


FORMAT = Format.of_table(
    NAME, "slime options", UPSTREAM, read, TABLE, "`--actor-num-gpus-per-node`, `--actor-num-nodes`"
)
