"""Lines of a batch script that `sbatch` does not read as they are meant, or refuses (sbatch manual, Slurm 25.05).

Options are read from `#SBATCH`, in capitals and at the start of a line, up to the first command. Variables are not
filled in there. The first line has to name an interpreter.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...formats.core.format import Problem
from ...source.places import places_of
from ..cloud.slurm import stated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...source.document import Document

_ALMOST = re.compile(r"^[ \t]*#[ \t]*(?:(?i:sbatch)[ \t]+)(--[a-z][a-z-]+)[= \t]", re.MULTILINE)
_LINE = re.compile(r"^#SBATCH[ \t]+(-{1,2}[A-Za-z][a-z-]*)", re.MULTILINE)
_OPTIONS = frozenset(
    {
        "--nodes", "--ntasks", "--ntasks-per-node", "--gpus", "--gpus-per-node", "--gpus-per-task", "--gres", "--mem",
        "--mem-per-cpu", "--mem-per-gpu", "--cpus-per-task", "--cpus-per-gpu", "--time", "--partition", "--account",
        "--constraint", "--array", "--exclusive",
    }
)  # fmt: skip
_SAME = (
    frozenset({"mem", "mem-per-cpu", "mem-per-gpu"}),
    frozenset({"gres", "gpus", "gpus-per-node", "gpus-per-task"}),
    frozenset({"ntasks", "ntasks-per-node"}),
)
"""Options that ask for the same: of two lines, the one that sbatch does not read was taken out on purpose."""
_NUMBERS = (
    "nodes",
    "ntasks",
    "ntasks-per-node",
    "cpus-per-task",
    "gpus",
    "gpus-per-node",
    "gpus-per-task",
    "gres",
    "mem",
)
_MEMORY = ("mem", "mem-per-cpu", "mem-per-gpu")


def slurm_lines(document: Document) -> Iterator[Problem]:
    """The problems of a script's lines for sbatch; none of a script that has none."""
    first = _LINE.search(document.text)
    if first is None:
        return
    places = places_of(document.text)
    if not document.text.startswith("#!"):
        span = places.span(first.start(1), first.end(1))
        why = "the first line does not name an interpreter, and sbatch takes such a file for no batch script"
        yield Problem(
            "refused-launch", first[1], span, {"reason": why, "suggestion": "`#!/bin/bash` as the first line"}
        )
    begins = _first_command(document.text)
    for line in _LINE.finditer(document.text, begins):
        why = "it stands behind the first command, where sbatch reads no more options"
        yield Problem("unread-sbatch", line[1], places.span(line.start(1), line.end(1)), {"reason": why})
    found = stated(document)
    for line in _ALMOST.finditer(document.text, 0, begins):
        name = line[1].removeprefix("--")
        replaced = name in found or any(name in same and not same.isdisjoint(found) for same in _SAME)
        if line[1] in _OPTIONS and not replaced and not document.text.startswith("#SBATCH", line.start()):
            why = "sbatch reads lines that begin with #SBATCH, in capitals and without a blank; this one is a comment"
            yield Problem("unread-sbatch", line[1], places.span(line.start(1), line.end(1)), {"reason": why})
    for name in _NUMBERS:
        if name in found and re.search(r"\$\{?\w", found[name].text):
            why = f"sbatch fills in no variables on such a line: `{found[name].text}` is no number"
            values = {"reason": why, "suggestion": f"a number, or `sbatch --{name}=... SCRIPT`"}
            yield Problem("refused-launch", name, found[name].span, values)
    memory = [name for name in _MEMORY if name in found]
    if len(memory) > 1:
        why = f"--{memory[0]} and --{memory[1]} exclude each other, and sbatch stops"
        values = {"reason": why, "suggestion": "one of them"}
        yield Problem("refused-launch", memory[1], found[memory[1]].span, values)


def _first_command(text: str) -> int:
    """Where the first line stands that is neither empty nor a comment; the end of the text without."""
    at = 0
    for line in text.splitlines(keepends=True):
        if line.strip() and not line.lstrip().startswith("#"):
            return at
        at += len(line)
    return len(text)
