"""What Transformers' modelling code keeps alive while it reads a prompt without gradients, from shapes alone.

Every form counts the tensors that Python variables of the forward pass hold at the widest operation of one layer;
without autograd nothing else survives it. T tokens in the batch, b sequences, s their length, e bytes of an element,
h hidden size, q and k widths of queries and keys, f MLP width, K experts a token, V vocabulary.
Checked against recorded allocations of transformers 5.23 (the oracle's inference runs).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...models.model import text_config
from ...versions import older
from ..frameworks.modeling import still, traits_at
from ..frameworks.release import release
from ..layers.implementation import composite
from ..layers.traits import traits
from ..states.parameters import base_dtype
from ..states.storage import dtype_bytes

if TYPE_CHECKING:
    from ...job import Job
    from ...models.model import Model
    from .unpacking import Unpacking

_UNFUSED = frozenset({"gelu_new", "gelu_fast", "gelu_python", "quick_gelu", "gelu_accurate"})
"""Activations that Transformers writes out in torch operations (transformers/activations.py)."""

_OWN_WIDTH = {"native": 2, "plain": 2, "falcon": 3}
"""Kinds of scores whose softmax keeps their width (kernels.py `probabilities`), and how many of them are there at once:
scores and result; Falcon's masked ones have no name while its unmasked ones do (transformers modeling_falcon.py).
"""


def prefill_activations(
    model: Model, job: Job, batch: int, length: int, element: float, unpacked: Unpacking | None = None
) -> int:
    """Bytes alive in the widest layer while `batch` prompts of `length` tokens go through.

    `unpacked` says what the kernels of packed weights take.

    The model's loop holds the embeddings and the layer's input; the layer its residual and its normalised input.
    MLP half: 4 e T h + the MLP's own. Attention half: 3 e T h + the attention's own. Beside them ids (8 T) and the
    rotary tables (2 e s head_dim).
    """
    shape, tokens = model.shape, batch * length
    stream = element * tokens * shape.hidden
    held = 4 * stream
    if any(tensor.role == "position" for tensor in model.tensors):
        held += stream + element * length * shape.hidden
    widest = max(
        held + mlp_bytes(model, job, tokens, element, unpacked),
        3 * stream + attention_bytes(model, job, batch, length, element),
    )
    return round(widest + 8 * tokens + 2 * element * length * shape.head_dim)


def mlp_bytes(model: Model, job: Job, tokens: int, element: float, unpacked: Unpacking | None = None) -> float:
    """Bytes of one MLP beside its input.

    Gated: act(gate), up and their product, 3 e T f; one matrix for gate and up keeps both till then, 4 e T f. Plain:
    the projection and its activation, 2 e T f; 4 e T f where the activation is written out. A packed weight adds its
    h f elements: while it is unpacked beside act(gate) or the activation, e T f, while it multiplies beside the output
    too, 2 e T f or, in a plain MLP, e T (f + h).
    Experts: gate and up in one (2), act(gate), product and the gathered input, e T K (4 f + h), router 4 T E; before
    transformers 5 one expert at a time, with its share of the tokens.
    """
    shape = model.shape
    dense = 0.0
    if len(shape.sparse_layers) < shape.layers:
        joined = any(tensor.role == "gate_up" for tensor in model.tensors)
        copies = (4 if joined else 3) if shape.mlp == "gated" else 4 if _activation(model) in _UNFUSED else 2
        dense = copies * element * tokens * shape.intermediate
        if unpacked:
            beside = 2 * shape.intermediate if shape.mlp == "gated" else shape.intermediate + shape.hidden
            weight = shape.hidden * shape.intermediate
            making = element * tokens * shape.intermediate + unpacked.making * weight
            dense = max(dense, making, element * tokens * beside + unpacked.using * weight)
    if not shape.experts:
        return dense
    rows = tokens * max(1, shape.experts_per_token)
    if older(job.versions.get("transformers"), "5.0"):
        here = -(-rows // shape.experts)
        sparse = element * (here * (3 * shape.moe_intermediate + shape.hidden) + tokens * shape.hidden)
    else:
        sparse = element * rows * (4 * shape.moe_intermediate + shape.hidden)
    sparse += 4 * tokens * shape.experts + 40 * rows
    return max(dense, sparse, 3 * element * tokens * shape.shared_intermediate)


def _activation(model: Model) -> str:
    """The MLP's activation, the class's own where the config does not say."""
    if model.shape.activation:
        return model.shape.activation
    return traits(model.model_type, model.config, model.shape.norm).activation


def attention_bytes(model: Model, job: Job, batch: int, length: int, element: float) -> float:
    """Bytes of one attention beside its input, the cache not counted.

    Rotary embedding: q with three temporaries beside k and v, 4 e T q + 2 e T k, or then k with q kept twice,
    2 e T q + 5 e T k. Eager: q and repeated k and v, and the scores' softmax (`score_bytes` of b heads s^2). sdpa in
    float32 with grouped heads has no fused kernel and makes the scores too, and so has it in 16 bits on GPUs before
    Ampere (`composite`), there with float32 copies: q and k twice, once more k and v of every query head where those
    are grouped, and the causal mask. With a padding mask keys and values are repeated and a mask of b s^2 exists.
    0 where no layer attends.
    """
    shape, tokens = model.shape, batch * length
    if not attends(model):
        return 0.0
    queries = element * tokens * shape.heads * shape.head_dim
    keys = element * tokens * shape.kv_heads * shape.head_dim
    rotary = max(4 * queries + 2 * keys, 2 * queries + 5 * keys)
    if shape.kv_lora_rank:
        wide = shape.heads * (2 * (shape.qk_nope_head_dim + shape.qk_rope_head_dim) + shape.v_head_dim)
        rotary = element * tokens * (2 * wide + shape.kv_lora_rank)
    square = batch * shape.heads * length * length
    mask = element * batch * length * length
    grouped = shape.kv_heads < shape.heads
    math = composite(job, grouped, not job.padded and release(job, model.model_type).grouped_keys, element)
    if job.attention == "eager":
        return max(rotary, 3 * queries + square * score_bytes(job, model) + mask)
    if math:
        width = element if math == "narrow math" else 4
        copies = width * (2 * queries * (1 + grouped) + 2 * keys) / element if element <= 2 else 0.0
        return max(rotary, 3 * queries + copies + square * (2 * width + 4 * (math == "math")) + width / element * mask)
    if job.padded and job.attention == "sdpa":
        return max(rotary, 4 * queries + mask)
    return rotary


def attends(model: Model) -> bool:
    """Whether any layer has key heads."""
    return not model.shape.layer_kv_heads or any(model.shape.layer_kv_heads)


def score_bytes(job: Job, model: Model) -> float:
    """Bytes per score at the widest point of eager attention's softmax.

    In the scores' own width (`_OWN_WIDTH`): 2 e or 3 e. In float32, and cast back:
    float16    the kernel widens as it reads, the result and its cast stand beside the scores, 2 + 4 + 2
    bfloat16   there is no such kernel: a float32 copy and the result beside the scores, 2 + 4 + 4
    float32    scores and result, 4 + 4
    ALiBi's, of Falcon, in float32 whatever they came in (kernels.py `sloped`): 4 + 4 + 4, their cast and result 2 e.
    Source: aten/src/ATen/native/SoftMax.cpp `softmax`: `half_to_float` is for Half only.
    """
    found = traits_at(job, model)
    dtype = base_dtype(job, model)
    if found.scores in _OWN_WIDTH:
        return _OWN_WIDTH[found.scores] * max(2.0, dtype_bytes(dtype))
    if found.scores == "slopes":
        return 12 + 2 * max(2.0, dtype_bytes(dtype))
    return 10 if dtype == "bfloat16" else 8


def prefill_logits(model: Model, job: Job, batch: int, length: int, element: float) -> tuple[int, int]:
    """Bytes of the logits at the end of prefill, and of what else is then alive.

    Since 4.45 (later in some models, `modeling.json`) `generate` asks for the last token's logits only, e b V, and
    takes a float32 copy of them, 4 b V. Where the whole prompt's are made (older versions, or a forward of one's own)
    they are e T V, and before 4.46 in most models also their float32 copy, 4 T V, beside the last hidden state, e T h,
    or behind it the last token's copy where that is more.
    Where the model scales or caps them (Gemma 2, Granite, Falcon-H1) each step stands beside the one before, 2 e T V.
    """
    shape, tokens = model.shape, batch * length
    if not _whole(job, model):
        return round((element + 4) * batch * shape.vocabulary), 0
    width = element + (4 if _floats(job, model) else element if _changed(model) else 0)
    copy = 0 if older(job.versions.get("transformers"), "4.45") else 4 * batch * shape.vocabulary
    return round(width * tokens * shape.vocabulary), max(round(element * tokens * shape.hidden), copy)


def held_logits(model: Model, job: Job, batch: int, length: int, element: float) -> int:
    """Bytes of the prompt's logits that `generate` still holds in its second pass; 0 from 4.42 on (`del outputs`)."""
    if not older(job.versions.get("transformers"), "4.42"):
        return 0
    if not _whole(job, model):
        length = 1
    return round((4 if _floats(job, model) else element) * batch * length * model.shape.vocabulary)


def _whole(job: Job, model: Model) -> bool:
    """Whether a prompt's logits are made for all of its tokens."""
    stated = job.inference.full_prefill_logits if job.inference else None
    return still("whole_logits", job, model) if stated is None else stated


def _changed(model: Model) -> bool:
    """Whether the model multiplies, divides or caps its logits."""
    config = {**model.defaults, **text_config(model.config)}
    found = traits(model.model_type, config, model.shape.norm)
    return found.logits_scale or bool(config.get("final_logit_softcapping", found.logits_softcap))


def _floats(job: Job, model: Model) -> bool:
    return still("float_logits", job, model) and not still("remote_code", job, model)


def rotary_tables(model: Model, job: Job, element: float) -> int:
    """Bytes of the rotary tables that layers kept before 4.45: cosine and sine, 2 e positions head_dim a layer.

    Since then one module makes them for the positions at hand. Source: transformers 4.40.2 models/*/modeling_*.py,
    `_set_cos_sin_cache`; 4.46 models/qwen2/modeling_qwen2.py.
    """
    shape = model.shape
    if not still("rotary_tables", job, model) or still("remote_code", job, model):
        return 0
    return round(2 * element * (shape.max_positions or 0) * shape.head_dim * shape.layers)
