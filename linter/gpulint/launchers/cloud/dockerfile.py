"""Dockerfiles: what an image is built from and with, and the program that it starts (Dockerfile reference 1.20).

Stages inherit the variables of the one that they build on. The last stage is the image.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

from ...formats.core.format import Problem
from ...job.origin import Origin
from ...repository.images import versions as image_versions
from ...source.places import places_of
from ..commands.images import program_of
from ..commands.jobs import jobs_of, jobs_of_commands, pinned
from ..launch import Launcher, Resources, Started
from ..mistakes.image_build import Build, build_problems
from ..shell.script import Script, place
from ..shell.shell import Command, Word

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...formats.core.format import Project
    from ...source.document import Document

NAME = "dockerfile"

_BEGIN = re.compile(r"[ \t]*([A-Za-z]+)[ \t]+")
_HERE = re.compile(r"<<-?[\"']?(\w+)[\"']?")
_PAIR = re.compile(r"([A-Za-z_]\w*)=(\"(?:[^\"\\]|\\.)*\"|'[^']*'|[^\s]*)")
_FILLED = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}|\$(\w+)")
_EXEC = re.compile(r"\s*\[")


class Instruction(NamedTuple):
    """One instruction: its name in capitals, and its text with the places of its characters."""

    name: str
    text: str
    at: tuple[int, ...]


class _Stage(NamedTuple):
    """A stage: the image or stage that it builds on, and its instructions."""

    image: str
    name: str
    at: tuple[int, ...]
    own: list[Instruction]


def recognise(document: Document) -> bool:
    """A file of Docker's syntax, by its name."""
    return document.syntax == "dockerfile"


def launches(document: Document, project: Project) -> Started:
    """What the image starts, with the problems of its build."""
    stages = list(_stages(list(instructions(document.text))))
    if not stages:
        return Started([], [], "has no FROM")
    problems = [problem for stage in stages for problem in _built(stage, stages, document)]
    chain = _chain(stages[-1], stages)
    image = chain[0].image
    variables: dict[str, Word] = {}
    versions = image_versions(image)
    entry: Instruction | None = None
    command: Instruction | None = None
    for one in (item for stage in chain for item in stage.own):
        if one.name == "ENV":
            variables |= _variables(one)
        elif one.name == "RUN":
            versions |= pinned(Script(one.text, one.at), document)
        elif one.name == "ENTRYPOINT":
            entry, command = one, None
        elif one.name == "CMD":
            command = one
    if entry is not None and command is not None and not _EXEC.match(entry.text):
        span = place(places_of(document.text), command.at)
        problems.append(Problem("dropped-arguments", "CMD", span, {"value": "ENTRYPOINT"}, document.path))
    started = _started(entry, command, image, variables, versions, document, project)
    return started._replace(problems=[*problems, *started.problems])


def _started(
    entry: Instruction | None,
    command: Instruction | None,
    image: str,
    variables: dict[str, Word],
    versions: dict[str, str],
    document: Document,
    project: Project,
) -> Started:
    """The jobs of the words that the image starts."""
    resources = Resources()
    first = entry or command
    if first is None:
        return Started([], [], "builds an image")
    resources.told["container.image"] = (image, Origin("derived", "FROM"))
    if not _EXEC.match(first.text):
        return jobs_of(Script(first.text, first.at), document, project, resources, variables, first.name, versions)
    words = [*(_words(entry) if entry is not None else ()), *(_words(command) if command is not None else ())]
    if entry is None:
        words = [*(Word(text, words[0].at[:1] * len(text)) for text in program_of(image, words, guess=False)), *words]
    if not words:
        return Started([], [], "builds an image")
    listed = [Command(tuple(words), variables)]
    started = jobs_of_commands(listed, document, project, resources, first.name, versions)
    return started if started.launches else started._replace(reason=started.reason or "builds an image")


