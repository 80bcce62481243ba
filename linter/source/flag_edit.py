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

from .edit_text import EditError, Piece

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .document import Document
    from .node import Entry, Node, Span

_ITEM = re.compile(r"(?:^|\n)([ \t]*)-[ \t]+(['\"]?)-*\Z")
_FLOW = re.compile(r"[\[,]\s*(['\"]?)-*\Z")
_OWN_LINE = re.compile(r"(?:^|\n)([ \t]*)-*\Z")


def pieces(
    document: Document, values: Mapping[str, Any], remove: tuple[str, ...]
) -> tuple[list[Piece], dict[str, Any]]:
    """The replacements of text that set and remove flags, and the plain values that should result.

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
    raise EditError("no flag can hold this value")


def _is_switch(entry: Entry) -> bool:
    """Whether the flag has no value of its own: its value then stands where the flag does."""
    return entry.value.span.start < entry.key.span.start <= entry.key.span.end <= entry.value.span.end


def _replacement(document: Document, entry: Entry, value: Any) -> list[Piece]:
    if entry.key.path != document.path:
        raise EditError("the flag stands in another file")
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


def _removal(document: Document, entry: Entry) -> Piece:
    if entry.key.path != document.path or not _is_switch(entry):
        raise EditError("only a switch is removed")
    start, end = entry.value.span.start, entry.value.span.end
    item = _ITEM.search(document.text[:start])
    if item is not None:
        line_end = document.text.find("\n", end)
        begin = item.start() + (1 if document.text[item.start() : item.start() + 1] == "\n" else 0)
        return Piece(begin, line_end + 1 if line_end >= 0 else len(document.text), "")
    while start and document.text[start - 1] in " \t":
        start -= 1
    return Piece(start, end, "")


def _insertion(document: Document, key: str, value: Any) -> list[Piece]:
    entries = [entry for entry in _leaves(document.root) if entry.key.path == document.path]
    if not entries:
        raise EditError("there is no flag to stand behind")
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
            return [Piece(end, end, "".join(f"\n{item[1]}- {word}" for word in shown))]
        return [Piece(end, end, "".join(f", {word}" for word in shown))]
    words = [f"{flag}={shlex.quote(texts[0])}"] if equals and len(texts) == 1 else [flag, *map(shlex.quote, texts)]
    own = _OWN_LINE.search(before)
    gap = f" \\\n{own[1]}" if own is not None and document.text[:end].count("\n") else " "
    if document.text[end : end + 1] in ("'", '"'):
        end += 1
    return [Piece(end, end, gap + " ".join(words))]


def _override(document: Document, start: int, end: int, word: str) -> Piece:
    """Another `key=value` behind the last one."""
    if shlex.quote(word) != word:
        raise EditError("the value would need quotes")
    own = _OWN_LINE.search(document.text[:start])
    gap = f" \\\n{own[1]}" if own is not None and document.text[:end].count("\n") else " "
    if document.text[end : end + 1] in ("'", '"'):
        end += 1
    return Piece(end, end, gap + word)


def _plain(word: str) -> str:
    """A list item of YAML that is read as a string."""
    text = word if re.fullmatch(r"-{0,2}[A-Za-z_][\w./=-]*", word) else json.dumps(word)
    return text if not re.fullmatch(r"(?i)true|false|yes|no|on|off|null", text) else json.dumps(word)
