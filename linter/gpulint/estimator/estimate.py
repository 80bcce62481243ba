"""Estimate: what `gpulint.estimate` returns and `gpulint estimate` prints. All sizes are integer bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from ..declared import declared
from .terms import Term, at_least, at_most, line, of, total

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..hardware.gpu import Gpu
    from .peak_candidate import PeakCandidate


Verdict = Literal["fits", "tight", "exceeds", "unknown"]

Spread = Literal["always", "doubt", "never"]
"""When what does not decide the verdict is worked out for `high`: always, where the verdict is `tight`, or never."""

LEAST = "the least that context, libraries and NCCL were measured at (estimator/allocator/runtime.json)"
MOST = "the most that context, libraries and NCCL were measured at (estimator/allocator/runtime.json)"
FULL = "less: near the card's end torch gives free segments back, an engine shrinks its cache"
EXPECTED = "what is expected, which lies between least and most"
NOTHING = "no less than nothing"

COMPONENTS = (
    "weights", "adapter", "gradients", "optimizer", "activations", "logits", "kv_cache", "buffers", "runtime",
)  # fmt: skip
"""`runtime` belongs to the process; the others sum to `allocated` at the peak instant."""

ALLOCATED = COMPONENTS[:-1]

CACHE_FIGURES = ("kv_token", "kv_request", "available_kv_cache_memory")
"""Figures that an engine's cache rests on, told before it: of a token, of the longest request, what is left for it."""


@dataclass(slots=True, frozen=True)
class Assumption:
    """Something the estimate rests on and the config does not say.

    `low` and `high` are the bytes by which the run may need less or more where it is otherwise; they are in the
    interval of the process.
    """

    field: str
    value: str
    origin: str
    low: int = 0
    high: int = 0


@dataclass(slots=True, frozen=True)
class Phase:
    """One instant of the run and what is alive in it, term by term; `components` are their sums.

    `candidate` is the instant of the replay that won, where one did.
    """

    name: str
    terms: tuple[Term, ...]
    candidate: PeakCandidate | None = None
    components: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        split = dict.fromkeys(ALLOCATED, 0)
        for term in self.terms:
            split[term.component] += term.size
        object.__setattr__(self, "components", split)

    @property
    def allocated(self) -> int:
        """Bytes alive at this instant."""
        return total(self.terms)

    def plus(self, *found: Term) -> Phase:
        """The same with more alive."""
        return Phase(self.name, (*self.terms, *found), self.candidate)


@dataclass(slots=True, frozen=True)
class PerGpu:
    """Memory of the GPU that needs most."""

    allocated: int = declared("What torch.cuda.max_memory_allocated() reports.", unit="bytes", least=0)
    reserved: int = declared("What torch.cuda.max_memory_reserved() reports.", unit="bytes", least=0)
    process: int = declared("What nvidia-smi shows: with CUDA context, NCCL, libraries.", unit="bytes", least=0)
    low: int = declared("The least that `process` may be.", unit="bytes", least=0)
    high: int = declared("The most that `process` may be.", unit="bytes", least=0)


