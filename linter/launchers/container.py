"""A container: its image, command, arguments and environment, in Kubernetes, Docker Compose and their kin."""

from __future__ import annotations

import json
import os
import re
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from .jobs import jobs_of_commands
from .launch import Started
from .script import of_scalar
from .shell import Command, Word, commands

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..formats.format import Project
    from ..source.document import Document
    from ..source.node import Node
    from .launch import Resources

_VARIABLE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")


class Container(NamedTuple):
    """What a manifest says of a container.

    command      replaces the image's entrypoint; None where the manifest leaves that
    arguments    follow the entrypoint
    environment  its variables, as far as the manifest states their values
    """

    image: str
    command: Sequence[Node] | None
    arguments: Sequence[Node]
    environment: Mapping[str, Word]


def jobs_of_container(
    container: Container, file: Document, project: Project, resources: Resources, part: str
) -> Started:
    """The jobs that a container starts: its entrypoint with its arguments, or the script that a shell is given."""
    words: list[Word] = []
    if container.command:
        words += [written(file, node, container.environment) for node in container.command]
    else:
        words += [Word(text, ()) for text in entrypoint(container.image)]
    words += _from_environment(words, container.environment)
    words += [written(file, node, container.environment) for node in container.arguments]
    words = [word for word in words if word.text or word.at]
    if not words:
        return Started([], [], "its command is the image's own")
    anchor = next((word.at for word in words if word.at), (0,))
    placed = [word if word.at else word._replace(at=anchor[:1] * len(word.text)) for word in words]
    command = Command(tuple(placed), container.environment)
    return jobs_of_commands([command], file, project, resources, part, versions(container.image))


def _from_environment(program: Sequence[Word], variables: Mapping[str, Word]) -> list[Word]:
    """The flags of a program that its environment may give instead, in front of the arguments, which win."""
    called = [word.text for word in program]
    row = next((row for row in _images()["environment"] if called[: len(row["command"])] == row["command"]), None)
    found: list[Word] = []
    for name, flag in row["flags"].items() if row is not None else ():
        value = variables.get(name)
        if value is not None and value.text:
            found += [Word(f"--{flag}", value.at[:1] * (len(flag) + 2)), value]
    return found


def split_command(file: Document, node: Node | None) -> list[Word] | None:
    """A command that is a list of words, or one string that is split as a shell would; None for none."""
    if node is None or (node.is_scalar and node.value is None):
        return None
    if node.is_sequence:
        return [written(file, item, {}) for item in node.items()]
    found = commands(of_scalar(file, node))
    return [word for command in found for word in command.words]


def entrypoint(image: str) -> list[str]:
    """The program that an image starts by itself, as far as `images.json` knows it; empty otherwise."""
    name = _without_tag(image)
    for row in _images()["images"]:
        if any(_ends(name, end) for end in row["ends"]) or any(part in name for part in row.get("holds", ())):
            command: list[str] = row["command"]
            return command
    return []


def tag(image: str) -> str | None:
    """The version that an image's tag states: `vllm/vllm-openai:v0.9.1` -> `0.9.1`."""
    match = re.search(r":v?(\d+\.\d+(?:\.\d+)?)", image.rpartition("/")[2])
    return match[1] if match else None


def versions(image: str) -> dict[str, str]:
    """The version of the program that an image is of: `vllm/vllm-openai:v0.9.1` -> vllm 0.9.1.

    Other images with the program's name have versions of their own (`nvcr.io/nvidia/vllm:26.02-py3`).
    """
    stated = tag(image)
    name = _without_tag(image)
    rows = _images()["versions"]
    row = next((row for row in rows if any(_ends(name, end) for end in row["ends"])), None)
    foreign = row is not None and any(part in name for part in row["not"])
    return {row["program"]: stated} if row is not None and stated and not foreign else {}


def _without_tag(image: str) -> str:
    name = image.partition("@")[0]
    return name.rpartition(":")[0] if ":" in name.rpartition("/")[2] else name


def _ends(name: str, end: str) -> bool:
    return name == end or name.endswith("/" + end)


def environment(entries: Sequence[tuple[str, Document, Node]]) -> dict[str, Word]:
    """Variables with stated values, each with the places of its characters."""
    found: dict[str, Word] = {}
    for name, file, node in entries:
        if node.is_scalar and node.value is not None:
            found[name] = written(file, node, found)
    return found


def written(file: Document, node: Node, variables: Mapping[str, Word]) -> Word:
    """A scalar of a manifest with `$(NAME)` filled in, as Kubernetes does."""
    script = of_scalar(file, node) if node.is_scalar and isinstance(node.value, str) else None
    if script is None:
        text = node.raw if node.is_scalar else ""
        start = node.span.start
        return Word(text, tuple(range(start, start + len(text))))
    text, at, known = script.text, list(script.at), True
    for match in reversed(list(_VARIABLE.finditer(text))):
        value = variables.get(match[1])
        if value is None:
            known = False
            continue
        text = text[: match.start()] + value.text + text[match.end() :]
        at[match.start() : match.end()] = value.at
        known = known and value.known
    return Word(text, tuple(at), known)


@cache
def _images() -> dict[str, list[dict[str, Any]]]:
    with open(os.path.join(os.path.dirname(__file__), "images.json"), encoding="utf-8") as file:
        tables: dict[str, list[dict[str, Any]]] = json.load(file)
    return tables
