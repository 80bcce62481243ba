"""The search for changes that make a job fit, or fill what is left: cheap bounds first, full estimates at the end.

An option is looked at before it is carried out. A look is an estimate of the changed Job without the allocator's
replay; whether the job exceeds the GPU it says exactly (`estimate_job`). What survives is carried out: the edits are
made in memory, the file is read again by its own format, and the job in it is estimated in full. Only what was carried
out is ever shown.

The search ends after a number of steps of the estimator (`effort`), not after a time: its outcome is the same
everywhere.
"""

from __future__ import annotations

from itertools import combinations as subsets
from typing import TYPE_CHECKING, NamedTuple

from ...estimator import budget
from .change import change_job, completed
from .option import joined, ladder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

    from ...estimator.estimate import Estimate
    from ..facts.facts import Facts
    from ..rule import Advice
    from .change import Changed
    from .option import Ladder, Option

CHECK_STEPS = 250_000
"""Steps that suggestions for the findings of one job may take: about a third of a second."""

OVERHEAD = 2_500
"""Steps that an estimate counts besides those of its tape and replay: parameters, layouts. A file that is read again
counts one a character."""

MAX_HOST = 2 << 40
"""Main memory of the largest common GPU nodes (AWS p5.48xlarge, GCP a3-highgpu-8g: about 2 TiB); offload that needs
more is not suggested."""

PROMISE = 1.15
"""A combination is looked at when its parts' savings together would bring the need below this times the GPU. More than
1, because the peak is a maximum: two changes can save more together than each alone."""

MAX_PARTS = 4
"""Recipes in one combination."""


class Candidate(NamedTuple):
    """An option carried out, and what comes of it."""

    option: Option
    changed: Changed

    @property
    def estimate(self) -> Estimate | None:
        """The estimate of the job in the edited file."""
        return self.changed.estimate

    @property
    def verdict(self) -> str:
        """The verdict of the estimate, `unknown` where there is none."""
        return self.estimate.outcome if self.estimate is not None else "unknown"

    @property
    def settles(self) -> bool:
        """Whether nothing stronger need be tried: it fits, or its states do and its batch or length is not known."""
        return self.verdict in ("fits", "unknown")

    @property
    def needed(self) -> int:
        """Bytes one GPU needs after the change."""
        return self.estimate.needed if self.estimate is not None else 0

    @property
    def host(self) -> int:
        """Bytes of main memory a node needs after the change."""
        return self.estimate.host if self.estimate is not None else 0


class _Part(NamedTuple):
    """A recipe at its strongest, and the bytes it saves alone."""

    ladder: Ladder
    strongest: Option
    saved: int


