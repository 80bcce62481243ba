"""A prompt's pass through the layers, replayed on the tape: what is alive beside weights and cache."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ....job.job import Parallelism
from ....upstream import transformers
from ....upstream.stack import Stack
from ...bounds import tower, tower_outputs
from ...estimate import Assumption, Phase, Term
from ...explain.activation_terms import SOURCE, instant_terms
from ...forward.embedding_stage import embedding_stage
from ...forward.encoder_decoder import encoded
from ...forward.network import encoder_decoder, one_stack
from ...inputs.image_inputs import image_inputs
from ...layers.decoder import DecoderLayer
from ...layers.per_layer_inputs import slice_of
from ...layers.state import ReplayState
from ...states.quantization import effective_quantization
from ...tape.highest import Highest
from ...tape.tape import Tape
from ...unmodeled import OTHERS, derived, mixing

if TYPE_CHECKING:
    from ....job.job import Job
    from ....models.model import Model
    from ...forward.network import Network
    from ...layers.layer_inputs import LayerInputs


def widest(job: Job, model: Model, batch: int, length: int, cache: int) -> int:
    """The most bytes alive in any layer while `batch` prompts of `length` tokens go through, without the cache.

    What comes before the layers, towers among it, runs while the `cache` of so many bytes is empty still.
    Each distinct kind of layer runs once, the last one again where the model's loop holds something of the layer before
    (`held` of the ArchSpec). From where attention has its keys and values they are the cache's; before,
    what the layer will put there is taken off, since the cache counts as full.
    """
    return _passed(job, model, batch, length, cache, Tape())


def widest_terms(job: Job, model: Model, batch: int, length: int, cache: int) -> list[Term]:
    """The same tensor by tensor."""
    tape = Highest()
    size = _passed(job, model, batch, length, cache, tape)
    alive, counted = tape.highest_of(size, cache)
    lines = instant_terms(one_stack(_plain(job, batch, length), model).dims, alive)
    what = "keys and values, which the cache counts"
    return [*lines, *([Term("activations", f"{-counted:,} B", -counted, SOURCE, what)] if counted else [])]


def _passed(job: Job, model: Model, batch: int, length: int, cache: int, tape: Tape) -> int:
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
    return max(before - cache, tape.highest)


def replayable(job: Job, model: Model) -> bool:
    """Whether the layers are replayed: transformers 5 on, plain weights on one GPU, one stack.

    Of older releases too those of models with layers that do not attend, for which there are no formulas.
    """
    if not Stack(job).does(transformers.REPLAYED_PROMPT) and not mixing(model):
        return False
    if effective_quantization(job, model) is not None or model.shape.encoder_layers:
        return False
    return derived(model) and job.parallelism.tensor == 1 and job.adapter is None


def with_pixels(phase: Phase, job: Job, model: Model, batch: int) -> Phase:
    """A phase behind the prompt with the prompt's images, float32 pixels and int64 masks that `generate` holds."""
    found = image_inputs(_plain(job, batch, 1), model, batch)
    if found is None:
        return phase
    activations = phase.components["activations"] + found.images * (4 * found.pixels + 8 * found.masked)
    return Phase(phase.name, {**phase.components, "activations": activations})


def with_images(job: Job, model: Model, batch: int, length: int, cache: int, layers: int) -> int:
    """The same where the layers are not replayed and take `layers` bytes for text alone.

    What runs before them is replayed with images and without: its highest point, while the `cache` is empty still, and
    what is held of the images (pixels, features) while the layers run.
    """
    if image_inputs(_plain(job, batch, length), model, batch) is None:
        return layers
    held = {}
    for images in (0, job.images):
        tape = Tape()
        network, state, inputs = _begun(replace(_plain(job, batch, length), images=images), model, tape)
        held[images] = tape.live
        highest = tape.highest
        del network, state, inputs, tape
    return max(highest - cache, layers + held[job.images] - held[0])


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
