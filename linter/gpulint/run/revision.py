"""Files as they were at a revision of the git repository around them."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..source.overlay import instead
from ..source.read import SUFFIXES

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_FILES = 2000


class RevisionError(Exception):
    """A revision that cannot be read; the message is one line."""


def split(word: str) -> tuple[str, str]:
    """`HEAD~1:configs/x.yaml` as revision and path; a word that names an existing file is a path alone."""
    revision, colon, path = word.partition(":")
    if not colon or os.path.exists(word) or not revision or not path:
        return "", word
    return revision, path


@contextmanager
def as_of(revision: str, path: str) -> Iterator[None]:
    """While it lasts, config files are read as they were at `revision`; "" stands for how they are.

    `path` is the file that it is about. Raises RevisionError.
    """
    if not revision:
        yield
        return
    folder = os.path.dirname(os.path.abspath(path))
    top = _git(folder, "rev-parse", "--show-toplevel").strip()
    if revision.startswith("-"):
        raise RevisionError(f"{revision} is not a revision")
    known = _git(folder, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}", refused=f"{revision}: unknown")
    commit = known.strip()
    changed = _git(folder, "diff", "--name-only", "--no-renames", "-z", commit).split("\0")
    names = [name for name in changed if os.path.splitext(name)[1].lower() in SUFFIXES][:MAX_FILES]
    texts = {}
    for name in names:
        try:
            texts[os.path.realpath(os.path.join(top, name))] = _git(top, "show", f"{commit}:{name}")
        except RevisionError:  # not there at that revision
            continue
    with instead(texts):
        yield


def _git(folder: str, *words: str, refused: str = "") -> str:
    try:
        done = subprocess.run(  # noqa: S603
            ["git", "-C", folder, *words], capture_output=True, text=True, check=True, timeout=60, encoding="utf-8"  # noqa: S607
        )  # fmt: skip
    except FileNotFoundError:
        raise RevisionError("git is not installed") from None
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired, UnicodeDecodeError) as error:
        told = (getattr(error, "stderr", "") or "").strip().split("\n")[0]
        raise RevisionError(refused or told or "git failed") from None
    return done.stdout
