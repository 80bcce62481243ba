"""What prompt learning puts before the text: virtual tokens' embeddings, or keys and values of every layer.

Source: peft 0.21.2 peft_model.py (`PeftModelForCausalLM.forward`, `get_prompt`), tuners/p_tuning and
tuners/prefix_tuning/model.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..adapters.linear import project
from ..tape.indexing import cat, embedding
from ..tape.ops import to, unary
from ..tape.tape import tape_of
from ..tape.tensor import Tensor

if TYPE_CHECKING:
    from ..adapters.modules import Modules
    from ..layers.dims import LayerDims
    from ..layers.state import ReplayState
    from ..tape.tape import Tape

ENCODERS = ("prompt_encoder.mlp_head.", "prompt_encoder.transform.")
"""The linear layers behind the look-up, with an activation between them that saves its result."""


def with_virtual_tokens(dims: LayerDims, state: ReplayState, outside: Modules, embeds: Tensor) -> Tensor:
    """Virtual tokens and the text's embeddings in one tensor. PEFT's function has a name for it until the loss is
    there, and for the tokens.
    """
    tokens = dims.prompt.virtual_tokens
    if not tokens:
        return embeds
    prompts = to(_made(tape_of(embeds), outside, dims.batch * tokens, dims.hidden), embeds.e)
    whole = cat((prompts, embeds))
    state.held_by_forward += [prompts.storage, whole.storage]
    return whole


def _made(tape: Tape, outside: Modules, rows: int, width: int) -> Tensor:
    """A look-up of the virtual tokens for every sequence, through an encoder where there is one."""
    ids = Tensor(tape.nothing, rows, 8)
    found = embedding(tape, rows, outside.named["prompt_encoder.embedding"].weight, width, ids)
    names = sorted(name for name in outside.named if name.startswith(ENCODERS))
    for name in names:
        found = project(found, outside.named[name], rows)
        if name != names[-1]:
            found = unary(found, save_input=False, save_output=True)
    return found


def prefix(tape: Tape, dims: LayerDims, outside: Modules) -> Tensor | None:
    """Keys and values of all layers, [b, n, 2 layers, heads, d], in the model's width; None without a prefix."""
    tokens, own = dims.prompt.prefix_tokens, dims.attention
    if not tokens:
        return None
    head_dim = dims.hidden // max(1, own.heads)
    every = 2 * dims.layers * dims.hidden // max(1, own.heads) * own.kv_heads
    width = head_dim * own.kv_heads if dims.prompt.projected else every
    return to(_made(tape, outside, dims.batch * tokens, width), dims.embedding_e)