def instructions(text: str) -> Iterator[Instruction]:
    """The instructions of a Dockerfile; continued lines are one, comments between them are none of it."""
    at = 0
    lines = text.splitlines(keepends=True)
    starts = []
    for line in lines:
        starts.append(at)
        at += len(line)
    number = 0
    while number < len(lines):
        begin = _BEGIN.match(lines[number])
        if begin is None or lines[number].lstrip().startswith("#"):
            number += 1
            continue
        held: list[str] = []
        places: list[int] = []
        skip = begin.end()
        while number < len(lines):
            line, start = lines[number], starts[number]
            number += 1
            if held and line.lstrip().startswith("#"):
                continue
            body = line.rstrip("\r\n")
            goes_on = body.rstrip().endswith("\\")
            kept = body.rstrip()[:-1] + " " if goes_on else body
            held.append(kept[skip:])
            places += [min(start + here, start + len(line) - 1) for here in range(skip, len(kept))]
            skip = 0
            if not goes_on:
                break
        marks = _HERE.findall("".join(held)) if begin[1].upper() in ("RUN", "COPY") else []
        for mark in marks:
            while number < len(lines) and lines[number].strip() != mark:
                number += 1
            number += 1
        yield Instruction(begin[1].upper(), "".join(held), tuple(places))


def _stages(listed: list[Instruction]) -> Iterator[_Stage]:
    """The stages; arguments before the first FROM fill in the names of images."""
    arguments: dict[str, str] = {}
    stage: _Stage | None = None
    for one in listed:
        if one.name == "FROM":
            if stage is not None:
                yield stage
            words = [word for word in _fill(one.text, arguments).split() if not word.startswith("--")]
            name = words[2] if len(words) > 2 and words[1].lower() == "as" else ""
            stage = _Stage(words[0] if words else "", name, one.at, [])
        elif stage is not None:
            stage.own.append(one)
        elif one.name == "ARG":
            key, _, value = one.text.strip().partition("=")
            arguments[key] = value.strip("\"'")
    if stage is not None:
        yield stage


def _fill(text: str, arguments: dict[str, str]) -> str:
    return _FILLED.sub(lambda found: arguments.get(found[1] or found[3]) or found[2] or found[0], text)


def _chain(stage: _Stage, stages: list[_Stage]) -> list[_Stage]:
    """The stages that one is built on, the first of an image first."""
    chain = [stage]
    while len(chain) < len(stages):
        below = next((other for other in stages if other.name and other.name == chain[0].image), None)
        if below is None or below in chain:
            break
        chain.insert(0, below)
    return chain


def _built(stage: _Stage, stages: list[_Stage], document: Document) -> Iterator[Problem]:
    """The problems of what a stage runs."""
    chain = _chain(stage, stages)
    build = Build(chain[0].image)
    for part in chain:
        for one in part.own:
            if one.name == "ENV":
                build.set({name: word.text for name, word in _variables(one).items()})
            elif one.name in ("COPY", "ADD"):
                build.copied(one.text)
            elif one.name == "RUN" and not _EXEC.match(one.text):
                found = build_problems(Script(_without_mounts(one.text), one.at), build, document)
                yield from found if part is stage else ()


def _without_mounts(text: str) -> str:
    """The command of RUN behind its own options, of the same length."""
    return re.sub(r"^(?:--\w+(?:=\S+)?\s+)+", lambda found: " " * len(found[0]), text)


def _variables(one: Instruction) -> dict[str, Word]:
    """`ENV A=1 B="2"` and the older `ENV A 1`."""
    found = {}
    for match in _PAIR.finditer(one.text):
        quoted = match[2][:1] in ("'", '"')
        begin, end = match.start(2) + quoted, match.end(2) - quoted
        value = one.text[begin:end]
        found[match[1]] = Word(value, one.at[begin:end], known="$" not in value)
    if not found and (old := re.match(r"([A-Za-z_]\w*)[ \t]+(.+)", one.text)):
        found[old[1]] = Word(old[2].strip(), one.at[old.start(2) : old.start(2) + len(old[2].strip())])
    return found


def _words(one: Instruction) -> list[Word]:
    """The words of the exec form."""
    try:
        items = json.loads(one.text)
    except ValueError:
        return []
    found, here = [], 0
    for item in items if isinstance(items, list) else ():
        text = str(item)
        begin = one.text.find(json.dumps(text), here)
        begin = begin + 1 if begin >= 0 else one.text.find('"', here) + 1
        here = begin + len(text)
        at = one.at[begin : begin + len(text)]
        found.append(Word(text, at if len(at) == len(text) else one.at[:1] * len(text)))
    return found


LAUNCHER = Launcher(NAME, "Dockerfile", "Dockerfile reference 1.20", recognise, launches)
