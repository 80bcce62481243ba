"""A suggested change carried out: edits applied in memory, the file read again by its own format."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ...formats.core.key_changes import UntakenKeyError
from ...formats.core.registry import FORMAT_NAMES
from ...job.origin import Origin
from ..facts.facts import DEEPSPEED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...estimator.estimate import Estimate
    from ...formats.core.format import Format, Project, Reading
    from ...source.document import Document
    from ...source.edit.replacement import Edit
    from ..facts.facts import Facts
    from ..rule import Advice


_SHARDING = frozenset({"parallelism.zero.stage", "parallelism.fsdp.sharding", "parallelism.fsdp.offload"})


class Changed(NamedTuple):
    """What a change leads to: its words, its edits (empty where the format cannot say it), the facts after it."""

    text: str
    edits: tuple[Edit, ...]
    facts: Facts

    @property
    def estimate(self) -> Estimate | None:
        """The estimate of the changed job."""
        return self.facts.estimate


def format_of(reading: Reading) -> Format:
    """The format that read the file."""
    from ...formats.core.registry import find

    return find(reading.format)


def change_job(facts: Facts, changes: dict[str, Any], words: str = "") -> Changed | None:
    """The Job fields changed; None where nothing would change, or the release that runs has no key for it.

    The text is the format's own words where it has them, else `words`, else the Job fields. A way to shard that the
    format has no words for is not its tool's to take: DeepSpeed in torchtune is no advice.
    """
    if all(facts.job.get(path) == value for path, value in changes.items()):
        return None
    reading = facts.reading
    if reading.format not in FORMAT_NAMES:
        return None  # a start of a script of no known kind
    form = format_of(reading)
    try:
        said, edits = form.describe(reading, changes), form.edits(reading, changes)
    except UntakenKeyError:
        return None
    if not said and not edits and not _SHARDING.isdisjoint(changes):
        return None
    text = said or words or plain_text(changes)
    if edits:
        after = reread(reading, facts.project, edits)
        return Changed(text, tuple(edits), facts.of(after)) if after else None
    job = facts.job.with_changes(completed(facts, changes))
    return Changed(text, (), facts.of(replace(reading, job=job)))


def change_keys(facts: Facts, config: dict[str, Any], rename: dict[str, str]) -> Changed | None:
    """Keys written, removed (null) or renamed; None where a file cannot be edited so.

    They are keys of the checked file, of the DeepSpeed config in force (`deepspeed.<key>`), or, for a problem that
    stands in another file, of that file.
    """
    from ...source.edit.edit import EditError, change

    changes: dict[str, tuple[Document, dict[str, Any], dict[str, str]]] = {}
    for key in (*config, *rename):
        document, name = _holder(facts, key)
        _, written, renamed = changes.setdefault(document.path, (document, {}, {}))
        if key in config:
            written[name] = config[key]
        else:
            renamed[name] = rename[key]
    if [document for document, _, _ in changes.values()] == [facts.reading.config] and _is_python(facts):
        return _change_arguments(facts, config, rename)
    edits: list[Edit] = []
    try:
        for document, keys, renamed in changes.values():
            written = {key: value for key, value in keys.items() if value is not None}
            edits += change(document, written, [key for key in keys if keys[key] is None], renamed)
    except EditError:
        return None
    after = reread(facts.reading, facts.project, edits) if edits else None
    if after is None:
        return None
    plain = {key.removeprefix(DEEPSPEED): value for key, value in config.items()}
    return Changed(_keys_text(plain, rename), tuple(edits), facts.of(after))


def _is_python(facts: Facts) -> bool:
    return facts.reading.config.syntax == "python"


def _change_arguments(facts: Facts, config: dict[str, Any], rename: dict[str, str]) -> Changed | None:
    """Arguments of calls in a Python file, which are told and not written."""
    from ...source.document import SourceError
    from ...source.edit.argument_change import changed

    reading = facts.reading
    if reading.format not in FORMAT_NAMES:
        return None
    document = changed(reading.config, config, rename)
    try:
        after = _started_alike(reading, format_of(reading).read(document, facts.project))
    except SourceError:
        return None
    parts = [f"{key}={value!r}" for key, value in config.items() if value is not None]
    parts += [f"leave out {key}" for key, value in config.items() if value is None]
    parts += [f"{new}=... in the place of {key}" for key, new in rename.items()]
    return Changed(", ".join(parts), (), facts.of(after))


def _holder(facts: Facts, key: str) -> tuple[Document, str]:
    """The document that a key of an advice belongs to, and the key in it."""
    reading = facts.reading
    documents = {document.path: document for document in reading.references.values()}
    if facts.item is not None and facts.item.path in documents:
        return documents[facts.item.path], key
    if key.startswith(DEEPSPEED):
        path = facts.deepspeed_path()
        if path in documents or reading.format == "deepspeed":
            return documents.get(path, reading.config), key[len(DEEPSPEED) :]
    return reading.config, key


def reread(reading: Reading, project: Project, edits: Sequence[Edit]) -> Reading | None:
    """The reading of the edited files by the same format; None where that fails."""
    from ...formats.core.releases import read_as_stated
    from ...source.document import SourceError
    from ...source.edit.edit import EditError, apply
    from ...source.read import parse

    originals = {document.path: document for document in (reading.config, *reading.references.values())}
    edited: dict[str, Document] = {}
    try:
        for path in dict.fromkeys(edit.path for edit in edits):
            document = originals[path]
            text = apply(document.text, [edit for edit in edits if edit.path == path])
            again = document.reread(text) if document.reread is not None else parse(text, path, document.syntax)
            if again is None:
                return None
            edited[path] = again
        config = edited.get(reading.config.path, reading.config)

        def open_edited(reference: str, from_path: str) -> Document | None:
            document = project.open(reference, from_path)
            return edited.get(document.path, document) if document is not None else None

        return _started_alike(reading, read_as_stated(format_of(reading), config, project._replace(open=open_edited)))
    except (SourceError, EditError, KeyError):
        return None


def _started_alike(before: Reading, after: Reading) -> Reading:
    """A reading with what the launcher says besides the config, which an edit of the config leaves as it was."""
    after.launch = before.launch
    for name in ("asked_gpus", "granted_gpus", "visible_gpus", "started_ranks", "host_memory", "shared_memory"):
        path = f"hardware.{name}"
        if getattr(before.job.hardware, name) is not None:
            setattr(after.job.hardware, name, getattr(before.job.hardware, name))
            after.job.origins[path] = before.job.origins.get(path, Origin("derived", "what the job is started on"))
    return after


def resolved(advice: Advice, facts: Facts, factor: int | None) -> dict[str, Any] | None:
    """The Job changes of an advice with its expressions worked out; None where it does not apply."""
    from ..expression import UNKNOWN, evaluate, fires

    source = _WithFactor(facts, factor) if factor is not None else facts
    if advice.needs is not None and not fires(advice.needs, source):
        return None
    changes: dict[str, Any] = {}
    for path, value in (advice.set or {}).items():
        if isinstance(value, dict) and "=" in value:
            value = evaluate(value["="], source)
            if value is UNKNOWN:
                return None
        changes[path] = value
    return changes


class _WithFactor:
    """The facts with `factor` added."""

    def __init__(self, facts: Facts, factor: int) -> None:
        self.facts = facts
        self.factor = factor

    def get(self, path: str) -> Any:
        return self.factor if path == "factor" else self.facts.get(path)

    def has(self, path: str) -> Any:
        return self.facts.has(path)

    def peak_if(self, changes: dict[str, Any]) -> Any:
        return self.facts.peak_if(changes)


def completed(facts: Facts, changes: dict[str, Any]) -> dict[str, Any]:
    """`method: lora` means LoRA of rank 16 on all linear layers where the job has no adapter."""
    if changes.get("method") == "lora" and facts.job.adapter is None:
        return {"adapter.targets": "all-linear", "adapter.r": 16, **changes}
    return changes


def plain_text(changes: dict[str, Any]) -> str:
    """Job fields for people, where neither the format nor a recipe has words."""
    return ", ".join(f"{path}: {_word(value)}" for path, value in changes.items())


def _keys_text(config: dict[str, Any], rename: dict[str, str]) -> str:
    parts = [f"{key}: {_word(value)}" for key, value in config.items() if value is not None]
    parts += [f"remove {key}" for key, value in config.items() if value is None]
    parts += [f"rename {key} to {new}" for key, new in rename.items()]
    return ", ".join(parts)


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)
