"""The config formats by name, and which one a document is of.

A format is a module with a `FORMAT`, a schema and one row of `claims.TOOLS`. No format is imported to tell that a
document is of none.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from .claims import TOOLS
from .others import OTHERS
from .signs import top_names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...source.document import Document
    from .format import Format
    from .signs import Claim

FORMAT_NAMES: tuple[str, ...] = tuple(TOOLS)


def find(name: str) -> Format:
    """The format of that name. Raises KeyError for a name that is not in `FORMAT_NAMES`."""
    format_: Format = import_module(f"..{TOOLS[name].module}", __package__).FORMAT
    return format_


def recognise(document: Document) -> Format | None:
    """The format that `document` is of, judged by its first root; None for a file of no known format.

    It is that of the claim that weighs most (`weights`).
    """
    found = weights(document)
    name = max(found, key=lambda tool: found[tool], default="")
    return find(name) if name in TOOLS else None


def is_of(document: Document, name: str) -> bool:
    """Whether a document has the signs of a format, whatever others it has."""
    return name in weights(document)


def weights(document: Document) -> dict[str, int]:
    """What the weightiest claim of each tool weighs that has one to a document."""
    if not document.roots or not document.root.is_mapping:
        return {}
    names = top_names(document.root)

    def most(tool: str, claims: Iterable[Claim]) -> int:
        return max((claim.weight(document, names, tool) for claim in claims), default=0)

    tools = {tool: most(tool, row.claims) for tool, row in TOOLS.items()}
    others = {tool: most(tool, claims) for tool, claims in OTHERS.items()}
    return {tool: weight for tool, weight in {**tools, **others}.items() if weight}
