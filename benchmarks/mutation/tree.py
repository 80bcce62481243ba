"""A copy of the checkout in which mistakes are planted and tests run; the checkout itself is never written to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

ROOT = Path(__file__).resolve().parents[2]


class Outcome(NamedTuple):
    """How the tests ended: `failed`, or not within the time (`late`), and the last lines that pytest printed."""

    failed: bool
    said: str
    late: bool = False


class Tree:
    """The copy, as a context manager. Tests import the package from it, not from where it is installed."""

    def __init__(self, root: Path = ROOT) -> None:
        self._root = root
        self._folder = tempfile.TemporaryDirectory(prefix="mutants-")
        self.path = Path(self._folder.name) / "checkout"
        self._written = 0

    def __enter__(self) -> Tree:  # noqa: PYI034
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
            cwd=self._root,
            capture_output=True,
            check=True,
        )
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (self._root / name).is_file():
                (self.path / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(self._root / name, self.path / name)
        # pyproject.toml puts these folders into the package; without them here Python would take the installed ones
        for name, inside in (("rules", "rules_data"), ("schemas", "schemas")):
            if (self.path / name).is_dir():
                (self.path / "linter" / "gpulint" / inside).symlink_to(self.path / name)
        shared = self._root.parent / "shared"
        if shared.is_dir():
            (self.path.parent / "shared").symlink_to(shared.resolve())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._folder.cleanup()

    def read(self, path: str) -> str:
        """The text of a file of the copy."""
        return (self.path / path).read_bytes().decode()

    def write(self, path: str, text: str) -> None:
        """Write a file of the copy. Its time is new even within a second, or Python would run what it compiled."""
        file = self.path / path
        file.write_bytes(text.encode())
        self._written += 1
        time = file.stat().st_mtime + self._written
        os.utime(file, (time, time))

    def test(self, tests: Sequence[str], limit: float, *options: str) -> Outcome:
        """Run tests until one fails or `limit` seconds have passed; that none was found (5) is no failure."""
        try:
            done = subprocess.run(
                [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", *options, *tests],
                cwd=self.path,
                env={**os.environ, "PYTHONPATH": f"{self.path / 'linter'}{os.pathsep}{self.path}"},
                capture_output=True,
                text=True,
                timeout=limit,
            )
        except subprocess.TimeoutExpired:
            return Outcome(failed=False, said=f"no end after {limit:.0f} s", late=True)
        return Outcome(done.returncode not in (0, 5), "\n".join(done.stdout.splitlines()[-12:]) or done.stderr[-500:])
