"""The requirements that one file of a repository declares: read as text, never run."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ..source.document import SourceError
from ..source.read import parse
from ..upstream.packages import Bound
from .images import versions
from .requirement import Requirement, conda, poetry, requirement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..source.node import Node

MAX_BYTES = 4 << 20
"""Of a lock file; larger ones are not read."""


class Kind(NamedTuple):
    """Files that declare requirements: what their names look like, and what reads them."""

    name: re.Pattern[str]
    read: Callable[[str, str], Iterator[Requirement]]


@lru_cache(maxsize=4096)
def declared(path: str, _changed: int, _size: int) -> tuple[Requirement, ...]:
    """What a file declares of the packages that decide; nothing where it cannot be read.

    The time of its last change and its size tell apart what was read before.
    """
    kind = kind_of(path)
    if kind is None or _size > MAX_BYTES:
        return ()
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        return tuple(KINDS[kind].read(text, path))
    except (OSError, ValueError, SourceError):
        return ()


def kind_of(path: str) -> int | None:
    """The place in `KINDS` of a file; None where it declares nothing, as its name and its folder's say."""
    folder, name = os.path.split(path)
    listed = name.lower().endswith((".txt", ".in")) and os.path.basename(folder) in ("requirements", "deps")
    return _of_name(f"requirements-{name}" if listed else name)


@lru_cache(maxsize=65536)
def _of_name(name: str) -> int | None:
    return next((index for index, kind in enumerate(KINDS) if kind.name.fullmatch(name.lower())), None)


def _requirements(text: str, _path: str) -> Iterator[Requirement]:
    for number, line in _lines(text):
        if not line.lstrip().startswith("#"):
            yield from _found(requirement(line, number))


def _lock(text: str, _path: str) -> Iterator[Requirement]:
    """`[[package]]` with `name` and `version`, as uv, Poetry and PDM write it."""
    name = ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("["):
            name = ""
        elif line.startswith("name = "):
            name = line[7:].strip().strip('"')
        elif name and line.startswith("version = "):
            yield from _found(requirement(f"{name}=={line[10:].strip().strip(chr(34))}", number))


def _pyproject(text: str, path: str) -> Iterator[Requirement]:
    root = parse(text, path, "toml").root
    project, poetry_tables = root.get("project"), root.find("tool.poetry")
    for place in ("project.dependencies", "tool.uv.constraint-dependencies", "tool.uv.override-dependencies"):
        entry = root.find(place)
        yield from _strings(entry.value if entry else None)
    groups = (project.get("optional-dependencies") if project else None, root.get("dependency-groups"))
    for group in groups:
        for entry in group.entries() if group is not None and group.is_mapping else ():
            yield from _strings(entry.value)
    if poetry_tables is not None:
        held = poetry_tables.value
        yield from _table(held.get("dependencies"))
        yield from _table(held.get("dev-dependencies"))
        named = held.get("group")
        for entry in named.entries() if named is not None and named.is_mapping else ():
            yield from _table(entry.value.get("dependencies") if entry.value.is_mapping else None)


def _pipfile(text: str, path: str) -> Iterator[Requirement]:
    root = parse(text, path, "toml").root
    yield from _table(root.get("packages"))


def _strings(node: Node | None) -> Iterator[Requirement]:
    for item in node.items() if node is not None and node.is_sequence else ():
        if item.is_scalar and isinstance(item.value, str):
            yield from _found(requirement(item.value, item.span.line))


def _table(node: Node | None) -> Iterator[Requirement]:
    """Poetry's `name = "^1.2"` and `name = {version = "1.2", ...}` or `{git = ..., tag = "v1.2"}`."""
    for entry in node.entries() if node is not None and node.is_mapping else ():
        value = entry.value
        if value.is_mapping:
            value = next((part for key in ("version", "tag") if (part := value.get(key)) is not None), value)
        if value.is_scalar and isinstance(value.value, str):
            spec = value.value.removeprefix("v") if value is not entry.value else value.value
            yield from _found(poetry(str(entry.key.value), spec, value.span.line))


def _setup(text: str, _path: str) -> Iterator[Requirement]:
    """Every string of a setup.py that is a requirement, wherever it stands: lists are made and joined in many ways."""
    import tokenize

    lines = iter(text.splitlines(keepends=True))
    try:
        for token in tokenize.generate_tokens(lambda: next(lines, "")):
            if token.type == tokenize.STRING and (word := re.fullmatch(r"[rR]?(['\"])([^'\"\n]+)\1", token.string)):
                found = requirement(word[2], token.start[0])
                if found is not None and found.bounds:
                    yield found
    except (tokenize.TokenError, SyntaxError):
        return


def _setup_cfg(text: str, _path: str) -> Iterator[Requirement]:
    section = key = ""
    for number, line in _lines(text):
        if line.startswith("["):
            section, key = line.strip().strip("[]"), ""
        elif (match := re.match(r"([\w.-]+)\s*[=:]\s*(.*)", line)) and not line[:1].isspace():
            key, line = match[1], match[2]
        if section == "options.extras_require" or (section == "options" and key == "install_requires"):
            yield from _found(requirement(line, number))


