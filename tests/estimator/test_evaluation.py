"""Evaluations against those of the real libraries, and what their logits do to an estimate."""

from __future__ import annotations

import pytest

from gpulint import estimate
from gpulint.estimator.estimate_job import estimate_job
from gpulint.estimator.evaluation import further_logits, gathered_logits, last_logits, passes
from gpulint.hardware.catalogue import find
from gpulint.job.job import Job
from gpulint.models.resolve import resolve

LLAMA = "meta-llama/Meta-Llama-3-8B"
AMP, LORA = {"precision": {"autocast": "bfloat16"}}, {"r": 16, "targets": "all-linear", "dropout": 0.1}
PEFT = {**AMP, "method": "lora", "adapter": LORA}
NF4 = {"dtype": "bfloat16", "quantization": {"method": "bnb-nf4", "bits": 4, "double_quant": True}}
ORACLE = [
    (LLAMA, "bfloat16", 8, 2048, {}, 21148205132),
    (LLAMA, "float32", 8, 2048, AMP, 36291739724),
    (LLAMA, "bfloat16", 8, 2048, PEFT, 21232091212),
    (LLAMA, "bfloat16", 8, 2048, {**PEFT, "weights": NF4}, 21232091212),
    ("meta-llama/Llama-3.2-1B", "bfloat16", 8, 2048, {"attention": "eager"}, 21081096268),
    ("meta-llama/Llama-3.2-1B", "bfloat16", 4, 8192, {"attention": "eager"}, 87311319044),
    ("Qwen/Qwen2.5-0.5B", "float32", 8, 1024, {}, 9986900044),
    ("gpt2-xl", "float32", 8, 1024, AMP, 7281069260),
    ("google/gemma-2-9b", "bfloat16", 4, 2048, {"attention": "eager"}, 21030502444),
]
"""Bytes at the peak beside the weights of the second of two `prediction_step`s without gradients, by the memory oracle
(transformers 5.23 and torch 2.13 on fake CUDA tensors; under autocast accelerate's float32 outputs)."""


def job(model=LLAMA, dtype="bfloat16", batch=8, length=2048, **changes):
    fields = {"model": model, "weights": {"dtype": dtype}, "micro_batch_size": 1, "sequence_length": length}
    return Job.validate({**fields, "evaluation": {"micro_batch_size": batch}, **changes})


def peak(plan: Job) -> int:
    return max(item.activations + item.logits for item, _ in passes(plan, resolve(plan.model)).instants)


@pytest.mark.parametrize(("model", "dtype", "batch", "length", "changes", "measured"), ORACLE)
def test_an_evaluation_holds_what_the_real_libraries_do(model, dtype, batch, length, changes, measured):
    assert peak(job(model, dtype, batch, length, **changes)) == pytest.approx(measured, rel=2e-5)


def test_both_answers_of_a_pair_are_evaluated():
    one, pair = (peak(job(objective=name, loss={"kernel": "chunked"})) for name in ("kto", "dpo"))
    assert pair == pytest.approx(2 * one, rel=0.2)


def test_a_fused_loss_spares_an_evaluation_the_logits_where_the_trainer_asks_for_it():
    fused = {"loss": {"kernel": "liger"}}
    made = peak(job(**fused, evaluation={"micro_batch_size": 8, "unfused": True}))
    assert made == peak(job())
    assert peak(job(**fused)) < made / 5


def test_the_gradient_of_a_head_is_not_made_in_an_evaluation():
    """Liger makes it in the forward pass of a training step."""
    frozen = job(loss={"kernel": "liger"}, trainable=[r"layers\."])
    assert peak(job(loss={"kernel": "liger"})) == peak(frozen)


def test_layers_are_gathered_in_an_evaluation():
    sharded = {"parallelism": {"fsdp": {"version": 2, "wrap": "transformer"}}, "hardware": {"gpus": 8}}
    found = estimate_job(job(**sharded), resolve(LLAMA), None)
    evaluated = next(phase for phase in found.phases if phase.name == "evaluation")
    assert evaluated.components["buffers"] > 2 * 2 * 128256 * 4096


def test_logits_that_are_kept_add_up_until_they_are_moved():
    """Two steps' of 8 x 2048 rows and the tensor that joins them; of a third, the last one's by themselves too."""
    step = 8 * 2048 * 128256 * 2
    model = resolve(LLAMA)

    def kept(**fields):
        return job(evaluation={"micro_batch_size": 8, "keeps_logits": True, **fields})

    assert gathered_logits(job(), model) == (0, 0)
    assert gathered_logits(kept(accumulation_steps=1), model) == (0, 0)
    assert gathered_logits(kept(accumulation_steps=2), model) == (step, 4 * step)
    assert gathered_logits(kept(accumulation_steps=4), model) == (4 * step, 8 * step)
    assert further_logits(kept(accumulation_steps=4), model) == 0 < further_logits(kept(), model)
    assert further_logits(job(unstated=["evaluation.keeps_logits"]), model) == 4 * step
    ranks = kept(accumulation_steps=2).with_changes({"hardware.gpus": 4})
    assert gathered_logits(ranks, model) == (4 * step, 16 * step)


@pytest.mark.parametrize(("changes", "width"), [({}, 2), ({"versions": {"transformers": "4.41"}}, 4), (AMP, 4)])
def test_kept_logits_are_as_wide_as_the_model_hands_them_back(changes, width):
    """Before 4.46 Llama's class made them float32 (`logits = logits.float()`); under autocast accelerate does."""
    plan = job(evaluation={"micro_batch_size": 8, "keeps_logits": True, "accumulation_steps": 2}, **changes)
    assert gathered_logits(plan, resolve(LLAMA))[0] == 8 * 2048 * 128256 * width


