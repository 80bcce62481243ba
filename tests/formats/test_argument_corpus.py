"""These formats against real published configs: recognition, and every unknown key reviewed by hand."""

import json
import os

import pytest

from gpulint.formats.core.format import Project
from gpulint.formats.core.registry import is_of, recognise
from gpulint.formats.hf_trainer import format as hf_trainer
from gpulint.formats.hf_trainer import sharding as training_sharding
from gpulint.formats.job import format as job
from gpulint.formats.llamafactory import format as llamafactory
from gpulint.formats.llamafactory import method as llamafactory_method
from gpulint.formats.serving import vllm
from gpulint.source.document import SourceError
from gpulint.source.read import read

from .origins import INFERENCE, TRAINING, missing

KINDS = {
    "hf_trainer": ("hf_trl_yaml", "hf_trainer_json"),
    "llamafactory": ("llamafactory",),
    "vllm": ("vllm_config_yaml",),
    "job": (),
}
FORMATS = {module.FORMAT.name: module.FORMAT for module in (hf_trainer, llamafactory, vllm, job)}

MISLABELLED = ("text2semantic_finetune.yaml", "deepseekr1-fp8-1p1d", "deepseek-r1-fp8-1p1d")
"""A Lightning config counted as TRL, and four SGLang configs counted as vLLM."""

UNKNOWN = {
    "hf_trainer": set(),
    # arguments of KTransformers that came after 0.9.5; the last two stand in a DeepSpeed file
    "llamafactory": {"kt_config", "kt_cpu_activation", "kt_non_expert_weight_path", "comms_config", "monitor_config"},
    "vllm": set(),
}
REMOVED = {
    "hf_trainer": set(),
    "llamafactory": {"train_mm_proj_only", "fsdp_transformer_layer_cls_to_wrap"},
    "vllm": {"disable-log-requests"},
}


@pytest.fixture(scope="module")
def documents(shared):
    """(format by the index, document) of every file of the corpus that can be read."""
    folder = shared / "corpus"
    found = []
    for row in json.loads((folder / "INDEX.json").read_text()):
        try:
            document = read(str(folder / row["path"]))
        except SourceError:
            continue
        if document.roots and document.root.is_mapping:
            found.append((row["format"], document))
    return found


@pytest.fixture(autouse=True)
def no_models(monkeypatch):
    monkeypatch.setattr(training_sharding, "hidden_size", lambda *_: None)
    monkeypatch.setattr(llamafactory_method, "find_model", lambda *_: None)


def readings(documents, name):
    def open_beside(reference, from_path):
        path = os.path.join(os.path.dirname(from_path), reference)
        return read(path) if os.path.isfile(path) else None

    project = Project("/nowhere", None, None, None, open_beside)
    for kind, document in documents:
        if kind in KINDS[name] and is_of(document, name):
            yield FORMATS[name].read(document, project)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_recognition(documents, name):
    found = {document.path for _, document in documents if (form := recognise(document)) and form.name == name}
    expected = {document.path for kind, document in documents if kind in KINDS[name]}
    assert found - expected == set()
    assert [path for path in expected - found if not any(part in path for part in MISLABELLED)] == []


@pytest.mark.parametrize("name", ["hf_trainer", "llamafactory", "vllm"])
def test_every_reported_key_is_a_true_one(documents, name):
    problems = [item for reading in readings(documents, name) for item in reading.problems]
    assert {item.key for item in problems if item.kind == "unknown-key"} <= UNKNOWN[name]
    assert {item.key for item in problems if item.kind == "deprecated-key"} <= REMOVED[name]
    assert [item for item in problems if item.kind == "wrong-type"] == []


@pytest.mark.parametrize("name", ["hf_trainer", "llamafactory", "vllm"])
def test_every_job_explains_itself(documents, name):
    number = 0
    for reading in readings(documents, name):
        wanted = TRAINING if reading.job.kind == "training" else INFERENCE
        if reading.job.get("inference.engine") == "cpu":
            wanted = ("model", "weights.dtype", "inference.engine")
        assert missing(reading.job, wanted) == [], reading.config.path
        number += 1
    assert number >= 14
