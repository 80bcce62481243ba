"""Untrusted text in HTML."""

from __future__ import annotations

from html import escape

from ..printable import printable


def text(value: str) -> str:
    """A text as HTML text or the value of an attribute."""
    return escape(printable(value))
