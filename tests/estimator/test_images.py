"""Models that read images against what the real libraries allocated: one image a sequence, and text alone.

`data/images.json` is made by `scripts/family_points.py`; nothing is fitted to it.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

import pytest

from gpulint import estimate
from gpulint.estimator.activations import instants
from gpulint.estimator.inputs.image_inputs import image_inputs, vision_spec
from gpulint.estimator.serving.generation.decoding import attended, image_caches
from gpulint.estimator.serving.kv_cache import layer_caches
from gpulint.estimator.states.parameters import allocated, parameters
from gpulint.estimator.terms import total
from gpulint.job.job import Inference, Job, Quantization
from gpulint.models.resolve import resolve

WORKSPACE = int(8.125 * (1 << 20))
"""What cuBLAS allocates, which the oracle does not."""

DATA = json.loads((Path(__file__).parent / "data" / "images.json").read_text())


def job_of(oracle_rows, row):
    """The job of a point."""
    point, config = DATA["settings"][row["setting"]], DATA["configs"][row["family"]]
    job = oracle_rows.job_of({"point": point, "config": config})
    task, _, side = row["task"].partition(":")
    job.images = int(task == "images")
    job.image_pixels = int(side) ** 2 if side else None
    return job


def trained_rows():
    """The points of training steps."""
    return [row for row in DATA["rows"] if DATA["settings"][row["setting"]].get("mode") != "infer"]


@pytest.fixture(scope="module")
def errors(oracle_rows):
    """(family, setting, task, what) -> relative error of the bytes loaded, and of those alive at a step's peak."""
    found = {}
    for row in trained_rows():
        job, model = job_of(oracle_rows, row), resolve(DATA["configs"][row["family"]])
        gradients, _ = row["trained"]
        trained = sum(item.elements for item in parameters(job, model) if item.graded)
        each = gradients / trained
        peak = row["static"] + max(x.activations + x.logits + each * x.gradient_elements for x in instants(job, model))
        key = row["family"], row["setting"], row["task"]
        found[(*key, "step")] = peak / max(row["forward"], row["backward"]) - 1
        found[(*key, "load")] = allocated(parameters(job, model)) / row["load"] - 1
    return found


@pytest.mark.parametrize("what", ["load", "step"])
def test_a_step_takes_what_the_libraries_allocate(errors, what):
    off = {key: abs(error) for key, error in errors.items() if key[-1] == what}
    assert len(off) > 60
    assert median(off.values()) < 0.0005
    assert max(off.values()) < 0.0025, max(off, key=off.get)


def test_parameters_are_those_that_transformers_builds():
    for row in DATA["rows"]:
        if "parameters" in row and "method" not in DATA["settings"][row["setting"]]:
            assert resolve(DATA["configs"][row["family"]]).parameters == row["parameters"], row["family"]


def test_adapters_are_where_peft_puts_them(oracle_rows):
    rows = [row for row in DATA["rows"] if "method" in DATA["settings"][row["setting"]]]
    assert rows
    for row in rows:
        model = resolve(DATA["configs"][row["family"]])
        found = parameters(job_of(oracle_rows, row), model)
        assert sum(item.elements for item in found if item.trainable or item.idle) == row["trained"][1], row["family"]


def test_a_prompt_with_images_takes_what_the_libraries_allocate(oracle_rows):
    off = {}
    for row in DATA["rows"]:
        if "prefill" in row:
            phases = estimate(job_of(oracle_rows, row)).phases
            found = {phase.name: phase.allocated - WORKSPACE for phase in phases}
            off.update(
                {(row["family"], row["task"], name): found[name] / row[name] - 1 for name in ("prefill", "decode")}
            )
    assert off
    unmasked = off.pop(("mllama", "images", "decode"))
    assert 0 < unmasked < 0.05, "the oracle gives the next token no mask of images, under which generate repeats keys"
    assert max(map(abs, off.values())) < 0.005, off


