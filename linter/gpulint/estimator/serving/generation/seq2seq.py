"""Generation with an encoder-decoder: the encoder reads the prompt once, the decoder writes the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...estimate import Phase
from ...inputs.objectives import has_audio, is_encoder_decoder
from ...terms import Product, line, terms
from ...unmodeled import derived
from .prefill import last_logits, prefill_products

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ....job.job import Job
    from ....models.model import Model
    from ...terms import Term

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
    job: Job, model: Model, fixed: Sequence[Term], batch: int, prompt: int, answer: int, element: float, width: float
) -> list[Phase]:
    """The encoder's pass, and the answer's fullest step.

    prefill  the encoder's widest layer
    decode   memory + inputs + cross keys and values + one layer's again while the first step puts them into the cache;
             or, in the last step, the answer's keys and values + one layer's keys again, or the scores
    """
    found = sizes(model, batch, prompt, element, width)
    if is_encoder_decoder(model) and derived(model):
        from .prompt import widest_encoder

        read = [line("activations", widest_encoder(job, model, batch, prompt), "the encoder's pass", _SOURCE)]
    else:
        layers = prefill_products(model, job, batch, source_tokens(model, prompt), element)
        read = terms("activations", layers, _SOURCE)
    held = [
        line("activations", found.memory, "last hidden states of the encoder", _SOURCE),
        line("activations", found.inputs, "ids and mask, or mel frames", _SOURCE),
    ]
    last = found.cross + answer * found.token
    growing = answer * found.token // (2 * max(1, found.layers))
    first = found.cross + found.token + found.layer
    if first >= last + max(growing, found.scores):
        made = [line("activations", found.layer, ANEW, _SOURCE), *_cache(model, found, batch, prompt, 1, width)]
    elif found.scores > growing:
        made = [*terms("logits", (last_logits(model, batch, element),), _PREFILL)]
        made += _cache(model, found, batch, prompt, answer, width)
    else:
        made = [line("activations", growing, ANEW, _SOURCE), *_cache(model, found, batch, prompt, answer, width)]
    decode = (*fixed, *held, *(term for term in made if term.size))
    return [Phase("prefill", (*fixed, *read)), Phase("decode", decode)]


ANEW = "keys and values of a layer, as they are put into the cache"
_SOURCE, _PREFILL = "estimator/serving/generation/seq2seq.py", "estimator/serving/generation/prefill.py"


def _cache(model: Model, found: Sizes, batch: int, prompt: int, written: int, width: float) -> list[Term]:
    """Keys and values of what the encoder read, and of the tokens that are `written`."""
    inner = model.shape.kv_heads * (model.shape.head_dim + model.shape.v_head_dim)
    layers, rows = (found.layers, "layers"), (batch, "rows")
    read = (source_tokens(model, prompt), "positions")
    cross = Product("keys and values of what the encoder read", width, (layers, rows, read, inner))
    own = Product("keys and values of what is written", width, (layers, rows, (written, "tokens"), inner))
    return terms("kv_cache", (cross, own), SOURCE, found.cross + written * found.token)
