"""Where the cursor stands in a text that may not be readable as it is: someone is writing in it.

The way down to the cursor is found from the text around it: by indentation in YAML, by brackets in JSON, by the
section's header in TOML, by words in a command.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..formats.core.key_help import Step


class Spot(NamedTuple):
    """A place where something is being written.

    `steps` lead to the mapping around it; `key` is "" where a key is written, else the key whose value is. `start` to
    `end` is the word that is there already; `others` are the keys that the mapping has. `bare` is whether the word
    lacks the quotes that its syntax wants; `closed` whether what follows a key (`:`) is there.
    """

    steps: tuple[Step, ...]
    key: str
    start: int
    end: int
    others: frozenset[str]
    bare: bool = True
    closed: bool = False


def scan(text: str, offset: int, syntax: str) -> Spot | None:
    """The place of an offset; None where nothing can be completed (a comment, a text)."""
    if syntax == "yaml" and text.lstrip().startswith("{"):
        syntax = "json"
    scanner = {"yaml": _yaml, "json": _json, "toml": _toml, "shell": _shell}.get(syntax)
    return scanner(text, offset) if scanner is not None else None


_YAML_LINE = re.compile(
    r"""(?P<lead>[ ]*(?:-[ ]+)*)(?:(?P<key>[^\s#'"\[\]{},:-][^:#\n]*|"[^"\n]*"|'[^'\n]*'):(?=\s|$))?"""
)
_WORD_END = re.compile(r"[^\s#:]*")


class _YamlLine(NamedTuple):
    """A line of YAML: the columns of its dashes, and its key with the column of that."""

    dashes: tuple[int, ...]
    key: str
    column: int
    blank: bool

    @property
    def first(self) -> int:
        """The column at which it begins."""
        return self.dashes[0] if self.dashes else self.column


def _yaml_line(line: str) -> _YamlLine:
    match = _YAML_LINE.match(line)
    lead = match["lead"] if match else ""
    dashes = tuple(place for place, char in enumerate(lead) if char == "-")
    if line.rstrip() == "-" * len(line.rstrip()) and line.strip() == "-":  # a dash that nothing follows yet
        return _YamlLine((line.index("-"),), "", line.index("-") + 2, False)
    key = (match["key"] or "").strip().strip("'\"") if match else ""
    content = line[len(lead) :]
    return _YamlLine(dashes, key, len(lead), not content.strip() or content.startswith("#"))


def _yaml(text: str, offset: int) -> Spot | None:
    begin = text.rfind("\n", 0, offset) + 1
    before = text[begin:offset]
    if re.search(r"(^|\s)#", before):
        return None
    here = _yaml_line(text[begin : (text.find("\n", offset) + 1 or len(text) + 1) - 1])
    above = [_yaml_line(line) for line in text[:begin].splitlines()]
    below = [_yaml_line(line) for line in text[offset:].splitlines()[1:]]
    value = re.match(r"""([ ]*(?:-[ ]+)*)([^\s#:][^:#]*):[ ]+(["']?)([^\s"']*)$""", before)
    column = len(value[1]) if value else len(re.match(r"[ ]*(?:-[ ]+)*", before)[0])  # type: ignore[index]
    others = _siblings(above, here, below, column)
    steps = _way(above, here, column)
    if value:
        start = begin + value.start(4)
        end = start + len(re.match(r"""[^\s"'#]*""", text[start:])[0])  # type: ignore[index]
        return Spot(steps, value[2].strip().strip("'\""), start, end, others, not value[3])
    start = begin + column
    if re.search(r"[\s\"'\[\]{},:]", text[start:offset]):
        return None
    end = start + len(_WORD_END.match(text, start)[0])  # type: ignore[index]
    closed = bool(re.match(r"[ ]*:(\s|$)", text[end:]))
    return Spot(steps, "", start, end, others - {text[start:end]} if closed else others, True, closed)


def _way(above: list[_YamlLine], here: _YamlLine, column: int) -> tuple[Step, ...]:
    """The keys and list places above a column, outermost first; every list place counts as the first."""
    own = [dash for dash in here.dashes if dash < column]
    steps: list[Step] = [0] * len(own)
    dashes = min(own, default=column)
    keys = dashes + 1 if own else column
    for line in reversed(above):
        if line.blank and not line.dashes:
            continue
        if line.key and line.column < keys:
            steps.append(line.key)
            keys = dashes = line.column
        for dash in reversed(line.dashes):
            if dash < dashes:
                steps.append(0)
                dashes, keys = dash, dash + 1
        if line.first < dashes:
            keys = dashes = line.first
        if keys <= 0:
            break
    return tuple(reversed(steps))


def _siblings(above: list[_YamlLine], here: _YamlLine, below: list[_YamlLine], column: int) -> frozenset[str]:
    found = set()
    if not here.dashes:
        for line in reversed(above):
            if line.blank:
                continue
            if line.key and line.column == column:
                found.add(line.key)
            if line.first < column:
                break
    for line in below:
        if line.blank:
            continue
        if line.first < column or (line.dashes and line.first <= column):
            break
        if line.key and line.column == column:
            found.add(line.key)
    if here.key and here.column == column:
        found.add(here.key)
    return frozenset(found)


_JSON_TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"?|[{}\[\],:]|[^\s{}\[\],:"]+')


class _Frame:
    """An object or list that is open while JSON is scanned."""

    __slots__ = ("key", "keys", "step", "value")

    def __init__(self, step: Step | None, *, value: bool) -> None:
        self.step = step
        self.key = ""
        self.keys: set[str] = set()
        self.value = value


def _json(text: str, offset: int) -> Spot | None:
    stack: list[_Frame] = []
    spot: tuple[_Frame, tuple[Step, ...], str, int, int] | None = None
    for match in _JSON_TOKEN.finditer(text):
        piece, start, end = match[0], match.start(), match.end()
        if spot is None and (start >= offset or (end >= offset and piece not in "{}[],:")):
            written = start < offset
            spot = _json_spot(stack, start if written else offset, end if written else offset)
            if spot is None:
                return None
        _json_step(stack, piece)
        if spot is not None and spot[0] not in stack:
            break
    if spot is None:
        spot = _json_spot(stack, offset, offset)
    if spot is None:
        return None
    frame, steps, key, start, end = spot
    word = text[start:end]
    bare = not word.startswith('"')
    if not bare:
        start, end = start + 1, end - (len(word) > 1 and word.endswith('"'))
    closed = not key and text[end:].lstrip('" \t').startswith(":")
    return Spot(steps, key, start, end, frozenset(frame.keys - {text[start:end]}), bare, closed)


def _json_spot(stack: list[_Frame], start: int, end: int) -> tuple[_Frame, tuple[Step, ...], str, int, int] | None:
    if not stack or (stack[-1].value and not stack[-1].key):
        return None
    steps = tuple(frame.step for frame in stack[1:] if frame.step is not None)
    return stack[-1], steps, stack[-1].key if stack[-1].value else "", start, end


def _json_step(stack: list[_Frame], piece: str) -> None:
    """Follow one piece; a list's frame stays a value without a key."""
    top = stack[-1] if stack else None
    if piece in "{[":
        step: Step | None = None if top is None else (top.key or 0)
        stack.append(_Frame(step, value=piece == "["))
    elif piece in "}]":
        if stack:
            stack.pop()
    elif top is None:
        return
    elif piece == ":":
        top.value = True
    elif piece == ",":
        top.value = top.value and not top.key
        top.key = ""
    elif not top.value and piece.startswith('"'):
        top.key = piece.strip('"')
        top.keys.add(top.key)


_TOML_HEADER = re.compile(r"^\s*\[+\s*([\w.\-\" ]+?)\s*\]+\s*(?:#.*)?$")
_TOML_KEY = re.compile(r"^\s*([\w.\-]+)\s*=")


def _toml(text: str, offset: int) -> Spot | None:
    begin = text.rfind("\n", 0, offset) + 1
    before = text[begin:offset]
    rest = text[offset : (text.find("\n", offset) + 1 or len(text) + 1) - 1]
    if "#" in before or before.lstrip().startswith("["):
        return None
    steps: tuple[Step, ...] = ()
    others: set[str] = set()
    for line in reversed(text[:begin].splitlines()):
        header = _TOML_HEADER.match(line)
        if header:
            steps = tuple(part.strip().strip('"') for part in header[1].split("."))
            break
        others |= {match[1] for match in [_TOML_KEY.match(line)] if match}
    for line in text[offset:].splitlines()[1:]:
        if _TOML_HEADER.match(line):
            break
        others |= {match[1] for match in [_TOML_KEY.match(line)] if match}
    value = re.match(r"""\s*([\w.\-]+)\s*=\s*(["']?)([^\s"']*)$""", before)
    if value:
        end = offset + len(re.match(r"""[^\s"'#]*""", rest)[0])  # type: ignore[index]
        return Spot(steps, value[1], begin + value.start(3), end, frozenset(others), not value[2])
    word = re.match(r"\s*([\w\-]*)$", before)
    if not word:
        return None
    end = offset + len(re.match(r"[\w\-]*", rest)[0])  # type: ignore[index]
    return Spot(steps, "", begin + word.start(1), end, frozenset(others), True, bool(re.match(r"\s*=", text[end:])))


def _shell(text: str, offset: int) -> Spot | None:
    begin = text.rfind("\n", 0, offset) + 1
    before = text[begin:offset]
    if re.search(r"(^|\s)#", before):
        return None
    value = re.search(r"""(?:^|\s)--([A-Za-z][\w.\-]*)(?:=|[ ]+)(["']?)([^\s"'-][^\s"']*)?$""", before)
    if value:
        start = offset - len(value[3] or "")
        end = offset + len(re.match(r"""[^\s"'\\]*""", text[offset:])[0])  # type: ignore[index]
        return Spot((), value[1], start, end, frozenset(), bare=False)
    flag = re.search(r"""(?:^|[\s"'\[,])(--?[A-Za-z]?[\w.\-]*)$""", before)
    if not flag:
        return None
    end = offset + len(re.match(r"[\w.\-]*", text[offset:])[0])  # type: ignore[index]
    return Spot((), "", begin + flag.start(1), end, frozenset())
