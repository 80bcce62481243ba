"""Serving manifests against real published files: each is of its kind, and gives a job or says in one line why not."""

from __future__ import annotations

import json
import time

import pytest

from gpulint.launchers.reading import UnrecognisedError, open_jobs, recognise_file
from gpulint.settings.settings import Settings

KINDS = {
    "vllm_recipe": ({"vllm_recipe"}, 70),
    "ray_serve": ({"ray_serve"}, 28),
    "truss": ({"truss"}, 13),
    "docker_compose": ({"docker_compose"}, 23),
    "vllm_production_stack": ({"production_stack_values"}, 43),
    "gpu_recipe_values": ({"gpu_recipe"}, 2),
    "helm_values": ({"production_stack_values", "vllm_recipe"}, 0),
    "dstack": ({"dstack"}, 8),
    "beaker_job": ({"beaker"}, 6),
    "skypilot": ({"skypilot"}, 40),
    "hf_model_config": ({"model_files"}, 0),
    "peft_adapter_config": ({"model_files"}, 0),
    "fsdp_json": ({"model_files"}, 0),
    "vllm_config_yaml": ({"vllm", "sglang"}, 18),
}
"""Label of the index -> how its files are recognised, and how many of them at least start a job."""

MISLABELLED = ("app-design-center/ai-inference/values.yaml",)
"""Helm values counted as a SkyPilot task."""

UNKNOWN = {
    "vllm": set(), "sglang": set(), "tgi": set(), "trtllm": {"cuda_graph_config.padding_enabled"}, "axolotl": set(),
}  # fmt: skip
"""Options of published files that the newest version does not know, by format: each was looked at by hand.

That one is an older name of `enable_padding`, which pages of TensorRT-LLM still show."""


@pytest.fixture(scope="module")
def rows(shared):
    index = json.loads((shared / "corpus" / "INDEX.json").read_text())
    return {label: [str(shared / "corpus" / row["path"]) for row in index if row["format"] == label] for label in KINDS}


@pytest.mark.parametrize("label", sorted(KINDS))
def test_every_file_is_read_or_says_why_not(rows, label):
    kinds, least = KINDS[label]
    started, strange, slow = 0, [], []
    for path in rows[label]:
        if path.endswith(MISLABELLED):
            continue
        begin = time.perf_counter()
        try:
            found = recognise_file(path)
        except UnrecognisedError:
            strange.append(path)
            continue
        jobs = open_jobs(found, Settings())
        if found.kind not in kinds or (not jobs.opened and (not jobs.reason or "\n" in jobs.reason)):
            strange.append(path)
        for opened in jobs.opened:
            keys = [item.key for item in opened.reading.problems if item.kind == "unknown-key"]
            unknown = UNKNOWN.get(opened.reading.format, set())
            strange += [f"{path}: {key}" for key in keys if key not in unknown]
        started += bool(jobs.opened)
        if time.perf_counter() - begin > 5:
            slow.append(path)
    assert (strange, slow) == ([], [])
    assert started >= least
