"""PyYAML's events for a text, from libyaml where it reads as PyYAML's own scanner does.

The tools whose configs are read call `yaml.safe_load`, which is the scanner in Python. libyaml is ten times
faster and agrees with it, but for a few texts that `_DIFFERS` names; those go to the scanner in Python.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml
from yaml.parser import Parser
from yaml.reader import Reader, ReaderError
from yaml.scanner import Scanner

if TYPE_CHECKING:
    from collections.abc import Iterator

try:
    from yaml._yaml import CParser
except ImportError:
    CParser = None  # type: ignore[assignment,misc]

_DIFFERS = re.compile(
    "\t"  # a blank for libyaml, refused by PyYAML after `key:` and `-`
    "|\ufeff"  # refused by libyaml within the text
    r"|\?\s"  # `[a? b]`: a plain scalar for libyaml, refused by PyYAML
    r"|:[]},[{]"  # `{a:}`: refused by libyaml
    r"|[|>][-+0-9]*#"  # `|#`: a comment for libyaml, refused by PyYAML
    r"|(?:^|[\s\[{,])!"  # tags: which characters end one, and the type of `! 1`
    r"|\\(?:u|U0000)[dD][89a-fA-F]"  # escaped surrogates: refused by libyaml
)
"""Texts that may read differently. Found by comparing both on random texts (`tests/source/test_yaml_reader.py`)."""

_LARGE = 200_000
"""Characters above which libyaml reads a text all the same: the scanner in Python takes 10 s for 1 MiB."""

_UNREADABLE = re.compile("[^\t\n\r -~\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that YAML 1.1 does not allow in a file (section 5.1)."""

_PROPERTY = re.compile(r"[&!]\S*(?:\s+|(?<=\s)#[^\r\n]*)*")

_SURROGATE = re.compile("[\ud800-\udfff]")


class YamlError(Exception):
    """The text is not YAML. `offset` counts characters. The reason never quotes the text: it may hold a secret."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.offset = offset


class _PythonParser(Reader, Scanner, Parser):
    """PyYAML's reader, scanner and parser without its composer."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)


def events(text: str) -> Iterator[Any]:
    """The events of a text without byte order mark. Raises YamlError."""
    bad = _UNREADABLE.search(text)
    if bad:
        raise YamlError(f"character U+{ord(bad[0]):04X} is not allowed in YAML", bad.start())
    in_python = CParser is None or (len(text) <= _LARGE and _may_differ(text))
    parser: Any = None
    try:
        parser = _PythonParser(text) if in_python else CParser(text)
        event = parser.get_event()
        while event is not None:
            yield event
            event = parser.get_event()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        offset = mark.index if mark else 0
        reason = error.problem or "not valid YAML"
        if error.context:
            reason += f", {error.context}"
        if text[offset : offset + 1] == "\t":
            reason += " (a tab; YAML indents with spaces)"
        raise YamlError(reason, offset) from None
    except ReaderError as error:
        raise YamlError(f"not valid YAML: {error.reason}", 0) from None
    except (ValueError, OverflowError):  # PyYAML's scanner on an escape beyond U+10FFFF
        offset = parser.get_mark().index if isinstance(parser, _PythonParser) else 0
        raise YamlError("not valid YAML: an escape is not a character", offset) from None


def _may_differ(text: str) -> bool:
    """Whether libyaml may read a text otherwise than PyYAML's own scanner.

    Within a block scalar both take lines as they are, up to the first that is indented less; but for tabs and byte
    order marks what `_DIFFERS` names is harmless there.
    """
    found = [*_DIFFERS.finditer(text)]
    if not found or any(text[match.start()] in "\t\ufeff|>" for match in found):
        return bool(found)
    blocks: list[tuple[int, int]] = []
    parser = CParser(text)
    try:
        event = parser.get_event()
        while event is not None:
            if isinstance(event, yaml.ScalarEvent) and event.style in ("|", ">") and not (event.tag or event.anchor):
                blocks.append((event.start_mark.index, event.end_mark.index))  # type: ignore[union-attr]
            event = parser.get_event()
    except (yaml.YAMLError, ValueError, OverflowError):
        return True
    return not all(any(begin < match.start() < end for begin, end in blocks) for match in found)


def after_properties(text: str, start: int, end: int, count: int) -> int:
    """Where a node's content starts, given where its `count` properties (anchor, tag) do."""
    for _ in range(count):
        match = _PROPERTY.match(text, start, end)
        start = match.end() if match else start
    return start


def without_surrogates(text: str) -> str:
    """The text with surrogate pairs joined and lone surrogates replaced: they cannot be printed or hashed."""
    if not _SURROGATE.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
