"""What Transformers' modelling code keeps alive while it reads a prompt without gradients, from shapes alone.

Every product counts tensors that Python variables of the forward pass hold at the widest operation of one layer;
without autograd nothing else survives it. T tokens in the batch, b sequences, s their length, e bytes of an element,
h hidden size, q and k widths of queries and keys, f MLP width, K experts a token, V vocabulary.
Checked against recorded allocations of transformers 5.23 (the oracle's inference runs).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from ....models.arch_spec import arch_spec
from ....models.model import text_config
from ....upstream import bitsandbytes, transformers
from ....upstream.stack import Stack
from ....upstream.transformers_models import FLOAT_LOGITS, REMOTE_CODE, ROTARY_TABLES, WHOLE_LOGITS
from ...frameworks.attention import composite
from ...frameworks.frameworks import framework
from ...frameworks.release import arch_at, release
from ...states.parameters import base_dtype
from ...states.quantization import effective_quantization
from ...states.storage import dtype_bytes
from ...terms import Product, largest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ....job.job import Job
    from ....models.model import Model
    from ...states.parameters import Parameter


_UNFUSED = frozenset({"gelu_new", "gelu_fast", "gelu_python", "quick_gelu", "gelu_accurate"})
"""Activations that Transformers writes out in torch operations (transformers/activations.py)."""

_OWN_WIDTH = {"native": 2, "plain": 2, "falcon": 3}
"""Kinds of scores whose softmax keeps their width (kernels.py `probabilities`), and how many of them are there at once:
scores and result; Falcon's masked ones have no name while its unmasked ones do (transformers modeling_falcon.py).
"""


def prefill_products(
    model: Model, job: Job, batch: int, length: int, element: float, unpacked: Unpacking | None = None
) -> tuple[Product, ...]:
    """What is alive in the widest layer while `batch` prompts of `length` tokens go through.

    `unpacked` says what the kernels of packed weights take.

    The model's loop holds the embeddings and the layer's input; the layer its residual and its normalised input.
    MLP half: 4 e T h + the MLP's own. Attention half: 3 e T h + the attention's own. Beside them ids (8 T) and the
    rotary tables (2 e s head_dim).
    """
    shape, tokens = model.shape, (batch * length, "tokens")
    held = [Product("embeddings, residual, input and norm of the layer", element, (tokens, 4, shape.hidden))]
    if any(tensor.role == "position" for tensor in model.tensors):
        held.append(Product("embeddings without positions", element, (tokens, shape.hidden)))
        held.append(Product("embeddings of positions", element, ((length, "positions"), shape.hidden)))
    widest = largest(
        [*held, *mlp_products(model, job, batch * length, element, unpacked)],
        [
            Product("embeddings, residual and norm of the layer", element, (tokens, 3, shape.hidden)),
            *attention_products(model, job, batch, length, element),
        ],
    )
    return (
        *widest,
        Product("ids", 8, (tokens,)),
        Product("cosines and sines", element, (2, (length, "positions"), shape.head_dim)),
    )


def mlp_products(
    model: Model, job: Job, tokens: int, element: float, unpacked: Unpacking | None = None
) -> list[Product]:
    """One MLP beside its input.

    Gated: act(gate), up and their product, 3 e T f; one matrix for gate and up keeps both till then, 4 e T f. Plain:
    the projection and its activation, 2 e T f; 4 e T f where the activation is written out. A packed weight adds its
    h f elements: while it is unpacked beside act(gate) or the activation, e T f, while it multiplies beside the output
    too, 2 e T f or, in a plain MLP, e T (f + h).
    Experts: gate and up in one (2), act(gate), product and the gathered input, e T K (4 f + h), router 4 T E; before
    transformers 5 one expert at a time, with its share of the tokens.
    """
    shape, batch, gated = model.shape, (tokens, "tokens"), model.shape.mlp == "gated"
    inner, hidden = shape.intermediate, shape.hidden
    candidates: list[list[Product]] = [[]]
    if len(shape.sparse_layers) < shape.layers:
        joined = any(tensor.role == "gate_up" for tensor in model.tensors)
        copies = (4 if joined else 3) if gated else 4 if _activation(model) in _UNFUSED else 2
        candidates.append([Product("the MLP's inner states", element, (batch, copies, inner))])
        if unpacked:
            beside = Product("the MLP's inner states", element, (batch, 2 * inner if gated else inner + hidden))
            made = Product("the MLP's inner states", element, (batch, inner))
            weight = hidden, inner
            candidates.append([made, Product("a weight while it is unpacked", unpacked.making, weight)])
            candidates.append([beside, Product("the unpacked weight", unpacked.using, weight)])
    if not shape.experts:
        return list(largest(*candidates))
    rows = tokens * max(1, shape.experts_per_token)
    wide = shape.moe_intermediate
    if not Stack(job).does(transformers.GROUPED_EXPERTS):
        here = (-(-rows // shape.experts), "rows of an expert")
        sparse = [
            Product("an expert's inner states and its input", element, (here, 3 * wide + hidden)),
            Product("output of the experts", element, (batch, hidden)),
        ]
    else:
        sparse = [Product("the experts' inner states and their input", element, ((rows, "rows"), 4 * wide + hidden))]
    sparse += [
        Product("the router's scores", 4, (batch, (shape.experts, "experts"))),
        Product("where each row goes", 40, ((rows, "rows"),)),
    ]
    shared = [Product("inner states of the shared experts", element, (batch, 3, shape.shared_intermediate))]
    return list(largest(*candidates, sparse, shared))


def _activation(model: Model) -> str:
    """The MLP's activation, the class's own where the config does not say."""
    if model.shape.activation:
        return model.shape.activation
    return arch_spec(model.model_type, model.config, model.shape.norm).activation


def attention_products(model: Model, job: Job, batch: int, length: int, element: float) -> list[Product]:
    """One attention beside its input, the cache not counted.

    Rotary embedding: q with three temporaries beside k and v, 4 e T q + 2 e T k, or then k with q kept twice,
    2 e T q + 5 e T k. Eager: q and repeated k and v, and the scores' softmax (`score_bytes` of b heads s^2). sdpa in
    float32 with grouped heads has no fused kernel and makes the scores too, and so has it in 16 bits on GPUs before
    Ampere (`composite`), there with float32 copies: q and k twice, once more k and v of every query head where those
    are grouped, and the causal mask. With a padding mask keys and values are repeated and a mask of b s^2 exists.
    None where no layer attends.
    """
    shape = model.shape
    if not attends(model):
        return []
    tokens, square = (batch * length, "tokens"), (batch, shape.heads, length, length)

    def queries(copies: int, label: str = "queries", each: float = element) -> Product:
        return Product(label, each, (copies, tokens, (shape.heads, "heads"), shape.head_dim))

    def keys(copies: int, each: float = element) -> Product:
        return Product("keys and values", each, (copies, tokens, (shape.kv_heads, "heads"), shape.head_dim))

    rotary = list(largest([queries(4), keys(2)], [queries(2), keys(5)]))
    if shape.kv_lora_rank:
        wide = 2 * (shape.qk_nope_head_dim + shape.qk_rope_head_dim) + shape.v_head_dim
        rotary = [
            Product("queries, keys and values", element, (2, tokens, (shape.heads, "heads"), wide)),
            Product("latent", element, (tokens, shape.kv_lora_rank)),
        ]
    grouped = shape.kv_heads < shape.heads
    math = composite(job, grouped, not job.padded and release(job, model.model_type).grouped_keys, element)
    mask, repeated = (batch, length, length), "queries, and keys and values of all heads"
    if job.attention == "eager":
        scores = Product("scores and their softmax", score_bytes(job, model), square)
        return list(largest(rotary, [queries(3, repeated), scores, Product("mask", element, mask)]))
    if math:
        width = element if math == "narrow math" else 4
        copies = [queries(2 * (1 + grouped), "copies of queries and keys", width), keys(2, width)]
        scores = Product("scores and their softmax", 2 * width + 4 * (math == "math"), square)
        wide_mask = Product("mask", width, (batch, length, length))
        made = [queries(3, repeated), *(copies if element <= 2 else ()), scores, wide_mask]
        return list(largest(rotary, made))
    if job.padded and job.attention == "sdpa":
        return list(largest(rotary, [queries(4, repeated), Product("mask", element, mask)]))
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
    found = arch_at(job, model)
    dtype = base_dtype(job, model)
    if found.scores in _OWN_WIDTH:
        return _OWN_WIDTH[found.scores] * max(2.0, dtype_bytes(dtype))
    if found.scores == "slopes":
        return 12 + 2 * max(2.0, dtype_bytes(dtype))
    return 10 if dtype == "bfloat16" else 8


def logit_products(model: Model, job: Job, batch: int, length: int, element: float) -> tuple[Product, Product]:
    """The logits at the end of prefill, and what else is then alive.

    Since 4.45 (later in some models, `WHOLE_LOGITS`) `generate` asks for the last token's logits only, e b V, and
    takes a float32 copy of them, 4 b V. Where the whole prompt's are made (older versions, or a forward of one's own)
    they are e T V, and before 4.46 in most models also their float32 copy, 4 T V, beside the last hidden state, e T h,
    or behind it the last token's copy where that is more.
    Where the model scales or caps them (Gemma 2, Granite, Falcon-H1) each step stands beside the one before, 2 e T V.
    """
    shape, tokens, rows = model.shape, (batch * length, "tokens"), (batch, "rows")
    if not _whole(job, model):
        return last_logits(model, batch, element), Product("nothing", 0.0)
    width = element + (4 if _floats(job, model) else element if _changed(model) else 0)
    copy = Product("the last token's logits in float32", 4, (rows, shape.vocabulary))
    state = Product("last hidden states", element, (tokens, shape.hidden))
    recent = Stack(job).does(transformers.LAST_LOGITS)
    label = "logits of the prompt" if width == element else "logits of the prompt, and what is made of them"
    made = Product(label, width, (tokens, shape.vocabulary))
    return made, max(state, copy, key=_size) if recent else state


def last_logits(model: Model, batch: int, element: float) -> Product:
    """The last token's logits and their float32 copy, (e + 4) b V."""
    return Product(
        "logits of the last token and a float32 copy", element + 4, ((batch, "rows"), model.shape.vocabulary)
    )


