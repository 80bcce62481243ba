"""Options: what recipes and advice come to for one job, before anything is estimated."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..facts import job_facts, memory_facts  # noqa: F401  (conditions name their facts)
from ..message import filled
from .change import plain_text, resolved

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from ..facts.facts import Facts
    from ..rule import Advice


class Option(NamedTuple):
    """Job changes to try.

    rank      how much of the run they change;  words  say them where the format cannot;  costs  what they cost
    families  of the parts;  excludes  families that do not go with them;  parts  how many recipes they are made of
    own       whether a rule itself suggests it, and no recipe
    """

    changes: dict[str, Any]
    fix: str
    rank: int
    words: str = ""
    costs: tuple[str, ...] = ()
    families: frozenset[str] = frozenset()
    excludes: frozenset[str] = frozenset()
    parts: int = 1
    own: bool = False

    @property
    def key(self) -> tuple[tuple[str, str], ...]:
        """The changes as something that compares and hashes."""
        return tuple(sorted((path, str(value)) for path, value in self.changes.items()))

    @property
    def cost(self) -> str:
        """The costs in one line."""
        return "; ".join(dict.fromkeys(self.costs))

    def clashes(self, other: Option) -> bool:
        """Whether two options set the same field, are of one family, or exclude one another."""
        if self.changes.keys() & other.changes.keys() or self.families & other.families:
            return True
        return bool(self.families & other.excludes or other.families & self.excludes)


class Ladder(NamedTuple):
    """The options of one recipe from the weakest factor to the strongest; `room` options are tried from the end."""

    name: str
    advice: Advice
    options: tuple[Option, ...]

    @property
    def moves_ranks(self) -> bool:
        """Whether an option changes how many GPUs the job needs or has."""
        return any(path in _RANKS for option in self.options for path in option.changes)


_RANKS = frozenset(
    ("hardware.gpus", *(f"parallelism.{degree}" for degree in ("tensor", "pipeline", "context", "data")))
)


def ladder(name: str, advice: Advice, facts: Facts) -> Ladder:
    """The ladder of a recipe; without options where it does not apply to the job."""
    return Ladder(name, advice, tuple(option._replace(own=not name) for option in _options(advice, facts)))


def _options(advice: Advice, facts: Facts) -> Iterator[Option]:
    if advice.kind and advice.kind != facts.job.kind:
        return
    for factor in advice.factors or (None,):
        changes = resolved(advice, facts, factor)
        if not changes or all(facts.job.get(path) == value for path, value in changes.items()):
            continue
        yield Option(
            changes,
            advice.fix,
            advice.rank,
            (filled(advice.text, facts) if advice.text else None) or "",
            (advice.cost,) if advice.cost and advice.cost != "none" else (),
            frozenset({advice.family} if advice.family else ()),
            frozenset(advice.excludes),
        )


def joined(parts: Sequence[Option]) -> Option:
    """Several options that do not clash as one."""
    changes: dict[str, Any] = {}
    for part in parts:
        changes |= part.changes
    return Option(
        changes,
        "safe" if all(part.fix == "safe" for part in parts) else "unsafe",
        sum(part.rank for part in parts) + 100 * len(parts),
        ", ".join(part.words or plain_text(part.changes) for part in parts),
        tuple(cost for part in parts for cost in part.costs),
        frozenset().union(*(part.families for part in parts)),
        frozenset().union(*(part.excludes for part in parts)),
        sum(part.parts for part in parts),
    )
