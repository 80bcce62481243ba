"""The releases that a repository pins for a file of it: those of the nearest folder that says anything of a package."""

from __future__ import annotations

import os
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from ..job.origin import Origin
from ..source.referenced import on_disk, shown_path, up_to
from ..upstream.packages import representative
from ..upstream.stack import KERNELS
from .declarations import declared, kind_of
from .requirement import Requirement
from .vendored import copied

BESIDE = frozenset({"requirements", "docker", "dockerfiles", "deps", "envs", "environments"})
"""Folders that only hold what their folder installs."""


class Pin(NamedTuple):
    """The release that counts for a package.

    release   the one that is stated; of a range, one that stands for it
    others    further releases that the same file states
    exact     whether it is stated
    says      the requirement as people look for it, `transformers<5`
    path      where it stands, with its line; "" for one that an operator brings along
    copy      whether the repository holds the package's own tree at that release, which its owners may have changed
    """

    package: str
    release: str
    others: tuple[str, ...]
    exact: bool
    says: str
    path: str = ""
    line: int = 0
    copy: bool = False

    @property
    def origin(self) -> Origin:
        """Where the release comes from."""
        if not self.path:
            return Origin("assumed", f"shipped with {self.says}")
        place = f"{self.path}:{self.line}"
        if self.exact and not self.others:
            return Origin("derived", f"pinned in {place}")
        if self.exact:
            return Origin("assumed", f"one of the releases that {place} names", values=(self.release, *self.others))
        return Origin("assumed", f"{self.says} in {place}")


def pins_for(path: str, root: str) -> dict[str, Pin]:
    """The pins that count for a file, by package, from its folder up to the root.

    The nearest folder that names a package with a release counts, and in it the best file (`declarations.KINDS`). A
    range in which the newest release lies pins nothing, and hides what folders above say. The package whose own tree
    a folder is runs from there.
    """
    if not on_disk():
        return {}
    found: dict[str, Pin | None] = {}
    for folder in up_to(os.path.dirname(os.path.abspath(path)), root):
        of_folder: dict[str, Pin | None] = {}
        for _, paths in groupby(_declaring(folder), key=kind_of):
            of_folder = {**_together([_pinned(path) for path in paths]), **of_folder}
        if (own := copied(folder)) is not None and own.package not in KERNELS:
            says = f"{own.package}=={own.release}"
            of_folder[own.package] = Pin(
                own.package, own.release, (), True, says, shown_path(own.path), own.line, copy=True
            )
        found = {**of_folder, **found}
    return {name: pin for name, pin in found.items() if pin is not None}


def _together(files: list[dict[str, Pin | None]]) -> dict[str, Pin | None]:
    """What files of one kind say: where they state several releases of a package, any of those may run."""
    found: dict[str, Pin | None] = {}
    for pins in files:
        for name, pin in pins.items():
            first = found.setdefault(name, pin)
            if first is not None and pin is not None and pin.release not in (first.release, *first.others):
                found[name] = first._replace(others=(*first.others, pin.release))
    return found


def _pinned(path: str) -> dict[str, Pin | None]:
    """By package what one file says; None where it allows the newest."""
    try:
        about = os.stat(path)
    except OSError:
        return {}
    gathered: dict[str, list[Requirement]] = {}
    for item in declared(path, about.st_mtime_ns, about.st_size):
        if item.bounds and item.package not in KERNELS:
            gathered.setdefault(item.package, []).append(item)
    return {name: _pin(name, items, shown_path(path)) for name, items in gathered.items()}


def _pin(package: str, items: list[Requirement], path: str) -> Pin | None:
    stated = list(dict.fromkeys(item.exact for item in items if item.exact))
    if stated:
        first = next(item for item in items if item.exact)
        return Pin(package, stated[0], tuple(stated[1:]), True, str(first), path, first.line)
    bounds = tuple(dict.fromkeys(bound for item in items for bound in item.bounds))
    release = representative(bounds, package)
    return Pin(package, release, (), False, str(items[0]), path, items[0].line) if release else None


def _declaring(folder: str) -> list[str]:
    """The files of a folder that declare requirements, the best first."""
    try:
        changed = os.stat(folder).st_mtime_ns
    except OSError:
        return []
    return _listed(folder, changed)


@lru_cache(maxsize=16384)
def _listed(folder: str, _changed: int) -> list[str]:
    """The time of the folder's last change tells apart what was listed before; that of a folder beside is not asked."""
    ranked: list[tuple[int, int, str]] = []
    for depth, place in enumerate((folder, *(os.path.join(folder, name) for name in sorted(BESIDE)))):
        try:
            with os.scandir(place) as entries:
                paths = [entry.path for entry in entries if kind_of(entry.path) is not None and entry.is_file()]
        except OSError:
            continue
        ranked += [(min(depth, 1), kind_of(path) or 0, path) for path in paths]
    return [path for _, _, path in sorted(ranked, key=lambda item: (item[1], item[0], item[2]))]
