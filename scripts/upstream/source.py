"""The files of one upstream at one version: a wheel, an sdist or a git repository. Nothing in it is imported or run."""

from __future__ import annotations

import ast
import re
import subprocess
import tarfile
import zipfile
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

READ = (".py", ".json", ".yaml", ".yml", ".rs", ".go", ".txt", ".toml", ".md")
"""The endings of what generators read."""


class Upstream(NamedTuple):
    """Where a tool's files are. One row of `upstreams.json`.

    name       how the stamp calls it; `root` is the folder inside that paths start from
    package    its name in the package index, or
    repository `owner/name` on GitHub, at `revision`
    version    what the stamp says
    listed     whether a person wrote down what it has, and nothing is read
    released_as   the package of a repository, which says what the newest release is where git cannot
    fixed      whether the version is the last of its kind, whatever came later
    """

    name: str
    version: str
    package: str = ""
    repository: str = ""
    revision: str = ""
    root: str = ""
    listed: bool = False
    released_as: str = ""
    fixed: bool = False

    @property
    def stamp(self) -> str:
        """The tool and version, as the schemas and the messages name them."""
        return f"{self.name} {self.version}"


class Source:
    """The text files of an upstream, their paths starting at its root. Raises FileNotFoundError where it is missing."""

    def __init__(self, upstream: Upstream, folder: Path) -> None:
        self.upstream = upstream
        self.version = upstream.version
        self.place = place_of(upstream, folder)
        self._trees: dict[str, ast.Module] = {}

    @property
    def commit(self) -> str:
        """The commit of a repository."""
        return self._git("rev-parse", "--short=9", f"{self.upstream.revision}^{{commit}}").strip()

    @cached_property
    def paths(self) -> list[str]:
        """Every file's path below the root, sorted."""
        root = self.upstream.root
        if self.place.suffix == ".whl":
            with zipfile.ZipFile(self.place) as archive:
                names = [_installed(name) for name in archive.namelist()]
        elif self.place.name.endswith(".tar.gz"):
            with tarfile.open(self.place) as archive:
                names = [member.name.partition("/")[2] for member in archive if member.isfile()]
        else:
            names = self._git("ls-tree", "-r", "--name-only", self.upstream.revision).splitlines()
        return sorted(name[len(root) :] for name in names if name.startswith(root) and name.endswith(READ))

    @cached_property
    def _texts(self) -> dict[str, str]:
        root = self.upstream.root
        wanted = {root + path for path in self.paths}
        texts: dict[str, str] = {}
        if self.place.suffix == ".whl":
            with zipfile.ZipFile(self.place) as archive:
                held = {_installed(name): name for name in archive.namelist()}
                texts = {name: archive.read(held[name]).decode("utf-8", "replace") for name in wanted}
        elif self.place.name.endswith(".tar.gz"):
            with tarfile.open(self.place) as archive:
                for member in archive:
                    name = member.name.partition("/")[2]
                    stream = archive.extractfile(member) if name in wanted else None
                    if stream is not None:
                        texts[name] = stream.read().decode("utf-8", "replace")
        return {name[len(root) :]: text for name, text in texts.items()}

    def text(self, path: str) -> str | None:
        """The text of a file; None where there is none."""
        if self.upstream.repository:
            name = f"{self.upstream.revision}:{self.upstream.root}{path}"
            return self._git("show", name) if path in self.paths else None
        return self._texts.get(path)

    def need(self, path: str) -> str:
        """The text of a file that must be there. Raises FileNotFoundError."""
        text = self.text(path)
        if text is None:
            raise FileNotFoundError(f"{self.upstream.stamp} has no {self.upstream.root}{path}")
        return text

    def below(self, folder: str, *endings: str) -> list[str]:
        """The paths that start with `folder` and end as said."""
        return [path for path in self.paths if path.startswith(folder) and path.endswith(endings or (".py",))]

    def texts(self, paths: Iterable[str]) -> dict[str, str]:
        """The texts of files by path."""
        return {path: self.need(path) for path in paths}

    def tree(self, path: str) -> ast.Module | None:
        """The syntax tree of a module; None where there is none."""
        if path not in self._trees:
            text = self.text(path)
            if text is None:
                return None
            self._trees[path] = ast.parse(text)
        return self._trees[path]

    def classes(self, path: str) -> dict[str, ast.ClassDef]:
        """The classes of a module by name."""
        tree = self.tree(path)
        return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)} if tree else {}

    def _git(self, *words: str) -> str:
        done = subprocess.run(["git", "-C", self.place, *words], capture_output=True, text=True, errors="replace")
        if done.returncode:
            raise FileNotFoundError(f"{self.place}: git {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout


def _installed(name: str) -> str:
    """Where a wheel's file is installed: `tool-1.0.data/purelib/tool/x.py` as `tool/x.py`."""
    return re.sub(r"^[^/]+\.data/(?:pure|plat)lib/", "", name)


def place_of(upstream: Upstream, folder: Path) -> Path:
    """The file or repository in `folder` that holds an upstream. Raises FileNotFoundError."""
    if upstream.repository:
        place = folder / upstream.repository.partition("/")[2]
        if place.is_dir():
            return place
        raise FileNotFoundError(f"{folder} has no clone of {upstream.repository}")
    for stem in (upstream.package, upstream.package.replace("-", "_")):
        found = [*folder.glob(f"{stem}-{upstream.version}-*.whl"), *folder.glob(f"{stem}-{upstream.version}.tar.gz")]
        if found:
            return found[0]
    raise FileNotFoundError(f"{folder} has no archive of {upstream.package} {upstream.version}")


def obtain(upstream: Upstream, folder: Path) -> None:
    """Download an upstream into `folder` with pip or git, where it is not there yet. Raises CalledProcessError."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        place_of(upstream, folder)
    except FileNotFoundError:
        if upstream.repository:
            target = str(folder / upstream.repository.partition("/")[2])
            url = f"https://github.com/{upstream.repository}"
            subprocess.run(["git", "clone", "--quiet", "--bare", "--filter=blob:none", url, target], check=True)
        else:
            wanted = f"{upstream.package}=={upstream.version}"
            subprocess.run(
                [
                    "python3",
                    "-m",
                    "pip",
                    "download",
                    "--quiet",
                    "--no-deps",
                    "--no-build-isolation",
                    "-d",
                    folder,
                    wanted,
                ],
                check=True,
            )
