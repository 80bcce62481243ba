# ruff: noqa: S310  (addresses of the package index)
"""The files that hold a package's keys, of every final release since 2023, from the package index.

Of a wheel only the wanted files travel (HTTP ranges); of a release without one the whole sdist does. What was read is
kept as one small archive a release; nothing upstream is imported or run.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import tarfile
import urllib.request
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

SINCE = "2023"
"""The year from which on releases are read."""

INDEX = "https://pypi.org/pypi/{}/json"

_FILES = "https://files.pythonhosted.org/packages/"
"""Where the files lie, whatever a mirror of the index calls it."""

_BLOCK = 1 << 18

_FINAL = re.compile(r"v?\d+(\.\d+)*(\.?post\d+)?")
"""Releases, without candidates and what is in development; a post-release is one."""


class Release(NamedTuple):
    """A release and the best of its archives: a wheel before an sdist."""

    version: str
    day: str
    url: str
    size: int

    @property
    def is_wheel(self) -> bool:
        """Whether single files of it can be read."""
        return self.url.endswith(".whl")


def final(version: str) -> bool:
    """Whether a version is a final release."""
    return _FINAL.fullmatch(version) is not None


def listed(package: str) -> list[Release]:
    """The final releases of a package since 2023, in the order of their numbers. Raises OSError without the index."""
    with urllib.request.urlopen(INDEX.format(package), timeout=60) as answer:
        releases: dict[str, list[dict[str, Any]]] = json.load(answer)["releases"]
    found = []
    for version, files in releases.items():
        usable = [file for file in files if file["url"].endswith((".whl", ".tar.gz"))]
        if not final(version) or not usable or min(file["upload_time"] for file in files) < SINCE:
            continue
        best = min(usable, key=lambda file: (file["url"].endswith(".tar.gz"), file["size"]))
        url = _FILES + best["url"].rpartition("packages/")[2]
        found.append(Release(version, best["upload_time"][:10], url, best["size"]))
    return sorted(found, key=lambda release: numbers(release.version))


def numbers(version: str) -> tuple[int, ...]:
    """The numbers of a release without zeros at its end: `0.4.6.post5` as 0, 4, 6, 5."""
    parts = [int(part) for part in re.findall(r"\d+", version)]
    while parts and not parts[-1]:
        parts.pop()
    return tuple(parts)


class _Remote(io.RawIOBase):
    """A file of the web that is read in blocks, where they are asked for."""

    def __init__(self, url: str, size: int) -> None:
        self.url, self.size, self.position = url, size, 0
        self.start, self.held = 0, b""

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.position, io.SEEK_END: self.size}[whence]
        return self.position

    def read(self, size: int = -1) -> bytes:
        end = self.size if size < 0 else min(self.size, self.position + size)
        if self.position >= end:
            return b""
        if not self.start <= self.position <= end <= self.start + len(self.held):
            # a read of the end wants the directory in front of it, any other one what follows
            first = max(0, self.size - _BLOCK) if self.size - self.position < _BLOCK else self.position
            last = min(self.size, max(end, first + _BLOCK))
            asked = urllib.request.Request(self.url, headers={"Range": f"bytes={first}-{last - 1}"})
            with urllib.request.urlopen(asked, timeout=120) as answer:
                self.start, self.held = first, answer.read()
        found = self.held[self.position - self.start : end - self.start]
        self.position = end
        return found


def files(release: Release, wanted: re.Pattern[str]) -> dict[str, str]:
    """The texts of the files of a release whose paths fit, from the package's root. Raises OSError."""
    if release.is_wheel:
        with zipfile.ZipFile(_Remote(release.url, release.size)) as archive:
            names = {installed(name): name for name in archive.namelist()}
            texts = {path: archive.read(name) for path, name in names.items() if wanted.fullmatch(path)}
    else:
        texts = {}
        with urllib.request.urlopen(release.url, timeout=300) as answer:
            content = io.BytesIO(answer.read())
        with tarfile.open(fileobj=content) as sdist:
            for member in sdist:
                path = member.name.partition("/")[2].removeprefix("src/")
                stream = sdist.extractfile(member) if member.isfile() and wanted.fullmatch(path) else None
                if stream is not None:
                    texts[path] = stream.read()
    return {path: text.decode("utf-8", "replace") for path, text in sorted(texts.items())}


def installed(name: str) -> str:
    """Where a wheel's file is installed: `tool-1.0.data/purelib/tool/x.py` as `tool/x.py`."""
    return re.sub(r"^[^/]+\.data/(?:pure|plat)lib/", "", name)


def obtain(package: str, wanted: re.Pattern[str], folder: Path, *, workers: int = 8) -> list[str]:
    """Keep the wanted files of every release as `folder/package/release.zip`; the releases that could not be read."""
    place = folder / package
    place.mkdir(parents=True, exist_ok=True)
    missing = [release for release in listed(package) if not (place / f"{release.version}.zip").exists()]

    def keep(release: Release) -> str:
        for _ in range(3):
            try:
                texts = files(release, wanted)
                break
            except (OSError, zipfile.BadZipFile, tarfile.TarError) as error:
                failed = f"{package} {release.version}: {error}"
        else:
            return failed
        part = place / f"{release.version}.part"
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, text in texts.items():
                archive.writestr(path, text)
        part.rename(place / f"{release.version}.zip")
        return ""

    with ThreadPoolExecutor(workers) as pool:
        return [failed for failed in pool.map(keep, missing) if failed]


def obtain_tags(repository: str, tags: str, wanted: re.Pattern[str], package: str, folder: Path) -> list[str]:
    """The same for the tags of a repository, which is cloned into `folder` where it is not there yet."""
    clone = folder / repository.partition("/")[2]
    if not clone.exists():
        url = f"https://github.com/{repository}"
        subprocess.run(["git", "clone", "--quiet", "--bare", "--filter=blob:none", url, clone], check=True)
    place = folder / package
    place.mkdir(parents=True, exist_ok=True)
    before, _, after = tags.partition("{}")
    for tag in _git(clone, "tag").splitlines():
        version = tag.removeprefix(before).removesuffix(after)
        target = place / f"{version}.zip"
        if tags.format(version) != tag or not final(version) or target.exists():
            continue
        if _git(clone, "log", "-1", "--format=%cd", "--date=short", tag).strip() < SINCE:
            continue
        paths = [
            path for path in _git(clone, "ls-tree", "-r", "--name-only", tag).splitlines() if wanted.fullmatch(path)
        ]
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in paths:
                archive.writestr(path, _git(clone, "show", f"{tag}:{path}"))
    return []


def _git(clone: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", clone, *words], capture_output=True, text=True, errors="replace", check=True)
    return done.stdout


def kept(package: str, folder: Path) -> list[str]:
    """The releases of a package that were kept, in the order of their numbers."""
    return sorted((path.stem for path in (folder / package).glob("*.zip")), key=numbers)


def texts_of(package: str, version: str, folder: Path) -> dict[str, str]:
    """The texts of the kept files of a release by path."""
    with zipfile.ZipFile(folder / package / f"{version}.zip") as archive:
        return {name: archive.read(name).decode("utf-8") for name in archive.namelist()}