def test_the_last_logits_are_there_where_an_evaluation_makes_them():
    """Liger's models make none in a training step, and in an evaluation where the trainer does not ask them not to."""
    whole = 4 * 8 * 2048 * 128256
    for evaluation, size in (({}, 0), ({"unfused": True}, whole), ({"keeps_logits": True}, whole)):
        plan = job(loss={"kernel": "liger"}, evaluation={"micro_batch_size": 8, **evaluation})
        assert last_logits(plan, resolve(LLAMA)) == size


def test_what_a_script_may_keep_widens_the_interval_alone():
    card = find("h200")
    sure, unsure = (
        estimate_job(job(unstated=item), resolve(LLAMA), card) for item in ([], ["evaluation.keeps_logits"])
    )
    assert unsure.per_gpu.process == sure.per_gpu.process
    assert unsure.per_gpu.high > sure.per_gpu.high
    assert unsure.verdict == sure.verdict


LLAMA_2_CACHE = 2 * 32 * 4096 * 8 * 2048
"""Keys and values of eight rows of 2,048 tokens in Llama-2-7B, in elements."""


@pytest.mark.parametrize(("version", "more"), [("4.50.0", 2), ("4.40.0", 6)])
def test_an_evaluation_that_caches_keeps_the_keys_and_values_of_all_layers(version, more):
    """16 bits each, and as tuples, before 4.46, a float32 copy under autocast when the pass has ended."""
    fields = {
        "model": "meta-llama/Llama-2-7b-hf", "method": "lora", "adapter": {"r": 8, "targets": ["q_proj"]},
        "weights": {"dtype": "bfloat16"}, "precision": {"autocast": "bfloat16"}, "micro_batch_size": 1,
        "sequence_length": 2048, "activation_checkpointing": "full", "versions": {"transformers": version},
    }  # fmt: skip
    caching, plain = (
        next(
            phase
            for phase in estimate(Job.validate({**fields, "evaluation": {"micro_batch_size": 8, "caches": on}})).phases
            if phase.name == "evaluation"
        )
        for on in (True, False)
    )
    assert caching.components["kv_cache"] == more * LLAMA_2_CACHE
    assert plain.components["kv_cache"] == 0
    if more == 2:
        assert caching.allocated - plain.allocated == more * LLAMA_2_CACHE


def test_keys_that_float32_norms_make_are_kept_in_float32():
    """PEFT's preparation of a 4-bit model makes norms float32, and with them what a 4-bit layer hands back."""
    nf4 = {"dtype": "float16", "quantization": {"method": "bnb-nf4", "bits": 4}}
    adapter = {"r": 8, "targets": ["q_proj"], "prepare_kbit": True}
    plan = job(
        "meta-llama/Llama-2-7b-hf", precision={"autocast": "float16"}, method="lora", adapter=adapter, weights=nf4,
        evaluation={"micro_batch_size": 8, "caches": True}, versions={"transformers": "4.40.0"},
    )  # fmt: skip
    found = passes(plan, resolve(plan.model))
    assert (found.kept, found.widened) == (4 * LLAMA_2_CACHE, 0)


def test_keys_that_stay_cut_up_what_layers_have_freed():
    """Each layer's keys take a piece of a block that the layer before has freed, which then is too small for the next.

    A published run reserved 42.27 GiB (Llama-2-7B in 4 bits on an A100, batches of eight in its evaluation) where no
    instant has 28 GiB of tensors.
    """
    plan = job(
        "meta-llama/Llama-2-7b-hf", method="lora", adapter={"r": 8, "targets": ["q_proj"]}, precision=AMP["precision"],
        activation_checkpointing="full", versions={"transformers": "4.50.0"},
    )  # fmt: skip
    plain, caching = (
        estimate_job(plan.with_changes({"evaluation.caches": caches}), resolve(plan.model), None).per_gpu
        for caches in (False, True)
    )
    assert caching.reserved - plain.reserved > 1.2 * (caching.allocated - plain.allocated)


@pytest.mark.parametrize("sharding", [{}, {"fsdp": {"version": 2, "wrap": "transformer"}}, {"zero": {"stage": 3}}])
def test_an_evaluation_comes_on_top_of_what_training_has_freed(sharding):
    """Logits of eight rows are larger than any block of a training step with one, and open segments of their own."""
    plan = job(**AMP, parallelism=sharding, hardware={"gpus": 8})
    trained, evaluated = (
        estimate_job(plan.with_changes({"evaluation.micro_batch_size": rows}), resolve(LLAMA), None).per_gpu
        for rows in (None, 8)
    )
    assert evaluated.reserved > trained.reserved
    assert evaluated.reserved > evaluated.allocated


def test_logits_of_an_evaluation_lie_beside_what_a_fused_loss_left():
    """Training's blocks are smaller than the logits; with expandable segments they are not kept as they are."""
    plan = job(loss={"kernel": "liger"}, evaluation={"micro_batch_size": 1, "unfused": True})
    fixed, expandable = (
        estimate_job(plan.with_changes({"allocator.expandable_segments": on}), resolve(LLAMA), None).per_gpu
        for on in (False, True)
    )
    assert fixed.allocated == expandable.allocated
    assert fixed.reserved > expandable.reserved
