"""The plan of a job: every change that recipes know, what each comes to, and why it is or is not enough.

The engine is that of suggestions (search.py); a plan shows what it sees. A job that fits is asked first what would use
the memory that is left over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...formats.core.key_changes import UntakenKeyError
from ...units import bytes_text
from ..evaluate import evaluate_rules
from ..expression import facts_of, fires
from ..verdict import verdict_of
from .change import format_of, resolved
from .search import Search
from .suggest import chosen

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from ...estimator.estimate import Estimate
    from ...finding import JobResult
    from ...source.edit.replacement import Edit
    from ..facts.facts import Facts
    from ..rule import Advice, Selection
    from .enough import Enough
    from .option import Ladder, Option
    from .search import Candidate

PLAN_STEPS = 900_000
"""Steps of the estimator that the plan of one file may take: about a second."""

SORTS = ("rank", "memory", "verdict")
"""Orders of the rows: by how little they change the run, by what they need, what fits first."""

_VERDICTS = ("fits", "tight", "exceeds", "unknown")


class Row(NamedTuple):
    """One change and what comes of it.

    kind       change, room (uses what is left), combination, or hardware
    change     in the words of the format, else of the recipe;  recipe  its name, "" for combinations and hardware
    reason     why it is enough or not;  fix  safe or unsafe where `edits` can write it back, else None
    """

    kind: str
    change: str
    recipe: str
    estimate: Estimate
    verdict: str
    reason: str
    cost: str
    rank: int
    fix: str | None
    edits: tuple[Edit, ...] = ()


class Absent(NamedTuple):
    """A recipe that has no row, and why; what another tool can do and this format has no key for has neither."""

    recipe: str
    reason: str


class Plan(NamedTuple):
    """The rows of one job on its GPU; without a GPU none, and the names of those on which it fits."""

    facts: Facts
    now: Estimate
    rows: tuple[Row, ...]
    absent: tuple[Absent, ...]
    fitting: tuple[str, ...] = ()

    @property
    def result(self) -> JobResult:
        """What `check` says of the job's memory."""
        return verdict_of(self.facts, "")

    def in_order(self, sort: str) -> list[Row]:
        """The rows, sorted as SORTS says; the memory that results decides between equals."""
        if sort == "memory":
            return sorted(self.rows, key=lambda row: row.estimate.needed)
        if sort == "verdict":
            return sorted(self.rows, key=lambda row: (_VERDICTS.index(row.verdict), row.rank))
        return sorted(self.rows, key=lambda row: (_KINDS.index(row.kind), row.rank, row.estimate.needed))


_TOOL = frozenset({"format", "inference.engine"})
"""Facts that name the tool."""

_KINDS = ("room", "change", "combination", "hardware")


def plan_of(facts: Facts, selection: Selection, steps: int = PLAN_STEPS) -> Plan | None:
    """The plan of one job; None where its memory cannot be derived, `facts.estimate_reason` then says why."""
    now = facts.told
    if now is None:
        return None
    if facts.gpu is None:
        return Plan(facts, now, (), (), _fitting(now))
    planner = _Planner(facts, now, selection, steps)
    rows = tuple(planner.rows())
    return Plan(facts, now, rows, tuple(planner.absent))


def _fitting(now: Estimate) -> tuple[str, ...]:
    from ...hardware.catalogue import gpus

    return tuple(gpu.name for gpu in gpus() if now.fits_on(gpu))


