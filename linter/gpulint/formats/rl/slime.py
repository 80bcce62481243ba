"""slime: the options of `train.py` and `train_async.py`, which are Megatron-LM's with those of its rollouts.

Facts from slime 0.3.1 at 624b824a8 (`utils/arguments.py`, `backends/megatron_utils/{arguments,actor,data}.py`), read
statically.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.flat_keys import unknown_flat_keys
from ..core.format import Format, NoJobError, Reading, written_by
from ..core.model_facts import find_model
from ..core.native import NativeConfig
from ..core.typos import slip
from ..core.world_size import Stated
from ..megatron.format import set_model, set_optimizer, set_pipeline
from ..megatron.plan import (
    set_accumulation,
    set_degrees,
    set_fusion,
    set_gpus,
    set_recomputation,
    set_sixteen_bits,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from ...source.document import Document
    from ..core.format import Project

NAME = "slime"
UPSTREAM = "slime 0.3.1"
VERSIONS = {"megatron": "core 0.16.0"}
"""Its images hold a development branch of Megatron-LM of about that release."""

_SIGNS = frozenset({"rollout_batch_size", "actor_num_gpus_per_node", "num_rollout", "hf_checkpoint", "ref_load"})

_GPUS_OF_A_NODE = 8
"""GPUs of a node where nothing says them."""

_SGLANG_SHARE = 0.85
"""About what SGLang takes of a GPU where nothing says it."""


def recognise(document: Document) -> bool:
    """Command lines with three of slime's own options; no file."""
    if document.syntax != "flags":
        return False
    written = document.root.keys()
    return len(_SIGNS & {str(key).replace("-", "_") for key in written}) >= 3


def read(document: Document, project: Project) -> Reading:
    """The Job of the actor that Megatron trains. Raises NoJobError where nothing is trained."""
    config = NativeConfig(NAME, UPSTREAM, document, project, "megatron", dashes=True)
    builder, keys = config.builder, config.keys
    if keys.is_on("debug_rollout_only"):
        raise NoJobError(document.path, "--debug-rollout-only: it generates and trains nothing")
    builder.versions(VERSIONS, project.versions, f"what {UPSTREAM} runs on")
    builder.derived("kind", "training", "a training script of slime")
    loss, estimator = keys.text("loss_type"), keys.text("advantage_estimator")
    tuned = loss is not None and loss.value == "sft_loss"
    if loss is not None and tuned:
        config.put("objective", loss, "sft")
    elif estimator is not None:
        config.put("objective", estimator, "ppo" if estimator.value == "ppo" else "grpo")
    else:
        builder.default("objective", "grpo", "advantage_estimator grpo")
    replica = set_degrees(config, keys)
    _set_model(config)
    ranks = _set_gpus(config, replica)
    set_pipeline(config)
    _set_precision(config)
    set_optimizer(config, usual=1)
    share = keys.number("optimizer_offload_fraction")
    if keys.is_on("optimizer_cpu_offload") and share:
        config.put("parallelism.zero.offload_optimizer.ratio", share, float(min(1, share.value)))
    set_recomputation(config, keys, "recompute_")
    set_fusion(config, keys, usual=False)
    backend = keys.text("attention_backend")
    if backend and backend.value in ("unfused", "local"):
        config.put("attention", backend, "eager")
    else:
        builder.default("attention", "flash_attention_2", "Transformer Engine's, over rows laid end to end")
    _set_rows(config)
    _set_steps(config, ranks)
    if not tuned:
        _set_rollout(config)
    config.fill()
    config.reading.problems[:0] = unknown_flat_keys(document, NAME, UPSTREAM, _passes, treatment="ignored")
    return config.reading