@pytest.mark.parametrize("family", ["gemma3", "llava", "mllama", "qwen2_5_vl"])
def test_the_tower_is_counted_where_the_layers_are_not_replayed(family):
    def prefill(images, version, method=None):
        job = Job(kind="inference", model=DATA["configs"][family], images=images, versions={"transformers": version})
        job.inference = Inference(batch_size=2, prompt_length=1024, new_tokens=8)
        job.weights.dtype = "bfloat16"
        job.weights.quantization = Quantization(method=method, bits=4) if method else None
        found = estimate(job)
        notes = [note for note in found.assumptions if note.field in ("model.towers", "versions.transformers")]
        return next(phase.allocated for phase in found.phases if phase.name == "prefill"), notes

    text, new, old, packed = (
        prefill(*given) for given in ((0, "5.23"), (1, "5.23"), (1, "4.57.6"), (1, "5.23", "bnb-nf4"))
    )
    assert not new[1]
    assert not packed[1]
    assert new[0] > text[0]
    assert old[0] - prefill(0, "4.57.6")[0] == pytest.approx(new[0] - text[0], rel=0.35)
    assert [note.field for note in old[1]] == ["versions.transformers"]
    assert old[1][0].high > 0
    assert packed[0] > prefill(0, "5.23", "bnb-nf4")[0]


def test_a_tower_that_is_not_read_widens_the_interval():
    config = {**DATA["configs"]["llava_next"], "model_type": "llava_next_video"}
    assert vision_spec(resolve(config)) is None
    for images in (0, 1):
        job = Job(kind="inference", model=config, images=images)
        job.inference = Inference(batch_size=1, prompt_length=512, new_tokens=8)
        found = [note for note in estimate(job).assumptions if note.field == "model.towers"]
        assert len(found) == images
        assert not found or found[0].high > 0


