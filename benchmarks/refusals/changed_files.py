"""Cases that are whole files with one place changed: a script, a manifest, a Dockerfile, with those beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gpulint import check
from gpulint.settings.settings import Settings

if TYPE_CHECKING:
    from gpulint.finding import Finding

_COUNTS = {"error": ("error",), "warning": ("error", "warning")}
"""The severities with which a finding of a level counts."""


class Said(NamedTuple):
    """What gpulint says of a case: of the mistake at its place and elsewhere, and of the twin without it."""

    found: bool
    elsewhere: list[Finding]
    of_twin: list[Finding]


def texts(base: dict[str, Any], *changes: list[list[str]]) -> dict[str, str]:
    """The files of a base by their names, the checked one first, with the old of each change made new."""
    files = {base["file"]: base["lines"], **base.get("beside", {})}
    found = {name: "\n".join(lines) + "\n" for name, lines in files.items()}
    for old, new in (change for part in changes for change in part):
        if not any(old in text for text in found.values()):
            raise ValueError(f"{old!r} stands in no file of the base")
        found = {name: text.replace(old, new) for name, text in found.items()}
    return found


def said(folder: Path, base: dict[str, Any], case: dict[str, Any]) -> Said:
    """Check a case and its twin, each in a folder of its own."""
    wrong, twin = texts(base, case["also"], case["replace"]), texts(base, case["also"])
    findings = _checked(folder / "wrong", wrong, case)
    found = [item for item in findings if item.severity in _COUNTS[case["level"]]]
    of_twin = [
        item for item in _checked(folder / "twin", twin, case)
        if item.severity == "error" or (item.severity == "warning" and _at(item, twin, case["at"]))
    ]  # fmt: skip
    return Said(any(_at(item, wrong, case["at"]) for item in found), found, of_twin)


def _checked(folder: Path, files: dict[str, str], case: dict[str, Any]) -> list[Finding]:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    settings = Settings(root=str(folder), gpus=case.get("gpus"), gpu=case.get("gpu"))
    return check([str(folder / next(iter(files)))], settings).findings


def _at(finding: Finding, files: dict[str, str], wanted: list[str]) -> bool:
    """Whether a finding points at a line that holds one of the wanted texts."""
    lines = files.get(Path(finding.location.path).name, "").splitlines()
    place = finding.location.span.line - 1
    return place < len(lines) and any(text in lines[place] for text in wanted)
