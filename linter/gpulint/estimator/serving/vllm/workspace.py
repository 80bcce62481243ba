"""The workspace that vLLM's kernels share: made with their first use, in the profile run, and kept from then on.

T tokens of a batch, K experts a token, f an expert's MLP width on the rank, w its input width, e bytes of an element.

    experts             e T K (max(f, w) + max(2 f, w)), plain MLP (max(f, w) + max(f, w))
    indexer             40 L (i + 4 i / 128): room for the keys of 40 of the longest requests, L tokens, of which
                        each has i fp8 elements and their scales (DeepSeek V3.2, GLM-5); DeepSeek V4 keeps a key for
                        every 4 tokens
    DeepSeek V4         4 (ceil(L / 4) + window + T) D elements of 16 bits, into which prefill gathers keys; and, beside
                        the rest, what the model keeps for each token of a batch from its start: its hidden streams for
                        a draft model, and the indexer's choice, 4 B each

All users share one buffer, so that the largest counts. FlashMLA gathers 5 L latents of 16 bits into it where the cache
is packed fp8, which is in `high`.

Kernels that bring their own buffers (TensorRT-LLM's, on Blackwell) leave the first one small: it is not in `low`.
DeepGEMM pads each expert's rows to 128, which is in `high`.
Source: vllm 0.22 v1/worker/workspace.py, fused_moe/modular_kernel.py `_allocate_buffers`, fused_moe/experts/
triton_moe.py, marlin_moe.py, deep_gemm_moe.py `workspace_shapes`; models/deepseek_v4/nvidia/model.py, flashmla.py;
0.13 to 0.33 model_executor/layers/sparse_attn_indexer.py, v1/attention/backends/mla/indexer.py
`get_max_prefill_buffer_size`, flashmla_sparse.py `get_prefill_workspace_size`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...terms import Product, largest, total
from ..pools.compressed_cache import compresses, window

if TYPE_CHECKING:
    from ....models.model import Model

SOURCE = "vllm/v1/worker/workspace.py"

_GATHERED_REQUESTS = 4
_GATHERED_RATIO = 4
_INDEXED_REQUESTS = 40
_INDEX_BLOCK, _INDEX_SCALE = 128, 4
"""Elements of an indexer's key that share a scale, and its bytes."""

_GATHERED_LATENTS = 5
ROWS = 128
"""Rows to which DeepGEMM pads what each expert gets."""


class Workspace(NamedTuple):
    """What stays, and its bytes at the least and at the most."""

    products: tuple[Product, ...]
    low: int
    high: int

    @property
    def expected(self) -> int:
        """Bytes of the products."""
        return total(self.products)


NONE = Workspace((), 0, 0)


def workspace(model: Model, tokens: int, longest: int, element: float, experts: int) -> Workspace:
    """The workspace of one rank, on which an expert's features are divided by `experts`."""
    shape = model.shape
    indexed, most = _indexed(model, longest)
    shared, kept = list(indexed), []
    if compresses(shape):
        rows = -(-longest // _GATHERED_RATIO) + window(model) + tokens
        keys = Product("keys that prefill gathers", 2, (_GATHERED_REQUESTS, (rows, "rows"), shape.head_dim))
        shared = list(largest(shared, [keys]))
        batch, chosen = (tokens, "tokens"), model.config.get("index_topk") or 0
        kept = [
            Product("hidden streams for a draft", element, (batch, streams(model), shape.hidden)),
            Product("the indexer's choice", 4, (batch, chosen)),
        ]
    gathered, stays = total(shared), total(kept)
    routed = expert_products(model, tokens * shape.experts_per_token, element, experts)
    padded = expert_bytes(model, tokens * shape.experts_per_token + shape.experts * (ROWS - 1), element, experts)
    found = (*largest(shared, routed), *kept)
    high = max(gathered, most, padded) + stays
    return Workspace(found, gathered + stays, high)


def _indexed(model: Model, longest: int) -> tuple[list[Product], int]:
    """What prefill gathers of an indexer's keys, and the bytes that FlashMLA gathers at the most in their place."""
    shape = model.shape
    index = shape.index_head_dim or 0
    if not index or not shape.indexer_layers:
        return [], 0
    entries = _INDEXED_REQUESTS * longest // (_GATHERED_RATIO if compresses(shape) else 1)
    latent = shape.kv_lora_rank + shape.qk_rope_head_dim if shape.kv_lora_rank else 0
    keys = Product("the indexer's keys", 1, ((entries, "keys"), index + index // _INDEX_BLOCK * _INDEX_SCALE))
    return [keys], max(total([keys]), _GATHERED_LATENTS * longest * latent * 2)


def expert_products(model: Model, rows: int, element: float, experts: int) -> list[Product]:
    """Both buffers of the fused experts for `rows` rows, tokens times the experts of each."""
    shape = model.shape
    if not shape.experts:
        return []
    inner, width = shape.moe_intermediate, expert_width(model)
    made = (
        ("first buffer: the experts' rows", "first buffer: their inner states"),
        ("second buffer: the experts' rows", "second buffer: their projections"),
    )
    found = []
    for (outside, inside), copies in zip(made, (1, 2 if shape.mlp == "gated" else 1), strict=True):
        wide = copies * inner / experts > width
        counts = ((rows, "rows"), copies, inner) if wide else ((rows, "rows"), width)
        found.append(Product(inside if wide else outside, element, counts, experts if wide else 1))
    return found


def expert_bytes(model: Model, rows: int, element: float, experts: int) -> int:
    """The bytes of `expert_products`."""
    return total(expert_products(model, rows, element, experts))


def expert_width(model: Model) -> int:
    """Input features of an expert: the hidden size, or what a latent projection leaves of it (Nemotron 3)."""
    for tensor in model.tensors:
        if tensor.role == "expert_down" and len(tensor.shape) == 3 and model.shape.moe_intermediate:
            return tensor.shape[1] * tensor.shape[2] // model.shape.moe_intermediate
    return model.shape.hidden


def streams(model: Model) -> int:
    """Hidden streams of a token (`hc_mult` of DeepSeek V4's hyper-connections), else one."""
    stated = model.config.get("hc_mult")
    return stated if isinstance(stated, int) and stated > 0 else 1
