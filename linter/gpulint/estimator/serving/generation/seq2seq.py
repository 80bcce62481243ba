"""Generation with an encoder-decoder: the encoder reads the prompt once, the decoder writes the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...estimate import Phase
from ...explain.product import Product, terms, total
from ...inputs.encoder_decoder import has_audio, is_encoder_decoder
from ...unmodeled import derived
from .prefill import prefill_products

if TYPE_CHECKING:
    from ....job.job import Job
    from ....models.model import Model
    from ...estimate import Term

SOURCE = "transformers cache_utils.py EncoderDecoderCache"


class Sizes(NamedTuple):
    """Bytes that a batch takes, by what they are.

    memory   the encoder's last hidden states, kept to the end;  inputs  ids and mask, or mel frames
    cross    keys and values of all decoder layers over them;  layer  those of one layer
    token    keys and values of all decoder layers for one token of each answer
    scores   logits of one token, and their float32 copy
    """

    memory: int
    inputs: int
    cross: int
    layer: int
    token: int
    scores: int
    layers: int


def encodes_prompt(model: Model) -> bool:
    """Whether an encoder with a stack of its own reads the prompt."""
    return bool(model.shape.encoder_layers and model.shape.cross_layers)


def source_tokens(model: Model, prompt: int) -> int:
    """Positions that the encoder hands on: the prompt's, or those of a fixed window of sound."""
    return model.shape.cross_tokens if has_audio(model) else prompt


def sizes(model: Model, batch: int, prompt: int, element: float, width: float) -> Sizes:
    """What the parts take; `element` is the bytes of an activation, `width` those of a cached element."""
    shape = model.shape
    source = source_tokens(model, prompt)
    layers = len(shape.cross_layers)
    inner = shape.kv_heads * (shape.head_dim + shape.v_head_dim)
    bins = int(model.config.get("num_mel_bins") or 0) if has_audio(model) else 0
    layer = round(width * batch * source * inner)
    return Sizes(
        memory=round(element * batch * source * shape.hidden),
        inputs=round(element * batch * 2 * source * bins) if bins else 8 * batch * prompt,
        cross=layer * layers,
        layer=layer,
        token=round(width * batch * inner) * layers,
        scores=round((element + 4) * batch * shape.vocabulary),
        layers=layers,
    )


def phases(
    job: Job, model: Model, fixed: dict[str, int], batch: int, prompt: int, answer: int, element: float, width: float
) -> list[Phase]:
    """The encoder's pass, and the answer's fullest step.

    prefill  the encoder's widest layer
    decode   memory + inputs + cross keys and values + one layer's again while the first step puts them into the cache;
             or, in the last step, the answer's keys and values + one layer's keys again, or the scores
    """
    found = sizes(model, batch, prompt, element, width)
    if is_encoder_decoder(model) and derived(model):
        from .prompt import widest_encoder

        activations = widest_encoder(job, model, batch, prompt)
    else:
        activations = total(prefill_products(model, job, batch, source_tokens(model, prompt), element))
    held = {**fixed, "activations": found.memory + found.inputs, "logits": 0}
    last = found.cross + answer * found.token
    growing = answer * found.token // (2 * max(1, found.layers))
    first = found.cross + found.token + found.layer
    if first >= last + max(growing, found.scores):
        begun = {**held, "activations": held["activations"] + found.layer, "kv_cache": found.cross + found.token}
        decode = Phase("decode", begun)
    elif found.scores > growing:
        decode = Phase("decode", {**held, "kv_cache": last, "logits": found.scores})
    else:
        decode = Phase("decode", {**held, "kv_cache": last, "activations": held["activations"] + growing})
    return [Phase("prefill", {**fixed, "activations": activations, "kv_cache": 0, "logits": 0}), decode]


def cache_terms(model: Model, peak: Phase, batch: int, prompt: int, element: float, width: float) -> list[Term]:
    """The arithmetic of the caches, at the peak."""
    found = sizes(model, batch, prompt, element, width)
    if not peak.components.get("kv_cache"):
        return []
    inner = model.shape.kv_heads * (model.shape.head_dim + model.shape.v_head_dim)
    written = (peak.components["kv_cache"] - found.cross) // max(1, found.token)
    layers, rows = (found.layers, "layers"), (batch, "rows")
    read = (source_tokens(model, prompt), "positions")
    cross = Product("keys and values of what the encoder read", width, (layers, rows, read, inner))
    own = Product("keys and values of what is written", width, (layers, rows, (written, "tokens"), inner))
    return terms("kv_cache", (cross, own), SOURCE, peak.components["kv_cache"])


def activation_products(
    job: Job, model: Model, peak: Phase, batch: int, prompt: int, element: float, width: float
) -> tuple[Product, ...]:
    """What is alive beside weights and caches at the peak; none where the encoder's pass is replayed."""
    if peak.name == "prefill":
        if is_encoder_decoder(model) and derived(model):
            return ()
        return prefill_products(model, job, batch, source_tokens(model, prompt), element)
    found = sizes(model, batch, prompt, element, width)
    more = peak.components["activations"] - found.memory - found.inputs
    return (
        Product("last hidden states of the encoder", found.memory),
        Product("ids and mask, or mel frames", found.inputs),
        Product("keys and values of a layer, as they are put into the cache", more),
    )
