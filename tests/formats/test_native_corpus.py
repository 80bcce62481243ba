"""Configs of frameworks with code of their own, as published: recognition, reasons, and every finding reviewed."""

import collections
import json
import os

import pytest

from gpulint.formats.core.format import NoJobError, Project
from gpulint.formats.core.registry import recognise
from gpulint.source.read import read

from .origins import TRAINING, missing

KINDS = ("torchtune", "litgpt", "torchtitan", "nemo", "gpt_neox", "llm_foundry", "olmo", "nanotron")

MISLABELLED = ("skythought-rl/verl/trainer/config", "generate_qwen_image_edit", "/tutorials/recipes/")
"""verl's configs counted as NeMo, and a diffusion config counted as OLMo."""

LEAST = {
    "torchtune": 136, "litgpt": 19, "torchtitan": 24, "nemo": 50, "gpt_neox": 18, "llm_foundry": 30, "olmo": 33,
    "nanotron": 16,
}  # fmt: skip
"""Jobs at least; the rest says why it is none."""

UNKNOWN = {
    # torchtune: sections of earlier recipes, which the ones of 0.7 pass over
    "fsdp", "memory_efficient_fsdp_wrap",
    # gpt-neox: pythia's utils/dummy_config.yml has a key of Megatron's
    "save-interval",
    # nanotron: examples/config_resume_training.yaml has a key that no release reads
    "parallelism.moe_layer_recompute",
    # llm-foundry: YAML written before 0.9, which put variables at the top
    "parameters.data_local", "parameters.data_remote", "parameters.global_seed", "global_seed", "dataset",
    "icl_max_seq_len",
}  # fmt: skip

CONTRADICTIONS = {"model.global_batch_size"}
"""NeMo-Aligner's training_rm.yaml: 64 rows on 64 ranks of micro batch 2."""


@pytest.fixture(scope="module")
def files(shared):
    """(label, document, format) of every file of these labels."""
    folder = shared / "corpus"
    found = []
    for row in json.loads((folder / "INDEX.json").read_text()):
        if row["format"] in KINDS and not any(part in row["path"] for part in MISLABELLED):
            document = read(str(folder / row["path"]))
            found.append((row["format"], document, recognise(document)))
    return found


@pytest.fixture(scope="module")
def readings(files):
    """(label, reading or the reason why there is none) of every recognised file."""

    def beside(reference, from_path):
        path = os.path.join(os.path.dirname(from_path), reference)
        return read(path) if os.path.isfile(path) else None

    found = []
    for label, document, form in files:
        try:
            found.append((label, form.read(document, Project("/nowhere", None, None, None, beside))))
        except NoJobError as error:
            found.append((label, error.reason))
    return found


def test_recognition(files):
    assert [document.path for label, document, form in files if form is None or form.name != label] == []


def test_jobs_and_reasons(readings):
    jobs = collections.Counter(label for label, found in readings if not isinstance(found, str))
    assert {label: number for label, number in LEAST.items() if jobs[label] < number} == {}
    assert all(found and "\n" not in found for _, found in readings if isinstance(found, str))


def test_every_finding_is_a_true_one(readings):
    problems = [item for _, found in readings if not isinstance(found, str) for item in found.problems]
    assert {item.key for item in problems if item.kind == "unknown-key"} <= UNKNOWN
    assert {item.key for item in problems if item.kind == "contradiction"} <= CONTRADICTIONS
    assert [item for item in problems if item.kind == "wrong-type"] == []


def test_every_job_explains_itself(readings):
    for _, found in readings:
        if not isinstance(found, str):
            assert missing(found.job, TRAINING) == [], found.config.path
