"""What loading needs beside the weights: tensors that a tool makes float32 and narrows again."""

from __future__ import annotations

import pytest

from gpulint.estimator.estimate_job import estimate_job
from gpulint.estimator.states.loading import loading, warmed
from gpulint.estimator.states.parameters import parameters
from gpulint.hardware.catalogue import find
from gpulint.job.job import Job
from gpulint.models.resolve import resolve
from gpulint.units import GIB

from .llama import LLAMA_8B

EMBEDDINGS = ["embed_tokens", "lm_head"]
SIZE = LLAMA_8B["vocab_size"] * LLAMA_8B["hidden_size"]


def job(**weights) -> Job:
    return Job.validate(
        {
            "model": LLAMA_8B,
            "method": "lora",
            "weights": {"dtype": "bfloat16", **weights},
            "adapter": {"r": 8, "targets": ["q_proj"]},
            "micro_batch_size": 1,
            "sequence_length": 128,
        }
    )


def beside(config=LLAMA_8B, **weights) -> int:
    plan = job(**weights)
    return loading(parameters(plan, resolve(config)), plan)


@pytest.mark.parametrize(("names", "most"), [([], 0), (EMBEDDINGS[:1], 4 * SIZE), (EMBEDDINGS, 6 * SIZE)])
def test_wide_copies_exist_beside_their_narrow_ones(names, most):
    assert beside(float32_once=names) == most


def test_tied_embeddings_are_widened_once():
    assert beside({**LLAMA_8B, "tie_word_embeddings": True}, float32_once=EMBEDDINGS) == 4 * SIZE


def test_nothing_is_widened_that_is_float32_already():
    assert beside(dtype="float32", float32_once=EMBEDDINGS) == 0


def test_it_is_in_the_load_phase_and_in_what_torch_reserves():
    model = resolve(LLAMA_8B)
    plain, widened = (estimate_job(job(float32_once=names), model, None) for names in ([], EMBEDDINGS))
    load = {phase.name: phase.allocated for phase in widened.phases}["load"]
    assert load == {phase.name: phase.allocated for phase in plain.phases}["load"] + 6 * SIZE
    assert widened.per_gpu.reserved >= load
    assert {p.name: p.allocated for p in widened.phases if p.name != "load"} == {
        p.name: p.allocated for p in plain.phases if p.name != "load"
    }


NF4 = {"method": "bnb-nf4", "bits": 4}


@pytest.mark.parametrize(("version", "block"), [("4.50.3", 0), ("4.51.0", 8), ("4.57.1", 8), ("5.0.0", 0), (None, 0)])
def test_a_block_for_half_of_the_16_bit_weights_is_asked_for_before_packing(version, block):
    plan = job(quantization=NF4)
    plan.versions = {"transformers": version} if version else {}
    found = parameters(plan, resolve(LLAMA_8B))
    assert warmed(found, plan, find("h100-80gb")) // 10**9 == block
    assert warmed(found, plan, None) == 0


def test_the_block_is_at_most_half_of_the_card():
    plan = job(quantization=NF4)
    plan.versions = {"transformers": "4.57.1"}
    t4 = find("t4")
    assert t4.usable / 2 - 1.2 * GIB < warmed(parameters(plan, resolve(LLAMA_8B)), plan, t4) < t4.usable / 2


def test_the_block_is_in_the_load_phase_and_stays_reserved():
    model, card = resolve(LLAMA_8B), find("h100-80gb")
    warm, cold = job(quantization=NF4), job(quantization=NF4)
    warm.versions, cold.versions = {"transformers": "4.57.1"}, {"transformers": "4.50.3"}
    block = warmed(parameters(warm, model), warm, card)
    found, before = estimate_job(warm, model, card), estimate_job(cold, model, card)
    assert {phase.name: phase.allocated for phase in found.phases}["load"] >= block
    assert found.per_gpu.reserved >= block > before.per_gpu.reserved
