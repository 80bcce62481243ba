"""What one rank holds between micro steps, and what a step adds, whoever divides it (strategy.py chooses)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..terms import Term, line, of, total

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..peak_candidate import PeakCandidate

AUTOGRAD = "torch autograd"
_SUMMED = "torch nn/parallel/comm.py reduce_add_coalesced"


@dataclass(slots=True)
class ShardedState:
    """The state of one rank, term by term. Everything whole, as without sharding.

    resident              weights, adapter and optimizer states
    step_buffers          buffers that stay through all of a step: DDP's buckets, ZeRO-3's bucket
    all_gradients         gradients once every trainable tensor has one
    step_gradients        those of the optimizer step where it copies them, else None
    step_temporaries      what the optimizer step makes and frees again
    step_resident_states  optimizer states that are here for the step alone
    loading               what loading needs on top of the weights
    paged                 bytes of optimizer states in managed memory;  host  bytes of one machine, over its ranks
    trainable             trainable elements of the rank's share of the model
    largest_gradient      bytes of the largest tensor's gradient
    first, last           elements and bytes of the gradients made before the layers', and behind them
    largest_allgather     bytes of the largest tensor that is gathered, freed and gathered again
    side_stream_bytes     bytes that another stream asks for in the step, and that serve nothing else
    dp_reduce_buffer      bytes into which the gradients of several GPUs are summed when a pass ends
    in_backward           each gradient is used up and freed as soon as it is complete
    persistent_grad_buffer  the gradients lie in a buffer that is never freed
    """

    resident: list[Term] = field(default_factory=list)
    step_buffers: list[Term] = field(default_factory=list)
    all_gradients: list[Term] = field(default_factory=list)
    step_gradients: list[Term] | None = None
    step_temporaries: list[Term] = field(default_factory=list)
    step_resident_states: list[Term] = field(default_factory=list)
    loading: list[Term] = field(default_factory=list)
    paged: int = 0
    host: int = 0
    trainable: int = 0
    largest_gradient: int = 0
    first: tuple[int, int] = (0, 0)
    last: tuple[int, int] = (0, 0)
    largest_allgather: int = 0
    side_stream_bytes: int = 0
    dp_reduce_buffer: int = 0
    accumulating: bool = False
    in_backward: bool = False
    persistent_grad_buffer: bool = False

    @property
    def weights(self) -> int:
        """Bytes of weights that stay."""
        return of("weights", self.resident)

    @property
    def adapter(self) -> int:
        """Bytes of adapters that stay."""
        return of("adapter", self.resident)

    @property
    def optimizer(self) -> int:
        """Bytes of masters and states that stay."""
        return of("optimizer", self.resident)

    @property
    def buffers(self) -> int:
        """Bytes of buffers that stay."""
        return total(self.step_buffers)

    @property
    def gradients(self) -> int:
        """Bytes once every trainable tensor has a gradient."""
        return total(self.all_gradients)

    @property
    def step_optimizer(self) -> int:
        """Bytes that the optimizer step makes and frees again."""
        return total(self.step_temporaries)

    @property
    def load(self) -> int:
        """Bytes that loading needs on top of the weights."""
        return total(self.loading)

    def needs_to_load(self, size: int, label: str, source: str = "") -> None:
        """Loading takes `size` bytes on top of the weights, if that is more than what it is known to take."""
        if size > self.load:
            self.loading = [line("buffers", size, label, source)]

    def evaluating(self) -> ShardedState:
        """The state that an evaluation finds."""
        return self

    def terms_at(self, candidate: PeakCandidate) -> list[Term]:
        """What comes to the resident state at an instant: gradients, activations and buffers of its own."""
        return [
            *self.gradients_at(candidate.gradient_elements),
            *self.activations_at(candidate),
            *self.buffers_at(candidate),
        ]

    def gradients_at(self, done: int) -> list[Term]:
        """The gradients alive when those of `done` trainable elements are complete.

        With gradient accumulation all of them stay from the first micro step on. An optimizer that steps in the
        backward pass leaves the one in hand. What several GPUs' are summed into (`dp_reduce_buffer`) stands beside the
        pass's own and those of earlier ones.
        """
        if self.in_backward:
            return self._in_hand(min(self.largest_gradient, total(self.made(done))))
        if not self.dp_reduce_buffer:
            return self.all_gradients if self.accumulating else self.made(done)
        found = [*(self.all_gradients if self.accumulating else ()), *self.made(done)]
        if done >= self.trainable > 0:
            label = "the gradients of all GPUs, summed when the pass ends"
            found.append(line("gradients", self.dp_reduce_buffer, label, _SUMMED))
        return found

    def activations_at(self, candidate: PeakCandidate) -> list[Term]:  # noqa: ARG002
        """Activations alive at an instant beside the replay's own."""
        return []

    def buffers_at(self, candidate: PeakCandidate) -> list[Term]:  # noqa: ARG002
        """Communication buffers and gathered parameters alive at an instant, beside what stays."""
        return []

    def gradient_bytes(self, done: int) -> int:
        """Bytes of the gradients alive when those of `done` trainable elements are complete."""
        return total(self.gradients_at(done))

    def activation_bytes(self, candidate: PeakCandidate) -> int:
        """Bytes of activations alive at an instant."""
        return candidate.activations + total(self.activations_at(candidate))

    def buffer_bytes(self, candidate: PeakCandidate) -> int:
        """Bytes of communication buffers and gathered parameters alive at an instant."""
        return self.buffers + total(self.buffers_at(candidate))

    @property
    def in_step(self) -> list[Term]:
        """What comes to the resident state in the optimizer step: gradients, states, temporaries."""
        gradients = self.step_gradients
        if gradients is None:
            gradients = self._in_hand(self.largest_gradient) if self.in_backward else self.all_gradients
        return [*gradients, *self.step_resident_states, *self.step_temporaries]

    def later(self) -> list[PeakCandidate]:
        """Instants of later micro steps that have more than the first besides activations, of which none is counted."""
        return []

    def ending(self, candidate: PeakCandidate) -> bool:  # noqa: ARG002
        """Whether buffers of an instant are the computation's own, made where it has freed the activations."""
        return False

    def made(self, done: int) -> list[Term]:
        """The gradients that a pass has made of its own."""
        if done >= self.trainable:
            return self.all_gradients
        elements = self.trainable - self.first[0] - self.last[0]
        inner = elements, self.gradients - self.first[1] - self.last[1]
        found, left = [], done
        for count, size in (self.first, inner, self.last):
            if made := min(left, count):
                formula = f"{size:,} B x {made:,} / {count:,} trainable elements"
                label = "the gradients that exist by then"
                found.append(Term("gradients", formula, -(-size * made // count), AUTOGRAD, label))
            left = max(0, left - count)
        return found

    def _in_hand(self, size: int) -> list[Term]:
        what = "the largest gradient: each is used up at once"
        return [line("gradients", size, what, AUTOGRAD)] if size else []


def own(component: str, found: Iterable[Term]) -> list[Term]:
    """The terms of one component."""
    return [term for term in found if term.component == component]