class _Planner:
    def __init__(self, facts: Facts, now: Estimate, selection: Selection, steps: int) -> None:
        self.facts = facts
        self.now = now
        self.search = Search(facts, selection.recipes, steps)
        self.errors = selection._replace(
            rules=tuple(rule for rule in selection.rules if rule.severity == "error" and not rule.group)
        )
        self.before = {hit.rule.id for hit in evaluate_rules(facts, self.errors)}
        self.absent: list[Absent] = []

    def rows(self) -> Iterator[Row]:
        """The rows, those that the search reaches."""
        fits = self.now.verdict == "fits"
        found: list[Row] = []
        for name, item in self.search.ladders.items():
            advice = item.advice
            if advice.kind not in ("", self.facts.job.kind) or (advice.room and not fits):
                continue
            if self.now.unplaced and not item.moves_ranks:
                continue
            if not item.options:
                if self.has_key(advice):
                    self.absent.append(Absent(name, advice.otherwise or "does not apply"))
            elif self.search.exhausted:
                self.absent.append(Absent(name, "not tried: search limit reached"))
            else:
                found += self.unlike(found, self.tried(item))
        yield from found
        if not self.now.unplaced and not any(row.verdict in ("fits", "unknown") for row in found):
            yield from self.combinations()
        yield from self.hardware(enough=fits)

    def says(self, changes: dict[str, Any]) -> bool:
        """Whether the format has words for a change."""
        reading = self.facts.reading
        form = format_of(reading)
        try:
            return bool(form.describe(reading, changes) or form.edits(reading, changes))
        except UntakenKeyError:
            return False

    def has_key(self, advice: Advice) -> bool:
        """Whether a recipe that does not apply to this job is for its tool, and the format has words for the change.

        A part of what a recipe needs that is about the tool alone says which tools it is for.
        """
        needs = advice.needs or ["and"]
        parts = needs[1:] if needs[0] == "and" else [needs]
        if any(facts_of(part) <= _TOOL and not fires(part, self.facts) for part in parts):
            return False
        found = (resolved(advice._replace(needs=None), self.facts, factor) for factor in advice.factors or (None,))
        return any(changes and self.says(changes) for changes in found)

    def unlike(self, found: list[Row], rows: Iterable[Row]) -> Iterator[Row]:
        """Those that are not written as one before them: a format may have one way to say two changes."""
        for row in rows:
            twin = next((other for other in found if other.change == row.change), None)
            if twin is None:
                yield row
            else:
                self.absent.append(Absent(row.recipe, f"the same change here as {twin.recipe}"))

    def tried(self, item: Ladder) -> Iterator[Row]:
        """The first rung that fits; where none does, the one that comes nearest."""
        shown: Candidate | None = None
        refused = ""
        for option in self.search.rungs(item) or item.options[-1:]:
            if self.search.exhausted and shown is not None:
                break
            if option is not item.options[-1] and not self.search.may_fit(option):
                continue
            candidate = self.search.carried_out(option)
            if candidate is None:
                refused = refused or self.refusal(option)
                continue
            error = self.new_error(candidate)
            if error:
                refused = error
                continue
            if shown is None or candidate.settles or candidate.needed < shown.needed:
                shown = candidate
            if candidate.settles:
                break
        if shown is None:
            self.absent.append(Absent(item.name, refused or "its memory cannot be estimated"))
            return
        if not self.says(shown.option.changes):
            needed = bytes_text(shown.needed)
            self.absent.append(Absent(item.name, f"no key in this format; would need {needed}"))
            return
        if item.advice.room and not shown.settles:
            self.absent.append(Absent(item.name, f"too large: {why(shown.changed.estimate)}"))
            return
        if not item.advice.room and not self.gains(shown):
            self.absent.append(Absent(item.name, "no effect on memory or KV cache here"))
            return
        yield self.row("room" if item.advice.room else "change", shown, item.name)

    def gains(self, item: Candidate) -> bool:
        """Whether a server needs less after a change or caches more; what a training run needs is compared before."""
        before, after = self.now.kv_cache, item.changed.estimate
        if before is None or after is None or after.kv_cache is None or after.needed < self.now.needed:
            return True
        cache = after.kv_cache
        return cache.tokens > before.tokens or cache.max_concurrency > before.max_concurrency

    def refusal(self, option: Option) -> str:
        """Why an option could not be carried out."""
        from .search import MAX_HOST

        found = self.search.look(option)
        if found is not None and found.host > MAX_HOST:
            return f"needs {bytes_text(found.host)} of host RAM per node, more than nodes have"
        return "cannot be written into this file"

    def new_error(self, candidate: Candidate) -> str:
        """The rule that would complain of the edited file."""
        if candidate.changed.edits:
            for hit in evaluate_rules(candidate.changed.facts, self.errors):
                if hit.rule.id not in self.before:
                    return f"would cause an error: {hit.rule.id} {hit.rule.name}"
        return ""

    def offered(self, item: Candidate) -> bool:
        """Whether a combination is one that the format can say and that is no error."""
        return self.says(item.option.changes) and not self.new_error(item)

    def combinations(self) -> Iterator[Row]:
        """The few combinations that fit and change the run least, or else come near."""
        found: list[Candidate] = []
        for candidate in self.search.combined(self.search.saving(), self.offered):
            found.append(candidate)
            if sum(item.settles for item in found) >= 6:
                break
        fitting = [item for item in found if item.settles]
        for candidate in chosen(fitting) or chosen(found):
            yield self.row("combination", candidate)

    def row(self, kind: str, item: Candidate, recipe: str = "") -> Row:
        """A candidate as a row."""
        estimate = item.changed.estimate
        assert estimate is not None
        option, edits = item.option, item.changed.edits
        return Row(
            kind, item.changed.text, recipe, estimate, estimate.verdict, why(estimate), option.cost, option.rank,
            option.fix if edits else None, edits,
        )  # fmt: skip

    def hardware(self, *, enough: bool) -> Iterator[Row]:
        """More or larger GPUs for a job that does not fit, fewer for one that does."""
        from . import enough as hardware

        gpu = self.facts.gpu
        if gpu is None or self.search.exhausted:
            return
        found: Sequence[Enough | None] = (
            [hardware.fewer_gpus(self.facts, gpu) if self.facts.job.kind == "training" else None]
            if enough
            else hardware.smallest_hardware(self.facts)
        )
        for item in found:
            if item is not None:
                cost = "each step takes longer" if enough else "other hardware"
                yield Row(
                    "hardware",
                    item.text,
                    "",
                    item.estimate,
                    item.estimate.verdict,
                    why(item.estimate),
                    cost,
                    1000,
                    None,
                )


def why(estimate: Estimate | None) -> str:
    """Why an estimate is enough for its GPU or is not, in a few words."""
    if estimate is None or estimate.capacity is None:
        return ""
    usable = estimate.capacity.usable
    if estimate.unplaced:
        return estimate.unplaced
    if estimate.verdict == "fits":
        return f"{bytes_text(usable - estimate.needed)} free"
    if estimate.verdict == "tight":
        return f"may need up to {bytes_text(estimate.per_gpu.high)} of {bytes_text(usable)}"
    if estimate.verdict == "unknown":
        return "weights and optimizer states only; batch size or length unknown"
    most = max(estimate.components, key=lambda name: estimate.components[name])
    over = f"{bytes_text(max(0, estimate.needed - usable))} too much"
    return f"{over}; {most.replace('_', ' ')} {bytes_text(estimate.components[most])}"
