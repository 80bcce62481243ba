"""Writes changed files: whole or not at all, with their mode, and never through a link."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from tempfile import mkstemp


class WriteError(Exception):
    """A file that was not written; the message is the reason."""


def refusal(path: str, root: str) -> str:
    """Why a file must not be written, "" where it may: a link, no regular file, or outside the folder `root`."""
    try:
        mode = os.lstat(path).st_mode
    except OSError as error:
        return (error.strerror or "cannot be read").lower()
    if stat.S_ISLNK(mode):
        return "it is a symbolic link"
    if not stat.S_ISREG(mode):
        return "it is not a regular file"
    top = os.path.join(os.path.realpath(root), "")
    return "" if os.path.realpath(path).startswith(top) else "it lies outside the project"


def replace_text(path: str, before: str, after: str) -> None:
    """Put `after` in the place of a file that holds `before`, as UTF-8, in one step; its mode stays.

    Raises WriteError where the file holds something else by now, or cannot be written; it is then as it was.
    """
    temporary = ""
    try:
        with open(path, "rb") as file:
            if file.read() != before.encode("utf-8"):
                raise WriteError("it was changed meanwhile")
            status = os.fstat(file.fileno())
        handle, temporary = mkstemp(prefix=f".{os.path.basename(path)}.", dir=os.path.dirname(path) or ".")
        with open(handle, "wb") as file:
            file.write(after.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, stat.S_IMODE(status.st_mode))
        if not os.access(path, os.W_OK):
            raise WriteError("it is read-only")
        os.replace(temporary, path)
        temporary = ""
    except OSError as error:
        raise WriteError((error.strerror or "input/output error").lower()) from None
    finally:
        if temporary:
            with suppress(OSError):
                os.unlink(temporary)
