"""Edits of the flags of a command, in the form of the flags around them.

Flags stand as words of a shell line, or as items of a list in a manifest (`- --max-model-len=8192`, `["--tp", "4"]`).
New ones go behind the last, one a line where the last has a line of its own. What the edit makes of the file is not
known here: the caller reads the file again and compares.
"""

from __future__ import annotations

import copy
import json
import re
import shlex
from typing import TYPE_CHECKING, Any

from .edit_text import EditError, Piece, line_break, line_end, line_start

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..document import Document
    from ..node import Entry, Node, Span

_ITEM = re.compile(r"(?:^|\n)([ \t]*)-[ \t]+(['\"]?)-*\Z")
_FLOW = re.compile(r"[\[,]\s*(['\"]?)-*\Z")
_ITEM_HEAD = re.compile(r"(?:^|\n)[ \t]*-[ \t]+\Z")
_FLOW_HEAD = re.compile(r"[\[,]\s*\Z")
_COMMA = re.compile(r"\s*,\s*")
_LINE_REST = re.compile(r"[ \t]*(?:#[^\r\n]*)?(?:\r?\n|\Z)")
_CONTINUED = re.compile(r"[ \t]*\\\r?\n")
_CONTINUATION = re.compile(r"[ \t]*\\\r?\n\Z")
_OWN_LINE = re.compile(r"(?:^|\n)([ \t]*)-*\Z")


def pieces(
    document: Document, values: Mapping[str, Any], remove: tuple[str, ...], rename: Mapping[str, str] | None = None
) -> tuple[list[Piece], dict[str, Any]]:
    """The replacements of text that set, remove and rename flags, and the plain values that should result.

    Dotted keys lead into mappings where the command's flags do. Raises EditError for values that no flag can hold.
    """
    found: list[Piece] = []
    intended = copy.deepcopy(document.root.plain())
    nested = any(entry.value.is_mapping for entry in document.root.entries())
    for key in remove:
        entries = [entry for entry in document.root.entries() if entry.key.value == key]
        if not entries:
            raise EditError(f"there is no flag {key}")
        found += [_removal(document, entry) for entry in entries]
        intended.pop(key, None)
    for key, new in (rename or {}).items():
        entries = [entry for entry in document.root.entries() if entry.key.value == key]
        if not entries:
            raise EditError(f"there is no flag {key}")
        name = _styled(document, key, new)
        if document.root.entry(name) is not None:
            raise EditError(f"there is already a flag {name}")
        found += [_renaming(document, entry, name) for entry in entries]
        intended[name] = intended.pop(key)
    for key, value in values.items():
        entry = document.root.find(key) if nested else document.root.entry(key)
        if entry is not None and entry.value.is_mapping:
            raise EditError("a flag that leads into others has no value")
        if entry is not None and entry.value.plain() == value and type(entry.value.plain()) is type(value):
            continue
        _set(intended, key, value, nested=nested)
        found += _replacement(document, entry, value) if entry is not None else _insertion(document, key, value)
    return found, intended


def _set(plain: dict[str, Any], key: str, value: Any, *, nested: bool) -> None:
    while nested and "." in key and key not in plain:
        head, _, key = key.partition(".")
        plain = plain.setdefault(head, {})
        if not isinstance(plain, dict):
            raise EditError("a flag with a value leads nowhere")
    plain[key] = value


def _leaves(node: Node) -> list[Entry]:
    """The flags that hold a value, those inside mappings included."""
    found: list[Entry] = []
    for entry in node.entries():
        found += _leaves(entry.value) if entry.value.is_mapping else [entry]
    return found


def _texts(value: Any) -> list[str]:
    """The words of a value."""
    if isinstance(value, bool):
        return ["true" if value else "false"]
    if isinstance(value, (int, float, str)):
        return [str(value)]
    if isinstance(value, list) and value and all(isinstance(item, (int, float, str)) for item in value):
        return [str(item) for item in value]
    if isinstance(value, dict):
        return [json.dumps(value)]
    raise EditError("a flag cannot have this value")


def _is_switch(entry: Entry) -> bool:
    """Whether the flag has no value of its own: its value then stands where the flag does."""
    return entry.value.span.start < entry.key.span.start <= entry.key.span.end <= entry.value.span.end


def _replacement(document: Document, entry: Entry, value: Any) -> list[Piece]:
    if entry.key.path != document.path:
        raise EditError("the flag is in another file")
    if _is_switch(entry):
        if value is False:
            return [_removal(document, entry)]
        raise EditError("a switch takes no value")
    if entry.value.is_sequence:
        raise EditError("a list of flags is not edited")
    (text, *more) = _texts(value)
    if more:
        raise EditError("one value cannot become several")
    span = entry.value.span
    return [Piece(span.start, span.end, _quoted(document, span, text))]


def _quoted(document: Document, span: Span, text: str) -> str:
    """The text as it may stand where a value stands: as it is within quotes that are there already."""
    before, after = document.text[span.start - 1 : span.start], document.text[span.end : span.end + 1]
    if before in ("'", '"') and before == after:
        if before in text or "\\" in text or "$" in text:
            raise EditError("the value does not go between these quotes")
        return text
    if shlex.quote(text) != text:
        raise EditError("the value would need quotes")
    return text


def _styled(document: Document, old: str, new: str) -> str:
    """A flag's name with dashes or underscores, as the one it replaces has them, or else most of its neighbours."""
    names = [old] if {"-", "_"} & set(old) else list(document.root.keys())
    dashes, underscores = (sum(mark in name for name in names) for mark in "-_")
    if dashes == underscores:
        return new
    return new.replace("_", "-") if dashes > underscores else new.replace("-", "_")


