"""A prompt's pass through the layers, replayed on the tape: what is alive beside weights and cache."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ....job.job import Parallelism
from ....upstream import transformers
from ....upstream.stack import Stack
from ...estimate import Assumption
from ...forward.embedding_stage import embedding_stage
from ...forward.encoder_decoder import encoded
from ...forward.network import encoder_decoder, one_stack
from ...inputs.image_inputs import image_inputs
from ...layers.decoder import DecoderLayer
from ...layers.layer_inputs import slice_of
from ...layers.state import ReplayState
from ...peak_candidate import SOURCE
from ...states.quantization import effective_quantization
from ...tape.tape import Tape
from ...terms import Product, less, line, terms, total
from ...unmodeled import OTHERS, derived, mixing, tower, tower_outputs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ....job.job import Job
    from ....models.model import Model
    from ...forward.network import Network
    from ...layers.layer_inputs import LayerInputs
    from ...terms import Term


def widest(job: Job, model: Model, batch: int, length: int, cache: int) -> int:
    """The most bytes alive in any layer while `batch` prompts of `length` tokens go through, without the cache.

    What comes before the layers, towers among it, runs while the `cache` of so many bytes is empty still.
    Each distinct kind of layer runs once, the last one again where the model's loop holds something of the layer before
    (`held` of the ArchSpec). From where attention has its keys and values they are the cache's; before,
    what the layer will put there is taken off, since the cache counts as full.
    """
    tape = Tape()
    before = _passed(job, model, batch, length, tape)
    return max(before - cache, tape.highest)


def widest_tensors(job: Job, model: Model, batch: int, length: int, cache: int) -> list[Term]:
    """The same tensor by tensor."""
    from ...explain.tensors import instant_terms
    from ...tape.highest import Highest

    tape = Highest()
    before = _passed(job, model, batch, length, tape)
    alive, counted = tape.first(cache) if before - cache > tape.highest else tape.latest()
    found = instant_terms(one_stack(_plain(job, batch, length), model).dims, alive)
    return [*found, *less("activations", (line("", counted, "keys and values, which the cache counts", SOURCE),))]


def _passed(job: Job, model: Model, batch: int, length: int, tape: Tape) -> int:
    """The pass on a tape; the most bytes alive before the layers."""
    network, state, inputs = _begun(_plain(job, batch, length), model, tape)
    before = tape.highest
    tape.enter(0)
    h, inputs = inputs.hidden, inputs._replace(hidden=tape.new(0, 1))
    dims, kinds = network.dims, network.kinds()[0]
    if dims.arch.held and dims.layers > len(kinds):
        kinds = [*kinds, kinds[-1]]
    for number in kinds:
        layer = DecoderLayer(dims, network.weights, state, number, inputs, slice_of(inputs.extra, dims))
        h = h if layer.skipped else layer(h)
    del h, inputs
    return before


def replayable(job: Job, model: Model) -> bool:
    """Whether the layers are replayed: transformers 5 on, plain weights on one GPU, one stack.

    Of older releases too those of models with layers that do not attend, for which there are no formulas.
    """
    if not Stack(job).does(transformers.REPLAYED_PROMPT) and not mixing(model):
        return False
    if effective_quantization(job, model) is not None or model.shape.encoder_layers:
        return False
    return derived(model) and job.parallelism.tensor == 1 and job.adapter is None


def pixels(job: Job, model: Model, batch: int) -> list[Term]:
    """The prompt's images behind its pass, float32 pixels and int64 masks that `generate` holds."""
    found = image_inputs(_plain(job, batch, 1), model, batch)
    if found is None:
        return []
    counts = (found.images, "images"), 4 * found.pixels + 8 * found.masked
    return terms("activations", (Product("pixels and masks of the prompt's images", 1, counts),), _IMAGES)


_IMAGES = "estimator/serving/generation/prefill.py"


def with_images(job: Job, model: Model, batch: int, length: int, cache: int, layers: Sequence[Product]) -> list[Term]:
    """A prompt's pass where the layers are not replayed and take `layers` for text alone.

    What runs before them is replayed with images and without: its highest point, while the `cache` is empty still, and
    what is held of the images (pixels, features) while the layers run.
    """
    text = terms("activations", layers, _IMAGES)
    if image_inputs(_plain(job, batch, length), model, batch) is None:
        return text
    held = {}
    for images in (0, job.images):
        tape = Tape()
        network, state, inputs = _begun(replace(_plain(job, batch, length), images=images), model, tape)
        held[images] = tape.live
        highest = tape.highest
        del network, state, inputs, tape
    seen = [*text, line("activations", held[job.images] - held[0], "what is held of the prompt's images", _IMAGES)]
    if highest - cache <= total(seen):
        return seen
    return [
        line("activations", highest, "the widest point before the layers, of the prompt's images", _IMAGES),
        line("activations", -cache, "the cache, which is empty still", _IMAGES),
    ]


def unread_images(job: Job, model: Model, batch: int, length: int, element: float) -> list[Assumption]:
    """What towers may take that the estimate does not hold: all of one that is not read, or every layer's output.

    Before transformers 5 LLaVA's class and its kin ask the tower for those (`output_hidden_states=True`, wheels 4.45.2
    to 4.57.6 modeling_llava.py); the code of others is read in 5.23 alone.
    """
    if not job.images or not any(tensor.role == "vision" for tensor in model.tensors):
        return []
    plain = _plain(job, batch, length)
    found = image_inputs(plain, model, batch)
    if found is None:
        note = "what the vision tower takes is not counted, only bounded"
        return [Assumption(OTHERS, model.model_type, note, 0, tower(replace(plain, method="lora"), model))]
    version = job.versions.get(transformers.NAME)
    if not transformers.TOWER_OUTPUTS.at(version):
        return []
    more = tower_outputs(model, found.rows, element)
    note = "the tower is read in transformers 5: before, its layers' outputs may all be held"
    return [Assumption("versions.transformers", str(version), note, 0, more)]


def _begun(job: Job, model: Model, tape: Tape) -> tuple[Network, ReplayState, LayerInputs]:
    """All that comes before the layers, on an empty tape that then records nothing."""
    network, state = one_stack(job, model).without_dropout(), ReplayState()
    tape.configured(network.options)
    tape.recording, tape.caching = False, True
    ids = tape.new(network.dims.rows, 8)
    return network, state, embedding_stage(tape, network, state, network.weights.outside(), ids)


def widest_encoder(job: Job, model: Model, batch: int, length: int) -> int:
    """The same of an encoder-decoder's encoder, and its input: what the prompt's pass takes beside the weights."""
    network = encoder_decoder(_plain(job, batch, length), model).without_dropout()
    state, tape = ReplayState(), Tape().configured(network.options)
    tape.recording = False
    kinds, _ = network.kinds()
    ids = tape.new(network.first.dims.rows, 8)
    encodes = [layer for layer in kinds if layer < network.first.layers]
    memory = encoded(tape, network, state, encodes, network.weights.outside(), ids)
    del memory, ids
    return tape.highest


def _plain(job: Job, batch: int, length: int) -> Job:
    """A training job of the same shapes, on whose tape nothing is recorded; prompts are text but for stated images."""
    plain = replace(job, kind="training", micro_batch_size=batch, sequence_length=length, adapter=None, method="full")
    plain.images = job.images or 0
    precision = replace(job.precision, autocast=None)
    return replace(plain, precision=precision, objective="sft", parallelism=Parallelism())
