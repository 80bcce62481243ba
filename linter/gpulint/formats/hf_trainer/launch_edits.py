"""Changes of how a run is sharded, written where it is said: the accelerate config that starts the run, or the
DeepSpeed file that the run names.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..accelerate.sections import TABLE as LAUNCH
from ..core.backends.deepspeed import chooses_file, zero_keys
from ..core.bindings.changes import wanted_keys
from ..core.key_changes import ZERO, Keys, edits_of, spoken

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...source.document import Document
    from ...source.edit.replacement import Edit
    from ..core.format import Describe, Edits, Reading

    Places = list[tuple[Document, Keys]]
    KeysFor = Callable[[Reading, dict[str, Any]], Keys | None]

_SHARDS = ("parallelism.fsdp.sharding", "parallelism.fsdp.offload")
_OWN = ("deepspeed", "fsdp")
_FILES = ("config_file", "accelerate_config")


def writer(keys_for: KeysFor, *, files: bool = False) -> tuple[Describe, Edits]:
    """`describe` and `edits` of a format whose runs `accelerate launch` starts.

    `keys_for` gives the keys of its own file. With `files`, a DeepSpeed file of the project is changed where the config
    names one; else the format names another.
    """

    def describe(reading: Reading, changes: dict[str, Any]) -> str | None:
        places = _places(reading, changes, keys_for, files=files)
        return _said(places, reading.config) if places else None

    def edits(reading: Reading, changes: dict[str, Any]) -> list[Edit] | None:
        places = _places(reading, changes, keys_for, files=files)
        return _written(places) if places else None

    return describe, edits


def _places(reading: Reading, changes: dict[str, Any], keys_for: KeysFor, *, files: bool) -> Places | None:
    """The files to change and their keys; None where a part cannot be said."""
    sharding = {path: value for path, value in changes.items() if path.startswith(ZERO) or path in _SHARDS}
    other = _elsewhere(reading, sharding, files=files) if sharding else None
    if other is None:
        keys = keys_for(reading, changes)
        return [(reading.config, keys)] if keys else None
    rest = {path: value for path, value in changes.items() if path not in sharding}
    if not rest:
        return [other]
    keys = keys_for(reading, rest)
    return [(reading.config, keys), other] if keys else None


def _elsewhere(reading: Reading, changes: dict[str, Any], *, files: bool) -> tuple[Document, Keys] | None:
    """The other file that says how the run is sharded, and its keys; None where the checked file is the place."""
    root = reading.config.root
    zero = all(path.startswith(ZERO) for path in changes)
    own = any(root.entry(name) is not None for name in _OWN)
    launch = _launch_file(reading) if not own else None
    named = reading.references.get("deepspeed" if own else "deepspeed_config.deepspeed_config_file")
    if zero and named is not None and named.text and (files or not own or not chooses_file(changes)):
        keys = zero_keys(named.root, "", changes)
        return (named, keys) if keys else None
    keys = wanted_keys(LAUNCH, replace(reading, config=launch), changes) if launch is not None else None
    return (launch, keys) if launch is not None and keys else None


def _launch_file(reading: Reading) -> Document | None:
    """The accelerate config of the project that starts the run."""
    found = (reading.references.get(name) for name in _FILES)
    return next((file for file in found if file is not None and file.roots and file.root.is_mapping), None)


def _said(places: Places, config: Document) -> str | None:
    """The keys for people, each with the name of its file where that is not the checked one."""
    texts = []
    for document, keys in places:
        text = spoken(keys)
        if text is not None:
            texts.append(text if document is config else f"{text} in {os.path.basename(document.path)}")
    return "; ".join(texts) or None


def _written(places: Places) -> list[Edit] | None:
    """The edits of all files; None where one cannot be made."""
    found: list[Edit] = []
    for document, keys in places:
        made = edits_of(document, keys)
        if made is None:
            return None
        found += made
    return found or None
