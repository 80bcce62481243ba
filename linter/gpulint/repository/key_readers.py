"""Which keys of its configs the Python files of a repository read by name: found in their text, which is never run."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ..source.referenced import on_disk
from .references import LEFT_OUT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_FILES = 2000
"""Python files of a repository that are looked at."""

MAX_SIZE = 256 << 10
"""Bytes of one of them; longer ones are written by programs."""

MAX_BYTES = 8 << 20
"""Bytes of all of them."""

MAX_FOLDERS = 5000

_FOREIGN = LEFT_OUT | {"third_party", "third-party", "thirdparty", "vendor", "vendored", "tests", "test", "build"}
"""Folders whose files start none of the repository's jobs."""

_WORD = r"['\"]([A-Za-z_][\w-]*)['\"]"
_ACCESS = re.compile(
    rf"(?<=[\w\])])\[\s*{_WORD}\s*\]|\.(?:get|pop|setdefault)\(\s*{_WORD}|{_WORD}\s+(?:not\s+)?in\s"
    rf"|\b(?:get|has)attr\(\s*[\w.]+\s*,\s*{_WORD}"
)
_FLAG = re.compile(r"(?:add_argument|\.option)\(\s*(?:['\"]-\w['\"]\s*,\s*)?['\"]--([\w-]+)['\"]")
_FIELD = re.compile(
    r"^[ \t]+([A-Za-z_]\w*)[ \t]*:[ \t]*[A-Za-z_][\w.]*(?:\[[^=\n]*\])?(?:[ \t]*\|[ \t]*\w+)*[ \t]*(?:=|#|$)",
    re.MULTILINE,
)
_FIELDS = re.compile(r"@(?:\w+\.)*dataclass|\((?:\w+\.)*(?:BaseModel|BaseSettings|NamedTuple|TypedDict)\b|@attrs?\.")
_TAKEN = re.compile(rf"\.pop\(\s*{_WORD}|\bdel\s+[\w.]+\[\s*{_WORD}\s*\]")
_TAKES_A_NAME = re.compile(r"\.pop\(\s*[A-Za-z_]|\bdel\s+[\w.]+\[\s*[A-Za-z_]")
_LIST = re.compile(r"[\[({]\s*((?:['\"][\w-]+['\"]\s*,\s*)*['\"][\w-]+['\"])\s*,?\s*[\])}]")

_LOADS = {
    "yaml": re.compile(r"\byaml\.(?:safe_|full_|unsafe_)?load|\bOmegaConf\.load|\bYAML\(|\bimport safe_load"),
    "json": re.compile(r"\bjson5?\.load\(|\bjson5?\.loads\([^\n]*read"),
    "toml": re.compile(r"\btoml(?:lib|i|kit)?\.load"),
}
"""How a program opens a config, by syntax. A line of JSON read by `json.loads` is data."""


class Uses(NamedTuple):
    """The keys that a file names.

    read    by subscript, `.get`, `.pop`, `in`, `getattr`
    said    as a field of a dataclass or an option of a command line
    taken   removed, by name or as one of a list in a file that removes by variable
    loads   the syntaxes that it opens
    """

    read: frozenset[str]
    said: frozenset[str]
    taken: frozenset[str]
    loads: frozenset[str]


def reads(key: str, syntax: str, root: str, *, itself: bool, takes: bool) -> bool:
    """Whether a program of the repository reads a dotted key of files of a syntax.

    It does in a file that opens such files, or beside one; of a dotted key the sections are named there, too.
    `itself`: only a file that opens them counts, and only what it reads. `takes`: the key is removed there, so that
    nothing else sees it.
    """
    if not on_disk() or syntax not in _LOADS:
        return False
    *sections, name = key.replace("-", "_").split(".")
    for files in readers(os.path.realpath(root)).values():
        opening = [uses for uses in files if syntax in uses.loads]
        counted = opening if itself or not opening else files
        if not opening or not all(any(part in uses.read | uses.said for uses in counted) for part in sections):
            continue
        if takes:
            found = any(name in uses.taken for uses in counted)
        else:
            found = any(name in uses.read for uses in counted)
            found = found or (not itself and any(name in uses.said for uses in opening))
        if found:
            return True
    return False


@lru_cache(maxsize=16)
def readers(root: str) -> Mapping[str, tuple[Uses, ...]]:
    """By folder what its Python files read, where one of them opens configs. A run asks once for each root."""
    left = MAX_BYTES
    folders: dict[str, list[str]] = {}
    for path in _programs(root):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                text = file.read(MAX_SIZE + 1)
        except OSError:
            continue
        if len(text) > MAX_SIZE:
            continue
        left -= len(text)
        if left < 0:
            break
        folders.setdefault(os.path.dirname(path), []).append(text)
    return {
        folder: tuple(map(_uses, texts))
        for folder, texts in folders.items()
        if any(loads.search(text) for loads in _LOADS.values() for text in texts)
    }


def _programs(root: str) -> Iterator[str]:
    """The Python files below the root that are nobody's tests, those of the upper folders first."""
    count, level = 0, [root]
    for _ in range(MAX_FOLDERS):
        if not level or count >= MAX_FILES:
            return
        folder = level.pop(0)
        try:
            with os.scandir(folder) as entries:
                inside = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in inside:
            if entry.is_dir(follow_symlinks=False):
                if not entry.name.startswith(".") and entry.name not in _FOREIGN:
                    level.append(entry.path)
            elif entry.name.endswith(".py") and not entry.name.startswith("test_") and entry.is_file():
                count += 1
                yield entry.path


def _uses(text: str) -> Uses:
    said = set(_FLAG.findall(text))
    if _FIELDS.search(text):
        said.update(_FIELD.findall(text))
    taken = _words(_TAKEN, text)
    if _TAKES_A_NAME.search(text):
        taken.update(word for listed in _LIST.findall(text) for word in re.findall(_WORD, listed))
    loads = frozenset(syntax for syntax, pattern in _LOADS.items() if pattern.search(text))
    return Uses(_same(_words(_ACCESS, text)), _same(said), _same(taken), loads)


def _words(pattern: re.Pattern[str], text: str) -> set[str]:
    return {word for groups in pattern.findall(text) for word in groups if word}


def _same(words: set[str]) -> frozenset[str]:
    return frozenset(word.replace("-", "_") for word in words)
