"""Whose copy of an upstream tree a folder is, and at which release: what runs there is the copy."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import NamedTuple

from ..upstream.behaviour import is_release
from ..upstream.packages import ALIASES, package_of

MAX_SIZE = 256 << 10
"""Bytes of a file that says a name or a version."""


class Copy(NamedTuple):
    """An upstream package whose source a folder holds, and the file and line (1-based) that say its release."""

    package: str
    release: str
    path: str
    line: int


_MODULES = {
    "h2o-llmstudio": "llm_studio",
    "megatron-core": "megatron/core",
    "tgi": "server/text_generation_server",
}
"""Folders of modules that are called otherwise than any name of their package."""

_INSIDE = (
    "version/version", "version.txt", "VERSION", "version.py", "_version.py", "__about__.py", "package_info.py",
    "extras/env.py", "__init__.py",
)  # fmt: skip
"""Where packages write their version, below the folder of the module."""

_BESIDE = ("VERSION", "version.txt", "version/version", "assets/version.txt", "version.py")
"""The same, below the folder of the tree."""

_NAMED = {
    "pyproject.toml": re.compile(
        r"^\[(?:project|tool\.poetry)\][^\[]*?^name\s*=\s*['\"]([\w.-]+)['\"]", re.MULTILINE | re.DOTALL
    ),
    "setup.cfg": re.compile(r"^\[metadata\][^\[]*?^name\s*=\s*([\w.-]+)", re.MULTILINE | re.DOTALL),
    "setup.py": re.compile(r"\bname\s*=\s*['\"]([\w.-]+)['\"]"),
}
_STATIC = {
    "pyproject.toml": re.compile(
        r"^\[(?:project|tool\.poetry)\][^\[]*?^version\s*=\s*['\"](\d[\w.]*)['\"]", re.MULTILINE | re.DOTALL
    ),
    "setup.cfg": re.compile(r"^\[metadata\][^\[]*?^version\s*=\s*(\d[\w.]*)", re.MULTILINE | re.DOTALL),
    "setup.py": re.compile(r"\bversion\s*=\s*['\"](\d[\w.]*)['\"]"),
}
_ASSIGNED = re.compile(r"^(?:__version__|VERSION|version)\s*(?::\s*\w+\s*)?=\s*['\"]v?(\d[\w.]*)", re.MULTILINE)
_PLAIN = re.compile(r"\A\s*v?(\d+\.\d[\w.]*)\s*\Z")
_PARTS = re.compile(r"^MAJOR = (\d+)\s+MINOR = (\d+)\s+PATCH = (\d+)", re.MULTILINE)


def copied(folder: str) -> Copy | None:
    """The upstream tree that a folder is the top of: its project's name and the module's folder say so.

    None without a release that its files state; one that setuptools takes from the tags is not in them.
    """
    changed = tuple(_changed(os.path.join(folder, name)) for name in _NAMED)
    return _copied(folder, changed) if any(changed) else None


def _changed(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


@lru_cache(maxsize=16384)
def _copied(folder: str, _changed: tuple[int, ...]) -> Copy | None:
    """The times of the last change of the files that say the name tell apart what was read before."""
    texts = {name: _text(os.path.join(folder, name)) for name in _NAMED}
    names = (match[1] for name, pattern in _NAMED.items() if (match := pattern.search(texts[name])))
    package = next(filter(None, map(package_of, names)), None)
    if package is None:
        return None
    modules = _modules(folder, package)
    if not modules:
        return None
    places = [os.path.join(module, name) for module in modules for name in _INSIDE]
    places += [os.path.join(folder, name) for name in _BESIDE]
    static = [(os.path.join(folder, name), texts[name], (pattern,)) for name, pattern in _STATIC.items()]
    written = [(path, _text(path), (_PLAIN, _ASSIGNED, _PARTS)) for path in places]
    for path, text, patterns in (*static, *written):
        for match in (pattern.search(text) for pattern in patterns):
            if match is not None and is_release(release := ".".join(match.groups())):
                return Copy(package, release, path, text.count("\n", 0, match.start(1)) + 1)
    return None


def _modules(folder: str, package: str) -> list[str]:
    """The folders of the package's modules that are there, `src` layout or flat."""
    spelled = (package, *(alias for alias, name in ALIASES.items() if name == package))
    names = [_MODULES.get(package, ""), *(name.replace("-", "_") for name in spelled)]
    paths = [os.path.join(folder, src, name) for name in dict.fromkeys(names) if name for src in ("src", "")]
    return [path for path in paths if os.path.isdir(path)]


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(MAX_SIZE)
    except OSError:
        return ""
