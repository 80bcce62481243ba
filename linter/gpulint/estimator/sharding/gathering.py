"""Which parameters ZeRO-3 holds gathered at an instant: its prefetcher and its reuse distance."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..terms import Term, total

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...job.job import Job, Zero
    from ...models.model import Model
    from ..peak_candidate import PeakCandidate
    from ..states.parameter import Parameter


class Window(NamedTuple):
    """Elements by layer, and what the coordinator keeps of them.

    layers      elements of each decoder layer;  head, embedding  of what comes after and before them
    largest     elements of the largest module's own parameters, which are fetched together (fused experts are one)
    prefetch    stage3_prefetch_bucket_size;  live  stage3_max_live_parameters;  reuse  stage3_max_reuse_distance
    passes      how often the parameters after a layer are used between its forward and its backward, for each of
                them: 2, with activation checkpointing 3 (the recomputation)
    width       bytes of a gathered element
    """

    layers: tuple[int, ...]
    head: int
    embedding: int
    largest: int
    prefetch: int
    live: int
    reuse: int
    passes: int
    width: float

    def size(self, candidate: PeakCandidate) -> int:
        """Bytes gathered at an instant of forward, loss or backward."""
        return total(self.terms_at(candidate))

    def terms_at(self, candidate: PeakCandidate) -> list[Term]:
        """What is gathered at an candidate.

        A prefetched bucket arrives flat and is copied out to its parameters: twice (`AllGatherCoalescedHandle`).
        """
        held, source = self.held(candidate), "deepspeed partitioned_param_coordinator.py"
        ahead = self._ahead(held)
        size, whole = int(self.width * held), int(self.width * (held + 2 * ahead))
        label = f"gathered, within max_reuse_distance {self.reuse:,}"
        found = [Term("buffers", f"{self.width:g} B x {held:,} elements", size, source, label)]
        if ahead:
            formula, label = (
                f"2 x {self.width:g} B x {ahead:,} elements",
                "prefetched, in one tensor and copied out of it",
            )
            found.append(Term("buffers", formula, whole - size, source, label))
        return found

    def held(self, candidate: PeakCandidate) -> int:
        """Elements of the parameters that are gathered at an instant, without what is prefetched."""
        backward = candidate.phase == "backward"
        turn = candidate.phase == "loss" or candidate.layer is None
        if candidate.layer is None and backward and candidate.gradient_elements and self._finished(candidate):
            return (self.embedding if self.embedding < self.reuse else 0) + self.largest
        first = self.first_kept()
        if turn:
            return self.head + sum(self.layers[first:])
        layer = min(candidate.layer or 0, len(self.layers) - 1) if self.layers else 0
        if not self.layers:
            return self.largest
        current = self.layers[layer] if backward and self.passes == 3 else min(self.largest, self.layers[layer])
        return sum(self.layers[first:layer]) + current

    def first_kept(self) -> int:
        """The first layer that stays gathered from its forward to its backward pass.

        A module's parameters are not released when they come up again before `reuse` more elements are traversed
        (`__params_to_release`): passes x (elements after the layer) < max_reuse_distance.
        """
        after, first = self.head, len(self.layers)
        for index in range(len(self.layers) - 1, -1, -1):
            if self.passes * after >= self.reuse:
                break
            first = index
            after += self.layers[index]
        return first

    def _finished(self, candidate: PeakCandidate) -> bool:
        return candidate.gradient_elements > self.head + sum(self.layers)

    def _ahead(self, held: int) -> int:
        """Elements prefetched: the bucket, cut by max_live_parameters, and never more than there is."""
        total = self.head + self.embedding + sum(self.layers)
        return max(0, min(self.prefetch, self.live - held, total - held))


def window(job: Job, model: Model, zero: Zero, loose: Sequence[Parameter], width: float) -> Window:
    """The Window of a stage 3 job over its partitioned parameters; persistent ones are counted elsewhere."""
    gatherable = [item for item in loose if _stored(item, width) > zero.param_persistence_threshold]
    counts = [0] * max(1, model.shape.layers)
    head = embedding = 0
    for item in gatherable:
        if item.layers is None:
            if item.role in ("embedding", "position"):
                embedding += _stored(item, width)
            else:
                head += _stored(item, width)
            continue
        for layer in item.layers:
            if layer < len(counts):
                counts[layer] += _stored(item, width)
    if model.shape.tied:
        head += embedding
        embedding = 0
    return Window(
        tuple(counts),
        head,
        embedding,
        _largest_module(gatherable, width),
        zero.prefetch_bucket_size,
        zero.max_live_parameters,
        zero.max_reuse_distance,
        3 if job.activation_checkpointing in ("full", "offload") else 2,
        width,
    )


def _largest_module(items: Sequence[Parameter], width: float) -> int:
    """`fetch_sub_module` gathers what `module.parameters(recurse=False)` yields (partitioned_param_coordinator.py)."""
    modules: dict[str, int] = {}
    for item in items:
        module = item.name.rpartition(".")[0]
        modules[module] = modules.get(module, 0) + _stored(item, width)
    return max(modules.values(), default=0)


def _stored(item: Parameter, width: float) -> int:
    """Elements that DeepSpeed sees in one copy: a packed weight is its codes in the storage dtype."""
    return int(item.pieces[0] // width) if item.packed else item.size
