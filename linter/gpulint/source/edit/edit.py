"""Edits that change a key of a file and leave every other byte as it is.

Every edit is applied, re-read and compared with the intended tree before it is returned. What cannot keep that
promise (values behind aliases and merges, texts in a form not foreseen) raises EditError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..document import SourceError
from ..read import parse
from .edit_plan import Plan
from .edit_text import EditError, Piece, same, unshared
from .replacement import Edit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..document import Document

__all__ = ["EditError", "apply", "change", "remove_key", "rename_key", "set_key", "set_keys"]


def apply(text: str, edits: Iterable[Edit]) -> str:
    """The text after the edits. Raises EditError where they overlap or lie outside the text."""
    parts: list[str] = []
    at = 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        if not at <= edit.start <= edit.end <= len(text):
            raise EditError("the edits overlap")
        parts += (text[at : edit.start], edit.text)
        at = edit.end
    return "".join([*parts, text[at:]])


def set_key(document: Document, key: str, value: Any, after: str | None = None) -> list[Edit]:
    """Give a dotted key a value. See `change`."""
    return change(document, {key: value}, after=after)


def set_keys(document: Document, values: Mapping[str, Any], after: str | None = None) -> list[Edit]:
    """Give several dotted keys their values. See `change`."""
    return change(document, values, after=after)


def remove_key(document: Document, key: str) -> list[Edit]:
    """Take a dotted key out, with every duplicate of it. See `change`."""
    return change(document, remove=(key,))


def rename_key(document: Document, key: str, new: str) -> list[Edit]:
    """Give the last name of a dotted key another spelling: `rename_key(d, "a.b", "c")` makes `a.c`."""
    return change(document, rename={key: new})


def change(
    document: Document,
    values: Mapping[str, Any] | None = None,
    remove: Iterable[str] = (),
    rename: Mapping[str, str] | None = None,
    after: str | None = None,
) -> list[Edit]:
    """The edits that set, remove and rename dotted keys of a file's first tree, or a command's flags, all at once.

    Keys are found as `Node.find` finds them. A key that is not there is inserted with the parents it lacks:
    behind the sibling whose own name is `after`, or else behind the last sibling that holds a value. Values are
    str, int, float, bool, None, lists and dicts of them. A value that is there already needs no edit. Edits do not
    overlap and are in file order. Raises EditError.
    """
    if document.syntax in ("flags", "toml"):
        return _change_flat(document, values or {}, tuple(remove), rename or {})
    plan = Plan(document, after)
    for key in remove:
        plan.remove(key)
    for key, new in (rename or {}).items():
        plan.rename(key, new)
    for key, value in (values or {}).items():
        plan.set(key, _checked(value))
    edits = _joined(plan.pieces(), document.path)
    _verify(document, edits, plan.intended)
    return edits


def _change_flat(
    document: Document, values: Mapping[str, Any], remove: tuple[str, ...], rename: Mapping[str, str]
) -> list[Edit]:
    """Flags and TOML, where every value stands on its own: see their modules."""
    from . import flag_edit, toml_edit

    if document.syntax == "flags" and document.reread is None:
        raise EditError("the effect of the edit on the command is unknown")
    module = flag_edit if document.syntax == "flags" else toml_edit
    checked = {key: _checked(value) for key, value in values.items()}
    found, intended = module.pieces(document, checked, remove, rename)
    edits = _joined(found, document.path)
    _verify(document, edits, intended)
    return edits


def _checked(value: Any) -> Any:
    """The value with tuples as lists. Raises EditError for what YAML and JSON cannot say."""
    if isinstance(value, dict):
        if not all(isinstance(name, str) for name in value):
            raise EditError("keys must be strings")
        return {name: _checked(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_checked(item) for item in value]
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise EditError(f"a {type(value).__name__} cannot be written")


def _joined(pieces: list[Piece], path: str) -> list[Edit]:
    """Edits in file order; insertions at one place become one, and so do deletions that touch."""
    edits: list[Edit] = []
    for piece in sorted(pieces, key=lambda piece: (piece.start, piece.end, -piece.rank)):
        if piece.start == piece.end and not piece.text:
            continue
        last = edits[-1] if edits else None
        if last and last.end == piece.start == piece.end == last.start:
            edits[-1] = Edit(path, last.start, last.end, last.text + piece.text)
        elif last and piece.start <= last.end and not piece.text and not last.text:
            edits[-1] = Edit(path, last.start, max(last.end, piece.end), "")
        else:
            edits.append(Edit(path, piece.start, piece.end, piece.text))
    return edits


def _verify(document: Document, edits: list[Edit], intended: Any) -> None:
    text = apply(document.text, edits)
    try:
        read = document.reread(text) if document.reread is not None else parse(text, document.path, document.syntax)
    except (SourceError, RecursionError):
        raise EditError("the edited text would not be valid") from None
    if read is None or len(read.roots) != len(document.roots):
        raise EditError("the edited text would not parse as intended")
    others = zip(document.roots[1:], read.roots[1:], strict=False)
    if not same(unshared(read.root.plain()), intended) or not all(
        same(one.plain(), other.plain()) for one, other in others
    ):
        raise EditError("the edited text would not parse as intended")