def _size(item: Product) -> float:
    return item.size


def held_product(model: Model, job: Job, batch: int, length: int, element: float) -> Product:
    """The prompt's logits that `generate` still holds in its second pass; nothing from 4.42 on (`del outputs`)."""
    label = "logits of the prompt, which `generate` still holds"
    if Stack(job).does(transformers.DELETED_OUTPUTS):
        return Product(label, 0.0)
    tokens = length if _whole(job, model) else 1
    counts = (batch, "rows"), (tokens, "tokens"), model.shape.vocabulary
    return Product(label, 4 if _floats(job, model) else element, counts)


def _whole(job: Job, model: Model) -> bool:
    """Whether a prompt's logits are made for all of its tokens."""
    stated = job.inference.full_prefill_logits if job.inference else None
    return Stack(job).does(WHOLE_LOGITS, model.model_type) if stated is None else stated


def _changed(model: Model) -> bool:
    """Whether the model multiplies, divides or caps its logits."""
    config = {**model.defaults, **text_config(model.config)}
    found = arch_spec(model.model_type, config, model.shape.norm)
    return found.logits_scale or bool(config.get("final_logit_softcapping", found.logits_softcap))


def _floats(job: Job, model: Model) -> bool:
    stack, kind = Stack(job), model.model_type
    return stack.does(FLOAT_LOGITS, kind) and not stack.does(REMOTE_CODE, kind)