class Tiers(NamedTuple):
    """The terms of each tier; every one begins with the figure that it builds on.

    reserved   allocated, and the free blocks of the segments that torch keeps
    process    reserved, and what lies outside torch
    low        the least that the process takes: least fragmentation and overhead, less what assumptions may take away
    high       the most: largest fragmentation and overhead, and what assumptions may add; or the card's end
    """

    reserved: tuple[Term, ...]
    process: tuple[Term, ...]
    low: tuple[Term, ...]
    high: tuple[Term, ...]

    @property
    def terms(self) -> tuple[Term, ...]:
        """All of them, tier by tier."""
        return (*self.reserved, *self.process, *self.low, *self.high)

    def per_gpu(self, allocated: int) -> PerGpu:
        """The sums, beside the bytes allocated at the peak."""
        return PerGpu(allocated, *(total(found) for found in self))

    def widened(self, found: Iterable[Assumption]) -> Tiers:
        """With every fact's bytes off `low` and on `high`, which still hold `process` between them."""
        given = list(found)
        low = [*self.low, *(line("low", -item.low, _told(item)) for item in given if item.low)]
        high = [*self.high, *(line("high", item.high, _told(item)) for item in given if item.high)]
        return self._replace(low=at_least("low", low, 0, NOTHING), high=tuple(high)).holding()

    def holding(self) -> Tiers:
        """With `process` between `low` and `high`."""
        process = total(self.process)
        low, high = at_most("low", self.low, process, EXPECTED), at_least("high", self.high, process, EXPECTED)
        return self._replace(low=low, high=high)

    def capped(self, gpu: Gpu | None, found: Verdict) -> Tiers:
        """What fits a card takes no more than the card has: torch gives free segments back first."""
        if gpu is None or found != "fits":
            return self
        return self._replace(high=at_most("high", self.high, gpu.usable, FULL))


def _told(item: Assumption) -> str:
    return f"{item.field} {item.value}: assumed"


@dataclass(slots=True, frozen=True)
class KvCache:
    """An engine's cache as its log prints it, on one GPU; `low`..`high` tokens, where they are known."""

    bytes_per_token: int
    tokens: int
    max_concurrency: float
    low: int | None = None
    high: int | None = None


@dataclass(slots=True, frozen=True)
class Capacity:
    """The memory that a GPU has."""

    gpu: str = declared("Name of the GPU in the catalogue.")
    total: int = declared("What nvidia-smi reports.", unit="bytes", least=0)
    usable: int = declared("The smallest total that torch has reported for the card.", unit="bytes", least=0)


@dataclass(slots=True, frozen=True)
class HostMemory:
    """Bytes of main memory on one machine.

    load    while the weights are read;  train  from the first step on;  pinned  page-locked bytes of `train`
    save    while a whole checkpoint is put together, 0 where each rank writes its own shard
    high    the largest of them, with what page-locking may round up
    """

    load: int
    train: int
    pinned: int
    save: int
    high: int

    @property
    def peak(self) -> int:
        """The largest of loading, training and saving."""
        return max(self.load, self.train, self.save)


