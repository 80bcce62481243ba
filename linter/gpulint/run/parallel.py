"""Many files over several processes."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .outcome import Outcome
    from .walk import Found

CHUNK = 4
"""Files that a process takes at once."""

_outcome_of: list[Callable[[Found], Outcome]] = []
"""What a worker process makes of a file."""


def outcomes(begin: Callable[[], Callable[[Found], Outcome]], found: Sequence[Found], jobs: int) -> Iterator[Outcome]:
    """What comes of each file, in order, from `jobs` processes; each begins a run of its own."""
    with ProcessPoolExecutor(jobs, initializer=_begin, initargs=(begin,)) as pool:
        yield from pool.map(_outcome, found, chunksize=CHUNK)


def _begin(begin: Callable[[], Callable[[Found], Outcome]]) -> None:
    _outcome_of[:] = [begin()]


def _outcome(found: Found) -> Outcome:
    """An outcome that can be sent: of the files whose comments were read, only the text."""
    outcome = _outcome_of[0](found)
    seen = tuple(item._replace(document=item.document._replace(roots=[], reread=None)) for item in outcome.seen)
    return outcome._replace(seen=seen)
