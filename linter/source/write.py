"""Writing a file whole or not at all."""

from __future__ import annotations

import os
import tempfile


def replace_file(path: str, text: str) -> None:
    """Write a file whole or not at all, with its mode."""
    target = os.path.realpath(path)
    handle, name = tempfile.mkstemp(dir=os.path.dirname(target), prefix=".gpulint-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        os.chmod(name, os.stat(target).st_mode)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
