"""A config that names a DeepSpeed file, or holds one inline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core import references
from ..core.placeholders import is_blank
from .config import apply
from .values import AutoValues, Reference

if TYPE_CHECKING:
    from ...source.node import Entry
    from ..core.format import JobBuilder, Project, Reading

ASSUMED_STAGE = 3
"""ZeRO stage that stands in for a missing file whose name says none.

It is the stage that needs least memory: what is reported on this assumption would hold with any other stage too, and
the missing file is reported in its own right.
"""


def apply_reference(
    reading: Reading, builder: JobBuilder, entry: Entry, key: str, project: Project, values: AutoValues
) -> None:
    """Read the DeepSpeed config that `entry` holds or names, into the Job, `reading.references` and `.problems`.

    A path that leads nowhere is looked for among the files that axolotl and LLaMA-Factory ship; failing that it is
    an `unresolved-reference`, and stage and offload are assumed from its name.
    """
    if entry.value.is_mapping:
        reading.problems += apply(builder, builder.document, values, key)
        return
    path = entry.value.value
    if not isinstance(path, str) or not path:
        return
    found = references.find(path, entry.key.path or builder.document.path, project)
    if found.document is None:
        _missing(reading, builder, entry, key, found, values)
    elif found.shipped:
        reference = Reference(entry, key, f"{path} as {found.shipped} ships it")
        reading.problems += apply(builder, found.document, values, reference=reference)
    else:
        reading.references[key] = found.document
        reading.problems += apply(builder, found.document, values)


def _missing(
    reading: Reading, builder: JobBuilder, entry: Entry, key: str, found: references.Found, values: AutoValues
) -> None:
    path: str = entry.value.value
    hint = references.hint_from_name(path)
    stage = ASSUMED_STAGE if hint.stage is None else hint.stage
    zero: dict[str, Any] = {"stage": stage}
    if hint.offload:
        zero["offload_optimizer"] = {"device": "cpu"}
        if stage == 3:
            zero["offload_param"] = {"device": "cpu"}
    source = "the stage that needs least, as the name says none" if hint.stage is None else "from its name"
    offload = " with offload to the CPU" if hint.offload else ""
    assumption = f"ZeRO stage {stage}{offload} ({source})"
    before = set(builder.job.origins)
    document = references.plain_document({"zero_optimization": zero}, path)
    where = "which is filled in when the job starts" if is_blank(path) else "which is not here"
    note = f"{path}, {where}; {assumption} stands in"
    apply(builder, document, values, reference=Reference(entry, key, note))
    for field, origin in builder.job.origins.items():
        if field not in before and field.startswith("parallelism.zero"):
            builder.job.origins[field] = origin._replace(kind="assumed", note=note)
    if hint.stage is None:
        builder.job.unstated.append("parallelism.zero.stage")
    if not is_blank(path):
        reading.problems.append(references.unresolved(entry, key, path, found, assumption))
