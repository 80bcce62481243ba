"""The trainer's own config where the repository holds it: a checkout of verl, or a copy of some release of it."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from ...source.document import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...source.document import Document
    from ..core.format import Project

_OUTSIDE = re.compile(r"^(?:.*\$\{?\w+[^/]*/|/+|\./)")
"""What a path begins with that is not known: `$PROJECT_DIR/examples/config`."""


def own_config(document: Document, project: Project, usual: str) -> Document | None:
    """The file of the repository that Hydra puts under a command or a config; None where there is none.

    `usual` is the path of the shipped one. A relative `--config-path` starts at the folder of the module that Hydra
    decorates, verl/trainer (hydra/_internal/utils.py `detect_calling_file_or_module_from_task_function`). A file that
    is put together from groups is read as verl writes it down whole, `_generated_ppo_trainer.yaml`.
    """
    for reference in _references(document, usual):
        try:
            found = project.open(reference, document.path)
        except SourceError:
            continue
        if found is None or not found.roots or not found.root.is_mapping or _same(found, document):
            continue
        if not _of_groups(found):
            return found
        whole = os.path.join(os.path.dirname(reference), f"_generated_{os.path.basename(reference)}")
        try:
            made = project.open(whole, document.path)
        except SourceError:
            made = None
        if made is not None and made.roots and made.root.is_mapping:
            return made
    return None


def _references(document: Document, usual: str) -> Iterator[str]:
    name = _word(document, "config-name") or os.path.basename(usual)
    name = name if name.endswith((".yaml", ".yml")) else f"{name}.yaml"
    folder = _word(document, "config-path")
    if folder:
        tail = _OUTSIDE.sub("", folder)
        yield os.path.join(os.path.dirname(os.path.dirname(usual)), tail, name)
        yield os.path.join(tail, name)
    yield os.path.join(os.path.dirname(usual), name)


def _word(document: Document, key: str) -> str:
    found = document.root.get(key) or document.root.get(key.replace("-", "_"))
    return found.value if found is not None and isinstance(found.value, str) else ""


def _of_groups(document: Document) -> bool:
    """Whether the defaults of a file name groups (`actor@actor_rollout_ref.actor: dp_actor`)."""
    named = document.root.get("defaults")
    names = named.plain() if named is not None else []
    return isinstance(names, list) and any(name != "_self_" for name in names)


def _same(one: Document, other: Document) -> bool:
    return os.path.realpath(one.path) == os.path.realpath(other.path)
