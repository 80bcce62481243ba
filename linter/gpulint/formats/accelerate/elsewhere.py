"""Changes of how a run is sharded, written where it is said: the accelerate config that starts the run, or the
DeepSpeed file that the run names.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..core.backends.deepspeed import chooses_file, zero_keys
from ..core.bindings.changes import wanted_keys
from ..core.key_changes import ZERO
from .launch import CONFIG
from .sections import TABLE

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.bindings.rows import Elsewhere
    from ..core.format import Reading
    from ..core.key_changes import Keys

_SHARDS = ("parallelism.fsdp.sharding", "parallelism.fsdp.offload")
_OWN = ("deepspeed", "fsdp")


def sharded_elsewhere(*, files: bool = False) -> Elsewhere:
    """Of a tool whose runs `accelerate launch` starts. With `files`, a DeepSpeed file of the project is changed where
    the config names one; else the tool names another.
    """

    def elsewhere(reading: Reading, changes: dict[str, Any]) -> tuple[Document, Keys, dict[str, Any]] | None:
        sharding = {path: value for path, value in changes.items() if path.startswith(ZERO) or path in _SHARDS}
        found = _place(reading, sharding, files=files) if sharding else None
        rest = {path: value for path, value in changes.items() if path not in sharding}
        return (*found, rest) if found is not None else None

    return elsewhere


def _place(reading: Reading, changes: dict[str, Any], *, files: bool) -> tuple[Document, Keys] | None:
    """The file and its keys; None where the checked file is the place."""
    own = any(reading.config.root.entry(name) is not None for name in _OWN)
    named = reading.references.get("deepspeed" if own else "deepspeed_config.deepspeed_config_file")
    zero = all(path.startswith(ZERO) for path in changes)
    if zero and named is not None and named.text and (files or not own or not chooses_file(changes)):
        keys = zero_keys(named.root, "", changes)
        return (named, keys) if keys else None
    started = (reading.references.get(name) for name in CONFIG if not own)
    launch = next((file for file in started if file is not None and file.roots and file.root.is_mapping), None)
    keys = wanted_keys(TABLE, replace(reading, config=launch), changes) if launch is not None else None
    return (launch, keys) if launch is not None and keys else None
