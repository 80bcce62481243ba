"""Which files of a repository name which others, as the commands and configs of GPU jobs do."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from ..source.read import SUFFIXES
from ..source.referenced import up_to

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

MAX_SIZE = 64 * 1024
"""Bytes of a file that may name others; launchers and configs are small, and data is not."""

MAX_FILES = 20_000
"""Files of a repository that are looked at."""

MAX_FOLDERS = 5_000
"""Folders of it: without a repository the root may be somebody's home."""

LEFT_OUT = frozenset({"node_modules", "__pycache__", "venv", "site-packages"})
"""Folders that hold nobody's configs, besides those whose name begins with a dot."""

_ENDS = tuple(end for end, syntax in SUFFIXES.items() if syntax != "python")
"""Files that are read for the names of others: of Python there is too much."""

_ANYWHERE = "*/"
"""What a path begins with that a variable, `..` or a scheme places somewhere."""

_PART = r"[\w./${}+:@~-]"
_PATH = re.compile(rf"(?<!{_PART}){_PART}+?\.(?:{'|'.join(end[1:] for end in SUFFIXES)})(?=[.:]*(?!{_PART}))", re.ASCII)
"""A word that ends in a suffix, from its beginning."""

_STEM = re.compile(
    r"config[-_]name[=\s\"']+([\w./-]+)|--config[=\s\"']+([\w./-]+)"
    r"|^[ \t]*-[ \t]+[\"']?/?([\w./-]+)(?:@[\w.]+)?[\"']?[ \t]*$",
    re.ASCII | re.MULTILINE,
)
"""Names without a suffix, of Hydra's `--config-name` and `defaults` and of `tune run --config`."""

_PLACED = re.compile(r"^.*(?:\$\{?\w+\}?|\.\.|~|:/|\})/+")


def naming(paths: Iterable[str], root: str) -> dict[str, set[str]]:
    """The files below the root that name some of `paths`, and which of them; real paths."""
    wanted: dict[str, list[str]] = {}
    for path in paths:
        own = os.path.realpath(path)
        for name in _names_of(own):
            wanted.setdefault(name, []).append(own)
    found: dict[str, set[str]] = {}
    for other in files_below(root):
        told = _told(other)
        for name in told.keys() & wanted.keys():
            meant = {own for own in wanted[name] if own != other and _means(other, told[name], own, root)}
            if meant:
                found.setdefault(other, set()).update(meant)
    return found


def naming_above(path: str, root: str) -> Iterator[list[str]]:
    """The files that name one, of its folder and of each folder above it, up to the root, the nearest first."""
    own = os.path.realpath(path)
    for folder in up_to(os.path.dirname(own), root):
        found = []
        for other in files_of(folder):
            told = _told(other) if other != own else {}
            if any(name in told and _means(other, told[name], own, root) for name in _names_of(own)):
                found.append(other)
        if found:
            yield found


def _names_of(path: str) -> list[str]:
    """What others may call a file, without its folder."""
    stem, suffix = os.path.splitext(os.path.basename(path))
    return [stem + suffix, stem] if suffix in (".yaml", ".yml") else [stem + suffix]


def _means(other: str, words: tuple[str, ...], own: str, root: str) -> bool:
    """Whether a word of `other` leads to a file: from its folder or one above it, as references are opened."""
    for word in words:
        tail = word.removeprefix(_ANYWHERE)
        if "." not in os.path.basename(tail) or (tail != word and own.endswith(os.sep + tail)):
            return True
        if any(os.path.join(folder, tail) == own for folder in up_to(os.path.dirname(other), root)):
            return True
    return False


def files_below(root: str) -> list[str]:
    """The files of a repository that may name others, in a steady order."""
    found: list[str] = []
    for seen, (folder, folders, _) in enumerate(os.walk(os.path.realpath(root))):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in LEFT_OUT)
        found += files_of(folder)
        if len(found) >= MAX_FILES or seen >= MAX_FOLDERS:
            break
    return found[:MAX_FILES]


def files_of(folder: str) -> list[str]:
    """Those of one folder."""
    try:
        return _files_of(folder, os.stat(folder).st_mtime_ns)
    except OSError:
        return []


@lru_cache(maxsize=16384)
def _files_of(folder: str, _changed: int) -> list[str]:
    with os.scandir(folder) as entries:
        kept = [entry for entry in entries if entry.name.lower().endswith(_ENDS) and entry.is_file()]
    return sorted(os.path.realpath(entry.path) if entry.is_symlink() else entry.path for entry in kept)


def _told(path: str) -> Mapping[str, tuple[str, ...]]:
    """The paths that a file names, by their last part; none of one that is too large or cannot be read."""
    try:
        about = os.stat(path)
    except OSError:
        return {}
    return _told_by(path, about.st_mtime_ns, about.st_size) if about.st_size <= MAX_SIZE else {}


@lru_cache(maxsize=MAX_FILES)
def _told_by(path: str, _changed: int, _size: int) -> Mapping[str, tuple[str, ...]]:
    """The time of the last change tells apart what was read before."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(MAX_SIZE)
    except OSError:
        return {}
    words = _PATH.findall(text) if any(end in text for end in _ENDS) else []
    words += [next(filter(None, match.groups())) for match in _STEM.finditer(text)]
    found: dict[str, tuple[str, ...]] = {}
    for word in dict.fromkeys(map(_placed, words)):
        name = os.path.basename(word)
        found[name] = (*found.get(name, ()), word)
    return found


def _placed(word: str) -> str:
    """A path as it is opened, or `*/` and the part of it that is known."""
    tail = _PLACED.sub("", word)
    if tail != word or tail.startswith("/"):
        return _ANYWHERE + tail.lstrip("/")
    return os.path.normpath(tail)
