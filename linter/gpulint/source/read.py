"""Reads a file into a Document. Nothing but SourceError leaves this module."""

from __future__ import annotations

import os
import re
import stat

from .document import Document, SourceError
from .limits import MAX_BYTES
from .overlay import text_of
from .places import Places

_SHELL = re.compile(rb"#![^\n]*\b(?:ba|da|z)?sh\b")

_HOSTS = re.compile(rb"^\S+[ \t]+slots=\d+", re.MULTILINE)
"""A line of a hostfile of MPI and DeepSpeed."""

SUFFIXES = {
    ".yaml": "yaml", ".yml": "yaml", ".json": "json", ".toml": "toml",
    ".sh": "shell", ".bash": "shell", ".slurm": "shell", ".sbatch": "shell", ".py": "python",
    ".dockerfile": "dockerfile",
}  # fmt: skip
"""The syntax of a file by its suffix."""


class UnknownKindError(SourceError):
    """A file whose name and first line do not say what it is."""


_DOCKERFILE = re.compile(r"(?:Docker|Container)file(?:[._-][\w.-]+)?", re.IGNORECASE)


def syntax_of(path: str) -> str | None:
    """The syntax of a file by its name; None where that does not say."""
    by_suffix = SUFFIXES.get(os.path.splitext(path)[1].lower())
    return by_suffix or ("dockerfile" if _DOCKERFILE.fullmatch(os.path.basename(path)) else None)


def is_shell_script(path: str) -> bool:
    """Whether the first line of a file names a shell."""
    try:
        with open(path, "rb") as file:
            return _SHELL.match(file.readline(MAX_LINE)) is not None
    except OSError:
        return False


MAX_LINE = 256
"""Bytes of a first line: Linux reads no more of an interpreter's name (BINPRM_BUF_SIZE)."""


def read(path: str, *, referenced: bool = False) -> Document:
    """Read a regular file of UTF-8 text with a known suffix or a shell's `#!`. Raises SourceError with one reason.

    A `referenced` file may have any suffix where it is JSON, or a hostfile: those who load it
    (DeepSpeed's config.py, runner.py) do not look.
    """
    syntax = syntax_of(path)
    text = text_of(path)
    if text is not None and syntax is not None:
        return parse(text, path, syntax)
    data = _content(path) if text is None else text.encode("utf-8")
    if syntax is None and data.startswith(b"#!") and _SHELL.match(data):
        syntax = "shell"
    if syntax is None and referenced and data.lstrip()[:1] == b"{":
        syntax = "json"
    if syntax is None and referenced and _HOSTS.search(data):
        syntax = "shell"
    if syntax is None:
        raise UnknownKindError(path, "unknown file type: the name must end in " + ", ".join(SUFFIXES))
    return parse(_decode(data, path), path, syntax)


def parse(text: str, path: str, syntax: str) -> Document:
    """Read text that is already in memory. `syntax` is one of SUFFIXES. Raises SourceError."""
    if len(text) > MAX_BYTES:
        raise SourceError(path, f"larger than {MAX_BYTES >> 20} MiB")
    if syntax == "yaml":
        from .yaml.reader import read_yaml

        return read_yaml(text, path)
    if syntax == "json":
        from .json_reader import read_json

        return read_json(text, path)
    if syntax == "toml":
        from .toml_reader import read_toml

        return read_toml(text, path)
    if syntax in ("shell", "python", "dockerfile"):
        from .script_reader import read_script

        return read_script(text, path, syntax)
    raise SourceError(path, f"unknown syntax {syntax}: known syntaxes are yaml, json, toml, shell, python, dockerfile")


def _content(path: str) -> bytes:
    """The bytes of a regular file. Opening a FIFO or a device could block or act, so the kind comes first."""
    try:
        _refuse_special(path, os.stat(path))
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        with open(os.open(path, flags), "rb") as file:
            _refuse_special(path, os.fstat(file.fileno()))
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise SourceError(path, "no such file") from None
    except PermissionError:
        raise SourceError(path, "permission denied") from None
    except OSError as error:
        raise SourceError(path, f"cannot be read: {(error.strerror or 'input/output error').lower()}") from None
    except ValueError:
        raise SourceError(path, "not a valid file name") from None
    if len(data) > MAX_BYTES:
        raise SourceError(path, f"larger than {MAX_BYTES >> 20} MiB")
    return data


def _refuse_special(path: str, status: os.stat_result) -> None:
    mode = status.st_mode
    if stat.S_ISREG(mode):
        if status.st_size > MAX_BYTES:
            raise SourceError(path, f"larger than {MAX_BYTES >> 20} MiB")
        return
    kinds = (
        (stat.S_ISDIR, "a directory"),
        (stat.S_ISFIFO, "a FIFO"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    )
    kind = next((name for test, name in kinds if test(mode)), "something else")
    raise SourceError(path, f"not a regular file but {kind}")


def _decode(data: bytes, path: str) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise SourceError(path, "not UTF-8: starts with a UTF-16 byte order mark", 1, 1)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        line, column = Places(before).at(len(before))
        reason = f"not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}"
        raise SourceError(path, reason, line, column) from None
