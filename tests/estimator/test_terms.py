"""A figure is the sum of its own terms: of any job, at any instant, with each tensor told."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpulint.estimator.estimate import ALLOCATED, NotEstimable, Tiers
from gpulint.estimator.estimate_job import estimate_job
from gpulint.estimator.explain.explain import explained
from gpulint.estimator.terms import Product, Term, at_least, at_most, less, line, of, terms, tier, total
from gpulint.hardware.catalogue import find
from gpulint.job.job import Job
from gpulint.launchers.reading import open_jobs, recognise_file
from gpulint.models.resolve import resolve
from gpulint.run.estimated import estimated
from gpulint.settings.settings import Settings

from .test_explain import GEMMA, GPT2, LLAMA, MIXTRAL, value
from .test_legal_jobs import TRAINING
from .test_serving_terms import LATENT, T5

CARDS = st.sampled_from([None, "rtx-3060-12gb", "t4", "h100-80gb"])

SERVING = st.fixed_dictionaries(
    {
        "kind": st.just("inference"),
        "model": st.sampled_from([LLAMA, GEMMA, GPT2, MIXTRAL, LATENT]),
        "parallelism": st.sampled_from([{}, {"tensor": 2}, {"tensor": 2, "pipeline": 2}]),
        "hardware": st.just({"gpus": 4}),
        "weights": st.sampled_from([{"dtype": "bfloat16"}, {"dtype": "float16"}]),
        "inference": st.fixed_dictionaries(
            {
                "engine": st.sampled_from(["vllm", "sglang", "tgi", "tensorrt-llm", "lmdeploy"]),
                "max_model_len": st.sampled_from([130, 4001]),
            },
            optional={
                "version": st.sampled_from(["0.2.5", "0.8.5", "0.13.0", "3.0.1"]),
                "gpu_memory_utilization": st.sampled_from([0.01, 0.31, 0.97]),
                "max_num_batched_tokens": st.sampled_from([257, 65_537]),
                "max_num_seqs": st.sampled_from([1, 129]),
                "max_total_tokens": st.sampled_from([1, 100_003]),
                "cpu_offload_gb": st.just(0.3),
                "enable_lora": st.just(True),
                "enforce_eager": st.just(True),
            },
        ),
    }
)
GENERATION = st.fixed_dictionaries(
    {
        "kind": st.just("inference"),
        "model": st.sampled_from([LLAMA, GEMMA, GPT2, MIXTRAL, LATENT, T5]),
        "hardware": st.just({"gpus": 2}),
        "weights": st.sampled_from([{"dtype": "bfloat16"}, {"dtype": "float32"}]),
        "attention": st.sampled_from(["eager", "sdpa", "flash_attention_2"]),
        "versions": st.sampled_from([{}, {"transformers": "4.40.0"}, {"transformers": "4.51.0"}]),
        "inference": st.fixed_dictionaries(
            {
                "engine": st.just("transformers"),
                "batch_size": st.sampled_from([1, 3]),
                "prompt_length": st.sampled_from([1, 130, 2050]),
                "new_tokens": st.sampled_from([0, 1, 130, 4097]),
            }
        ),
    },
    optional={"parallelism": st.just({"tensor": 2}), "padded": st.just(True)},
)


def sums(found: tuple[Term, ...]) -> Counter[str]:
    held: Counter[str] = Counter()
    for term in found:
        held[term.component] += term.size
    return held


def check(plan: Job, card: str | None) -> None:
    """Every phase, tier and component is the sum of its terms; each term's arithmetic gives its bytes."""
    model = resolve(plan.model)
    try:
        found = estimate_job(plan, model, find(card) if card else None)
    except NotEstimable:
        assume(False)
    for phase in found.phases:
        assert {name: sums(phase.terms)[name] for name in ALLOCATED} == phase.components
        assert min(phase.components.values()) >= 0
    told = explained(found, plan, model)
    check_told(told)
    assert told.components == found.components
    assert told.per_gpu == found.per_gpu


def check_told(told) -> None:
    held, tiers = sums(told.terms), told.per_gpu
    assert {name: held[name] for name in told.components} == told.components
    assert [held[name] for name in Tiers._fields] == [getattr(tiers, name) for name in Tiers._fields]
    assert all(isinstance(term.size, int) for term in told.terms)
    for term in told.terms:
        assert term.label or term.source or term.component in Tiers._fields, term
        arithmetic = value(term.formula)
        if arithmetic is not None and "one before" not in term.formula and term.size:
            assert arithmetic == pytest.approx(term.size, rel=2e-3, abs=4096), term


@settings(max_examples=60)
@given(TRAINING, CARDS)
def test_terms_of_any_training_job_sum(fields, card):
    check(Job.validate(fields), card)


@settings(max_examples=60)
@given(SERVING, CARDS)
def test_terms_of_any_engine_sum(fields, card):
    check(Job.validate(fields), card)


@settings(max_examples=40)
@given(GENERATION, CARDS)
def test_terms_of_any_generation_sum(fields, card):
    check(Job.validate(fields), card)


def test_terms_of_the_examples_sum(root):
    """The configs that the pages show, as `gpulint estimate --explain` prints them."""
    met = 0
    for path in sorted((root / "examples").rglob("*.y*ml")):
        settings_ = Settings(root=str(root / "examples"), gpu="h100-80gb", gpus=8, skip_unknown=True)
        for opened in open_jobs(recognise_file(str(path)), settings_).opened:
            if opened.reading.job.model is None:
                continue
            job, model, _, found, _ = estimated(opened)
            check_told(explained(found, job, model))
            met += 1
    assert met >= 4


def test_what_is_taken_off_is_negative_in_size_and_arithmetic():
    made = [*terms("weights", [Product("a", 2, (7,))]), Term("weights", "0.3 x 10 B", 3), line("weights", 0, "none")]
    off = less("left", made)
    assert [(term.component, term.size, term.formula) for term in off] == [
        ("left", -14, "-2 B x 7"),
        ("left", -3, "-0.3 x 10 B"),
    ]
    assert total([*made, *off]) == 0
    assert of("left", off) == -17
    assert of("weights", off) == 0


def test_a_tier_is_held_within_bounds_by_a_term_that_says_so():
    low = tier("low", (7, "seven"), (0, "nothing"))
    assert [term.label for term in low] == ["seven"]
    assert [term.size for term in at_least("low", low, 9, "more")] == [7, 2]
    assert [term.size for term in at_least("low", low, 7, "more")] == [7]
    assert [term.size for term in at_most("low", low, 4, "fewer")] == [7, -3]
    assert [term.size for term in at_most("low", low, 7, "fewer")] == [7]
