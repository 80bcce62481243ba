"""Prime Intellect's hosted training: TOML with a model and `[[env]]` tables of verifiers environments.

Such a config (docs.primeintellect.ai/hosted-training) names no GPUs and no precision: the service, which runs prime-rl,
chooses both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .format import Format, NoJobError

if TYPE_CHECKING:
    from ..finding import Edit
    from ..source.document import Document
    from .format import Project, Reading

NAME = "prime_rl"
UPSTREAM = "prime-rl 0.8.0"


def recognise(document: Document) -> bool:
    """A TOML file with a model, tables of environments and a key of the rollouts."""
    root = document.root
    if document.syntax != "toml":
        return False
    keys = set(root.keys())
    return {"model", "env"} <= keys and not {"rollouts_per_example", "sampling", "batch_size"}.isdisjoint(keys)


def read(document: Document, project: Project) -> Reading:  # noqa: ARG001
    """Raises NoJobError: nothing in such a file says what runs where."""
    raise NoJobError(document.path, "hosted training: Prime Intellect chooses the GPUs")


def describe(reading: Reading, changes: dict[str, Any]) -> str | None:  # noqa: ARG001
    """Nothing: there is no Job."""
    return None


def edits(reading: Reading, changes: dict[str, Any]) -> list[Edit] | None:  # noqa: ARG001
    """Nothing: there is no Job."""
    return None


FORMAT = Format(
    NAME, "Prime Intellect hosted training", UPSTREAM, recognise, read, describe, edits, "not in the file: hosted"
)
