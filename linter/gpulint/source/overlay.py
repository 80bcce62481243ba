"""Texts that stand in for what files hold: edits that are tried before they are written."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_texts: dict[str, str] = {}


@contextmanager
def instead(texts: Mapping[str, str]) -> Iterator[None]:
    """While it lasts, `read` takes these texts for the files with these real paths. Not for use by several threads."""
    before = dict(_texts)
    _texts.update(texts)
    try:
        yield
    finally:
        _texts.clear()
        _texts.update(before)


def text_of(path: str) -> str | None:
    """The text that stands in for a file, None where it counts as it is on disk."""
    return _texts.get(os.path.realpath(path)) if _texts else None
