"""Kubernetes manifests as their projects publish them: each is recognised and becomes jobs or says why not."""

from __future__ import annotations

import json
import time
from collections import Counter

import pytest

from gpulint.launchers.reading import open_jobs, recognise_file
from gpulint.run.check import check
from gpulint.settings.settings import Settings

KINDS = {
    "k8s_workload": {"kubernetes"},
    "k8s_trainjob": {"kubeflow"},
    "k8s_ray": {"kuberay"},
    "k8s_lws": {"leaderworkerset"},
    "k8s_jobset": {"jobset"},
    "kserve": {"ome", "kserve"},
    "k8s_llm_crd": {"llmaz", "production_stack"},
    "kubeai_model": {"kubeai"},
    "kaito": {"kaito"},
}

TRUE_ERRORS = {
    # the ConfigMap's tensor-parallel-size of 2 comes behind kaito's own, and the machine has one GPU
    ("kaito_workspace_custom_config.yaml", "GPU701"),
    (
        "vllm-runtime.yaml",
        "GPU002",
    ),  # fields that no VLLMRuntime of the CRD has; kubectl refuses them
    ("ray-cluster-auto.yaml", "GPU004"),  # a node label of 8, which is to be a string
    ("basic-vllm.yaml", "GPU251"),  # vLLM 0.8.5 takes the checkpoint's bfloat16, and the card is a T4
    ("deploy-llm.yaml", "GPU201"),  # an 8B model with 32,768 tokens on one L4 and vLLM 0.8.5
    ("kaito_workspace_custom_config.yaml", "GPU701"),  # two tensor ranks on an instance of one A100
}


@pytest.fixture(scope="module")
def paths(shared):
    folder = shared / "corpus"
    rows = json.loads((folder / "INDEX.json").read_text())
    return {kind: [str(folder / row["path"]) for row in rows if row["format"] == kind] for kind in KINDS}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_manifest_is_recognised_and_gives_jobs_or_a_reason(paths, kind):
    assert paths[kind]
    for path in paths[kind]:
        started = time.perf_counter()
        found = open_jobs(recognise_file(path), Settings())
        assert found.kind in KINDS[kind], path
        assert found.opened or found.reason, path
        assert "\n" not in found.reason, path
        assert len(found.reason) <= 120, path
        assert time.perf_counter() - started < 2, path
        for opened in found.opened:
            origins = opened.reading.job.origins
            assert all(origin.kind for origin in origins.values()), path


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_errors_are_those_of_the_files(paths, kind):
    report = check(paths[kind], Settings())
    found = {(finding.location.path.rpartition("/")[2], finding.rule) for finding in report.findings
             if finding.severity == "error"}  # fmt: skip
    assert found <= TRUE_ERRORS


def test_hardware_is_found_where_the_file_names_it(paths):
    found: Counter[bool] = Counter()
    for path in [*paths["kubeai_model"], *paths["kaito"], *paths["k8s_lws"]]:
        for opened in open_jobs(recognise_file(path), Settings()).opened:
            found[opened.gpu is not None] += 1
    # not known: three machines to fill in, one partition, a card that is in no catalogue, two clusters without labels
    assert found[True] >= 39
    assert found[False] <= 8
