"""The derivation of plain generation's peak, as lines that a reader can redo."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...allocator import runtime
from ...explain.derivation import weights as weight_terms
from ...explain.product import Product, matching, terms
from . import seq2seq
from .growing_cache import views
from .prefill import held_product, last_logits, logit_products, prefill_products, rotary_tables
from .prompt import replayable, widest_terms
from .unpacking import largest_packed, unpacking

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ....hardware.gpu import Gpu
    from ....job.job import Job
    from ....models.model import Model
    from ...estimate import Estimate, Phase, Term
    from ...states.parameters import Parameter
    from .growing_cache import GrowingCache

PREFILL, DECODING = "estimator/serving/prefill.py", "estimator/serving/decoding.py"
CACHE = "transformers cache_utils.py DynamicCache"
TAILS = "c10/cuda/CUDACachingAllocator.cpp should_split"


class Given(NamedTuple):
    """What is generated, and what the estimate has worked out of it: `tails` of the weights' segments, `masks` and
    the `resident` buffer of packed weights, in bytes.
    """

    job: Job
    model: Model
    batch: int
    prompt: int
    answer: int
    element: float
    width: float
    cache: GrowingCache
    found: Sequence[Parameter]
    tails: int
    masks: int
    resident: int

    @property
    def last(self) -> int:
        """Tokens in the cache at the last step."""
        return self.prompt + max(0, self.answer - 1)


def terms_of(given: Given, peak: Phase, gpu: Gpu | None) -> list[Term]:
    """The lines of every component at the peak, all but those of a replayed prompt (`prompt_terms`)."""
    tails = Product("rests of up to 1 MiB of the weights' segments", given.tails)
    lines = [*weight_terms(given.found), *terms("weights", (tails,), TAILS)]
    if seq2seq.encodes_prompt(given.model):
        lines += seq2seq.cache_terms(given.model, peak, given.batch, given.prompt, given.element, given.width)
    else:
        lines += _cache(given, peak)
    return [*lines, *_activations(given, peak), *_logits(given, peak), *_buffers(given, peak, gpu)]


def prompt_terms(estimate: Estimate, job: Job, model: Model) -> list[Term]:
    """A replayed prompt's activations, tensor by tensor; none where the peak is another or is derived otherwise."""
    given, size = job.inference, estimate.components["activations"]
    if given is None or estimate.peak_phase != "prefill" or not size or not replayable(job, model):
        return []
    batch, prompt = given.batch_size or 1, given.prompt_length or 1
    lines = widest_terms(job, model, batch, prompt, estimate.components["kv_cache"])
    return lines if sum(line.size for line in lines) == size else []


def _cache(given: Given, peak: Phase) -> list[Term]:
    """The cache behind the prompt or at the last step; before 4.42 twice, as it was and with a token more."""
    batch, prompt, last, cache = given.batch, given.prompt, given.last, given.cache
    queries = views(given.job, given.model, batch, prompt, given.element)
    begun = (*cache.unwindowed(given.job).products(batch, prompt), queries)
    handed_on = (*cache.products(batch, prompt), queries, *cache.products(batch, prompt + 1))
    grown = (*cache.products(batch, last - 1), *cache.products(batch, last))
    candidates = begun, cache.products(batch, last), handed_on, grown
    what = "layers that differ, of the fullest stage"
    return matching("kv_cache", peak.components.get("kv_cache", 0), CACHE, what, *candidates)


def _activations(given: Given, peak: Phase) -> list[Term]:
    job, model, element, size = given.job, given.model, given.element, peak.components.get("activations", 0)
    unpacked = unpacking(job, model)
    if seq2seq.encodes_prompt(model):
        made = seq2seq.activation_products(job, model, peak, given.batch, given.prompt, element, given.width)
        return matching("activations", size, "estimator/serving/seq2seq.py", "the encoder's pass", made)
    if peak.name == "prefill":
        passed = unpacked.at(given.batch * given.prompt)
        layers = prefill_products(model, job, given.batch, given.prompt, element, passed)
        head = Product("the head, unpacked", passed.making, (model.shape.vocabulary, model.shape.hidden))
        beside = logit_products(model, job, given.batch, given.prompt, element)[1]
        what = "the widest point of the prompt's pass, with what is held of its images"
        return matching("activations", size, PREFILL, what, layers, (head,), (beside,))
    step = unpacked.at(given.batch)
    weight = Product("the largest packed weight, unpacked", step.making, ((largest_packed(given.found), "elements"),))
    what = "keys and values made anew, scores or states of the widest layer in one step"
    return matching("activations", size, DECODING, what, given.cache.grown_products(given.batch, given.last), (weight,))


def _logits(given: Given, peak: Phase) -> list[Term]:
    last = last_logits(given.model, given.batch, given.element)
    passed = given.model, given.job, given.batch, given.prompt, given.element
    whole, held = logit_products(*passed)[0], held_product(*passed)
    size = peak.components.get("logits", 0)
    return matching("logits", size, PREFILL, "logits and what is made of them", (last,), (whole,), (last, held))


def _buffers(given: Given, peak: Phase, gpu: Gpu | None) -> list[Term]:
    workspace = runtime.allocated_workspace(given.job, gpu)
    tables = rotary_tables(given.model, given.job, given.element)
    made = (
        Product("cuBLAS workspace", workspace, source=runtime.WORKSPACE),
        tables._replace(source=PREFILL),
        Product("causal masks of all positions", given.masks, source="estimator/serving/causal_masks.py"),
        Product("buffer for the largest packed weight", given.resident, source="estimator/serving/unpacking.py"),
    )
    size = peak.components.get("buffers", 0)
    whole = Product("a weight in 16 bits while it is packed", 2, ((largest_packed(given.found), "elements"),))
    return matching(
        "buffers", size, "estimator/serving/generation.py", "what loading needs beside the weights", made, (whole,)
    )