def test_layers_that_attend_to_images_are_passed_by_without_them():
    config = DATA["configs"]["mllama"]
    caches, trained = {}, {}
    for images in (0, 1):
        job = Job(kind="inference", model=config, images=images)
        job.inference = Inference(batch_size=1, prompt_length=512, new_tokens=8)
        caches[images] = estimate(job).peak.components["kv_cache"]
        job = Job(model=config, micro_batch_size=1, sequence_length=512, images=images)
        trained[images] = estimate(job).components["optimizer"]
    keys = 2 * 2 * 4 * 64 * 4 * 257
    assert caches[1] - caches[0] == keys * 4
    assert trained[1] > trained[0]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_new_token_attends_to_the_images_keys_and_not_to_as_many_as_there_are_tokens(attention):
    model = resolve(DATA["configs"]["mllama"])
    heads, groups = model.shape.heads, model.shape.kv_heads
    assert heads > groups

    def step(images, tokens, version):
        job = Job(kind="inference", images=images, attention=attention, versions={"transformers": version})
        job.inference = Inference(batch_size=2, prompt_length=8, new_tokens=8)
        job.weights.dtype = "bfloat16"
        caches = image_caches(layer_caches(model), job, model)
        return total(attended(job, model, 2, tokens, 2.0)), max(cache.cross for cache in caches)

    seen = 2 * 4 * 257 * heads
    repeated = 2 * 2 * seen * model.shape.head_dim
    scores = {"sdpa": 0, "eager": 10 * seen}[attention]
    assert step(1, 1, "5.23") == (repeated + scores, 4 * 257 * 2 * groups * model.shape.head_dim)
    assert step(0, 1, "5.23")[0] < repeated / 100
    assert step(1, 1, "4.51.3")[0] == (scores if attention == "eager" else repeated + 8 * seen * model.shape.head_dim)
    assert step(1, 1, "4.51.3")[1] == step(1, 1, "5.23")[1] * (heads // groups if attention == "eager" else 1)


@pytest.mark.parametrize(
    "model", ["Abiray/Qwen3.6-27B-NVFP4", "amd/Qwen3.5-397B-A17B-MXFP4", "Qwen/Qwen3-VL-4B-Instruct"]
)
def test_a_tower_is_read_by_whatever_name_its_config_gives_it(model):
    assert vision_spec(resolve(model)) is not None


def test_liger_leaves_models_that_it_does_not_know_as_they_are():
    logits = {}
    for family in ("llava", "llava_next", "idefics3", "smolvlm"):
        job = Job(model=DATA["configs"][family], micro_batch_size=1, sequence_length=1024, images=0)
        job.liger_kernels, job.loss.kernel = True, "liger"
        logits[family] = max(phase.components["logits"] for phase in estimate(job).phases)
    assert logits["llava_next"] == logits["idefics3"] > 4 * 1024 * 8000
    assert logits["llava"] == logits["smolvlm"] < logits["idefics3"]


def test_a_tower_of_tiles_was_checkpointed_before_transformers_4_55():
    kept = {}
    for version in ("4.54.1", "4.55.4"):
        job = Job(model=DATA["configs"]["mllama"], micro_batch_size=1, sequence_length=512, images=1)
        job.activation_checkpointing, job.versions = "full", {"transformers": version}
        kept[version] = estimate(job).components["activations"]
    assert kept["4.54.1"] < kept["4.55.4"] / 2


def test_text_alone_trains_no_tower():
    sizes = {}
    for images in (0, 1):
        job = Job(model=DATA["configs"]["gemma3"], micro_batch_size=1, sequence_length=512, images=images)
        sizes[images] = estimate(job)
    assert sizes[0].components["optimizer"] < sizes[1].components["optimizer"]
    assert sizes[0].trainable_parameters == sizes[1].trainable_parameters


def test_a_frozen_tower_keeps_nothing():
    def activations(images: int, trainable: list[str] | None) -> int:
        job = Job(model=DATA["configs"]["llava"], micro_batch_size=1, sequence_length=1024)
        job.images, job.trainable = images, trainable
        return estimate(job).components["activations"]

    decoder = ["^(?!.*(vision|projector))"]
    frozen, trained = (activations(2, patterns) - activations(1, patterns) for patterns in (decoder, None))
    assert 0 < frozen < trained / 4


def test_a_larger_image_takes_more():
    def allocated_at(pixels: int) -> int:
        job = Job(model=DATA["configs"]["qwen2_5_vl"], micro_batch_size=1, sequence_length=2048, images=1)
        job.image_pixels = pixels
        return estimate(job).per_gpu.allocated

    assert allocated_at(224 * 224) < allocated_at(896 * 896)


def test_an_image_is_as_many_tokens_as_its_model_says():
    job = Job(images=2, image_pixels=448 * 448)
    found = {name: image_inputs(job, resolve(config), 3) for name, config in DATA["configs"].items()}
    assert found["qwen2_5_vl"].tokens == 256
    assert found["gemma3"].tokens == 256
    assert found["llava"].tokens == 576
    assert all(item.given == 6 for item in found.values())


def test_images_that_nobody_counts_fit_into_their_sequence():
    job = Job(sequence_length=256)
    found = {name: image_inputs(job, resolve(config), 1) for name, config in DATA["configs"].items()}
    assert found["llava"] is None
    assert found["qwen2_5_vl"].tokens == 256
    job.images = 1
    assert image_inputs(job, resolve(DATA["configs"]["llava"]), 1).tokens == 576


def test_unknown_images_widen_the_interval():
    def tiers(images: int | None):
        job = Job(model=DATA["configs"]["qwen2_5_vl"], micro_batch_size=1, sequence_length=4096, images=images)
        job.image_pixels = None if images is None else 448 * 448
        return estimate(job)

    known, unknown = tiers(1), tiers(None)
    assert [note.field for note in unknown.assumptions if note.high] == ["images"]
    assert not [note for note in known.assumptions if note.field == "images"]
    assert unknown.per_gpu.low < known.per_gpu.low
    assert unknown.per_gpu.high > known.per_gpu.high


def test_a_prompt_is_text_unless_images_are_stated():
    sizes = {}
    for images in (None, 0, 1):
        job = Job(kind="inference", model=DATA["configs"]["qwen2_5_vl"], images=images, image_pixels=1792 * 1792)
        job.inference = Inference(batch_size=1, prompt_length=4096, new_tokens=8)
        sizes[images] = estimate(job).per_gpu.allocated
    assert sizes[None] == sizes[0] < sizes[1]


def test_a_tower_that_is_not_read_is_bounded():
    model = resolve("baidu/ERNIE-4.5-VL-28B-A3B-PT")
    assert vision_spec(model) is None
    job = Job(model=model.id, micro_batch_size=1, sequence_length=1024)
    assert "model.layers" in [note.field for note in estimate(job).assumptions]


@pytest.mark.parametrize(
    ("release", "loop", "others"),
    [("4.45.2", "", 0), ("4.46.0", "", 3), ("5.23.0", "", 3), ("5.23.0", "nemo-automodel", 0), ("5.23.0", "verl", 0)],
)
def test_the_images_of_a_step_wait_on_the_gpu(oracle_rows, release, loop, others):
    """All micro batches' from the release on whose Trainer takes them off the loader together; other loops wait."""
    row = next(row for row in trained_rows() if row["task"].startswith("images"))
    job = job_of(oracle_rows, row)
    job.versions["transformers"] = release
    job.framework = loop or None
    model = resolve(DATA["configs"][row["family"]])
    seen = image_inputs(job, model, job.micro_batch_size)
    size = 4 * seen.images * seen.pixels

    def stepping(accumulated: int) -> int:
        job.gradient_accumulation_steps = accumulated
        (found,) = (phase.allocated for phase in estimate(job).phases if phase.name == "optimizer_step")
        return found

    assert stepping(4) - stepping(1) == others * size
