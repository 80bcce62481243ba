"""What follows from a job and its model alone, worked out once for equal ones.

One run asks again and again: each component for the parameters, rules for a bound and then for the estimate, a search
for jobs that differ in what most of the work does not see. Jobs are equal whose fields are, wherever these come from;
models are compared by identity, and kept so that an identity is never another's. Steps count as if all were worked out
anew: a search ends at the same point whatever was asked before.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from . import budget

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from typing import Concatenate, ParamSpec

    from ..job.job import Job
    from ..models.model import Model

    More = ParamSpec("More")

Found = TypeVar("Found")


class Kept(NamedTuple):
    """A result, the steps that it took, and the object whose identity stands in its key."""

    found: Any
    steps: int
    of: object


class Recall:
    """The last `count` results of a piece of work. Nobody changes a result."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.known: dict[Hashable, Kept] = {}

    def ask(self, of: object, key: Hashable, work: Callable[[], Found]) -> Found:
        """The result for an object and a key, worked out where it is not known."""
        kept = self.known.get((id(of), key))
        if kept is not None:
            budget.spend(kept.steps)
        else:
            before = budget.spent()
            found = work()
            kept = self.known[id(of), key] = Kept(found, budget.spent() - before, of)
            if len(self.known) > self.count:
                del self.known[next(iter(self.known))]
        result: Found = kept.found
        return result


def recalled(
    count: int,
) -> Callable[[Callable[Concatenate[Job, Model, More], Found]], Callable[Concatenate[Job, Model, More], Found]]:
    """Remember the last `count` results of a function of a job, its model and more that can be hashed.

    The function reads neither origins nor anything that changes while a program runs.
    """

    def remember(
        work: Callable[Concatenate[Job, Model, More], Found],
    ) -> Callable[Concatenate[Job, Model, More], Found]:
        known = Recall(count)

        @wraps(work)
        def ask(job: Job, model: Model, /, *more: More.args, **named: More.kwargs) -> Found:
            key = (repr(job), *more, *named.items())
            return known.ask(model, key, lambda: work(job, model, *more, **named))

        return ask

    return remember
