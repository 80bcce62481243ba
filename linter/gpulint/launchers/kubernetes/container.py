"""A container: its image, command, arguments and environment, in Kubernetes, Docker Compose and their kin."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ...formats.core.format import Problem
from ...job.origin import Origin
from ...repository.images import versions
from ..commands.images import program_of, upstream, why_alone
from ..commands.jobs import jobs_of_commands
from ..commands.programs import flags_of
from ..launch import Started
from ..shell.script import of_scalar
from ..shell.shell import Command, Word, commands
from ..values import mappings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...formats.core.format import Project
    from ...source.document import Document
    from ...source.node import Node
    from ..launch import Resources

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
    first = [written(file, node, container.environment) for node in container.command or ()]
    words = [written(file, node, container.environment) for node in container.arguments]
    words = [item for item in (*first, *words) if item.text or item.at]
    asks = resources.gpus_per_node is not None or (bool(words) and words[0].text == "serve")
    if not container.command:
        words = [*(Word(text, ()) for text in program_of(container.image, words, guess=asks)), *words]
    if container.command and words and (problem := one_string(file, container.command[0], words)) is not None:
        return Started([], [problem], "its command is one string")
    dropped = _dropped(file, [*(container.command or ()), *container.arguments], words) if container.command else []
    if container.command:
        resources.told["container.command"] = (words[0].text, Origin("derived", "the manifest"))
    if not words or why_alone(container.image):
        return Started([], [], why_alone(container.image) or "its command is in the image")
    anchor = next((item.at for item in words if item.at), (0,))
    placed = [item if item.at else item._replace(at=anchor[:1] * len(item.text)) for item in words]
    command = Command(tuple(placed), container.environment)
    started = jobs_of_commands([command], file, project, resources, part, versions(container.image))
    return foreign(started._replace(problems=[*dropped, *started.problems]), container.image)


_SHELLS = frozenset({"sh", "bash", "ash", "dash", "zsh"})


def _dropped(file: Document, nodes: Sequence[Node], words: Sequence[Word]) -> list[Problem]:
    """Arguments behind the text of `sh -c`, which it gets as `$0`, `$1` and does not use."""
    flag = len(words) > 3 and words[0].text.rpartition("/")[2] in _SHELLS and words[1].text.startswith("-")
    if not flag or not words[1].text.endswith("c") or re.search(r"\$[@*#0-9{]", words[2].text):
        return []
    if len(nodes) != len(words) or not words[3].text.startswith("--") or words[3].text == "--":
        return []
    return [Problem("dropped-arguments", "args", nodes[3].span, {"value": "sh -c"}, file.path)]


def one_string(file: Document, node: Node, words: Sequence[Word]) -> Problem | None:
    """The problem of a command whose first item holds a whole command, with options, and is run without a shell."""
    text = words[0].text if words else ""
    program, *rest = text.split()[:40] or [""]
    if not rest or "\n" in text or not any(word.startswith("-") for word in rest) or "/" in rest[0]:
        return None
    return Problem("one-string", "command", node.span, {"value": program}, file.path)


def foreign(started: Started, image: str) -> Started:
    """The jobs, marked as run by somebody's own build where the image is none that a program publishes."""
    for launch in started.launches if image else ():
        launch.resources.told.setdefault("container.image", (image, Origin("derived", "the image that it runs in")))
    return started if not image or upstream(image) else started.each(own_build=True)


def split_command(file: Document, node: Node | None) -> list[Word] | None:
    """A command that is a list of words, or one string that is split as a shell would; None for none."""
    if node is None or (node.is_scalar and node.value is None):
        return None
    if node.is_sequence:
        return [written(file, item, {}) for item in node.items()]
    found = commands(of_scalar(file, node))
    return [item for command in found for item in command.words]


def environment(entries: Sequence[tuple[str, Document, Node]]) -> dict[str, Word]:
    """Variables with stated values, each with the places of its characters."""
    found: dict[str, Word] = {}
    for name, file, node in entries:
        if node.is_scalar and node.value is not None:
            found[name] = written(file, node, found)
    return found


def variables_of(node: Node | None, file: Document) -> dict[str, Word]:
    """The environment as Kubernetes lists it, `name` and `value` of each variable, as far as values are stated."""
    pairs = [(item.get("name"), item.get("value")) for item in mappings(node)]
    stated = [(name, value) for name, value in pairs if name is not None and value is not None]
    return environment([(str(name.value), file, value) for name, value in stated])


def listed_environment(file: Document, node: Node | None) -> dict[str, Word]:
    """Variables written as a mapping, or as a list of NAME=value; those without a value are left out."""
    if node is None:
        return {}
    if node.is_mapping:
        return environment([(str(entry.key.value), file, entry.value) for entry in node.entries()])
    found: dict[str, Word] = {}
    for item in node.items():
        whole = written(file, item, {}) if isinstance(item.value, str) else None
        name, equals, value = whole.text.partition("=") if whole is not None else ("", "", "")
        if whole is not None and equals:
            start = len(name) + 1
            found[name] = Word(value, whole.at[start:], "$" not in value)
    return found


def written(file: Document, node: Node, variables: Mapping[str, Word]) -> Word:
    """A scalar of a manifest with `$(NAME)` filled in, as Kubernetes does."""
    if not isinstance(node.value, str):
        text = node.raw if node.is_scalar else ""
        start, last = node.span.start, max(node.span.start, node.span.end - 1)
        return Word(text, tuple(min(start + index, last) for index in range(len(text))))
    script = of_scalar(file, node)
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


def flags_in(document: Document, node: Node | None, format_: str) -> Document:
    """The flags of a program that a list of words holds, or one string."""
    items = node.items() if node is not None and node.is_sequence else [node] if node is not None else []
    words = [written(document, item, {}) for item in items if item.is_scalar and item.value is not None]
    return flags_of(format_, words, document)
