"""The processes that the config file of `accelerate launch` states."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...formats.core.coercion import as_integer
from ...formats.core.placeholders import is_blank
from ...source.document import SourceError

if TYPE_CHECKING:
    from ...formats.core.format import Project
    from ...source.document import Document
    from ...source.node import Node
    from ..launch import Resources


def state_processes(resources: Resources, options: Node, file: Document, project: Project) -> None:
    """`num_processes` and `num_machines` of the file that `--config_file` names, where no option states them.

    An option that is only known at run time still wins over the file.
    """
    given = options.get("config_file") or options.get("config-file")
    if given is None or not isinstance(given.value, str) or is_blank(given.value):
        return
    try:
        document = project.open(given.value, file.path)
    except SourceError:
        return
    if document is None or not document.roots or not document.root.is_mapping:
        return
    _tell(resources, document)
    for field, key in (("processes", "num_processes"), ("nodes", "num_machines")):
        if options.entry(key) or options.entry(key.replace("_", "-")) or getattr(resources, field) is not None:
            continue
        entry = document.root.entry(key)
        number = as_integer(entry.value.value) if entry is not None and entry.value.is_scalar else None
        if entry is not None and number is not None and number > 0:
            resources.state(
                field, number, document.path, key, entry.value.span, "one process per GPU" * (field[0] == "p")
            )


def _tell(resources: Resources, document: Document) -> None:
    """Note the settings of the file that no option of the command states, those of its DeepSpeed section included."""
    section = document.root.get("deepspeed_config")
    inner = section.entries() if section is not None and section.is_mapping else []
    for entry in (*document.root.entries(), *inner):
        key = str(entry.key.value)
        if entry.value.is_scalar and entry.value.value is not None and f"accelerate.{key}" not in resources.told:
            resources.tell(f"accelerate.{key}", entry.value.value, document.path, key, entry.value.span)
