"""The files that a run checks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from ..repository.references import naming
from ..settings.globs import anchored, matches
from ..settings.settings import project_root
from ..source.read import is_shell_script, syntax_of
from ..source.referenced import on_disk, shown_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..settings.layers import Layers
    from ..settings.settings import Settings

SUFFIXES = (".yaml", ".yml", ".json", ".toml", ".sh", ".bash", ".slurm", ".sbatch", ".dockerfile")

BATCH_SUFFIXES = (".job", ".pbs", ".sub", ".sl", ".lsf")
"""What sites call batch scripts, and others call other files: those whose first line names a shell are listed."""

_OWN = ("gpulint.toml", ".gpulint.toml")
_SKIPPED_FOLDERS = {"node_modules", "__pycache__", "venv", "site-packages"}

MAX_STEPS = 3
"""Files on the way: a script starts a script, which starts a config, which names DeepSpeed's."""


class Found(NamedTuple):
    """A path to check: named by the user, or met while walking a folder.

    `naming`: it is checked for the named files that its jobs are made of, and for nothing else.
    """

    path: str
    named: bool
    naming: frozenset[str] = frozenset()


def find_files(paths: Iterable[str], settings: Settings | Layers) -> Iterator[Found]:
    """The files to check, each once: named ones as they are, folders walked in sorted order."""
    from ..settings.layers import Layers

    seen: set[str] = set()
    paths = [os.fspath(path) for path in paths]
    if isinstance(settings, Layers):
        settings.within(paths)
    for path in paths:
        named = not os.path.isdir(path)
        for file in [path] if named else _walk(path):
            real = os.path.realpath(file)
            if real not in seen and not _excluded(file, settings.of(file)):
                seen.add(real)
                yield Found(file, named)


def referring(found: Iterable[Found], settings: Settings | Layers) -> Iterator[Found]:
    """The files that may start a job with a named file, where they are not among those that are found.

    A hook is given the files of a commit: the job that no longer fits may be in another one that names them, or that
    names one that does.
    """
    found = list(found)
    known = {os.path.realpath(item.path) for item in found}
    roots: dict[str, dict[str, set[str]]] = {}
    for item in found:
        if item.named and on_disk() and os.path.isfile(item.path):
            root = settings.of(item.path).root or project_root(os.path.dirname(item.path) or ".")
            own = os.path.realpath(item.path)
            roots.setdefault(root, {})[own] = {own}
    for root, reached in sorted(roots.items()):
        for path, named in sorted(_reached(reached, root).items()):
            if path not in known and not _excluded(path, settings.of(path)):
                known.add(path)
                yield Found(shown_path(path), named=False, naming=frozenset(named))


def _reached(reached: dict[str, set[str]], root: str) -> dict[str, set[str]]:
    """By file, which of the first ones it names, itself or through files that it names."""
    wave = reached
    for _ in range(MAX_STEPS):
        following: dict[str, set[str]] = {}
        for path, named in naming(wave, root).items():
            firsts = set().union(*(wave[name] for name in named)) - reached.get(path, set())
            if firsts:
                following[path] = firsts
        reached = {path: reached.get(path, set()) | following.get(path, set()) for path in {**reached, **following}}
        wave = following
    return reached


def _walk(folder: str) -> Iterator[str]:
    from ..launchers.python.walked import starts_job

    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED_FOLDERS)
        for name in sorted(files):
            path = os.path.join(parent, name)
            listed = _listed(path, name.lower()) and name not in _OWN
            if (listed or name.endswith(".py")) and os.path.isfile(path) and (listed or starts_job(path)):
                yield os.path.normpath(path)


def _listed(path: str, name: str) -> bool:
    """Whether a file may start a job, or hold a config of one, by its name and, for some names, its first line."""
    if name.endswith(SUFFIXES) or syntax_of(name) == "dockerfile":
        return True
    return name.endswith(BATCH_SUFFIXES) and is_shell_script(path)


def _excluded(path: str, settings: Settings) -> bool:
    full, folder = os.path.abspath(path), settings.root or os.getcwd()
    globs = (each if os.path.isabs(each.removeprefix("!")) else anchored(each, folder) for each in settings.exclude)
    return matches(full, *globs)
