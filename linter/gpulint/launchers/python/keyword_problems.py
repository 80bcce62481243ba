"""Keywords that a trainer of the release that runs no longer takes, so that making it fails."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ...formats.core.format import Problem
from ...upstream.behaviour import Span, is_release
from ...upstream.key_releases.table import releases
from .call_table import GONE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ...formats.core.format import Project
    from .call_table import Found
    from .module import Module

_TRAINER = re.compile(r"(trl|transformers)\.(?:\w+\.)*(\w*)Trainer")
_PLAIN = ("", "Seq2Seq")


def keyword_problems(module: Module, found: Iterable[Found], project: Project) -> tuple[Problem, ...]:
    """The keywords of the trainers of a file that the stated releases refuse; the newest, where none is stated.

    Unsloth takes former keywords along to where they are now (unsloth_zoo's compiled trainers).
    """
    found = list(found)
    if any(name.startswith("unsloth") for name in module.imports.values()):
        return ()
    return tuple(problem for item in found for problem in _of_call(module, item, project))


def _of_call(module: Module, item: Found, project: Project) -> Iterator[Problem]:
    match = _TRAINER.fullmatch(item.call.name) if item.row.role == "trainer" else None
    if match is None:
        return
    for row in GONE:
        mine = row["trainer"] == match[2] if match[1] == "trl" else not row["trainer"] and match[2] in _PLAIN
        if not mine or row["package"] != match[1]:
            continue
        release, certain = _release(project, row["package"], row["since"])
        for word in item.call.node.keywords if release else ():
            if word.arg in row["arguments"]:
                yield _problem(module, row, word, release, certain=certain)


def _problem(module: Module, row: dict[str, Any], word: Any, release: str, *, certain: bool) -> Problem:
    trainer = f"{row['trainer']}Trainer"
    way = f"give it to `{row['to']}({word.arg}=...)`" if "to" in row else f"`{row['now']}=...`"
    values = {
        "replacement": "",
        "spelling": "",
        "instead": "",
        "remedy": f"{way}, or install {row['package']} below {row['since']}",
        "treatment": "refused",
        "reason": f"`{trainer}` took `{word.arg}` before {row['package']} {row['since']}",
        "upstream": f"{row['package']} {release}",
        "stated": "yes" if certain else "no",
    }
    return Problem("deprecated-key", word.arg, module.span(word, len(word.arg)), values, module.document.path)


def _release(project: Project, package: str, since: str) -> tuple[str, bool]:
    """The release that refuses the argument, and whether it surely runs; "" where one may run that takes it."""
    stated, pin = project.versions.get(package), project.pins.get(package)
    if stated is None or not is_release(stated):
        return releases(package)[-1], False
    pinned = pin is not None and pin.release == stated
    may_be = (stated, *pin.others) if pin is not None and pinned else (stated,)
    if any(Span(until=since).at(release or "") for release in may_be):
        return "", False
    return stated, not pinned or (pin is not None and pin.exact)
