"""What is made before the layers: embeddings, positions, rotary tables, masks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...models.adapter_types import virtual_tokens
from ..adapters.embedding import adapted_embeds
from ..adapters.linear import project
from ..adapters.virtual_tokens import joined, prefix
from ..estimate import NotEstimable
from ..serving.generation.prefill import attends
from ..states.buffers.stable_embedding import NORM as STABLE
from ..tape.indexing import embedding
from ..tape.labels import labelled
from ..tape.ops import add, contiguous, dropout, scale, scattered
from .altup import spread
from .attention.disentangled import distances
from .attention.relative import biases
from .attention.rope import Table
from .encoder import encoder_stem
from .norms import NORMS
from .sharing import layer_inputs, layer_tokens

if TYPE_CHECKING:
    from ..adapters.modules import Modules
    from ..encoders.projector import Seen
    from ..encoders.tiles import Memory
    from ..tape.tape import Tape
    from ..tape.tensor import Tensor
    from .setting import Setting

PART = "before the layers"


class Stem(NamedTuple):
    """What the model's forward function holds while the layers run.

    table, other    rotary tables: of all layers, or of the full and of the sliding ones
    full, sliding   masks
    extra           inputs of all layers, in Zamba 2 the embeddings
    shared          keys and values that layers take from others
    deep            features of images that the first layers add to their outputs
    memory          features of images that some layers attend to
    """

    hidden: Tensor
    held: tuple[Tensor, ...]
    table: Table
    other: Table | None
    full: Tensor | None
    sliding: Tensor | None
    positions: Tensor
    extra: Tensor | None
    shared: dict[str, tuple[Tensor, Tensor]]
    deep: tuple[Tensor, ...] = ()
    memory: Memory | None = None

    def common(self) -> list[Tensor]:
        """Masks and rotary tables."""
        tables = [(table.cos, table.sin) for table in (self.table, self.other) if table is not None]
        masks = [mask for mask in (self.full, self.sliding) if mask is not None]
        return [*masks, *(x for pair in tables for x in pair)]


@labelled("positions")
def stem(tape: Tape, s: Setting, outside: Modules, ids: Tensor) -> Stem:
    """Embeddings and what else every layer reads. The embedding output stays alive through the forward pass.

    Gemma 4's class with towers holds the second embedding too, and a copy of the first without images' places
    (modeling_gemma4.py Gemma4Model.forward `llm_inputs_embeds`).
    """
    if s.traits.waves or s.traits.encoder:
        return _encoder(tape, s, outside, ids)
    embeds = _looked_up(tape, s, outside, ids)
    scaled = s.traits.embed_scale == "module"
    if scaled:
        embeds = scale(embeds)
    if s.leaf_inputs and embeds.node is None:
        tape.source(embeds)
    embeds = adapted_embeds(embeds, outside.need("embedding"), ids, _text_rows(s), scaled)
    if s.traits.embed_scale == "model":
        embeds = scale(embeds)
    tokens = layer_tokens(tape, ids, outside, s)
    words = [tokens, tape.new(embeds.n, embeds.e)] if tokens is not None and s.reader is not None else []
    memory, features = _memory(tape, s)
    seen = _seen(tape, s, embeds)
    if seen is not None:
        embeds = seen.merged
    embeds = joined(tape, s, outside, embeds)
    keys = prefix(tape, s, outside)
    held = [embeds] if seen is None else [embeds, *seen.held]
    held += [*words, *([] if features is None else [features])]
    if keys is not None:
        held.append(keys)
    extra = contiguous(embeds) if s.order == "zamba" else None
    if tokens is not None:
        extra = layer_inputs(embeds, tokens, outside, s)
    del tokens
    positions = tape.new(s.length, 8)
    h = embeds
    projection = outside.leaf("project_in")
    if projection is not None:
        embeds = h = project(h, projection, s.rows)
    if s.traits.positions == "table":
        where = outside.need("position").weight
        places = embedding(tape, s.length, where, s.hidden, positions)
        h = add(embeds, places)
        held.append(places)
    if s.traits.embed_norm:
        h = NORMS[s.traits.norm](h, outside.leaf(s.traits.embed_norm), s.rows)
    if s.shards > 1:
        h = scattered(h, s.stream * s.hidden)
    h = dropout(h, s.embedding_dropout)
    laid = _laid_out(tape, s, h, tuple(held), positions, extra)
    laid = laid._replace(memory=memory)
    return laid if seen is None else laid._replace(deep=seen.deep)


def _encoder(tape: Tape, s: Setting, outside: Modules, ids: Tensor) -> Stem:
    """Embeddings of an encoder, or what it makes of samples, and what its scores take from all layers."""
    if s.traits.waves:
        from ..encoders.speech_frames import listened

        begun = listened(tape, s, outside)
        return _laid_out(tape, s, begun.hidden, begun.held, tape.new(0, 8), None)
    positions = tape.new(s.rows if s.traits.positions == "rows" else s.length, 8)
    h = encoder_stem(tape, s, outside, ids, positions)
    laid = _laid_out(tape, s, h, (h,) if s.order != "pre" else (), positions, None)
    made = {"disentangled": distances, "relative": biases}.get(s.traits.scores)
    return laid if made is None else laid._replace(shared=made(tape, s, outside))


def _looked_up(tape: Tape, s: Setting, outside: Modules, ids: Tensor) -> Tensor:
    """The embeddings of the text's tokens, normalised where the table is bitsandbytes' StableEmbedding."""
    weight = outside.need("embedding").weight
    text = _text_rows(s)
    embeds = embedding(tape, text, weight, weight.n // vocabulary_rows(s), ids)
    norm = outside.leaf(STABLE)
    return embeds if norm is None else NORMS["layer"](embeds, norm, text)


def _text_rows(s: Setting) -> int:
    """Tokens that are looked up: all but virtual ones."""
    return s.rows - s.batch * virtual_tokens(s.job.adapter)


def _memory(tape: Tape, s: Setting) -> tuple[Memory | None, Tensor | None]:
    """Images that layers attend to, and what the tower made of them."""
    if s.pictures is None or not s.crossing:
        return None, None
    from ..encoders.tiles import GLOBAL, remembered

    if not any(GLOBAL in tensor.name for tensor in s.model.tensors):
        raise NotEstimable("layers that attend to images are not modelled over pipeline stages")
    return remembered(tape, s)


def _seen(tape: Tape, s: Setting, embeds: Tensor) -> Seen | None:
    """The embeddings with images among them."""
    if s.pictures is None or s.crossing:
        return None
    from ..encoders.projector import see

    return see(tape, s, embeds)


def _laid_out(
    tape: Tape, s: Setting, h: Tensor, held: tuple[Tensor, ...], positions: Tensor, extra: Tensor | None
) -> Stem:
    """The embeddings with rotary tables and masks."""
    wide = h.e
    dims = s.table_dims()
    table = _table(tape, s, dims[0], wide, "full_attention")
    other = _table(tape, s, dims[1], wide, "sliding_attention") if len(dims) > 1 else None
    full, sliding = mask(tape, s, None, wide), sliding_mask(tape, s, wide)
    if s.order == "altup":
        h, parts = spread(h, s)
        held = (*held, *parts)
    return Stem(h, held, table, other, full, sliding, positions, extra, {})


@labelled("cosines and sines", part="rotary tables")
def _table(tape: Tape, s: Setting, head_dim: int, wide: int, kind: str) -> Table:
    part = rotary(s, head_dim, kind)
    cell = 4 if s.traits.wide_table else wide
    rows = s.rows if s.traits.each_row else s.length
    return Table(tape.new(rows * part, cell), tape.new(rows * part, cell), part, head_dim, s.rows)


def vocabulary_rows(s: Setting) -> int:
    """Rows of the embedding table on this rank."""
    item = next(item for item in s.items if item.role == "embedding" and item.layers is None)
    return item.shape[0]


def rotary(s: Setting, head_dim: int, kind: str = "") -> int:
    """Features of a head that the rotary embedding turns, where `rope_parameters` say so in layers of a kind."""
    if s.traits.rope == "none":
        return 0
    if s.latent:
        return s.rope_dim // 2 if s.traits.rope == "pairs" else s.rope_dim
    config = s.config
    nested = config.get("rope_parameters")
    stated = config.get("partial_rotary_factor") or config.get("rotary_pct")
    own = nested.get(kind) if isinstance(nested, dict) else None
    if stated is None and isinstance(nested, dict):
        stated = (own if isinstance(own, dict) else nested).get("partial_rotary_factor")
    if stated is None and config.get("rotary_dim"):
        stated = config["rotary_dim"] / head_dim
    if stated is None:
        local = s.traits.local_rotary if kind == "sliding_attention" else 0.0
        stated = local or s.traits.rotary
    turned = int(head_dim * float(stated))
    return turned // 2 if s.traits.rope == "chunks" else turned


@labelled("mask", part="attention mask")
def mask(tape: Tape, s: Setting, window: int | None, e: int) -> Tensor | None:
    """The 4-D mask, where one must exist: always for eager, for sdpa with padding or a window that cuts.

    Falcon adds ALiBi's slopes to it, one for every head. Models without attention make none (transformers 5.23
    masking_utils.py `create_recurrent_attention_mask`; wheels 4.45.2 to 5.0.0 modeling_mamba.py, modeling_mamba2.py).
    """
    if not attends(s.model):
        return None
    size = s.length * s.keys
    if s.traits.encoder and not s.job.padded and (window is None or s.length < window):
        return None
    if s.traits.encoder and window is not None:
        return tape.new(s.batch * size, e) if s.attention == "eager" else tape.new(size, 1)
    if s.traits.encoder and s.attention == "sdpa":
        return tape.new(s.rows, 1)
    if s.traits.slopes and s.attention in ("eager", "sdpa"):
        return tape.new(s.batch * s.heads * size, e)
    if s.attention == "eager":
        return tape.new(s.batch * size, e)
    if s.attention != "sdpa":
        return None
    if s.job.padded or _images_see_all(s, window):
        return tape.new(s.batch * size, 1)
    if s.traits.masked or s.keys > s.length:
        return tape.new(size, 1)
    if window is not None and s.length >= window:
        return tape.new(size, 1)
    return None


def _images_see_all(s: Setting, window: int | None) -> bool:
    """Whether a layer has a mask of every sequence's own, in which images are not causal."""
    if s.pictures is None or s.reader is None:
        return False
    sliding = window is not None and s.config.get("use_bidirectional_attention") == "vision"
    return s.reader.masks == "all" or (s.reader.masks == "sliding" and sliding)


def sliding_mask(tape: Tape, s: Setting, e: int) -> Tensor | None:
    """The mask of the sliding layers, made beside the full one."""
    windows = [window for window in s.windows if window is not None]
    return mask(tape, s, windows[0], e) if windows else None