class Search:
    """What has been looked at and carried out for one job; the findings of the job share it."""

    def __init__(self, facts: Facts, recipes: Mapping[str, Advice], steps: int = CHECK_STEPS) -> None:
        self.facts = facts
        self.steps = steps
        self.ladders = {name: ladder(name, advice, facts) for name, advice in recipes.items()}
        self.now = facts.estimate
        self._began = budget.spent()
        self.reading = len(facts.reading.config.text)
        self._looks: dict[tuple[tuple[str, str], ...], Estimate | None] = {}
        self._carried: dict[tuple[tuple[str, str], ...], Changed | None] = {}

    @property
    def exhausted(self) -> bool:
        """Whether the search has taken its steps."""
        return budget.spent() - self._began >= self.steps

    def saving(self) -> list[Ladder]:
        """The recipes that apply and save memory, those that change the run least first."""
        found = (item for item in self.ladders.values() if item.options and not item.advice.room)
        return sorted(found, key=lambda item: item.advice.rank)

    def look(self, option: Option) -> Estimate | None:
        """The estimate of the Job with the option's changes, without replay; None where it cannot be estimated.

        Of a job whose tape is long the states alone are looked at first: where they exceed the GPU that is enough.
        """
        key = option.key
        if key not in self._looks:
            self._looks[key] = self._look(option.changes)
        return self._looks[key]

    def _look(self, changes: dict[str, Any]) -> Estimate | None:
        facts = self.facts
        job = facts.job.with_changes(completed(facts, changes))
        if self._is_heavy() and job.kind == "training":
            states = job.with_changes({"micro_batch_size": None, "evaluation.micro_batch_size": None})
            found = self._estimated(states)
            if found is None or found.as_stated == "exceeds":
                return found
        return self._estimated(job)

    def _is_heavy(self) -> bool:
        """Whether the job's own estimate takes a good part of the steps that the search has."""
        return self.now is not None and self.facts.steps > self.steps // 10

    def _estimated(self, job: Any) -> Estimate | None:
        from ...estimator.estimate import NotEstimable
        from ...estimator.estimate_job import estimate_job
        from ...models.lora import NotAdaptable

        facts = self.facts
        if facts.model is None:
            return None
        budget.spend(OVERHEAD)
        try:
            return estimate_job(job, facts.model, facts.gpu, replay=False)
        except (NotEstimable, NotAdaptable):
            return None

    def may_fit(self, option: Option) -> bool:
        """Whether a look does not rule the option out; what was not looked at before the steps ran out is.

        What a rule itself suggests is not ruled out by a look: its format may make more of it than the Job says.
        """
        if option.own:
            return not self.exhausted
        if self.exhausted and option.key not in self._looks:
            return False
        found = self.look(option)
        return found is not None and found.as_stated != "exceeds" and found.host <= MAX_HOST

    def carried_out(self, option: Option) -> Candidate | None:
        """The option carried out, once; None where it cannot be, or its offload needs more than nodes have."""
        changed = self._changed(option)
        if changed is None or changed.estimate is None:
            return None
        candidate = Candidate(option, changed)
        return candidate if candidate.host <= MAX_HOST else None

    def writable(self, option: Option) -> bool:
        """Whether the format can say the option in this file."""
        changed = self._changed(option)
        return changed is not None and bool(changed.edits)

    def _changed(self, option: Option) -> Changed | None:
        key = option.key
        if key not in self._carried:
            self._carried[key] = change_job(self.facts, option.changes, option.words)
            budget.spend(OVERHEAD + self.reading)
        return self._carried[key]

    def climbed(self, rungs: Iterable[Option], accept: Callable[[Candidate], bool]) -> Iterator[Candidate]:
        """The options in their order carried out, as far as a look leaves them, up to the first that fits."""
        for option in rungs:
            if not self.may_fit(option):
                continue
            if self.exhausted:
                return
            candidate = self.carried_out(option)
            if candidate is None or candidate.verdict == "exceeds" or not accept(candidate):
                continue
            yield candidate
            if candidate.settles:
                return

    def rungs(self, item: Ladder) -> tuple[Option, ...]:
        """The options of a ladder worth trying: none where even the strongest is too much for the GPU.

        That says nothing of a ladder whose help lies between: the smallest share leaves no room for the weights.
        """
        if item.advice.room:
            return item.options[::-1]
        if len(item.options) > 2 and not item.advice.between and not self.may_fit(item.options[-1]):
            return ()
        return item.options

    def combined(self, ladders: Iterable[Ladder], accept: Callable[[Candidate], bool]) -> Iterator[Candidate]:
        """Two recipes that fit together, else three, else four, those that change the run least first.

        Each recipe takes part at its strongest; where that is more than is needed, a weaker rung takes its place.
        """
        parts = self._parts(ladders)
        for size in range(2, MAX_PARTS + 1):
            fits = False
            for group in sorted(subsets(parts, size), key=lambda group: sum(part.strongest.rank for part in group)):
                if self.exhausted:
                    return
                option = self._together(group)
                if option is None:
                    continue
                for candidate in self.climbed(self._relaxed([part.ladder for part in group], option), accept):
                    fits = fits or candidate.settles
                    yield candidate
            if fits:
                return

    def _parts(self, ladders: Iterable[Ladder]) -> list[_Part]:
        """The recipes that save something at their strongest."""
        now = self.now
        parts: list[_Part] = []
        for item in ladders:
            if self.exhausted or now is None:
                break
            found = self.look(item.options[-1])
            if found is not None and found.host <= MAX_HOST and found.needed < now.needed:
                parts.append(_Part(item, item.options[-1], now.needed - found.needed))
        return parts

    def _together(self, group: tuple[_Part, ...]) -> Option | None:
        """Several recipes as one option; None where they clash or cannot be enough."""
        now, gpu = self.now, self.facts.gpu
        if now is None or gpu is None:
            return None
        if now.needed - sum(part.saved for part in group) > PROMISE * gpu.usable:
            return None
        if any(one.strongest.clashes(two.strongest) for one, two in subsets(group, 2)):
            return None
        option = joined([part.strongest for part in group])
        return option if self.may_fit(option) else None

    def _relaxed(self, group: list[Ladder], strongest: Option) -> Iterator[Option]:
        """The combination with ever stronger rungs of its one ladder that has several, the strongest at last."""
        long = [item for item in group if len(item.options) > 1]
        if long:
            rest = [item.options[-1] for item in group if item is not long[0]]
            for rung in long[0].options[:-1]:
                yield joined([*rest, rung])
        yield strongest
