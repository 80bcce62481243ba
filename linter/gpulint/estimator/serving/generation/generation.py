"""The memory of text generation with plain Transformers: the prompt's forward pass, then one token at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....units import MIB
from ....upstream import transformers
from ....upstream.stack import Stack
from ....upstream.transformers_models import FLOAT32_STATES, TUPLES
from ... import uncertainty
from ...allocator import allocator, runtime
from ...estimate import Assumption, Estimate, PerGpu, Phase
from ...explain.product import total
from ...states.loading import PACKED_ON_LOAD, retyped
from ...states.parameters import allocated, base_dtype, parameters
from ...states.quantization import effective_quantization, unpacked_perhaps
from ...states.storage import dtype_bytes
from ...states.tensor_parallel import stages
from ...unmodeled import kernels_perhaps, mixing, with_kernels
from ...verdict import capacity, verdict
from ..inference_assumptions import inference_assumptions
from ..kv_cache import cache_bytes, layer_caches
from . import seq2seq
from .causal_masks import causal_masks
from .decoding import attended, cached_heads, image_caches, stepped
from .growing_cache import GrowingCache, views
from .prefill import held_logits, last_logits, prefill_logits, prefill_products, rotary_tables
from .prompt import replayable, unread_images, widest, with_images, with_pixels
from .terms import Given, terms_of
from .unpacking import largest_packed, unpacking

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ....hardware.gpu import Gpu
    from ....job.job import Job
    from ....models.model import Model
    from ...states.parameters import Parameter


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
    given = job.inference
    assert given is not None
    bounded = all((given.batch_size, given.prompt_length, given.new_tokens is not None))
    batch, prompt, answer = given.batch_size or 1, given.prompt_length or 1, given.new_tokens or 0
    found = parameters(job, model)
    element = compute_bytes(job, model)
    masks = causal_masks(job, model) // stages(job)
    tables = round(rotary_tables(model, job, element).size) + masks
    tails = unsplit_tails(job, model, found)
    resident = round(unpacking(job, model).resident * largest_packed(found))
    fixed = {
        "weights": allocated(item for item in found if item.part in ("base", "buffer")) + tails,
        "adapter": allocated(item for item in found if item.part in ("adapter", "copy")),
        "buffers": runtime.allocated_workspace(job, gpu) + tables + resident,
    }
    heads = cached_heads(model)
    caches = [cache._replace(heads=heads or cache.heads) for cache in image_caches(layer_caches(model), job, model)]
    width = cache_bytes(given.kv_cache_dtype, "float32" if element > 2 else "bfloat16")
    pipeline, tensor = stages(job), job.parallelism.tensor
    split = GrowingCache(caches, width, tensor, pipeline, expanded(job, model), state_bytes(job, model, width))
    phases = [Phase("load", {**fixed, "buffers": _loading(job, model, found, element)})]
    fused: Phase | None = None
    encodes = seq2seq.encodes_prompt(model)
    if encodes:
        phases += seq2seq.phases(job, model, fixed, batch, prompt, answer, element, width)
    else:
        filled = split.unwindowed(job).size(batch, prompt) + round(views(job, model, batch, prompt, element).size)
        phases.append(_prefill(job, model, fixed, filled, batch, prompt, element))
        if given.new_tokens != 1:
            decode = _decode(job, model, fixed, split, batch, prompt, answer, element, found)
            phases.append(with_pixels(decode, job, model, batch))
        named = with_kernels(job, model)
        if named is not None and replayable(job, model):
            fused = _prefill(named, model, fixed, filled, batch, prompt, element)
    peak = max(phases, key=lambda phase: phase.allocated)
    passed = Given(job, model, batch, prompt, answer, element, width, split, found, tails, masks, resident)
    per_gpu, overhead = _tiers(job, model, gpu, peak, batch * prompt, element, bounded)
    loaded = phases[0].allocated
    unknown = uncertainty.while_loading(job, found, loaded, per_gpu.high - runtime.process_overhead(gpu, job).high)
    unknown += [*unpacked_perhaps(job, model, found), *kernels_perhaps(model, phases, fused)]
    unknown += unread_images(job, model, batch, prompt, element)
    judged = verdict(uncertainty.widened(per_gpu, unknown), gpu, bounded=bounded)
    unknown += [*packed_later(job, found, loaded, peak.allocated), *graphs(job, gpu)]
    unknown += retyped(found, job, loaded, peak.allocated)
    per_gpu = uncertainty.capped(uncertainty.widened(per_gpu, unknown), gpu, judged)
    return Estimate(
        kind="inference",
        model_id=model.id,
        parameters=model.parameters,
        trainable_parameters=0,
        per_gpu=per_gpu,
        phases=tuple(phases),
        peak=peak,
        runtime=overhead,
        verdict=judged,
        capacity=capacity(gpu),
        assumptions=(*_unstated(job), *inference_assumptions(job, model), *unknown),
        terms=tuple(terms_of(passed, peak, gpu)),
    )


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


def _prefill(
    job: Job,
    model: Model,
    fixed: dict[str, int],
    cache: int,
    batch: int,
    prompt: int,
    element: float,
) -> Phase:
    unpacked = unpacking(job, model).at(batch * prompt)
    if replayable(job, model):
        activations = widest(job, model, batch, prompt, cache)
    else:
        layers = total(prefill_products(model, job, batch, prompt, element, unpacked))
        activations = with_images(job, model, batch, prompt, cache, layers)
    packed = effective_quantization(job, model)
    if packed is not None and packed.head:
        activations = max(activations, round(unpacked.making * model.shape.vocabulary * model.shape.hidden))
    logits, beside = prefill_logits(model, job, batch, prompt, element)
    split = {**fixed, "kv_cache": cache}
    read = Phase("prefill", {**split, "activations": activations, "logits": 0})
    scored = with_pixels(Phase("prefill", {**split, "activations": beside, "logits": logits}), job, model, batch)
    return max(read, scored, key=lambda phase: phase.allocated)


def _decode(
    job: Job,
    model: Model,
    fixed: dict[str, int],
    split: GrowingCache,
    batch: int,
    prompt: int,
    answer: int,
    element: float,
    found: Sequence[Parameter],
) -> Phase:
    """The last step, or the first where the prompt's logits held through it outweigh what the cache grows by.

    A cache passed on as tuples is held by `generate` while a step makes its own by torch.cat: it exists twice.
    """
    logits = round(last_logits(model, batch, element).size)
    unpacked = round(unpacking(job, model).at(batch).making * largest_packed(found))
    last = prompt + max(0, answer - 1)
    if not Stack(job).does(TUPLES, model.model_type):
        made = max(attended(job, model, batch, last, element), stepped(job, model, batch, element))
        growing = max(split.growing(batch, last), made, unpacked)
        components = {**fixed, "kv_cache": split.size(batch, last)}
        begun = split.unwindowed(job).size(batch, prompt) + round(views(job, model, batch, prompt, element).size)
        made = split.first(batch, prompt)
        if begun + made > components["kv_cache"] + max(growing, logits):
            return Phase("decode", {**fixed, "kv_cache": begun, "activations": made, "logits": 0})
        if logits > growing:
            return Phase("decode", {**components, "logits": logits, "activations": 0})
        return Phase("decode", {**components, "activations": growing, "logits": 0})
    viewed = split.size(batch, prompt) + round(views(job, model, batch, prompt, element).size)
    first = viewed + split.size(batch, prompt + 1) + held_logits(model, job, batch, prompt, element)
    cache = split.size(batch, last - 1) + split.size(batch, last)
    length = last
    if first > cache:
        cache, logits = first - (held := held_logits(model, job, batch, prompt, element)), logits + held
        length = prompt + 1
    activations = max(unpacked, attended(job, model, batch, length, element))
    return Phase("decode", {**fixed, "kv_cache": cache, "logits": logits, "activations": activations})


def _loading(job: Job, model: Model, found: Sequence[Parameter], element: float) -> int:
    """Bytes that loading takes beside the weights.

    What packs as it loads gets a 16-bit weight on the GPU, one tensor at a time; other methods load packed ones.
    AutoAWQ's files hold a tied head too, which is there until `tie_weights` drops it (autoawq 0.2.6 models/base.py
    `save_quantized`, transformers modeling_utils.py `from_pretrained`).
    """
    quantization = effective_quantization(job, model)
    if quantization is None:
        return 0
    if quantization.method == "awq" and model.shape.tied:
        return round(element * model.shape.vocabulary * model.shape.hidden)
    if not quantization.method.startswith(PACKED_ON_LOAD):
        return 0
    return max((2 * item.size for item in found if item.packed), default=0)


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


def _tiers(
    job: Job, model: Model, gpu: Gpu | None, peak: Phase, tokens: int, element: float, bounded: bool
) -> tuple[PerGpu, int]:
    """Allocated -> reserved -> process. What each request allocates anew is activations, logits and the cache."""
    split = peak.components
    transient = split.get("activations", 0) + split.get("logits", 0) + split.get("kv_cache", 0)
    recycled = round(element * tokens * model.shape.intermediate)
    held = allocator.reserved(peak.allocated, transient, recycled)
    overhead = runtime.process_overhead(gpu, job)
    expected = held.expected if bounded else held.low
    process, low, high = expected + overhead.total, held.low + overhead.low, held.high + overhead.high
    return PerGpu(peak.allocated, expected, process, low, max(high, process)), overhead.total


def _unstated(job: Job) -> list[Assumption]:
    given = job.inference
    assert given is not None
    found = []
    for name, taken in (("batch_size", 1), ("prompt_length", 1), ("new_tokens", 0)):
        if getattr(given, name) is None:
            found.append(Assumption(f"inference.{name}", str(taken), "nobody states it: the estimate is a lower bound"))
    return found
