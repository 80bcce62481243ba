"""Images that no config tells of: how far the most and the fewest that a sequence can hold move an estimate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .activations import replayed
from .estimate import Assumption
from .inputs.image_inputs import IMAGES, PIXELS, image_inputs, resolutions_of, vision_spec
from .sharding.strategy import sharded_state

if TYPE_CHECKING:
    from ..job.job import Job
    from ..models.model import Model
    from .inputs.image_inputs import ImageInputs


def images(job: Job, model: Model, *, most: bool) -> list[Assumption]:
    """What is assumed of the images of a model whose tower is replayed; `most`: whether `high` is asked for.

    Without a stated number a sequence has one, or none, or as many as fill it. Without a stated size an image that a
    tower reads at any size has PIXELS, and as many as fill the sequence at most.
    """
    counted = image_inputs(job, model, 1)
    if counted is None or (job.images is not None and (counted.fixed or job.image_pixels is not None)):
        return []
    now = _kept(job, model)
    less = 0
    if job.images is None:
        text = job.with_changes({"images": 0})
        less = now - _kept(text, model)
    more = _kept(_filled(job, model, counted), model) - now if most else 0
    pixels = "the size that the model has" if counted.fixed else f"{job.image_pixels or PIXELS:,} pixels"
    number = IMAGES if job.images is None else job.images
    note = f"taken to be {number} a sequence, of {pixels}: no config tells what the data have"
    return [Assumption("images", str(number), note, max(0, less), max(0, more))]


def states(job: Job, model: Model, own: Model) -> list[Assumption]:
    """What a trained tower holds beside its weights: of text alone it gets neither gradients nor states."""
    if job.images is not None or image_inputs(job, model, 1) is None:
        return []
    less = _states(job, own) - _states(job.with_changes({"images": 0}), own)
    note = "of text alone the tower gets neither gradients nor states"
    return [Assumption("images", str(IMAGES), note, less, 0)] if less > 0 else []


def _states(job: Job, model: Model) -> int:
    """Bytes of gradients and optimizer states."""
    state = sharded_state(job, model)
    return state.gradients + state.optimizer


def _most_patches(job: Job, model: Model, places: int) -> Job:
    """As many images that are cut up as fill the sequence, of the size at which they have most patches."""
    how = vision_spec(model)
    sizes = {height * width for height, width in resolutions_of(model, how) if height == width} if how else set()
    found: dict[int, Job] = {}
    for size in {PIXELS, *sizes}:
        one = job.with_changes({"images": 1, "image_pixels": size})
        seen = image_inputs(one, model, 1)
        if seen is not None and seen.places <= places:
            number = job.images or max(1, places // seen.places)
            filled = one.with_changes({"images": number})
            found[(image_inputs(filled, model, 1) or seen).rows] = filled
    return found[max(found)] if found else job


def _filled(job: Job, model: Model, counted: ImageInputs) -> Job:
    """The job with as many image tokens as its sequences have places."""
    places = job.sequence_length or 0
    if counted.fixed or job.image_pixels is not None:
        return job.with_changes({"images": max(counted.given, places // max(1, counted.places))})
    if counted.cut is not None:
        return _most_patches(job, model, places)
    share = counted.patches * places // max(1, counted.tokens * counted.images)
    return job.with_changes({"images": counted.images, "image_pixels": share * counted.patch**2})


def _kept(job: Job, model: Model) -> int:
    """The most bytes of activations and logits of a micro step."""
    return max(item.activations + item.logits for item in replayed(job, model)[0])
