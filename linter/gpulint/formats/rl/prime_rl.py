"""prime-rl: the TOML of its `rl` and `sft` entry points, and Prime Intellect's hosted training, which runs it.

Facts from prime-rl 0.8.1.dev67 (packages/prime-rl-configs: rl.py, sft.py, trainer.py), read statically. FSDP2 over
float32 weights that are gathered in bfloat16; from 0.6.1 on (c5afcaa2e) layers are compiled and checkpointed by
default, checkpoints are offloaded and so is the optimizer. A stated `versions.prime-rl` has the defaults of that
release. A hosted config (docs.primeintellect.ai/hosted-training) names no GPUs and no precision: the service chooses
both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...upstream import prime_rl
from ...upstream.behaviour import default_of
from ..core.format import Format, NoJobError, Reading, written_by
from ..core.keys import key_problems
from ..core.model_facts import find_model
from ..core.native import NativeConfig
from ..core.sections import Filling, Sections
from ..core.world_size import Stated, set_hardware

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.arguments import Given
    from ..core.format import Project

NAME = "prime_rl"
_TOOL = "prime-rl"
UPSTREAM = "prime-rl 0.8.1.dev67"

_CHUNK = 8192
"""Tokens of `fused_lm_head_token_chunk_size`."""

_NONE = ("None", "none", False, None)
"""What switches a section off that is on by default."""


def recognise(document: Document) -> bool:
    """TOML with an `orchestrator`, or a model beside `data` and `optim` of its SFT; with `env`, a hosted run."""
    root = document.root
    if document.syntax != "toml":
        return False
    keys = set(map(str, root.keys()))
    if {"model", "env"} <= keys and not {"rollouts_per_example", "sampling", "batch_size"}.isdisjoint(keys):
        return True
    if "orchestrator" in keys and not {"model", "trainer", "inference"}.isdisjoint(keys):
        return True
    return root.find("model.name") is not None and root.find("data.seq_len") is not None and "training" not in keys


def read(document: Document, project: Project) -> Reading:
    """The Job of the trainer. Raises NoJobError for a hosted run: nothing in it says what runs where."""
    root = document.root
    online = root.get("orchestrator") is not None
    if root.get("env") is not None and not online:
        raise NoJobError(document.path, "hosted training: Prime Intellect chooses the GPUs")
    config = NativeConfig(NAME, UPSTREAM, document, project, None)
    builder = config.builder
    values, filling = Sections(root), Filling(builder)
    section = "trainer.model" if online else "model"
    builder.derived("kind", "training", "the trainer of a run")
    builder.derived("objective", "grpo" if online else "sft", "`orchestrator`" if online else "the sft entry point")
    builder.derived("packing", True, "rows are packed up to seq_len", "objective")
    model = values.text(f"{section}.name", "model.name")
    if model:
        filling.put("model", model)
    _set_gpus(filling, values, project)
    length = values.integer(f"{section}.seq_len", "seq_len", "data.seq_len", least=1)
    filling.fill("sequence_length", length, 2048 if online else 128)
    filling.fill("micro_batch_size", values.integer("data.micro_batch_size", least=1), 1)
    release = project.versions.get(_TOOL) or ""
    on = bool(default_of(prime_rl.DEFAULTS, release, "saving", True))
    _set_sharding(filling, values, section, on=on)
    _set_adapter(filling, values, section)
    _set_checkpointing(filling, values, section, on=on)
    _set_compile(filling, values, section, on=on)
    kind = values.text("trainer.optim.type" if online else "optim.type")
    filling.fill("optimizer.name", kind._replace(value=_OPTIMIZERS.get(kind.value, kind.value)) if kind else None,
                 "adamw_torch")  # fmt: skip
    _set_head(filling, values, section, release, online=online)
    kernel = values.text(f"{section}.attn")
    stated = kernel._replace(value=_KERNELS.get(kernel.value, kernel.value)) if kernel else None
    filling.fill("attention", stated if stated and stated.value != "auto" else None, "flash_attention_2", "attn auto")
    if online:
        builder.default("rl.vllm", "server", "inference has GPUs of its own")
        builder.default("rl.reference_model", False, "no KL term")
    config.fill()
    config.reading.problems[:0] = key_problems(document, NAME)
    return config.reading


def _set_head(filling: Filling, values: Sections, section: str, release: str, *, online: bool) -> None:
    """The fused head (layers/lm_head.py): pieces of tokens, before 0.5 of columns; SFT has it from 0.7.1 on."""
    builder = filling.builder
    columns = default_of(prime_rl.DEFAULTS, release, "head", "blocks") == "columns"
    key = f"{section}.fused_lm_head_{'' if columns else 'token_'}chunk_size"
    stated = values.raw(key)
    usual = default_of(prime_rl.DEFAULTS, release, "chunk", _CHUNK)
    usual = usual if online or default_of(prime_rl.DEFAULTS, release, "sft_head", True) else None
    if (stated is None and usual is None) or (stated is not None and stated.value == "disabled"):
        builder.derived("loss.upcast", "model", "logits are float32: `cast_float_and_contiguous`")
        return
    builder.default("loss.kernel", "chunked", "the fused head")
    builder.derived("loss.logits", "columns" if columns else "blocks", "the fused head", "loss.kernel")
    filling.fill("loss.chunk", values.integer(key, least=1), usual or _CHUNK)


def _set_compile(filling: Filling, values: Sections, section: str, *, on: bool) -> None:
    """torch.compile of each layer (model.py `apply_compile`); head and loss stay as they are."""
    stated = values.raw(f"{section}.compile")
    if stated is None:
        filling.builder.default("compile", on, "compile: default of ModelConfig")
    else:
        filling.put("compile", stated, stated.value not in _NONE)
    filling.builder.derived("loss.compiled", False, "each layer is compiled, the head is not", "compile")


_OPTIMIZERS = {"adamw": "adamw_torch", "sgd": "sgd", "muon": "muon"}


_KERNELS = {"fa4": "flash_attention_4"}
"""Words of older releases for an attention kernel."""


def _set_gpus(filling: Filling, values: Sections, project: Project) -> None:
    """The GPUs of `deployment` that train."""
    nodes = values.integer("deployment.num_train_nodes", least=1)
    each = values.integer("deployment.gpus_per_node", least=1)
    own = values.integer("deployment.num_train_gpus", least=1)
    stated: Stated | None = None
    if nodes:
        stated = Stated(nodes.value * (each.value if each else 8), nodes.entry, nodes.key, "nodes x gpus_per_node")
        if project.nodes is None:
            filling.put("hardware.nodes", nodes)
    elif own:
        stated = Stated(own.value, own.entry, own.key)
    set_hardware(filling.builder, project, stated, sharded=False)
    filling.fill("parallelism.context", values.integer("trainer.model.cp", "model.cp", least=1), 1)
    _set_experts(filling, values, project)


def _set_experts(filling: Filling, values: Sections, project: Project) -> None:
    """`ep`, from 0.6.1 on `auto`: up to 8 of the GPUs that a replica is sharded over (`resolve_ep`)."""
    builder, job = filling.builder, filling.builder.job
    given: Given | None = values.integer("trainer.model.ep", "model.ep", least=1)
    code = values.text("trainer.model.impl", "model.impl")
    release = project.versions.get(_TOOL) or ""
    if given or default_of(prime_rl.DEFAULTS, release, "ep", "auto") != "auto" or (code and code.value == "hf"):
        filling.fill("parallelism.expert", given, 1)
        return
    model = find_model(job.model, builder.document.path, project.root)
    if model is None or not model.shape.experts:
        builder.default("parallelism.expert", 1, "ep auto: no mixture of experts")
        return
    copies = values.integer("trainer.model.dp_replicate", "model.dp_replicate", least=1)
    ranks = max(1, job.world_size // (copies.value if copies else 1))
    builder.derived("parallelism.expert", min(ranks, 8), "ep auto: up to 8 of the GPUs", "hardware.gpus")


def _set_sharding(filling: Filling, values: Sections, section: str, *, on: bool) -> None:
    """FSDP2, one unit a layer; `optim_cpu_offload` keeps states in main memory between steps."""
    builder, fsdp = filling.builder, "parallelism.fsdp."
    dtype = values.text(f"{section}.optimization_dtype")
    filling.fill("weights.dtype", dtype, "float32", "optimization_dtype float32")
    for name, value in (("version", 2), ("sharding", "full_shard"), ("wrap", "transformer")):
        builder.default(f"{fsdp}{name}", value, "setup_fsdp")
    builder.default(f"{fsdp}sync_each_batch", True, "the trainer never puts the reduction of gradients off")
    reduced = values.text(f"{section}.reduce_dtype")
    builder.default(f"{fsdp}mixed_precision.param_dtype", "bfloat16")
    filling.fill(f"{fsdp}mixed_precision.reduce_dtype", reduced, "float32")
    filling.fill(f"{fsdp}reshard_after_forward", values.flag(f"{section}.reshard_after_forward"), True)
    whole = values.flag(f"{section}.fsdp_cpu_offload")
    filling.fill(f"{fsdp}offload", whole, False)
    waits = values.flag(f"{section}.optim_cpu_offload")
    if whole and whole.value:
        builder.derived("optimizer.between_steps_offloaded", False, "fsdp_cpu_offload", f"{fsdp}offload")
    else:
        filling.fill("optimizer.between_steps_offloaded", waits, on)


def _set_adapter(filling: Filling, values: Sections, section: str) -> None:
    rank = values.integer(f"{section}.lora.rank", least=1)
    whole = values.raw(f"{section}.lora")
    if whole is None:
        return
    filling.put("method", whole, "lora")
    filling.builder.derived("adapter.type", "lora", "LoRA", "method")
    filling.fill("adapter.r", rank, 16)
    filling.fill("adapter.alpha", values.number(f"{section}.lora.alpha"), 32.0)
    targets = values.words(f"{section}.lora.target_modules")
    filling.fill("adapter.targets", targets, "all-linear")


def _set_checkpointing(filling: Filling, values: Sections, section: str, *, on: bool) -> None:
    """`ac`, whose checkpoints `ac_offloading` puts into main memory; `freq` checkpoints every n-th layer.

    `on`: both are there unless told otherwise.
    """
    builder = filling.builder
    ac, offload = values.raw(f"{section}.ac"), values.raw(f"{section}.ac_offloading")
    mode = values.text(f"{section}.ac.mode")
    moves = offload.value not in _NONE if offload else on
    if ac and ac.value in _NONE:
        filling.put("activation_checkpointing", ac, "none")
        return
    if mode and mode.value == "selective":
        note = "its targets, counted as attention"
        filling.builder.from_entry("activation_checkpointing", "selective", mode.entry, mode.key, note)
        builder.derived("checkpoint_policy", "attention", note, "activation_checkpointing")
        return
    if offload and (not moves or not on):
        filling.put("activation_checkpointing", offload, "offload" if moves else "full")
    elif ac and not on:
        filling.put("activation_checkpointing", ac, "full")
    else:
        found = "offload" if on else "none"
        builder.default("activation_checkpointing", found, "ac and ac_offloading: defaults of ModelConfig")
    every = values.integer(f"{section}.ac.freq", least=1)
    if every:
        filling.put("checkpoint_every", every)


describe, edits = written_by("rl.prime_rl_edits")


FORMAT = Format(
    NAME,
    "prime-rl config",
    UPSTREAM,
    recognise,
    read,
    describe,
    edits,
    "`deployment.num_train_gpus`, or nodes x `gpus_per_node`",
)