def rotary_tables(model: Model, job: Job, element: float) -> Product:
    """The rotary tables that layers kept before 4.45: cosine and sine, 2 e positions head_dim a layer.

    Since then one module makes them for the positions at hand. Source: transformers 4.40.2 models/*/modeling_*.py,
    `_set_cos_sin_cache`; 4.46 models/qwen2/modeling_qwen2.py.
    """
    shape, label = model.shape, "rotary tables of all layers"
    stack, kind = Stack(job), model.model_type
    if not stack.does(ROTARY_TABLES, kind) or stack.does(REMOTE_CODE, kind):
        return Product(label, 0.0)
    layers, positions = (shape.layers, "layers"), (shape.max_positions or 0, "positions")
    return Product(label, element, (2, layers, positions, shape.head_dim))


class Unpacking(NamedTuple):
    """Bytes for each element of a packed weight.

    resident   kept for the largest weight from the start
    making     of the weight in use while it is unpacked, before the product has an output
    using      of the unpacked weight during the product
    rows       the rows of input from which on it is unpacked
    """

    resident: float = 0.0
    making: float = 0.0
    using: float = 0.0
    rows: int = 1

    def at(self, rows: int) -> Unpacking:
        """What a product of so many rows takes."""
        return self if rows >= self.rows else Unpacking(self.resident)


