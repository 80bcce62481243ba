"""The memory of text generation with plain Transformers: the prompt's forward pass, then one token at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ....units import MIB
from ....upstream import transformers
from ....upstream.stack import Stack
from ....upstream.transformers_models import FLOAT32_STATES, TUPLES
from ... import uncertainty
from ...allocator import allocator, runtime
from ...estimate import LEAST, MOST, Assumption, Estimate, Phase, Tiers, capacity, verdict
from ...peak_candidate import PeakCandidate
from ...states.loading import PACKED_ON_LOAD, retyped
from ...states.parameters import base_dtype, parameters
from ...states.quantization import effective_quantization
from ...states.storage import dtype_bytes
from ...states.tensor_parallel import stages
from ...states.weights import weights
from ...terms import Product, largest, line, terms, tier, total
from ...unmodeled import kernels_perhaps, mixing, with_kernels
from ..inference_assumptions import inference_assumptions
from ..kv_cache import cache_bytes, layer_caches
from . import seq2seq
from .causal_masks import SOURCE as MASKS_SOURCE
from .causal_masks import causal_masks
from .decoding import SOURCE as CACHE
from .decoding import GrowingCache, attended, cached_heads, image_caches, stepped, views
from .prefill import (
    held_product,
    largest_packed,
    last_logits,
    logit_products,
    prefill_products,
    rotary_tables,
    unpacking,
)
from .prompt import pixels, replayable, unread_images, widest, with_images

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ....hardware.gpu import Gpu
    from ....job.job import Job
    from ....models.model import Model
    from ...states.parameters import Parameter
    from ...terms import Term


def estimate_generation(job: Job, model: Model, gpu: Gpu | None) -> Estimate:
    """The Estimate of `generate` on the GPU that holds most.

    load      weights, and what packing them needs
    prefill   weights + cache of the prompt + the widest layer, or the logits, whichever is larger
    decode    weights + cache of prompt and answer + one layer's keys again, while torch.cat grows them by a token,
              or what attention makes of them (decoding.py);
              before 4.42 the whole cache again, which `generate` passed on as tuples, and in the first step the
              prompt's logits, which it had not dropped. The prompt's pass gives the first token: there is no such
              step where one is asked for, and the last one is not passed on

    Encoder-decoders are in seq2seq.py. Batch, prompt or answer length that nobody states are taken as 1, 1
    and 0: a lower bound, whose verdict is at most `exceeds`.
    """
    given = job.serving
    bounded = all((given.batch_size, given.prompt_length, given.new_tokens is not None))
    batch, prompt, answer = given.batch_size or 1, given.prompt_length or 1, given.new_tokens or 0
    found, element = parameters(job, model), compute_bytes(job, model)
    tails = line("weights", unsplit_tails(job, model, found), "rests of up to 1 MiB of the weights' segments", TAILS)
    loaded = [*weights(found), *((tails,) if tails.size else ())]
    fixed = [*loaded, *_buffers(job, model, gpu, found, element)]
    heads = cached_heads(model)
    caches = [cache._replace(heads=heads or cache.heads) for cache in image_caches(layer_caches(model), job, model)]
    width = cache_bytes(given.kv_cache_dtype, "float32" if element > 2 else "bfloat16")
    pipeline, tensor = stages(job), job.parallelism.tensor
    split = GrowingCache(caches, width, tensor, pipeline, expanded(job, model), state_bytes(job, model, width))
    asked = Asked(batch, prompt, answer, element)
    phases = [Phase("load", (*loaded, *terms("buffers", (_loading(job, model, found, element),), LOADING)))]
    fused: Phase | None = None
    if seq2seq.encodes_prompt(model):
        phases += seq2seq.phases(job, model, fixed, batch, prompt, answer, element, width)
    else:
        filled = [*split.unwindowed(job).terms(batch, prompt), *_views(job, model, asked)]
        phases.append(_prefill(job, model, fixed, filled, asked))
        if given.new_tokens != 1:
            decoded = [*_decode(job, model, split, filled, asked, found), *pixels(job, model, batch)]
            phases.append(Phase("decode", (*fixed, *decoded)))
        named = with_kernels(job, model)
        if named is not None and replayable(job, model):
            fused = _prefill(named, model, fixed, filled, asked)
    peak = max(phases, key=lambda phase: phase.allocated)
    overhead = runtime.process_overhead(gpu, job)
    tiers = _tiers(overhead, peak, round(element * batch * prompt * model.shape.intermediate), bounded)
    load = phases[0].allocated
    unknown = uncertainty.while_loading(job, found, load, tiers.per_gpu(peak.allocated).high - overhead.high)
    unknown += kernels_perhaps(model, phases, fused)
    unknown += unread_images(job, model, batch, prompt, element)
    judged = verdict(tiers.widened(unknown).per_gpu(peak.allocated), gpu, bounded=bounded)
    unknown += [*packed_later(job, found, load, peak.allocated), *graphs(job, gpu)]
    unknown += retyped(found, job, load, peak.allocated)
    return Estimate(
        kind="inference",
        model_id=model.id,
        parameters=model.parameters,
        trainable_parameters=0,
        tiers=tiers.widened(unknown).capped(gpu, judged),
        phases=tuple(phases),
        peak=peak,
        verdict=judged,
        capacity=capacity(gpu),
        assumptions=(*_unstated(job), *inference_assumptions(job, model), *unknown),
        beside=overhead.terms,
    )


TAILS = "c10/cuda/CUDACachingAllocator.cpp should_split"
LOADING = "estimator/serving/generation/generation.py"
_PREFILL, _DECODING = "estimator/serving/generation/prefill.py", "estimator/serving/generation/decoding.py"


class Asked(NamedTuple):
    """What is generated: sequences, tokens of a prompt and of an answer; `element` bytes of an activation."""

    batch: int
    prompt: int
    answer: int
    element: float

    @property
    def last(self) -> int:
        """Tokens in the cache at the last step."""
        return self.prompt + max(0, self.answer - 1)


def compute_bytes(job: Job, model: Model) -> float:
    """Bytes of an activation: those of the unpacked weights, 16 bits where only packed dtypes are stored."""
    return max(2.0, dtype_bytes(base_dtype(job, model)))


def expanded(job: Job, model: Model) -> int:
    """Elements per token and layer where latent attention is cached as full keys and values.

    transformers 4 caches them: heads * (qk_nope + qk_rope + v head dims); 5 caches the latent. 0 otherwise.
    """
    shape = model.shape
    if not shape.kv_lora_rank or Stack(job).does(transformers.CACHED_LATENT):
        return 0
    return shape.heads * (shape.qk_nope_head_dim + shape.qk_rope_head_dim + shape.v_head_dim)


def state_bytes(job: Job, model: Model, element: float) -> float:
    """Bytes of an element of a recurrent state; `element` where it has the width of the other caches."""
    return 4.0 if Stack(job).does(FLOAT32_STATES, mixing(model)) else element


def unsplit_tails(job: Job, model: Model, found: Sequence[Parameter]) -> int:
    """Bytes that weights of 10 MiB and more take beyond their size where each arrives in a segment of its own.

    The segment is a multiple of 2 MiB, and a rest of up to 1 MiB is not split off but counts as allocated
    (c10/cuda/CUDACachingAllocator.cpp `get_allocation_size`, `should_split`). From transformers 4.50 on
    `caching_allocator_warmup` leaves one block that all weights are cut from, and bitsandbytes packs into the blocks
    of what it packed before: 0.
    """
    quantization = effective_quantization(job, model)
    if Stack(job).does(transformers.LOADING_BLOCK):
        return 0
    if quantization is not None and quantization.method.startswith("bnb"):
        return 0
    return sum(
        item.copies * (rest if rest <= allocator.SMALL_REQUEST else 0)
        for item in found
        if item.part == "base"
        for piece in item.pieces
        if (size := allocator.block_size(piece)) >= allocator.LARGE_REQUEST
        for rest in (allocator.segment_size(size) - size,)
    )


def _buffers(job: Job, model: Model, gpu: Gpu | None, found: Sequence[Parameter], element: float) -> list[Term]:
    """cuBLAS's workspace, tables and masks of all positions, and what kernels keep for packed weights."""
    made = (
        rotary_tables(model, job, element)._replace(source=_PREFILL),
        Product("causal masks of all positions", causal_masks(job, model) // stages(job), source=MASKS_SOURCE),
        Product(
            "buffer for the largest packed weight",
            unpacking(job, model).resident * largest_packed(found),
            source="estimator/serving/generation/prefill.py",
        ),
    )
    return [*runtime.workspace_terms(job, gpu), *terms("buffers", made)]


def _views(job: Job, model: Model, asked: Asked) -> list[Term]:
    return terms("kv_cache", (views(job, model, asked.batch, asked.prompt, asked.element),), CACHE)


def _prefill(job: Job, model: Model, fixed: Sequence[Term], cache: Sequence[Term], asked: Asked) -> Phase:
    """The prompt's widest layer, or its logits, whichever is larger."""
    batch, prompt, element = asked.batch, asked.prompt, asked.element
    unpacked, candidate = unpacking(job, model).at(batch * prompt), None
    if replayable(job, model):
        size = widest(job, model, batch, prompt, total(cache))
        candidate = PeakCandidate("prefill", size, 0, 0, None)
        read = list(candidate.terms)
    else:
        layers = prefill_products(model, job, batch, prompt, element, unpacked)
        read = with_images(job, model, batch, prompt, total(cache), layers)
    packed = effective_quantization(job, model)
    if packed is not None and packed.head:
        head = Product("the head, unpacked", unpacked.making, (model.shape.vocabulary, model.shape.hidden))
        read = max(read, terms("activations", (head,), _PREFILL), key=total)
    logits, beside = logit_products(model, job, batch, prompt, element)
    scored = [*terms("logits", (logits,), _PREFILL), *terms("activations", (beside,), _PREFILL)]
    scored += pixels(job, model, batch)
    if total(scored) > total(read):
        return Phase("prefill", (*fixed, *cache, *scored))
    return Phase("prefill", (*fixed, *cache, *read), candidate)


def _decode(
    job: Job, model: Model, split: GrowingCache, filled: Sequence[Term], asked: Asked, found: Sequence[Parameter]
) -> list[Term]:
    """The last step, or the first where the prompt's logits held through it outweigh what the cache grows by.

    A cache passed on as tuples is held by `generate` while a step makes its own by torch.cat: it exists twice.
    """
    batch, prompt, element, last = asked.batch, asked.prompt, asked.element, asked.last
    logits = terms("logits", (last_logits(model, batch, element),), _PREFILL)
    making = unpacking(job, model).at(batch).making
    unpacked = (Product("the largest packed weight, unpacked", making, ((largest_packed(found), "elements"),)),)
    if Stack(job).does(TUPLES, model.model_type):
        held = held_product(model, job, batch, prompt, element)
        first = [*split.terms(batch, prompt), *_views(job, model, asked), *split.terms(batch, prompt + 1)]
        cache, length = [*split.terms(batch, last - 1), *split.terms(batch, last)], last
        if total(first) + total((held,)) > total(cache):
            cache, length = first, prompt + 1
            logits += terms("logits", (held,), _PREFILL)
        made = largest(unpacked, attended(job, model, batch, length, element))
        return [*cache, *logits, *terms("activations", made, _DECODING)]
    cache = split.terms(batch, last)
    made = largest(attended(job, model, batch, last, element), stepped(job, model, batch, element))
    made = largest((split.growing(batch, last),), made, unpacked)
    growing = terms("activations", made, _DECODING)
    begun = [*filled, *terms("activations", (split.first(batch, prompt),), _DECODING)]
    if total(begun) > total(cache) + max(total(growing), total(logits)):
        return begun
    return [*cache, *(logits if total(logits) > total(growing) else growing)]


def _loading(job: Job, model: Model, found: Sequence[Parameter], element: float) -> Product:
    """What loading takes beside the weights.

    What packs as it loads gets a 16-bit weight on the GPU, one tensor at a time; other methods load packed ones.
    AutoAWQ's files hold a tied head too, which is there until `tie_weights` drops it (autoawq 0.2.6 models/base.py
    `save_quantized`, transformers modeling_utils.py `from_pretrained`).
    """
    quantization, label = effective_quantization(job, model), "a weight in 16 bits while it is packed"
    if quantization is not None and quantization.method == "awq" and model.shape.tied:
        return Product("the file's head, until it is tied", element, (model.shape.vocabulary, model.shape.hidden))
    if quantization is None or not quantization.method.startswith(PACKED_ON_LOAD):
        return Product(label, 0.0)
    return Product(label, 2, ((max((item.size for item in found if item.packed), default=0), "elements"),))


def packed_later(job: Job, found: Sequence[Parameter], load: int, peak: int) -> list[Assumption]:
    """torchao's `quantize_` packs the weights where they are: a script may put all of them on the GPU first.

    `load` bytes are there while the last weight is packed, `peak` at most later. Freed 16-bit weights leave segments of
    their sizes, which what is packed cuts up (torchao quant_api.py; torchao's own generate.py does so).
    """
    quantization = job.weights.quantization
    if quantization is None or not quantization.method.startswith("torchao"):
        return []
    packed = [item for item in found if item.packed]
    more = load + sum(int(2 * item.elements) - item.allocated for item in packed) - peak
    if more <= 0:
        return []
    note = "torchao packs weights where they are: all of them may have been on the GPU in 16 bits before"
    return [Assumption("weights.quantization.method", quantization.method, note, 0, more)]


AUTOTUNING = 256 * MIB
"""Bytes that Triton writes over before each timed run of a kernel, to empty the card's cache
(triton/backends/nvidia/driver.py `get_empty_cache_for_benchmark`; torch._inductor's benchmarker has the card's own)."""


def graphs(job: Job, gpu: Gpu | None) -> list[Assumption]:
    """What a compiled decoding step reserves beside its tensors, where it is tuned and recorded in CUDA graphs.

    Graphs have a pool of their own, with at least a segment of each kind and a cuBLAS workspace
    (torch/_inductor/cudagraph_trees.py); a timed kernel leaves what emptied the cache.
    """
    if not job.compile:
        return []
    more = AUTOTUNING + allocator.LARGE_SEGMENT + allocator.SMALL_SEGMENT + runtime.allocated_workspace(job, gpu)
    note = "compiled kernels may be tuned, and recorded in CUDA graphs with a pool of their own: neither is counted"
    return [Assumption("compile", "True", note, 0, more)]


FREE = "a free block of the widest MLP's size, which later requests may not fit (estimator/allocator/allocator.py)"
TWINS = (
    "free twins of all that each request asks for anew, too scattered to serve it (estimator/allocator/allocator.py)"
)


def _tiers(overhead: runtime.Overhead, peak: Phase, recycled: int, bounded: bool) -> Tiers:
    """Allocated -> reserved -> process. What each request allocates anew is activations, logits and the cache."""
    transient = sum(peak.components[name] for name in ("activations", "logits", "kv_cache"))
    held = allocator.reserved(peak.allocated, transient, recycled)
    expected = held.expected if bounded else held.low
    packed = "allocated" if held.low == peak.allocated else "allocated at the peak, in whole 2 MiB segments"
    return Tiers(
        reserved=tier("reserved", (peak.allocated, "allocated at the peak"), (expected - peak.allocated, FREE)),
        process=tier("process", (expected, "reserved"), (overhead.total, "runtime")),
        low=tier("low", (held.low, packed), (overhead.low, LEAST)),
        high=tier("high", (expected, "reserved"), (overhead.high, MOST), (held.high - expected, TWINS)),
    ).holding()


def _unstated(job: Job) -> list[Assumption]:
    given = job.serving
    found = []
    for name, taken in (("batch_size", 1), ("prompt_length", 1), ("new_tokens", 0)):
        if getattr(given, name) is None:
            found.append(Assumption(f"inference.{name}", str(taken), "nobody states it: the estimate is a lower bound"))
    return found