def _set_gpus(config: NativeConfig, replica: int) -> int:
    """The actor's nodes and the GPUs of each, eight where nothing says them; returns the data parallel ranks."""
    keys, project = config.keys, config.project
    each, nodes = keys.integer("actor_num_gpus_per_node", least=1), keys.integer("actor_num_nodes", least=1)
    said, count, place = each or nodes, nodes.value if nodes else 1, each.value if each else _GPUS_OF_A_NODE
    stated = Stated(place * count, said.entry, said.key, f"{place} GPUs x {count} nodes") if said else None
    ranks = set_gpus(config, replica, stated)
    if stated is None and project.gpus is None:
        config.builder.default("hardware.gpus", _GPUS_OF_A_NODE, "actor_num_gpus_per_node 8")
        ranks = max(1, _GPUS_OF_A_NODE // replica)
    if project.nodes is None:
        config.count("hardware.nodes", nodes, 1)
    return ranks


def _set_model(config: NativeConfig) -> None:
    """`--hf-checkpoint` where that model is known; else the dimensions, unless a plugin builds another model."""
    keys, builder = config.keys, config.builder
    named = keys.text("hf_checkpoint")
    plugin = keys.raw("spec")
    if named and find_model(named.value, config.document.path, config.project.root) is not None:
        config.put("model", named)
    elif plugin is not None:
        builder.assumed("model", None, "a plugin builds it, and the checkpoint is not here")
    elif keys.raw("num_layers") is None and named:
        config.put("model", named)
    else:
        set_model(config)
    heads = keys.integer("mtp_num_layers", least=1)
    if heads:
        config.put("further_heads", heads)


def _set_precision(config: NativeConfig) -> None:
    """bfloat16 unless `--fp16`; gradients of bfloat16 weights are added up in float32."""
    builder, keys = config.builder, config.keys
    fp16 = keys.flag("fp16")
    if fp16 and fp16.value:
        whole = keys.is_on("accumulate_allreduce_grads_in_fp32")
        set_sixteen_bits(config, fp16, "float16", "float32" if whole else "float16")
        return
    low = keys.is_on("grad_reduce_in_bf16")
    builder.default("weights.dtype", "bfloat16", "bf16 unless --fp16")
    builder.default("precision.master_weights", True, "Megatron keeps fp32 main parameters")
    builder.default("precision.gradients", "bfloat16" if low else "float32", "the dtype of Megatron's gradient buffer")
    builder.default("precision.autocast", None)


def _set_rows(config: NativeConfig) -> None:
    """Rows laid end to end: as many as `--max-tokens-per-gpu` holds, or `--micro-batch-size` of them.

    A row that is longer than what a micro batch may hold is one of its own.
    """
    builder, keys = config.builder, config.keys
    answer = keys.integer("rollout_max_response_len", least=1)
    whole, prompt = keys.integer("rollout_max_context_len", least=1), keys.integer("rollout_max_prompt_len", least=1)
    tokens = keys.integer("max_tokens_per_gpu", least=1)
    longest = whole or answer
    row = whole.value if whole else (answer.value if answer else 0) + (prompt.value if prompt else 0)
    builder.default("padded", False, "rows are laid end to end as they are")
    builder.default("evaluation.micro_batch_size", None, "it generates")
    if keys.is_on("use_dynamic_batch_size") and tokens:
        context = builder.job.parallelism.context
        held = int(tokens.value) * context
        note = f"tokens of a micro batch over {context} ranks" if context > 1 else "tokens of a micro batch"
        builder.derived("packing", True, "rows fill a micro batch", "micro_batch_size")
        builder.default("micro_batch_size", 1, "one sequence that holds the rows of a micro batch")
        if row > held and longest:
            config.put("sequence_length", longest, row, "the longest row is a micro batch of its own")
        else:
            config.put("sequence_length", tokens, held, note)
            builder.derived("sequence_length", held, note, "sequence_length")
        return
    builder.default("packing", False)
    config.count("micro_batch_size", keys.integer("micro_batch_size", least=1), 1, keys.blank("micro_batch_size"))
    if longest:
        config.put("sequence_length", longest, row, "" if whole else "the answer and what is said of the prompt")
    else:
        config.count("sequence_length", keys.integer("seq_length", least=1), None, keys.blank("seq_length"))


def _set_steps(config: NativeConfig, ranks: int) -> None:
    """`--global-batch-size` counts rows; in micro batches of tokens no number of them is certain."""
    keys = config.keys
    given = keys.integer("global_batch_size", least=1)
    per, prompts = keys.integer("num_steps_per_rollout", least=1), keys.integer("rollout_batch_size", least=1)
    samples = keys.integer("n_samples_per_prompt", least=1)
    if given is None and per is not None and prompts is not None:
        rows = prompts.value * (samples.value if samples else 1) // per.value
        given = prompts._replace(value=max(1, rows))
    dynamic = keys.is_on("use_dynamic_batch_size")
    set_accumulation(config, given, ranks, certain=not dynamic)
    if dynamic and given is not None:
        rows = max(1, int(given.value) // ranks)
        config.put("gradient_accumulation_steps", given, rows, f"at most a micro batch for each of {rows} rows")


def _set_rollout(config: NativeConfig) -> None:
    """With `--colocate` SGLang stands on the actor's GPUs: it and Megatron wait in main memory in turn."""
    builder, keys = config.builder, config.keys
    for field, key in (
        ("rl.prompt_length", "rollout_max_prompt_len"),
        ("rl.completion_length", "rollout_max_response_len"),
        ("rl.generations", "n_samples_per_prompt"),
    ):
        given = keys.integer(key, least=1)
        if given:
            config.put(field, given)
    together = keys.flag("colocate")
    if together and together.value and not keys.is_on("debug_train_only"):
        config.put("rl.vllm", together, "colocate", "SGLang on the GPUs of the actor")
        share = keys.number("sglang_mem_fraction_static")
        if share:
            config.put("rl.vllm_gpu_memory_utilization", share)
        else:
            builder.assumed("rl.vllm_gpu_memory_utilization", _SGLANG_SHARE, "about what SGLang takes by itself")
        for field, key, what in (
            ("rl.vllm_sleep", "offload_rollout", "SGLang gives its memory back while Megatron trains"),
            ("rl.policy_offload", "offload_train", "Megatron's memory is given back while SGLang generates"),
        ):
            said = keys.flag(key)
            if said:
                config.put(field, said)
            else:
                builder.default(field, True, what)
    else:
        builder.default("rl.vllm", "server", "SGLang on GPUs of its own")
    builder.default("rl.reference_model", False, "in main memory; its weights take the place of the actor's")
    if builder.job.objective == "ppo":
        builder.default("rl.value_model", "apart", "in main memory while the actor trains")
        builder.default("rl.reward_model", "none", "rewards come from a function or a server")


def _passes(key: str, close: str, _known: Collection[str]) -> bool:
    """Megatron's parser passes over what it does not know, and another branch of it may: only slips are told."""
    return key.startswith(("sglang_", "router_")) or not close or not slip(key, close)


describe, edits = written_by("rl.slime_edits")


FORMAT = Format(
    NAME, "slime options", UPSTREAM, recognise, read, describe, edits,
    "`--actor-num-gpus-per-node`, `--actor-num-nodes`",
)  # fmt: skip
