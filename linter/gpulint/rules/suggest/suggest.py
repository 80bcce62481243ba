"""Suggestions: every one is carried out in memory and checked before it is shown.

A change is shown only when, in the file as it would be after the edit, the rule no longer fires, no error
appears that was not there before, and, where memory is at stake, the estimate no longer exceeds the GPU.
Among those that fit, the one that changes the run least comes first; `tight` ones are shown only where nothing
fits, and say so. Where no single change is enough, combinations are searched (search.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...finding import Suggestion
from ...units import bytes_text
from ..evaluate import evaluate_rules
from ..expression import UNKNOWN, evaluate
from ..facts.facts import ITEM
from ..message import filled
from ..quantity import clipped
from .change import change_job, change_keys, resolved
from .option import ladder
from .search import Search

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from ..evaluate import Fired
    from ..facts.facts import Facts
    from ..rule import Advice, Rule, Selection
    from .change import Changed
    from .option import Ladder
    from .search import Candidate

MAX_SHOWN = 4

MAX_WORDS = 600
"""Characters of a suggestion: several keys, each of which may be a list."""

MENTIONED_HOST = 64 << 30
"""Main memory from which a suggestion names it."""


def suggestions_for(hit: Fired, facts: Facts, selection: Selection, fired: list[Fired]) -> tuple[Suggestion, ...]:
    """The suggestions of one finding, best first."""
    bench = Bench(hit, facts, selection, fired)
    if not hit.about_memory:
        return tuple(bench.keyed())
    shown = bench.helping()
    if shown or not bench.searching:
        return tuple(suggestion(item, facts) for item in shown)
    return hardware_suggestions(facts, exhausted=bench.search.exhausted)


def hardware_suggestions(facts: Facts, *, exhausted: bool = False) -> tuple[Suggestion, ...]:
    """That no change is enough, and the hardware that is."""
    from .enough import smallest_hardware

    if facts.gpu is None or facts.model is None:
        return ()
    nothing = "no change that was tried makes it fit" if exhausted else "nothing in this config makes it fit"
    found = smallest_hardware(facts)
    if not found:
        return (Suggestion(f"{nothing}, and no GPU in the catalogue is large enough"),)
    alone = facts.job.kind == "training" and not (facts.job.micro_batch_size and facts.job.sequence_length)
    it = "its weights and optimizer states alone fit" if alone else "it fits"
    return tuple(Suggestion(f"{nothing}; {it} on {item.text}", item.estimate.needed) for item in found)


class Bench:
    """Where the advice of one finding is tried out."""

    def __init__(self, hit: Fired, facts: Facts, selection: Selection, fired: list[Fired]) -> None:
        self.hit = hit
        self.facts = facts
        self.selection = selection
        self.before = {other.rule.id for other in fired}
        self.searching = any(advice.recipe == "search" for advice in hit.rule.suggest)
        self._held: dict[int, bool] = {}

    @property
    def search(self) -> Search:
        """The search of the job, which its findings share."""
        shared: dict[type, Search] = self.facts.shared
        if Search not in shared:
            shared[Search] = Search(self.facts, self.selection.recipes)
        return shared[Search]

    def helping(self) -> list[Candidate]:
        """At most MAX_SHOWN that hold after being checked, one a family: those that fit, or else the tight ones.

        What the format cannot say in this file is left out where something that it can say helps.
        """
        ladders = self.ladders()
        kept, tight = self._singles(ladders)
        if not kept and self.searching:
            for item in self.search.combined(ladders, self.holds):
                (kept if item.settles else tight).append(item)
                if sum(bool(each.changed.edits) for each in kept) >= MAX_SHOWN:
                    break
        return chosen(kept) or chosen(tight)

    def _singles(self, ladders: list[Ladder]) -> tuple[list[Candidate], list[Candidate]]:
        """Single changes that fit and that are tight; those that the format can say are carried out first."""
        kept: list[Candidate] = []
        tight: list[Candidate] = []
        search = self.search
        for written in (True, False):
            for item in ladders:
                rungs = (
                    rung for rung in search.rungs(item) if search.may_fit(rung) and search.writable(rung) == written
                )
                for candidate in search.climbed(rungs, self.holds):
                    (kept if candidate.settles else tight).append(candidate)
                if len(kept) > MAX_SHOWN:
                    return kept, tight
            if kept:
                break
        return kept, tight

    def ladders(self) -> list[Ladder]:
        """What the rule suggests; with `search` every recipe that saves memory."""
        own = [ladder("", advice, self.facts) for advice in self.hit.rule.suggest if advice.recipe is None]
        own = [item for item in own if item.options]
        if self.searching:
            return [*own, *self.search.saving()]
        named = [self.search.ladders[advice.recipe] for advice in self.hit.rule.suggest if advice.recipe]
        return [*own, *sorted((item for item in named if item.options), key=lambda item: item.advice.rank)]

    def holds(self, candidate: Candidate) -> bool:
        """Whether the rule is silent after the change and no new error appears."""
        key = id(candidate.changed)
        if key not in self._held:
            self._held[key] = self.heals(candidate.changed)
        return self._held[key]

    def heals(self, changed: Changed) -> bool:
        """The same for a change that need not be of the search."""
        for hit in evaluate_rules(changed.facts, self._telling):
            if hit.rule.id == self.hit.rule.id and (hit.item is None or hit.item == self.hit.item):
                return False
            if hit.rule.severity == "error" and hit.rule.id not in self.before:
                return False
        return True

    @property
    def _telling(self) -> Selection:
        """The rules that can say so: this one, those of errors, and what may come before them in their groups."""
        rules = self.selection.rules
        groups = {rule.group for rule in rules if rule.group and self._tells(rule)}
        return self.selection._replace(rules=tuple(rule for rule in rules if self._tells(rule) or rule.group in groups))

    def _tells(self, rule: Rule) -> bool:
        return rule.severity == "error" or rule.id == self.hit.rule.id

    def keyed(self) -> Iterator[Suggestion]:
        """The suggestions of a rule that is not about memory: keys to write, remove or rename, Job fields to set."""
        for advice in self.advices():
            if advice.is_said:
                yield from self.said(advice)
                continue
            changed = self.keys_changed(advice)
            if changed is None or not self.heals(changed):
                continue
            text = filled(advice.text, self.facts) if advice.text else changed.text
            if text:
                yield Suggestion(text, None, advice.fix if changed.edits else None, changed.edits)

    def said(self, advice: Advice) -> Iterator[Suggestion]:
        """What a person has to do elsewhere than in this file: it cannot be tried out."""
        applies = advice.needs is None or evaluate(advice.needs, self.facts) is True
        text = filled(advice.text, self.facts) if advice.text and applies else None
        if text:
            yield Suggestion(text)

    def advices(self) -> Iterator[Advice]:
        """What the rule suggests, recipes filled in."""
        for advice in self.hit.rule.suggest:
            if advice.recipe is None:
                yield advice
            elif advice.recipe != "search":
                yield self.selection.recipes[advice.recipe]

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
            result = evaluate(value["="], self.facts)
            return None if result is UNKNOWN else result
        return value


def chosen(candidates: Iterable[Candidate]) -> list[Candidate]:
    """At most MAX_SHOWN that differ, least change first; only what can be written, where anything can."""
    order = sorted(candidates, key=lambda item: (item.option.rank, item.needed))
    if any(item.changed.edits for item in order):
        order = [item for item in order if item.changed.edits]
    kept: list[Candidate] = []
    for item in order:
        if len(kept) < MAX_SHOWN and not any(_says_more(item, other) for other in kept):
            kept.append(item)
    return kept


def suggestion(item: Candidate, facts: Facts) -> Suggestion:
    """A candidate as findings carry it."""
    now = facts.estimate
    edits = item.changed.edits
    return Suggestion(
        text_of(item),
        item.needed,
        item.option.fix if edits else None,  # type: ignore[arg-type]
        edits,
        now.needed - item.needed if now is not None else None,
        item.option.cost,
    )


def text_of(item: Candidate) -> str:
    """The change in the format's words, with the main memory it takes."""
    doubt = {"tight": " (tight)", "unknown": " (weights and optimizer states only)"}.get(item.verdict, "")
    host = f" (and {bytes_text(item.host)} of host RAM)" if item.host >= MENTIONED_HOST else ""
    return clipped(item.changed.text, MAX_WORDS) + host + doubt


def _says_more(item: Candidate, other: Candidate) -> bool:
    """Whether `item` is of the family of one already kept, reads the same, or is a combination that only adds to it."""
    one, two = item.option, other.option
    if item.changed.text == other.changed.text or (one.parts == 1 and one.families & two.families):
        return True
    return one.parts > 1 and two.changes.items() <= one.changes.items()
