"""What one replay writes while it runs: who still has a name for which tensors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..adapters.modules import Modules
    from ..tape.tensor import Storage, Tensor


@dataclass(slots=True)
class ReplayState:
    """Passed beside the dims, which nothing changes.

    held_by_forward      what the forward function and its callers hold until the loss is there: keys that a model
                         caches in training, features of images, samples of sound
    module_outputs       what the forward function hands to its caller beside the loss
    saved_for_next_step  the logits that the training loop names until the next step's are there
    live_refs            the logits that the loss's function names
    pixel_values         the images of the micro batch, which the loop holds to the end of the backward pass
    returns_logits       the forward function returned logits and no loss
    cached_keys          bytes that a layer's cached keys keep alive;  widened_keys  bytes of those in float32
    first_of_group       of layers that are one and the same, the modules of the first, whose casts the others take
    """

    held_by_forward: list[Storage] = field(default_factory=list)
    module_outputs: list[Tensor] = field(default_factory=list)
    saved_for_next_step: list[Storage] = field(default_factory=list)
    live_refs: list[Storage] = field(default_factory=list)
    pixel_values: list[Storage] = field(default_factory=list)
    returns_logits: bool = False
    cached_keys: int = 0
    widened_keys: int = 0
    first_of_group: dict[int, Modules] = field(default_factory=dict)

    def remember(self, logits: list[Tensor], kept: str) -> None:
        """The training loop's name for the logits goes over to new ones; it has one where they are `kept`."""
        self.saved_for_next_step.clear()
        if kept:
            self.saved_for_next_step.extend(x.storage for x in logits)
