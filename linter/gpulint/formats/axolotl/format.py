"""axolotl YAML configs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...source.node import Entry, Node
from ..core.format import Format, Problem, Reading, written_by
from ..core.keys import key_problems
from ..hf_trainer.placeholder_keys import settle
from .config import NAME, UPSTREAM, AxolotlConfig
from .kernels import set_lora_kernels
from .parallel import set_parallelism
from .rl import set_objective, set_rl
from .training import (
    set_attention,
    set_batch,
    set_checkpointing,
    set_evaluation,
    set_loss,
    set_optimizer,
)
from .weights import check_weights, set_method, set_precision, set_quantization, set_upcast

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.format import Project

_COMPANIONS = frozenset(
    {
        "datasets", "pretraining_dataset", "sequence_len", "micro_batch_size", "adapter", "load_in_4bit",
        "load_in_8bit", "sample_packing", "tokenizer_type", "rl",
    }
)  # fmt: skip
"""Keys of which an axolotl config has some beside `base_model`."""

_OTHERS = frozenset({"model_name_or_path", "merge_method", "models", "slices", "apiVersion"})
"""Keys of other tools that also write `base_model` (mergekit, Kubernetes)."""

VERSIONS = {
    "axolotl": "0.19.0", "transformers": "5.16.1", "torch": "2.11.0", "peft": "0.20.0", "trl": "1.9.0",
    "accelerate": "1.13.0",
}  # fmt: skip
"""axolotl and what it pins (pyproject.toml); torch is the oldest it takes."""


def recognise(document: Document) -> bool:
    """YAML with `base_model` and some of axolotl's training keys."""
    keys = set(document.root.keys())
    return "base_model" in keys and bool(keys & _COMPANIONS) and not keys & _OTHERS and document.syntax != "toml"


def read(document: Document, project: Project) -> Reading:
    """The Job of an axolotl config, every memory field with its origin."""
    template = _to_be_filled(document)
    config = AxolotlConfig(template or document, project)
    builder = config.builder
    builder.derived("kind", "training", "an axolotl config")
    builder.default("versions", dict(VERSIONS), f"what {UPSTREAM} pins")
    builder.versions({}, project.versions, f"what {UPSTREAM} pins")
    builder.derived("framework", NAME, "its own Trainer and LoRA kernels")
    builder.default("allocator.expandable_segments", True, "set_pytorch_cuda_alloc_conf in axolotl/utils/__init__.py")
    model = config.keys.raw("base_model")
    if model is not None and isinstance(model.value, str) and model.value:
        config.put("model", model, model.value)
    set_objective(config)
    set_batch(config)
    set_precision(config)
    set_quantization(config)
    set_method(config)
    check_weights(config)
    set_checkpointing(config)
    set_attention(config)
    set_loss(config)
    set_optimizer(config)
    set_rl(config)
    set_evaluation(config)
    set_parallelism(config)
    set_lora_kernels(config)
    set_upcast(config)
    settle(builder, config.keys)
    config.reading.problems[:0] = _key_problems(config, filled=template is not None)
    return config.reading


def _key_problems(config: AxolotlConfig, *, filled: bool) -> list[Problem]:
    """Unknown, mistyped and old keys. A plugin that is not axolotl's may bring any top key, so then none is unknown;
    what fills a template in makes its values axolotl's own."""
    plugins = config.own_plugins()
    problems = key_problems(config.document, NAME, plugins=plugins)
    if filled:
        problems = [item for item in problems if item.kind not in ("wrong-type", "wrong-value")]
    if plugins is None:
        return [item for item in problems if item.kind != "unknown-key" or "." in item.key]
    return problems


AUTOS = 3
"""Keys that axolotl takes no "auto" for, from which on another program fills the file in (TrueFoundry's template)."""

_LEFT = "bf16"
"""The key whose "auto" is axolotl's own word."""


def _to_be_filled(document: Document) -> Document | None:
    """A template with every "auto" as a value that is filled in when the job starts; None for any other file."""
    root = document.root
    if not root.is_mapping or sum(entry.value.value == "auto" for entry in root.value) < AUTOS:
        return None
    refused = [
        item for item in key_problems(document, NAME) if item.kind == "wrong-type" and item.values["found"] == "auto"
    ]
    if len(refused) < AUTOS:
        return None
    filled = Node(root.kind, [], root.span, root.raw)
    filled.merged, filled.path = root.merged, root.path
    for entry in root.value:
        value = entry.value
        if value.value == "auto" and entry.key.value != _LEFT:
            value = Node("scalar", "${auto}", value.span, value.raw)
            value.path = entry.value.path
        filled.value.append(Entry(entry.key, value))
    return document._replace(roots=[filled, *document.roots[1:]])


describe, edits = written_by("axolotl.edits")


FORMAT = Format(
    NAME, "axolotl config", UPSTREAM, recognise, read, describe, edits,
    "product of `dp_shard_size` and the other degrees, or `ray_num_workers`; else not in the file",
)  # fmt: skip
