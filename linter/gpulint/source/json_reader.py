"""JSON text to a tree, as Python's `json.loads` reads it: NaN and Infinity pass, the last of equal keys counts.

Two readings differ on purpose: a byte order mark is skipped, and an integer of more than 20 digits stays its
text. Lone surrogates (`"\\ud800"`) become U+FFFD.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .document import Document, Duplicate, SourceError, duplicates
from .limits import MAX_DEPTH, MAX_INTEGER_DIGITS, MAX_NODES
from .node import Entry, Node
from .places import BOM, Places

if TYPE_CHECKING:
    from .node import Scalar, Span

_BLANKS = re.compile(r"[ \t\n\r]*")
_STRING = re.compile(r'"[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*"')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?P<fraction>\.[0-9]+)?(?P<exponent>[eE][-+]?[0-9]+)?")
_WORD = re.compile(r"true|false|null|NaN|Infinity|-Infinity")
_WORDS: dict[str, Scalar] = {
    "true": True,
    "false": False,
    "null": None,
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "-Infinity": float("-inf"),
}
_ESCAPE = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|\\u([0-9a-fA-F]{4})|\\(.)")
_KNOWN_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_SURROGATE = re.compile("[\ud800-\udfff]")


def read_json(text: str, path: str) -> Document:
    """Read one JSON value. Raises SourceError with line and column of the first mistake."""
    reader = _Reader(text, path)
    root = reader.run()
    reader.duplicates.sort(key=lambda duplicate: duplicate.lost.start)
    return Document(path, "json", text, [root], [], reader.duplicates)


class _Open:
    """A collection whose end has not been read, and the key that waits for its value."""

    __slots__ = ("closing", "key", "node", "start")

    def __init__(self, kind: str, span: Span) -> None:
        self.node = Node(kind, [], span)
        self.start = span.start
        self.closing = "}" if kind == "mapping" else "]"
        self.key: Node | None = None


class _Reader:
    __slots__ = ("at", "count", "duplicates", "path", "places", "stack", "text")

    def __init__(self, text: str, path: str) -> None:
        self.text = text
        self.path = path
        self.places = Places(text)
        self.at = 1 if text.startswith(BOM) else 0
        self.count = 0
        self.duplicates: list[Duplicate] = []
        self.stack: list[_Open] = []

    def run(self) -> Node:
        node = self.begin()
        while self.stack:
            top = self.stack[-1]
            if node is not None:
                top.node.value.append(Entry(top.key, node) if top.key else node)
                if not self.more(top.closing):
                    node = self.close(self.stack.pop())
                    continue
            if top.node.kind == "mapping":
                top.key = self.key()
            node = self.begin()
        assert node is not None
        if self.skip():
            raise self.error("text after the end of the value")
        return node

    def error(self, reason: str, at: int | None = None) -> SourceError:
        offset = self.at if at is None else at
        if self.text.startswith(("//", "/*", "#"), offset):
            reason = "JSON has no comments"
        return SourceError(self.path, reason, *self.places.at(offset))

    def skip(self) -> str:
        """Move past blanks; the character there, empty at the end."""
        match = _BLANKS.match(self.text, self.at)
        if match:
            self.at = match.end()
        return self.text[self.at : self.at + 1]

    def begin(self) -> Node | None:
        """A scalar or an empty collection; None where a collection with content was put on the stack."""
        self.count += 1
        if self.count > MAX_NODES:
            raise self.error(f"more than {MAX_NODES} keys and values")
        char = self.skip()
        if char not in ("{", "["):
            return self.scalar(char)
        if len(self.stack) >= MAX_DEPTH:
            raise self.error(f"nested deeper than {MAX_DEPTH} levels")
        opened = _Open("mapping" if char == "{" else "sequence", self.places.span(self.at, self.at))
        self.at += 1
        if self.skip() == opened.closing:
            self.at += 1
            return self.close(opened)
        self.stack.append(opened)
        return None

    def more(self, closing: str) -> bool:
        """Whether another item follows; moves past the comma or the closing bracket."""
        char = self.skip()
        if char not in (",", closing) or not char:
            raise self.error(f"expected ',' or '{closing}'")
        comma = self.at
        self.at += 1
        if char == closing:
            return False
        if self.skip() == closing:
            raise self.error(f"a comma before '{closing}'", comma)
        return True

    def close(self, opened: _Open) -> Node:
        node = opened.node
        node.span = self.places.span(opened.start, self.at)
        if node.kind == "mapping":
            self.duplicates += duplicates(node)
        return node

    def key(self) -> Node:
        if self.skip() != '"':
            raise self.error("expected a key in double quotes")
        self.count += 1
        node = self.string()
        if self.skip() != ":":
            raise self.error("expected ':' after the key")
        self.at += 1
        return node

    def scalar(self, char: str) -> Node:
        if char == '"':
            return self.string()
        start = self.at
        if word := _WORD.match(self.text, start):
            self.at = word.end()
            return self.leaf(_WORDS[word[0]], start)
        if number := _NUMBER.match(self.text, start):
            self.at = number.end()
            return self.leaf(_number(number), start)
        raise self.error("expected a value" if char else "the file ends where a value is expected")

    def string(self) -> Node:
        start = self.at
        match = _STRING.match(self.text, start)
        if match is None:
            raise self.string_error(start)
        self.at = match.end()
        return self.leaf(_unescape(match[0][1:-1]), start)

    def leaf(self, value: Scalar, start: int) -> Node:
        return Node("scalar", value, self.places.span(start, self.at), self.text[start : self.at])

    def string_error(self, start: int) -> SourceError:
        at = start + 1
        while at < len(self.text):
            char = self.text[at]
            if char == "\\":
                if not _KNOWN_ESCAPE.match(self.text, at):
                    return self.error("an unknown escape in a string", at)
                at += 1
            elif char < " ":
                return self.error("a string must end on its line and have no control characters", at)
            at += 1
        return self.error("a string without its closing quote", start)


def _number(match: re.Match[str]) -> int | float | str:
    if match["fraction"] or match["exponent"]:
        return float(match[0])
    return int(match[0]) if len(match[0].lstrip("-")) <= MAX_INTEGER_DIGITS else match[0]


def _unescape(text: str) -> str:
    if "\\" in text:
        text = _ESCAPE.sub(_escaped, text)
    return _SURROGATE.sub("\ufffd", text) if _SURROGATE.search(text) else text


def _escaped(match: re.Match[str]) -> str:
    high, low, single, short = match.groups()
    if high:
        return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00)
    return chr(int(single, 16)) if single else _ESCAPES.get(short, short)