@dataclass(slots=True, frozen=True)
class Estimate:
    """The memory of one job on its fullest GPU.

    `verdict` holds over the whole interval: for short rows, and whatever facts that nothing settles may be. It is
    given, and kept as `as_stated`, for the values that the job has with rows of the full length. `components` is the
    split at `peak_phase`; `phases` holds the other instants. `refusal` is the engine's reason for not starting, where
    it can be predicted (vLLM: no room for one request). `unplaced` says why ranks have no GPU (job/placement.py): the
    verdict is then `exceeds`, whatever one rank needs. `host` is bytes of main memory per node for offload,
    `host_memory` all that is known of it. `fullest` names the rank, where ranks differ (pipeline stages). `beside` are
    the terms that no phase has: of `runtime`, of CACHE_FIGURES and of `host`.
    """

    kind: str
    model_id: str
    parameters: int
    trainable_parameters: int
    tiers: Tiers
    phases: tuple[Phase, ...]
    peak: Phase
    verdict: Verdict
    as_stated: Verdict = "unknown"
    capacity: Capacity | None = None
    kv_cache: KvCache | None = None
    refusal: str | None = None
    host: int = 0
    assumptions: tuple[Assumption, ...] = ()
    beside: tuple[Term, ...] = field(default=(), repr=False)
    fullest: str | None = None
    host_memory: HostMemory | None = None
    unplaced: str = ""
    per_gpu: PerGpu = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "per_gpu", self.tiers.per_gpu(self.peak.allocated))
        if self.as_stated == "unknown":
            object.__setattr__(self, "as_stated", self.verdict)
        object.__setattr__(self, "verdict", self._over_the_interval())

    def _over_the_interval(self) -> Verdict:
        """`exceeds` only where the least is too much, `fits` only where the most is not; a refusal needs no bytes."""
        if self.unplaced:
            return "exceeds"
        if self.capacity is None or self.refusal is not None or self.verdict == "unknown":
            return self.verdict
        if self.per_gpu.low > self.capacity.usable:
            return "exceeds"
        return "fits" if self.verdict == "fits" and self.per_gpu.high <= self.capacity.usable else "tight"

    @property
    def stops(self) -> str | None:
        """Why the job does not start, where that can be predicted: ranks without a GPU, or the engine's refusal."""
        return self.unplaced or self.refusal

    @property
    def outcome(self) -> Verdict:
        """The verdict of the values that the job has, of ranks that have no GPU included."""
        return "exceeds" if self.unplaced else self.as_stated

    @property
    def undecided(self) -> bool:
        """Whether the interval reaches from less than half of the GPU to more than all of it, which decides nothing.

        Releases and fragmentation move a run by less: so wide is one whose rows or open facts decide.
        """
        if self.capacity is None or self.stops is not None:
            return False
        return 2 * self.per_gpu.low < self.capacity.usable < self.per_gpu.high

    def fits_on(self, gpu: Gpu) -> bool:
        """Whether it surely fits on a GPU, of an estimate that was made without one."""
        return not self.unplaced and self.per_gpu.high <= gpu.usable

    @property
    def peak_phase(self) -> str:
        """The name of the instant with the most memory."""
        return self.peak.name

    @property
    def runtime(self) -> int:
        """Bytes outside torch's allocator."""
        return of("runtime", self.beside)

    @property
    def terms(self) -> tuple[Term, ...]:
        """The derivation: components at the peak with what the cache rests on, the tiers, main memory."""
        found: dict[str, list[Term]] = {}
        for term in (*self.peak.terms, *self.beside, *self.tiers.terms):
            found.setdefault(term.component, []).append(term)
        held = {name for name, size in self.components.items() if size}
        order = [name for name in COMPONENTS for name in ((*CACHE_FIGURES, name) if name == "kv_cache" else (name,))]
        shown = (name for name in (*order, *self.tiers._fields, "host") if name in held or name not in COMPONENTS)
        return tuple(term for name in shown for term in found.get(name, ()))

    @property
    def uncached(self) -> bool:
        """Whether an engine serves a model that keeps nothing of a request, an encoder, and makes no pool for it."""
        served = any(phase.name == "serve" for phase in self.phases)
        return served and self.kv_cache is None and not self.components["kv_cache"]

    @property
    def components(self) -> dict[str, int]:
        """Bytes by component at the peak, every component present, `runtime` included."""
        return {**self.peak.components, "runtime": self.runtime}

    @property
    def needed(self) -> int:
        """The bytes to compare with a GPU: `process`."""
        return self.per_gpu.process


class NotEstimable(Exception):  # noqa: N818  (the name of the contract)
    """A job whose memory cannot be derived; the message says what is missing, for people."""


def verdict(needed: PerGpu, gpu: Gpu | None, *, bounded: bool = True) -> Verdict:
    """`exceeds` when even the least the process needs is more than torch can have of the card, `fits` when the most
    it may need is not, `tight` between; `unknown` without a GPU. `high` is what it may need on this card: torch gives
    free segments back before it fails (fragmentation.py), so what it would reserve on a larger one does not count.

    bounded   False where a part of the job is not known (batch, length): what is known may still exceed
    """
    if gpu is None:
        return "unknown"
    if needed.low > gpu.usable:
        return "exceeds"
    if not bounded:
        return "unknown"
    return "fits" if needed.high <= gpu.usable else "tight"


def envelope(*found: Verdict) -> Verdict:
    """The verdict of a job that may be any of several: the one that they share, else `tight`."""
    alike = set(found)
    if len(alike) == 1:
        return found[0]
    return "unknown" if "unknown" in alike else "tight"


def capacity(gpu: Gpu | None) -> Capacity | None:
    """The card's sizes for the report."""
    return None if gpu is None else Capacity(gpu.name, gpu.total, gpu.usable)
