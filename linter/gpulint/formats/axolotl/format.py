"""axolotl YAML configs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...source.node import Entry, Node
from ..accelerate.elsewhere import sharded_elsewhere
from ..core.bindings.kinds import TEXT
from ..core.bindings.reader import Reader
from ..core.bindings.rows import NEVER, Default, Derived, Fixed, Key, Table, Written, says_as_is
from ..core.format import Format, Problem, Reading
from ..core.keys import key_problems
from ..hf_trainer.placeholder_keys import settle
from . import parallel
from .adapter import METHOD, method_keys, set_kernels
from .loss import loss_keys, own_plugins, set_loss
from .parallel import NAME, PARALLEL, UPSTREAM
from .rl import OBJECTIVE, RL, RL_KEYS
from .training import (
    BATCH,
    CHECKPOINTING,
    EVALUATION,
    KERNELS,
    OPTIMIZER,
    attention_keys,
    checkpointing_keys,
)
from .weights import WEIGHTS, check_weights, dtype_keys, set_upcast

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.format import Project

VERSIONS = {
    "axolotl": "0.19.0", "transformers": "5.16.1", "torch": "2.11.0", "peft": "0.20.0", "trl": "1.9.0",
    "accelerate": "1.13.0",
}  # fmt: skip
"""axolotl and what it pins (pyproject.toml); torch is the oldest it takes."""


def read(document: Document, project: Project) -> Reading:
    """The Job of an axolotl config, every memory field with its origin."""
    template = _to_be_filled(document)
    reader = Reader(template or document, project, NAME, UPSTREAM)
    reader.bind(TABLE.rows)
    settle(reader, reader.keys)
    reader.reading.problems[:0] = _key_problems(reader, filled=template is not None)
    return reader.reading


def _key_problems(reader: Reader, *, filled: bool) -> list[Problem]:
    """Unknown, mistyped and old keys. A plugin that is not axolotl's may bring any top key, so then none is unknown;
    what fills a template in makes its values axolotl's own."""
    plugins = own_plugins(reader)
    problems = key_problems(reader.document, NAME, plugins=plugins)
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


def _set_versions(reader: Reader) -> None:
    reader.default("versions", dict(VERSIONS), f"what {UPSTREAM} pins")
    reader.versions({}, reader.project.versions, f"what {UPSTREAM} pins")


TABLE = Table(
    (
        Fixed("kind", Derived("training", "an axolotl config")),
        _set_versions,
        Fixed("framework", Derived(NAME, "its own Trainer and LoRA kernels")),
        Fixed(
            "allocator.expandable_segments",
            Default(True, "set_pytorch_cuda_alloc_conf in axolotl/utils/__init__.py"),
        ),
        Key("model", "base_model", TEXT, back=NEVER, blank=lambda _, given: Written(given.value)),
        *OBJECTIVE,
        *BATCH,
        *WEIGHTS,
        *METHOD,
        check_weights,
        *CHECKPOINTING,
        *KERNELS,
        set_loss,
        *OPTIMIZER,
        *RL,
        *EVALUATION,
        *PARALLEL,
        set_kernels,
        set_upcast,
    ),
    says={
        "activation_checkpointing": checkpointing_keys,
        "loss.kernel": loss_keys,
        "attention": attention_keys,
        "parallelism.fsdp.sharding": parallel.fsdp_keys,
        "parallelism.fsdp.offload": parallel.offload_keys,
        **{field: says_as_is(key) for field, key in RL_KEYS.items()},
    },
    together={
        ("method", "weights.quantization.method", "adapter.r"): method_keys,
        ("weights.dtype", "precision.autocast"): dtype_keys,
    },
    zero=parallel.zero,
    refuses=parallel.is_refused,
    elsewhere=sharded_elsewhere(),
)

FORMAT = Format.of_table(
    NAME, "axolotl config", UPSTREAM, read, TABLE,
    "product of `dp_shard_size` and the other degrees, or `ray_num_workers`; else not in the file",
)  # fmt: skip
