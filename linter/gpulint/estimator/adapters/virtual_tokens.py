"""What prompt learning puts before the text: virtual tokens' embeddings, or keys and values of every layer.

Source: peft 0.21.2 peft_model.py (`PeftModelForCausalLM.forward`, `get_prompt`), tuners/p_tuning and
tuners/prefix_tuning/model.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...models.adapter_types import PROMPTS, kind_of, option, prefix_tokens, virtual_tokens
from ..estimate import NotEstimable
from ..frameworks.frameworks import of_transformers
from ..tape.indexing import cat, embedding
from ..tape.ops import leaf, to, unary
from ..tape.tensor import Parameter, Tensor
from .linear import project

if TYPE_CHECKING:
    from ..layers.setting import Setting
    from ..tape.tape import Tape
    from .modules import Modules


ENCODERS = ("prompt_encoder.mlp_head.", "prompt_encoder.transform.")
"""The linear layers behind the look-up, with an activation between them that saves its result."""


def refuse_prompts(s: Setting, *, recurrent: bool) -> None:
    """What stands before the text is read for decoders of Transformers with plain attention. Raises NotEstimable."""
    adapter, shape = s.job.adapter, s.model.shape
    if adapter is None or kind_of(adapter) not in PROMPTS:
        return
    other = s.traits.encoder or shape.encoder_layers or not of_transformers(s.job)
    apart = bool(shape.kv_lora_rank) or recurrent or any(shape.recurrent_states)
    if other or (apart and s.keys > s.length) or s.order in ("altup", "shared", "zamba"):
        raise NotEstimable(f"adapters of type {adapter.type} are not modelled on {s.model.model_type} models")


def joined(tape: Tape, s: Setting, outside: Modules, embeds: Tensor) -> Tensor:
    """Virtual tokens and the text's embeddings in one tensor. PEFT's function has a name for it until the loss is
    there, and for the tokens.
    """
    tokens = virtual_tokens(s.job.adapter)
    if not tokens:
        return embeds
    prompts = to(_made(tape, outside, s.batch * tokens, s.hidden), embeds.e)
    whole = cat((prompts, embeds))
    s.cache += [prompts.storage, whole.storage]
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


def prefix(tape: Tape, s: Setting, outside: Modules) -> Tensor | None:
    """Keys and values of all layers, [b, n, 2 layers, heads, d], in the model's width; None without a prefix."""
    adapter = s.job.adapter
    tokens = prefix_tokens(adapter)
    if adapter is None or not tokens:
        return None
    every = 2 * s.total_layers * s.hidden // max(1, s.heads) * s.kv_heads
    projected = bool(option(adapter, "prefix_projection"))
    width = s.hidden // max(1, s.heads) * s.kv_heads if projected else every
    return to(_made(tape, outside, s.batch * tokens, width), s.dtype_bytes)


def behind(k: Tensor, v: Tensor, s: Setting) -> tuple[Tensor, Tensor]:
    """A layer's keys and values behind its part of the prefix.

    `torch.cat` of the cache makes both anew (transformers cache_utils.py `DynamicLayer.update`), and the cache holds
    them until the forward function ends.
    """
    tape, tokens = k.storage.tape, s.keys - s.length
    found = []
    for x in (k, v):
        each = x.n // s.length * tokens
        part = Parameter(each, k.e, True)
        part.summed = True
        whole = cat((leaf(tape, part), x))
        whole.heads_first = True
        if not tape.again:
            s.cache.append(whole.storage)
        found.append(whole)
    return found[0], found[1]
