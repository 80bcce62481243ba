"""What vLLM holds beside the checkpoint's weights: absorbed latent projections, and experts padded for their kernel."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ....upstream.serving import vllm
from ....upstream.serving.vllm import TABLE_A_LAYER
from ...states.quantization import effective_quantization
from ...states.storage import packed_pieces
from ...states.tensor_parallel import expert_tensor, fullest_stage
from ...terms import Product, line
from ..kv_cache import SHARING, lenders

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ....hardware.gpu import Gpu
    from ....job.job import Job
    from ....models.model import Model, Tensor
    from ...states.parameters import Parameter
    from ...terms import Count, Term


LATENT_SOURCE = "vllm/model_executor/layers/attention/mla_attention.py process_weights_after_loading"
PADDING_SOURCE = (
    "vllm fused_moe/oracle/mxfp4.py mxfp4_round_up_hidden_size_and_intermediate_size; "
    "triton_kernels/tensor_details/layout_details/hopper_value.py"
)
WIDER_SOURCE = "vllm/model_executor/models/deepseek_v4/compressor.py, models/gemma4.py qkv_proj"

_HOPPER_VALUES = (256, 128)
"""Rows, and columns of 4 bits, to multiples of which Triton's layout of Hopper pads values (`_padded_shape`)."""

_CACHE_ALIGNMENT = 256
"""Bytes to which 0.7.2 and 0.7.3 align the latent of one token (worker/cache_engine.py `_align_cache`)."""

_INDEX_SCALE = 4
"""Bytes of the scale beside each 128 fp8 elements of an indexer's key (models/deepseek_v2.py)."""

_SPARSE_FP8 = 656
"""Bytes of a token's fp8 latent under sparse attention: 512 fp8, 4 scales, 64 of 16 bits (`fp8_ds_mla`)."""

_PACKED_LATENTS = {"fp8_ds_mla": _SPARSE_FP8, "nvfp4_ds_mla": 352}
"""Bytes of a token's latent where the dtype packs it (0.33 mla_attention.py); nvfp4: 512 fp4, 64 fp8, 32 scales."""