def unpacking(job: Job, model: Model) -> Unpacking:
    """How the kernels that Transformers loads for the job's quantisation read their weights.

    bitsandbytes 4 bits   a 16-bit copy, 2 B; over float16 with the default compute dtype also its float32 cast, 6 B,
                          which is what multiplies, 4 B (nn/modules.py `Linear4bit.set_compute_type`,
                          functional.py `dequantize_4bit`). From two rows on, in 0.50 and later from 1,537.
    GPTQ 4 bits           ExLlama's `temp_dq`, one fp16 buffer for the largest weight, 2 B (auto_gptq 0.7.1
                          modeling/_utils.py `autogptq_post_init`); none in Marlin, which GPTQModel takes
                          (transformers 4.48 and later).
    GPTQ other bits       int16 codes, their difference to the zeros and its product with the scales, 6 B, of
                          which 2 B multiply, from 128 rows on (nn_modules/qlinear/qlinear_cuda_old.py)
    AWQ                   a 16-bit copy, 2 B, from 1,024 rows on (autoawq 0.2.6 modules/linear/gemm.py)
    """
    quantization = effective_quantization(job, model)
    if quantization is None:
        return Unpacking()
    method = quantization.method.lower()
    if method in ("bnb-nf4", "bnb-fp4"):
        casts = (job.weights.dtype or model.dtype) == "float16"
        current = not _old_bitsandbytes(job)
        making = 6 if casts else 4 if framework(job).unpacks_twice else 2
        return Unpacking(making=making, using=4 if casts else 2, rows=1537 if current else 2)
    if method == "gptq" and Stack(job).does(transformers.AUTO_GPTQ):
        return Unpacking(resident=2) if quantization.bits in (None, 4) else Unpacking(making=6, using=2, rows=128)
    if method == "awq":
        return Unpacking(making=2, using=2, rows=1024)
    return Unpacking()


def largest_packed(found: Iterable[Parameter]) -> int:
    """Elements of the largest packed matrix: of fused experts one expert's, as quantised checkpoints store them."""
    return max((math.prod(item.shape[-2:]) for item in found if item.packed), default=0)


def _old_bitsandbytes(job: Job) -> bool:
    """Releases before 0.50; one that nobody states is as old as the transformers beside it."""
    stack = Stack(job)
    stated = stack.version(bitsandbytes.NAME)
    return stack.does(bitsandbytes.ALWAYS_UNPACKS if stated else transformers.BEFORE_BITSANDBYTES_0_50)
