"""Suggestions: every one is carried out in memory and checked before it is shown.

A change is shown only when, in the file as it would be after the edit, the rule no longer fires, no error
appears that was not there before, and, where memory is at stake, the estimate no longer exceeds the GPU.
Among those that fit, the one that changes the run least comes first; `tight` ones are shown only where nothing
fits, and say so. Where no single change is enough, `search` looks for two or three together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..finding import Suggestion
from ..units import bytes_text
from .change import Changed, change_job, change_keys, resolved
from .expression import UNKNOWN
from .facts import ITEM
from .message import filled
from .quantity import clipped

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from .engine import Fired
    from .facts import Facts
    from .rule import Advice, Selection

MAX_SHOWN = 4
MAX_HOST = 2 << 40
"""Main memory of the largest common GPU nodes (AWS p5.48xlarge, GCP a3-highgpu-8g: about 2 TiB); offload that needs
more is not suggested."""

MENTIONED_HOST = 64 << 30
"""Main memory from which a suggestion names it."""

MAX_ESTIMATES = 60
"""Estimates that the search for one finding may make."""


class Attempt(NamedTuple):
    """Job changes to try: `rank` is how much of the run they change, `words` says them where the format cannot."""

    changes: dict[str, Any]
    fix: str
    rank: int
    family: str = ""
    words: str = ""
    excludes: tuple[str, ...] = ()
    combined: bool = False


class Candidate(NamedTuple):
    """An attempt carried out, and what comes of it."""

    attempt: Attempt
    changed: Changed

    @property
    def verdict(self) -> str:
        """The verdict of the estimate, `unknown` where there is none."""
        estimate = self.changed.estimate
        return estimate.verdict if estimate is not None else "unknown"

    @property
    def needed(self) -> int:
        """Bytes one GPU needs after the change."""
        estimate = self.changed.estimate
        return estimate.needed if estimate is not None else 0

    @property
    def host(self) -> int:
        """Bytes of main memory a node needs after the change."""
        estimate = self.changed.estimate
        return estimate.host if estimate is not None else 0


def suggestions_for(hit: Fired, facts: Facts, selection: Selection, fired: list[Fired]) -> tuple[Suggestion, ...]:
    """The suggestions of one finding, best first."""
    bench = Bench(hit, facts, selection, fired)
    if not hit.about_memory:
        return tuple(bench.keyed())
    singles = [item for advice in bench.advices() for item in bench.tried(advice)]
    helping = bench.helping(singles)
    searching = any(advice.recipe == "search" for advice in hit.rule.suggest)
    if searching and not any(item.verdict == "fits" for item in helping):
        from .search import combinations

        helping = bench.helping(combinations(bench, singles)) or helping
    shown = tuple(bench.suggestion(item) for item in helping)
    if searching and not shown:
        from .search import smallest_hardware

        return smallest_hardware(facts)
    return shown


class Bench:
    """Where the advice of one finding is tried out."""

    def __init__(self, hit: Fired, facts: Facts, selection: Selection, fired: list[Fired]) -> None:
        self.hit = hit
        self.facts = facts
        self.selection = selection
        self.before = {other.rule.id for other in fired}
        self.estimates = 0

    @property
    def exhausted(self) -> bool:
        """Whether the search has used up its estimates."""
        return self.estimates >= MAX_ESTIMATES

    def advices(self) -> Iterator[Advice]:
        """What the rule suggests, recipes filled in."""
        for advice in self.hit.rule.suggest:
            if advice.recipe is None:
                yield advice
            elif advice.recipe != "search":
                yield self.selection.recipes[advice.recipe]

    def tried(self, advice: Advice) -> Iterator[Candidate]:
        """The advice carried out, for each of its factors until one fits."""
        for factor in advice.factors or (None,):
            changes = resolved(advice, self.facts, factor)
            if not changes or self.exhausted:
                continue
            words = (filled(advice.text, self.facts) if advice.text else None) or ""
            candidate = self.candidate(Attempt(changes, advice.fix, advice.rank, advice.family, words, advice.excludes))
            if candidate is None:
                continue
            yield candidate
            if candidate.verdict == "fits":
                return

    def candidate(self, attempt: Attempt) -> Candidate | None:
        """Job changes carried out and estimated; None where they cannot be."""
        changed = change_job(self.facts, attempt.changes, attempt.words)
        if changed is None:
            return None
        self.estimates += 1
        candidate = Candidate(attempt, changed)
        return candidate if changed.estimate is not None and candidate.host <= MAX_HOST else None

    def helping(self, candidates: list[Candidate]) -> list[Candidate]:
        """At most MAX_SHOWN that hold after being checked, one a family: those that fit, or else the tight ones.

        What the format cannot say in this file is left out where something that it can say helps.
        """
        order = sorted(candidates, key=lambda item: (item.verdict != "fits", item.attempt.rank, item.needed))
        if any(item.changed.edits and item.verdict == "fits" for item in order):
            order = [item for item in order if item.changed.edits]
        kept: list[Candidate] = []
        for item in order:
            if item.verdict not in ("fits", "tight") or len(kept) == MAX_SHOWN:
                break
            if kept and kept[0].verdict != item.verdict:
                break
            if not any(_says_more(item, other) for other in kept) and self.holds(item.changed):
                kept.append(item)
        return kept

    def holds(self, changed: Changed) -> bool:
        """Whether the rule is silent after the change and no new error appears."""
        from .engine import evaluate_rules

        for hit in evaluate_rules(changed.facts, self.selection):
            if hit.rule.id == self.hit.rule.id and (hit.item is None or hit.item == self.hit.item):
                return False
            if hit.rule.severity == "error" and hit.rule.id not in self.before:
                return False
        return True

    def keyed(self) -> Iterator[Suggestion]:
        """The suggestions of a rule that is not about memory: keys to write, remove or rename, Job fields to set."""
        for advice in self.advices():
            changed = self.keys_changed(advice)
            if changed is None or not self.holds(changed):
                continue
            text = filled(advice.text, self.facts) if advice.text else changed.text
            if text:
                yield Suggestion(text, None, advice.fix if changed.edits else None, changed.edits)

    def keys_changed(self, advice: Advice) -> Changed | None:
        """The file after an advice; None where it does not apply or cannot be written."""
        changes = resolved(advice, self.facts, None)
        if changes is None:
            return None
        if changes:
            return change_job(self.facts, changes)
        config = {self.name(key): self.value(value) for key, value in (advice.config or {}).items()}
        rename = {self.name(key): self.name(new) for key, new in (advice.rename or {}).items()}
        if not all([*config, *rename, *rename.values()]):
            return None
        return change_keys(self.facts, config, rename)

    def name(self, key: str) -> str:
        """A key, `item.<value>` replaced by what the problem carries; "" where it carries nothing."""
        if not key.startswith(ITEM):
            return key
        value = self.facts.get(key)
        return "" if value is UNKNOWN else str(value)

    def value(self, value: Any) -> Any:
        """A value, an expression worked out."""
        if isinstance(value, dict) and "=" in value:
            from .expression import evaluate

            result = evaluate(value["="], self.facts)
            return None if result is UNKNOWN else result
        return value

    def suggestion(self, item: Candidate) -> Suggestion:
        """A candidate as findings carry it."""
        tight = " (tight)" if item.verdict == "tight" else ""
        edits = item.changed.edits
        host = f" (and {bytes_text(item.host)} of main memory)" if item.host >= MENTIONED_HOST else ""
        text = clipped(item.changed.text) + host + tight
        return Suggestion(text, item.needed, item.attempt.fix if edits else None, edits)  # type: ignore[arg-type]


def _says_more(item: Candidate, other: Candidate) -> bool:
    """Whether `item` is of the family of one already kept, reads the same, or is a combination that only adds to it."""
    one, two = item.attempt, other.attempt
    if item.changed.text == other.changed.text or (one.family and one.family == two.family):
        return True
    return one.combined and two.changes.items() <= one.changes.items()