def latent_copies(
    job: Job, model: Model, version: str | None, element: float, elsewhere: int = 0
) -> tuple[Product, ...]:
    """What latent attention multiplies with on one rank instead of the up-projections, for the whole stage.

    Before 0.8 the products of weights that `cpu_offload_gb` moved, those of the `elsewhere` first layers, are made and
    stay in main memory (0.7.2 model_loader/loader.py `load_model`).

    H heads of the rank, L latent, N and R the two parts of a query's head, V of a value's, Q the query latent or h:
    before 0.8 the products W_Q W_UK (Q H L), W_UV W_O (H L h) and W_QR (Q H R), in the weights' fp8 or 16 bits
    (0.7.2 attention/backends/mla/utils.py); since then W_UK and W_UV, H L (N + V) in 16 bits, views of weights that
    are not quantised.
    """
    shape = model.shape
    if not shape.kv_lora_rank or expanded_head(model, version):
        return ()
    plan, quantization, latent = job.parallelism, effective_quantization(job, model), shape.kv_lora_rank
    heads = (-(-shape.heads // plan.tensor), "heads")
    first = vllm.ABSORBS_PROJECTIONS.at(version)
    here = fullest_stage([1] * shape.layers, plan.pipeline)
    layers = max(0, here - elsewhere) if first else here, "layers"
    found = []
    if quantization is not None:
        up = shape.qk_nope_head_dim + shape.v_head_dim
        found.append(_absorbed("latent up-projections, in 16 bits", element, (layers, heads, latent, up)))
    if first:
        queries = _query_width(model)
        width = 1.0 if quantization is not None and quantization.method == "fp8" else element
        rotary = layers, queries, heads, shape.qk_rope_head_dim
        found.append(_absorbed("absorbed latent projections", width, (layers, heads, latent, queries + shape.hidden)))
        found.append(_absorbed("queries' rotary projections", element, rotary))
    return tuple(found)


def _absorbed(label: str, each: float, counts: tuple[Count, ...]) -> Product:
    return Product(label, each, counts, source=LATENT_SOURCE)


def _query_width(model: Model) -> int:
    """Input features of the queries' up-projection: the query latent's, or the hidden size without one."""
    found = (tensor.shape[1] for tensor in model.tensors if tensor.leaf == "q_b_proj" and len(tensor.shape) == 2)
    return next(found, model.shape.hidden)


def expanded_head(model: Model, version: str | None) -> int:
    """Elements of one head's key, and of its value padded to it, which vLLM caches for the latent; 0: it caches that.

    models/minicpm3.py has never cached the latent.
    """
    head = model.shape.qk_nope_head_dim + model.shape.qk_rope_head_dim
    if model.model_type == "minicpm3":
        return head
    if vllm.LATENT_ATTENTION.at(version):
        return 0
    return _PADDED_HEAD if vllm.PADS_LATENT_HEADS.at(version) else head


_PADDED_HEAD = 256
"""Elements to which the heads of DeepSeek-V2, of 192, were padded: the next that FlashAttention supported."""


def cached_latent(
    model: Model, latent: int, index: int, element: float, version: str | None, dtype: str | None = None
) -> float:
    """Bytes of one layer and token for `latent` cached elements and, beside them, `index` of a sparse indexer's key.

    An indexer's key is fp8 with its scales, whatever the cache's dtype.
    """
    size = latent * element
    if vllm.ALIGNS_LATENT.at(version):
        size = -(-size // _CACHE_ALIGNMENT) * _CACHE_ALIGNMENT
    if model.shape.index_head_dim and element == 1 and model.shape.kv_lora_rank == 512:
        size = _SPARSE_FP8
    size = _PACKED_LATENTS.get((dtype or "").lower(), size)
    return size + index + index // 128 * _INDEX_SCALE


def made_wider(model: Model, found: Iterable[Parameter]) -> int:
    """Bytes on one rank that DeepSeek V4 takes above its checkpoint's dtypes, or `fused_keys`.

    The compressor's projections and the indexer's scores are made without a quantisation, the hyper-connections and
    the compressor's biases in float32 (models/deepseek_v4/compressor.py, nvidia/model.py `hc_attn_fn`).
    """
    if model.model_type != "deepseek_v4":
        return fused_keys(model, found)
    packed = (item for item in found if item.packed and any(name in item.name for name in SIXTEEN_BIT))
    plain = (item for item in found if not item.packed and any(name in item.name for name in _FLOAT32_PARTS))
    return sum(item.elements * 2 - item.raw for item in packed) + sum(item.elements * 4 - item.raw for item in plain)


def fused_keys(model: Model, found: Iterable[Parameter]) -> int:
    """Bytes on one rank of keys and values that Gemma 3n and 4 have no use for: `qkv_proj` is made of all three.

    So layers that read another's cache have both, as large as that one's, and layers whose values are their keys
    (`attention_k_eq_v`) have these twice.
    Source: vllm models/gemma4.py `Gemma4Attention`, gemma3n.py; sglang srt/models/gemma4_causal.py, gemma3n_causal.py.
    """
    if not model.model_type.startswith(SHARING):
        return 0
    kept: dict[int, dict[str, int]] = {}
    for item in found:
        if item.role in ("k", "v") and item.copies and not item.name.startswith("draft."):
            for layer in item.layers or ():
                kept.setdefault(layer, {})[item.role] = item.raw // item.copies
    own = {layer: sizes["k"] + sizes.get("v", sizes["k"]) for layer, sizes in kept.items() if "k" in sizes}
    twice = sum(size - sum(kept[layer].values()) for layer, size in own.items())
    return twice + sum(own.get(lender, 0) for layer, lender in lenders(model).items() if layer not in own)


SIXTEEN_BIT = (
    ".compressor.kv_proj.",
    ".compressor.gate_proj.",
    ".indexer.kv_proj.",
    ".indexer.gate_proj.",
    ".scorer.",
)
"""DeepSeek-V4's modules that are made without a quantisation (sglang dsv4/compressor.py `wkv_gate`, indexer.py)."""
_FLOAT32_PARTS = ("attn_hc.", "ffn_hc.", "hc_head.", ".position_bias")


def padded_experts(found: Iterable[Parameter], job: Job, model: Model, gpu: Gpu | None) -> list[Parameter]:
    """The parameters of one rank with MXFP4 experts as large as their kernel wants them.

    Rows of (intermediate, hidden) multiples: Marlin 128 and 256 (every NVIDIA card but those below), TensorRT-LLM's
    kernels 128 and 256 (compute capability 10), Triton's 64 and none (9.0), whose layout pads the values once more and
    not the scales. Other methods and unknown cards pad none.
    """
    quantization = effective_quantization(job, model)
    if quantization is None or quantization.method != "mxfp4" or gpu is None or gpu.compute_capability is None:
        return list(found)
    hopper = gpu.compute_capability == 9.0
    inner_step, hidden_step = (64, 1) if hopper else (128, 256)
    shape = model.shape
    inner = _up(-(-shape.moe_intermediate // expert_tensor(job)), inner_step)
    hidden = _up(shape.hidden, hidden_step)
    made: list[Parameter] = []
    for item in found:
        if item.packed and len(item.shape) == 3:
            matrices = 2 if item.role == "expert_gate_up" and shape.mlp == "gated" else 1
            whole = tuple(packed_pieces((item.shape[0], matrices * inner, hidden), quantization))
            if hopper:
                up = item.role == "expert_gate_up"
                rows, columns = (matrices * inner, hidden) if up else (hidden, inner)
                laid_out = (item.shape[0], _up(rows, _HOPPER_VALUES[0]), _up(columns, _HOPPER_VALUES[1]))
                whole = (packed_pieces(laid_out, quantization)[0], *whole[1:])
            made.append(item._replace(pieces=whole) if sum(whole) > sum(item.pieces) else item)
        else:
            made.append(item)
    return made


def _up(size: int, multiple: int) -> int:
    return math.ceil(size / multiple) * multiple


_COLUMN = frozenset({"q", "k", "v", "qkv", "gate", "up", "gate_up", "shared_gate", "shared_up", "mla"})
_ROW = frozenset({"o", "down", "shared_down"})


def lora_buffers(job: Job, model: Model, element: float) -> list[Term]:
    """The stacked A and B matrices on one rank: slots * rank * (in + out) for every linear layer; none without LoRA.

    Tensor parallelism divides B of column-parallel layers and A of row-parallel ones, the other half is whole on
    every rank (without fully sharded LoRA); embedding and output head have buffers too.
    Source: vllm/lora/layers/*.py `create_lora_weights` (0.33): `max_loras` 1, `max_lora_rank` 16 by default.
    """
    given = job.inference
    if given is None or not given.enable_lora:
        return []
    rank = given.max_lora_rank or 16
    slots = (given.max_loras or 1) * rank * element
    outside = 0
    layers = [0] * max(1, model.shape.layers)
    for tensor in model.tensors:
        width = _width(tensor, job.parallelism.tensor)
        if tensor.layers is None:
            outside += width
            continue
        for layer in tensor.layers:
            if width and layer < len(layers):
                layers[layer] += width
    size = round(slots * (outside + fullest_stage(layers, job.parallelism.pipeline)))
    what = f"LoRA slots of rank {rank}: both matrices of every linear layer"
    return [line("adapter", size, what, "vllm/lora/layers create_lora_weights")] if size else []


def _width(tensor: Tensor, ranks: int) -> int:
    """Rows of A plus columns of B for one rank of the adapter."""
    if len(tensor.shape) != 2:
        return 0
    out, inner = tensor.shape
    if tensor.role in ("embedding", "head"):
        return -(-out // ranks) + inner if tensor.layers is None else 0
    if not tensor.linear:
        return 0
    if tensor.role in _COLUMN:
        return -(-out // ranks) + inner
    if tensor.role in _ROW:
        return out + -(-inner // ranks)
    return 0


SOURCE = "vllm/model_executor/layers/rotary_embedding"

_FLOAT32 = 4
_ALIBI = frozenset({"bloom", "mpt"})
_FRACTIONS = ("partial_rotary_factor", "rotary_pct")


def rotary_products(model: Model, element: float, multimodal: int = 4, copies: int = 1) -> tuple[Product, ...]:
    """On every rank e positions rotary_dim for each distinct set of rope parameters, cosine and sine together.

    Layers with the same parameters share one `cos_sin_cache` (`get_rope`), a buffer in the model's dtype; DeepSeek V4
    has one for layers that compress and one for those that do not, in float32 (models/deepseek_v4/common/rope.py,
    deepseek_scaling_rope.py `DeepseekV4ScalingRotaryEmbedding`). Positions
    are the config's longest, whatever max_model_len is; linear, dynamic and yarn scaling multiply them, longrope
    holds the short table too, and multimodal rope has `multimodal` times as many (vllm's mrope.py: four). None for
    learned positions and ALiBi. `copies` of each table (`tables`).
    """
    shape = model.shape
    config = {**model.config, **(text if isinstance(text := model.config.get("text_config"), dict) else {})}
    learned = any(tensor.role == "position" and tensor.name.count("vision") == 0 for tensor in model.tensors)
    if not shape.max_positions or learned or config.get("alibi") or model.model_type in _ALIBI:
        return ()
    compresses = bool(config.get("compress_rope_theta"))
    each, number = (_FLOAT32, 2 * copies) if compresses else (element, copies)
    return tuple(
        Product(
            "rotary table: cosines and sines",
            each,
            (number, (_positions(shape.max_positions, rope, multimodal), "positions"), _turned(model, config, rope)),
            source=SOURCE,
        )
        for rope in _ropes(config, shape.windows)
    )


def tables(model: Model, version: str | None) -> int:
    """Tables of each kind: one, but one a layer for Gemma 2 before `get_rope`."""
    return model.shape.layers if model.model_type == "gemma2" and TABLE_A_LAYER.at(version) else 1


def _ropes(config: dict[str, Any], windows: tuple[int | None, ...]) -> list[dict[str, Any]]:
    """Distinct parameters: one set, or one for each kind of layer (Gemma 3's `rope_local_base_freq`)."""
    stated = config.get("rope_parameters") or config.get("rope_scaling")
    stated = stated if isinstance(stated, dict) else {}
    kinds = [value for value in stated.values() if isinstance(value, dict)]
    if kinds:
        return [rope for index, rope in enumerate(kinds) if rope not in kinds[:index]]
    return [stated, {}] if config.get("rope_local_base_freq") and any(windows) else [stated]


def _positions(longest: int, rope: dict[str, Any], multimodal: int) -> int:
    kind = rope.get("rope_type", rope.get("type"))
    original = rope.get("original_max_position_embeddings")
    factor = rope.get("factor")
    stretch = factor if isinstance(factor, (int, float)) and factor >= 1 else 1
    if "mrope_section" in rope:
        return multimodal * (original if kind == "yarn" and original else longest)
    if kind == "yarn" or kind == "deepseek_yarn":
        return int((original or longest) * stretch)
    if kind in ("linear", "dynamic"):
        return int(longest * stretch)
    return longest + (original or 0) if kind in ("longrope", "su") else longest


def _turned(model: Model, config: dict[str, Any], rope: dict[str, Any]) -> int:
    shape = model.shape
    if shape.qk_rope_head_dim:
        return shape.qk_rope_head_dim
    if isinstance(config.get("rotary_dim"), int):
        return int(config["rotary_dim"])
    stated = [source.get(key) for source in (rope, config) for key in _FRACTIONS]
    fraction = next((value for value in stated if isinstance(value, (int, float))), 1.0)
    return int(shape.head_dim * fraction)
