"""Unknown keys of a flat file whose keys stand with dashes or underscores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .keys import load
from .typos import nearest, unknown_key

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from ...source.document import Document
    from .format import Problem


def unknown_flat_keys(
    document: Document,
    name: str,
    upstream: str,
    passes: Callable[[str, str, Collection[str]], bool],
    *,
    treatment: str = "refused",
) -> Iterator[Problem]:
    """A problem for each key that the schema `name` lacks, with the closest one in the file's own spelling.

    `passes` says which keys go through all the same: it is given the key with underscores, the closest known one (""
    for none) and all that are known.
    """
    known = load(name)["properties"]
    for entry in document.root.entries():
        written = str(entry.key.value)
        key = written.replace("-", "_")
        if key in known:
            continue
        close = nearest(key, known)
        if passes(key, close, known):
            continue
        spelled = close.replace("_", "-") if "-" in written else close
        yield unknown_key(entry, written, spelled, treatment, upstream)