def _renaming(document: Document, entry: Entry, new: str) -> Piece:
    span = entry.key.span
    if entry.key.path != document.path or document.text[span.start : span.end] != entry.key.value:
        raise EditError("the flag is not written in full here")
    return Piece(span.start, span.end, new)


def _removal(document: Document, entry: Entry) -> Piece:
    """The words of a flag with their list items, or with the line that they have to themselves."""
    text = document.text
    start, end = _extent(document, entry)
    if _ITEM_HEAD.search(text[:start]):
        rest = _LINE_REST.match(text, end)
        if rest is None:
            raise EditError("the flag shares its line")
        return Piece(line_start(text, start), rest.end(), "")
    opening = _FLOW_HEAD.search(text[:start])
    if opening is not None:
        following = _COMMA.match(text, end)
        if following is not None:
            return Piece(start, following.end(), "")
        return Piece(opening.start() + (opening[0][0] == "["), end, "")
    return _line_removal(text, start, end)


def _line_removal(text: str, start: int, end: int) -> Piece:
    """Words of a shell line: with the blanks before them, or with their line of a continued command."""
    begin = line_start(text, start)
    if not text[begin:start].strip(" \t"):
        continued = _CONTINUED.match(text, end)
        if continued is not None:
            return Piece(begin, continued.end(), "")
        before = _CONTINUATION.search(text[:begin])
        if before is not None and not text[end : line_end(text, end)].strip(" \t"):
            return Piece(before.start(), line_end(text, end), "")
    while start and text[start - 1] in " \t":
        start -= 1
    return Piece(start, end, "")


def _extent(document: Document, entry: Entry) -> tuple[int, int]:
    """From the first word of a flag to its last value."""
    text = document.text
    if entry.key.path != document.path:
        raise EditError("the flag is in another file")
    start, end = _word(text, entry.key.span.start, entry.key.span.end)
    if not _is_switch(entry):
        for part in entry.value.items() or [entry.value]:
            if part.span.start < start:
                raise EditError("the value is elsewhere")
            end = max(end, _word(text, part.span.start, part.span.end)[1])
    return start, end


def _word(text: str, start: int, end: int) -> tuple[int, int]:
    """Where the word around some characters starts and ends, dashes and quotes included."""
    while start and text[start - 1] == "-":
        start -= 1
    quote = text[start - 1 : start]
    if quote in ("'", '"') and text[end : end + 1] == quote:
        return start - 1, end + 1
    if text[end : end + 1] in ("'", '"') and text[start:end].count(text[end]) % 2:
        return start, end + 1
    return (start - 1 if quote in ("'", '"') else start), end


def _insertion(document: Document, key: str, value: Any) -> list[Piece]:
    entries = [entry for entry in _leaves(document.root) if entry.key.path == document.path]
    if not entries:
        raise EditError("there is no flag to add it after")
    last = max(entries, key=lambda entry: max(entry.key.span.end, entry.value.span.end))
    end = max(last.key.span.end, last.value.span.end)
    flag = f"--{key}"
    texts = [] if value is True else _texts(value)
    start = last.key.span.start
    while start and document.text[start - 1] not in " \t\n'\"[,=":
        start -= 1
    if document.text[start : start + 1] == "-":
        start = last.key.span.start - len(re.search(r"[\w.]*\Z", document.text[start : last.key.span.start])[0])  # type: ignore[index]
    elif document.text[last.key.span.end : last.key.span.end + 1] == "=" and "." in key:
        return [_override(document, start, end, f"{key}={_texts(value)[0]}")]
    before = document.text[:start]
    newline = line_break(document.text, start)
    item, flow = _ITEM.search(before), _FLOW.search(before)
    equals = document.text[last.key.span.end : last.key.span.end + 1] == "="
    if item is not None or flow is not None:
        quote = (item[2] if item is not None else flow[1]) if (item or flow) else ""  # type: ignore[index]
        words = [f"{flag}={texts[0]}"] if equals and len(texts) == 1 else [flag, *texts]
        mark = quote or ('"' if flow is not None and item is None else "")
        if document.text[end : end + 1] in ("'", '"'):
            end += 1
        shown = [f"{mark}{word}{mark}" if mark else _plain(word) for word in words]
        if item is not None:
            return [Piece(end, end, "".join(f"{newline}{item[1]}- {word}" for word in shown))]
        return [Piece(end, end, "".join(f", {word}" for word in shown))]
    words = [f"{flag}={shlex.quote(texts[0])}"] if equals and len(texts) == 1 else [flag, *map(shlex.quote, texts)]
    own = _OWN_LINE.search(before)
    gap = f" \\{newline}{own[1]}" if own is not None and document.text[:end].count("\n") else " "
    if document.text[end : end + 1] in ("'", '"'):
        end += 1
    return [Piece(end, end, gap + " ".join(words))]


def _override(document: Document, start: int, end: int, word: str) -> Piece:
    """Another `key=value` behind the last one."""
    if shlex.quote(word) != word:
        raise EditError("the value would need quotes")
    own = _OWN_LINE.search(document.text[:start])
    newline = line_break(document.text, start)
    gap = f" \\{newline}{own[1]}" if own is not None and document.text[:end].count("\n") else " "
    if document.text[end : end + 1] in ("'", '"'):
        end += 1
    return Piece(end, end, gap + word)


def _plain(word: str) -> str:
    """A list item of YAML that is read as a string."""
    text = word if re.fullmatch(r"-{0,2}[A-Za-z_][\w./=-]*", word) else json.dumps(word)
    return text if not re.fullmatch(r"(?i)true|false|yes|no|on|off|null", text) else json.dumps(word)
