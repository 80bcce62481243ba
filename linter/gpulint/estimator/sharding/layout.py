"""What one rank holds between micro steps, and what a step adds, whoever divides it (layouts.py chooses)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..estimate import Term
    from ..peak_candidate import Instant


@dataclass(slots=True)
class Layout:
    """Bytes of one rank between micro steps, and what a step adds. Everything whole, as without sharding.

    weights, adapter, optimizer   resident;  paged  optimizer states in managed memory
    visiting                      optimizer states that are here for the step alone
    host                          bytes of main memory of one machine, over its ranks
    gradients                     bytes once every trainable tensor has one
    trainable                     trainable elements of the rank's share of the model
    largest_gradient              bytes of the largest tensor's gradient
    buffers                       resident besides those (DDP's buckets, ZeRO-3's bucket)
    first, last                   elements and bytes of the gradients made before the layers', and behind them
    step_gradients, step_optimizer, step_buffers   copies, temporaries and buffers alive in the optimizer step
    load                          what loading needs on top of the weights
    anew                          bytes of the largest tensor that is gathered, freed and gathered again
    aside                         bytes that another stream asks for in the step, and that serve nothing else
    summed                        bytes into which the gradients of several GPUs are summed when a pass ends
    in_backward                   each gradient is used up and freed as soon as it is complete
    lasting                       the gradients lie in a buffer that is never freed
    terms                         lines of what is resident, `buffers` among them
    step_terms                    lines of the gradients in the optimizer step, where they are copied there
    """

    weights: int = 0
    adapter: int = 0
    optimizer: int = 0
    paged: int = 0
    visiting: int = 0
    host: int = 0
    gradients: int = 0
    trainable: int = 0
    largest_gradient: int = 0
    first: tuple[int, int] = (0, 0)
    last: tuple[int, int] = (0, 0)
    buffers: int = 0
    step_gradients: int = 0
    step_optimizer: int = 0
    step_buffers: int = 0
    load: int = 0
    anew: int = 0
    aside: int = 0
    summed: int = 0
    accumulating: bool = False
    in_backward: bool = False
    lasting: bool = False
    terms: list[Term] = field(default_factory=list)
    step_terms: list[Term] = field(default_factory=list)

    def evaluating(self) -> Layout:
        """The layout that an evaluation finds."""
        return self

    def gradient_bytes(self, done: int) -> int:
        """Bytes of the gradients alive when those of `done` trainable elements are complete.

        With gradient accumulation all of them stay from the first micro step on. An optimizer that steps in the
        backward pass leaves the one in hand. What is `summed` stands beside the pass's own and those of earlier ones.
        """
        if self.in_backward:
            return min(self.largest_gradient, self._share(done))
        if self.summed:
            own = self._share(done) + (self.summed if done >= self.trainable > 0 else 0)
            return own + (self.gradients if self.accumulating else 0)
        return self.gradients if self.accumulating else self._share(done)

    def activation_bytes(self, instant: Instant) -> int:
        """Bytes of activations alive at an instant."""
        return instant.activations

    def buffer_bytes(self, instant: Instant) -> int:  # noqa: ARG002
        """Bytes of communication buffers and gathered parameters alive at an instant."""
        return self.buffers

    def told(self, instant: Instant) -> list[Term]:  # noqa: ARG002
        """Lines of what `buffer_bytes` holds at an instant beside what is resident."""
        return []

    def gradient_lines(self, lines: list[Term], instant: Instant) -> list[Term]:  # noqa: ARG002
        """Lines of what `gradient_bytes` holds at an instant, where `lines` are those of all gradients."""
        return lines

    def later(self) -> list[Instant]:
        """Instants of later micro steps that have more than the first besides activations, of which none is counted."""
        return []

    def ending(self, instant: Instant) -> bool:  # noqa: ARG002
        """Whether buffers of an instant are the computation's own, made where it has freed the activations."""
        return False

    def _share(self, done: int) -> int:
        inner = (self.trainable - self.first[0] - self.last[0], self.gradients - self.first[1] - self.last[1])
        found, left = 0, min(done, self.trainable)
        for elements, size in (self.first, inner, self.last):
            if elements:
                found += -(-size * min(left, elements) // elements)
            left = max(0, left - elements)
        return found
