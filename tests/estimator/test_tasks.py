"""Encoders under their task heads and encoder-decoders against what the real libraries allocated.

`data/tasks.json` is made by `scripts/family_points.py`; nothing is fitted to it.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

import pytest

from gpulint import estimate
from gpulint.estimator.activations import instants
from gpulint.estimator.estimate import NotEstimable
from gpulint.estimator.inputs.objectives import scored_positions
from gpulint.estimator.unmodeled import derived
from gpulint.job.job import Job
from gpulint.models.heads import for_task
from gpulint.models.resolve import resolve

WORKSPACE = int(8.125 * (1 << 20))
"""A cuBLAS workspace, which the oracle has not (aten/src/ATen/cuda/CublasHandlePool.cpp)."""

FROZEN_FEATURES = r"^(?!.*feature_extractor\.)"
"""What the example script of Transformers trains by default (`freeze_feature_encoder`)."""

DATA = json.loads((Path(__file__).parent / "data" / "tasks.json").read_text())
# The oracle reads no checkpoint, and Transformers 5 ties every T5 that it builds from a config alone.
for _config in DATA["configs"].values():
    if _config["model_type"].endswith("t5"):
        _config["tie_word_embeddings"] = True


@pytest.fixture(scope="module")
def points(oracle_rows):
    """(row, model, peak of the step) of every point."""
    found = []
    for row in DATA["rows"]:
        point, config = DATA["settings"][row["setting"]], DATA["configs"][row["family"]]
        if point.get("mode") == "infer":
            continue
        job = oracle_rows.job_of({"point": point, "config": config})
        job.objective, _, target = row["task"].removeprefix("speech_").partition(":")
        job.target_length = int(target) if target else None
        if job.objective == "ctc":
            job.trainable = [FROZEN_FEATURES]
        job.objective = job.objective.removesuffix("_whole")
        model = for_task(resolve(config), job.objective)
        gradients, trained = row["trained"]
        peak = max(x.activations + x.logits + gradients / trained * x.gradient_elements for x in instants(job, model))
        found.append((row, model, row["static"] + peak))
    return found


@pytest.fixture(scope="module")
def answers(oracle_rows):
    """(row, estimate) of every generation."""
    found = []
    for row in DATA["rows"]:
        point, config = DATA["settings"][row["setting"]], DATA["configs"][row["family"]]
        if point.get("mode") == "infer":
            job = oracle_rows.job_of({"point": point, "config": config})
            job.inference.new_tokens = int(row["task"].partition(":")[2])
            found.append((row, estimate(job)))
    return found


def test_every_task_has_the_parameters_of_its_class(points):
    whole = [(row, model) for row, model, _ in points if "method" not in DATA["settings"][row["setting"]]]
    assert len(whole) > 100
    assert [row for row, model in whole if model.parameters != row["parameters"]] == []


def test_an_answer_takes_what_the_libraries_allocate(answers):
    off = {}
    for row, found in answers:
        for phase in found.phases[1:]:
            off[row["family"], row["setting"], phase.name] = (phase.allocated - WORKSPACE) / row[phase.name] - 1
    assert len(off) >= 12
    assert max(map(abs, off.values())) < 0.002, max(off, key=lambda key: abs(off[key]))


def test_a_longer_prompt_of_an_encoder_is_no_cache_of_the_answer():
    from gpulint.job.job import Inference

    def cache(prompt: int, answer: int) -> int:
        job = Job(kind="inference", model=DATA["configs"]["t5"])
        job.inference = Inference(batch_size=2, prompt_length=prompt, new_tokens=answer)
        return estimate(job).phases[-1].components["kv_cache"]

    one = cache(64, 64) - cache(64, 63)
    assert cache(64, 64) == 128 * one
    assert cache(128, 64) == 192 * one


def test_whisper_reads_its_window_whatever_the_prompt():
    config = DATA["configs"]["whisper"]
    lengths = [30, 3000]
    jobs = [Job(model=config, objective="seq2seq", sequence_length=n, target_length=64) for n in lengths]
    first, second = (estimate(job).per_gpu.allocated for job in jobs)
    assert first == second


def test_sinusoids_of_whisper_are_never_trained():
    found = estimate(Job(model=DATA["configs"]["whisper"], objective="seq2seq", sequence_length=1500))
    assert found.parameters - found.trainable_parameters == 1500 * 256


def test_a_step_takes_what_the_libraries_allocate(points):
    off = {}
    for row, _, peak in points:
        off[row["family"], row["task"], row["setting"]] = peak / max(row["forward"], row["backward"]) - 1
    sizes = sorted(map(abs, off.values()))
    assert len(sizes) > 60
    assert median(sizes) < 0.0005
    assert sizes[int(len(sizes) * 0.95)] < 0.005
    assert sizes[-1] < 0.015, max(off, key=lambda key: abs(off[key]))


def test_all_of_them_are_read(points):
    assert all(derived(model) for _, model, _ in points)


def test_fixed_positions_of_a_sound_tower_are_never_trained():
    for family in ("voxtral", "qwen2_audio"):
        found = estimate(Job(model=DATA["configs"][family], sequence_length=128))
        assert found.parameters - found.trainable_parameters == 1500 * 256


def test_the_features_of_sound_take_less_where_they_are_frozen():
    sizes = []
    for trainable in (None, [FROZEN_FEATURES]):
        job = Job(model=DATA["configs"]["wav2vec2"], objective="ctc", micro_batch_size=2, sequence_length=160000)
        job.target_length, job.trainable = 20, trainable
        sizes.append(estimate(job).per_gpu.allocated)
    assert sizes[1] < sizes[0] / 2


def test_sound_under_another_head_is_not_estimated():
    job = Job(model=DATA["configs"]["hubert"], objective="reward", micro_batch_size=1, sequence_length=16000)
    with pytest.raises(NotEstimable, match="hubert"):
        estimate(job)


def test_a_longer_target_takes_more():
    config = DATA["configs"]["t5"]
    sizes = []
    for target in (16, 128):
        job = Job(model=config, objective="seq2seq", micro_batch_size=4, sequence_length=256, target_length=target)
        sizes.append(estimate(job).per_gpu.allocated)
    assert sizes[0] < sizes[1]


def test_labels_are_rows_of_the_classifier():
    config = DATA["configs"]["bert"]
    two, five = (for_task(resolve(config), "classification", labels) for labels in (2, 5))
    assert five.parameters - two.parameters == 3 * (config["hidden_size"] + 1)


def test_a_decoder_s_classifier_takes_the_place_of_its_head():
    config = {
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "vocab_size": 100, "tie_word_embeddings": False,
    }  # fmt: skip
    whole = resolve(config)
    assert for_task(whole, "classification", 3).parameters == whole.parameters - 100 * 64 + 3 * 64
    assert for_task(whole, "sft") is whole


def test_an_encoder_on_vllm_gets_no_cache():
    from gpulint.job.job import Hardware, Inference

    job = Job(kind="inference", model="BAAI/bge-large-en-v1.5", hardware=Hardware("l4", 1, 1))
    job.inference = Inference(engine="vllm")
    found = estimate(job)
    assert found.components["kv_cache"] == 0
    assert found.per_gpu.process < found.capacity.usable // 4


@pytest.mark.parametrize(
    ("model", "objective"),
    [
        ("bert-base-uncased", "ctc"),
        ("Qwen/Qwen2.5-0.5B", "ctc"),
        ("google/t5-v1_1-small", "ctc"),
        ("facebook/hubert-large-ll60k", "classification"),
    ],
)
def test_a_model_without_the_head_of_its_task_is_refused(model, objective):
    job = Job.validate({"model": model, "objective": objective, "micro_batch_size": 1, "sequence_length": 1024})
    with pytest.raises(NotEstimable, match="head"):
        estimate(job)


def test_logits_of_sound_are_counted_by_frames():
    """Wav2Vec2 makes 499 frames of 160,000 samples."""
    values = {"model": "facebook/wav2vec2-base-960h", "objective": "ctc", "micro_batch_size": 2}
    job = Job.validate({**values, "sequence_length": 160_000})
    assert scored_positions(job, resolve(job.model)) == 499
