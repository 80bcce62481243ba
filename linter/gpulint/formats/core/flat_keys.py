"""Unknown keys of a flat file whose keys stand with dashes or underscores, by the release that reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .keys import load
from .releases import of_stated, standing_of
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
    """A problem for each key that the schema `name` lacks, with the closest one in the file's own spelling, and for
    each that the stated release does not take.

    `passes` says which keys go through all the same: it is given the key with underscores, the closest known one (""
    for none) and all that are known.
    """
    known = load(name)["properties"]
    for entry in document.root.entries():
        written = str(entry.key.value)
        key = written.replace("-", "_")
        found = standing_of(name, key, known.get(key))
        if found is not None and not found.taken and found.release:
            problem = unknown_key(entry, written, "", treatment, upstream)
            yield problem._replace(values={**problem.values, "slip": "no", **of_stated(found, upstream)})
        if key in known or found is not None:
            continue
        close = nearest(key, known)
        if passes(key, close, known):
            continue
        spelled = close.replace("_", "-") if "-" in written else close
        yield unknown_key(entry, written, spelled, treatment, upstream)