def _conda(text: str, _path: str) -> Iterator[Requirement]:
    if not re.search(r"^dependencies:", text, re.MULTILINE):
        return
    pip = None
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r"(\s*)-\s+(['\"]?)([^'\"#]+?)\2\s*(?:#.*)?$", line)
        if match is None:
            continue
        if pip is not None and len(match[1]) <= pip:
            pip = None
        if match[3].strip() == "pip:":
            pip = len(match[1])
        else:
            yield from _found((requirement if pip is not None else conda)(match[3], number))


_INSTALLS = re.compile(r"\b(?:pip3?|uv|conda|mamba|micromamba|poetry)\s+(?:pip\s+)?(?:install|add)\b(.*)", re.DOTALL)
_WORDS = re.compile(r"\"([^\"\n]+)\"|'([^'\n]+)'|([^\s\"';&|]+)")


def _dockerfile(text: str, _path: str) -> Iterator[Requirement]:
    """The image of the last stage and of those before it, and what `pip install` installs; `ARG X=1` fills `${X}`."""
    filled: dict[str, str] = {}
    for number, line in _lines(text):
        line = re.sub(r"\$\{?(\w+)(?::-[^}]*)?\}?", lambda match: filled.get(match[1], match[0]), line)
        word, _, rest = line.strip().partition(" ")
        if word.upper() in ("ARG", "ENV"):
            filled.update(re.findall(r"(\w+)=[\"']?([^\s\"']+)", rest))
        elif word.upper() == "FROM":
            image = next((part for part in rest.split() if not part.startswith("--")), "")
            yield from _of_image(image, number)
        else:
            yield from _installed(line, number)


def _script(text: str, _path: str) -> Iterator[Requirement]:
    for number, line in _lines(text):
        if not line.lstrip().startswith("#"):
            yield from _installed(line, number)


def _installed(line: str, number: int) -> Iterator[Requirement]:
    """What the `pip install` of a command line pins."""
    for match in _INSTALLS.findall(line):
        for words in _WORDS.findall(re.split(r"&&|;\s|\|\|", match)[0]):
            found = requirement("".join(words), number)
            if found is not None and found.bounds:
                yield found


_IMAGE = re.compile(r"^(\s*)(?:-\s+)?(image|repository|tag|registry):\s*['\"]?([^\s'\"#{}]+)")


def _values(text: str, _path: str) -> Iterator[Requirement]:
    """Images of Helm values: `image: x:tag`, or `repository` and `tag` side by side."""
    held: dict[tuple[int, str], str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        match = _IMAGE.match(line)
        if match is None:
            continue
        depth, key, value = len(match[1]), match[2], match[3]
        other = held.pop((depth, {"repository": "tag", "tag": "repository"}.get(key, "")), "")
        if other:
            yield from _of_image(f"{value}:{other}" if key == "repository" else f"{other}:{value}", number)
        elif key == "image":
            yield from _of_image(value, number)
        else:
            held[depth, key] = value


def _of_image(image: str, line: int) -> Iterator[Requirement]:
    for package, release in versions(image).items():
        yield Requirement(package, (Bound("==", release),), line)


def _found(item: Requirement | None) -> Iterator[Requirement]:
    if item is not None:
        yield item


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with those that a backslash continues, each with the number of its first; comments inside are left out."""
    held, start = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if held and line.lstrip().startswith("#"):
            continue
        start = start if held else number
        held += line
        if held.rstrip().endswith("\\"):
            held = held.rstrip()[:-1] + " "
            continue
        yield start, held
        held = ""
    if held:
        yield start, held


_OTHERS = r"(requirements?|constraints?|reqs?)\W?.*\.(txt|in)|.*[-_.](requirements?|constraints?)\.(txt|in)"
_SCRIPTS = r"(install|setup|prepare|build)([-_].*)?\.(sh|bash)|.*[-_](install|setup|env)\.(sh|bash)"

KINDS = tuple(
    Kind(re.compile(name), read)
    for name, read in (
        (r"(uv|poetry|pdm)\.lock", _lock),
        (r"requirements\.(txt|lock)", _requirements),
        (r"pyproject\.toml", _pyproject),
        (r"setup\.py", _setup),
        (r"setup\.cfg", _setup_cfg),
        (r"pipfile", _pipfile),
        (_OTHERS, _requirements),
        (r"(.*[-_.])?(conda|env|environment)([-_.].*)?\.ya?ml", _conda),
        (r"(.+[.-])?(dockerfile|containerfile)([.-].+)?", _dockerfile),
        (r"values\.ya?ml", _values),
        (_SCRIPTS, _script),
    )
)
"""Best first: a lock says what is installed, a requirement what may be, an image or a script what one of several is."""
