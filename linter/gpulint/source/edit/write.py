"""Writes files: whole or not at all, and fixes never through a link."""

from __future__ import annotations

import os
import stat
import tempfile


class WriteError(Exception):
    """A file that was not written; the message is the reason."""


def replace_file(path: str, text: str) -> None:
    """Write a file whole or not at all, with its mode. Raises OSError; the file is then as it was."""
    target = os.path.realpath(path)
    handle, name = tempfile.mkstemp(dir=os.path.dirname(target), prefix=".gpulint-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, stat.S_IMODE(os.stat(target).st_mode))
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise


def replace_text(path: str, before: str, after: str) -> None:
    """Put `after` in the place of a file that holds `before`.

    Raises WriteError where the file holds something else by now, is read-only or cannot be written.
    """
    try:
        with open(path, "rb") as file:
            if file.read() != before.encode("utf-8"):
                raise WriteError("it has changed in the meantime")
        if not os.access(path, os.W_OK):
            raise WriteError("it is read-only")
        replace_file(path, after)
    except OSError as error:
        raise WriteError((error.strerror or "input/output error").lower()) from None


def refusal(path: str, root: str) -> str:
    """Why a fix must not write a file, "" where it may: a link, no regular file, or outside the folder `root`."""
    try:
        mode = os.lstat(path).st_mode
    except OSError as error:
        return (error.strerror or "cannot be read").lower()
    if stat.S_ISLNK(mode):
        return "it is a symbolic link"
    if not stat.S_ISREG(mode):
        return "it is not a regular file"
    top = os.path.join(os.path.realpath(root), "")
    return "" if os.path.realpath(path).startswith(top) else "it is outside the project"
