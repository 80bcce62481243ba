"""What a job was told, and whether the first edit that it was offered does what it says."""

from __future__ import annotations

import os
import re
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, NamedTuple

from gpulint.run.check import check
from gpulint.settings.settings import Settings
from gpulint.source.document import SourceError
from gpulint.source.edit.edit import EditError, apply
from gpulint.source.read import parse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from gpulint.finding import Finding, Report, Suggestion

    from .choose import Chosen

GOOD = ("edit", "words", "hardware", "none")


class Outcome(NamedTuple):
    """What came of one job.

    kind   edit      a change that the format can say, applied and found good
           words     a change that fits, in words: the format cannot say it in this file
           hardware  told that no change is enough, and what hardware is
           none      told that no change and no GPU of the catalogue is enough
           silent    no finding, or one without a suggestion
           broken    an edit that does not do what it says; `reason` says how
    """

    chosen: Chosen
    kind: str
    reason: str = ""


def outcome(root: str, chosen: Chosen) -> Outcome:
    """Check the file on the GPU that is too small, apply the first edit offered, check again, put the file back."""
    path = os.path.join(root, chosen.path)
    settings = Settings(root=os.path.dirname(path), gpu=chosen.gpu)
    before = check([path], settings)
    told = list(_memory(before))
    if not told:
        return Outcome(chosen, "silent", "; ".join(file.reason for file in before.files) or "no finding about memory")
    offered = [item for finding in told for item in finding.suggestions]
    if not offered:
        return Outcome(chosen, "silent", f"{told[0].rule} without a suggestion")
    written = next((item for item in offered if item.edits and item.per_gpu is not None), None)
    if written is None:
        text = offered[0].text
        if "makes it fit" in text:
            return Outcome(chosen, "none" if "no GPU" in text else "hardware", text)
        return Outcome(chosen, "words", text)
    reason = _applied(path, settings, before, written)
    return Outcome(chosen, "broken", f"{written.text}: {reason}") if reason else Outcome(chosen, "edit", written.text)


def _memory(report: Report) -> Iterator[Finding]:
    """The findings that say that a job does not fit."""
    for finding in report.findings:
        if finding.estimate is not None and finding.estimate.as_stated == "exceeds":
            yield finding


def _applied(path: str, settings: Settings, before: Report, item: Suggestion) -> str:
    """What is wrong with a suggestion's edits; "" where nothing is."""
    originals = {name: _read(name) for name in {edit.path for edit in item.edits}}
    try:
        edited = {
            name: apply(text, [edit for edit in item.edits if edit.path == name]) for name, text in originals.items()
        }
    except EditError as error:
        return f"cannot be applied: {error}"
    for name, text in edited.items():
        odd = unintended(name, originals[name], text, item.text)
        if odd:
            return odd
    try:
        for name, text in edited.items():
            _write(name, text)
        after = check([path], settings)
    finally:
        for name, text in originals.items():
            _write(name, text)
    failed = [file.reason for file in after.files if file.status == "error"]
    if failed:
        return f"cannot be read after it: {failed[0]}"
    left = [finding.rule for finding in _memory(after)]
    if left:
        return f"{left[0]} is still there"
    known = {finding.rule for finding in before.findings}
    new = [finding.rule for finding in after.findings if finding.severity == "error" and finding.rule not in known]
    return f"{new[0]} is new" if new else ""


def unintended(path: str, before: str, after: str, words: str) -> str:
    """A place that an edit changed and its words do not name, or why the text is no file of its syntax any more.

    Structured files are compared leaf by leaf, scripts word by word; the words name keys, which in a list of words
    may be the one before.
    """
    named = {_plain(word) for word in re.findall(r"[A-Za-z_][\w.-]*", words)}
    syntax = {".json": "json", ".toml": "toml"}.get(os.path.splitext(path)[1], "yaml")
    if os.path.splitext(path)[1] in (".sh", ".bash", ".slurm", ".sbatch"):
        odd = [words for words in _changed_words(before.split(), after.split()) if not _names(words, named)]
        return f"changes {odd[0]!r} as well" if odd else ""
    try:
        old, new = (dict(_leaves(parse(text, path, syntax).root.plain())) for text in (before, after))
    except SourceError as error:
        return f"no {syntax} after it: {error.reason}"
    for place in old.keys() | new.keys():
        if old.get(place, _ABSENT) == new.get(place, _ABSENT):
            continue
        if not _names(f"{place} {_option(old, place)} {old.get(place, '')} {new.get(place, '')}", named):
            return f"changes {place} as well"
    return ""


_ABSENT = object()


def _option(leaves: dict[str, Any], place: str) -> Any:
    """The item of a list before a place, "" where there is none."""
    item = re.fullmatch(r"(.*)\[(\d+)\]", place)
    return leaves.get(f"{item[1]}[{int(item[2]) - 1}]", "") if item else ""


def _changed_words(before: list[str], after: list[str]) -> Iterator[str]:
    """Each stretch of words that differs, with the option before it, which it may be the value of."""
    for kind, start, end, other, last in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        words = [word for word in (*before[start:end], *after[other:last]) if word != "\\"]
        if kind != "equal" and words:
            yield " ".join([*before[max(0, start - 1) : start], *words])


def _leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _leaves(item, f"{place}[{index}]")
    else:
        yield place, value


def _names(text: str, named: set[str]) -> bool:
    """Whether a text has one of the keys in it, whole, as the end of a dotted one or cut short as argparse takes it."""
    found = {_plain(word) for word in re.findall(r"[A-Za-z_][\w.-]*", text)}
    short = (_plain(word) for word in re.findall(r"--([A-Za-z][\w-]*)", text))
    if any(key.startswith(word) for word in short for key in named):
        return True
    parts = {part.strip("_") for word in found for part in word.split(".")}
    return bool((found | parts) & (named | {part for word in named for part in word.split(".")}))


def _plain(word: str) -> str:
    return word.strip("-.").replace("-", "_").lower()


def _read(path: str) -> str:
    with open(path, encoding="utf-8", newline="") as file:
        return file.read()


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(text)
