"""Defaults that moved memory between releases follow the version that settings, an image or an installation states."""

from __future__ import annotations

import pytest

from gpulint.estimator.vllm_settings import settings
from gpulint.hardware.catalogue import find
from gpulint.models.resolve import resolve
from gpulint.reading import open_jobs, recognise_file
from gpulint.settings import Settings

VLLM = "vllm serve Qwen/Qwen2.5-7B-Instruct\n"
SFT = "trl sft --model_name_or_path Qwen/Qwen2.5-0.5B --dataset_name a/b --output_dir o\n"
PLAIN = "python run_clm.py --model_name_or_path Qwen/Qwen2.5-0.5B --output_dir o --learning_rate 1e-5\n"
MOVED = [
    (VLLM, "vllm", "0.11.0", "inference.gpu_memory_utilization"),
    (SFT, "trl", "0.13.0", "sequence_length"),
    (SFT, "trl", "1.14.0", "loss.kernel"),
    (SFT, "trl", "0.21.0", "activation_checkpointing"),
    (PLAIN, "transformers", "4.57.1", "weights.dtype"),
]
"""A command, a package, an older release of it, and a field whose default moved since."""


@pytest.fixture
def job(tmp_path):
    def read(text, versions=None, name="run.sh"):
        path = tmp_path / name
        path.write_text(text)
        given = Settings(root=str(tmp_path), gpu="h100-80gb", versions=versions or {})
        (opened,) = open_jobs(recognise_file(str(path)), given).opened
        return opened.reading.job

    return read


@pytest.mark.parametrize(("command", "package", "version", "field"), MOVED)
def test_settings_and_installations_choose_the_release(job, command, package, version, field):
    newest, stated = job(command), job(command, {package: version})
    installed = job(f"pip install {package}=={version}\n{command}")
    assert newest.get(field) != stated.get(field)
    assert installed.get(field) == stated.get(field)


def test_an_image_chooses_the_release(job):
    compose = "services: {{a: {{image: 'vllm/vllm-openai:{}', command: --model Qwen/Qwen2.5-7B-Instruct}}}}\n"
    newest, older = (
        job(compose.format("latest"), name="compose.yaml"),
        job(compose.format("v0.11.0"), name="compose.yaml"),
    )
    assert (newest.inference.gpu_memory_utilization, older.inference.gpu_memory_utilization) == (0.92, None)
    assert older.versions["vllm"] == "0.11.0"


@pytest.mark.parametrize(
    ("version", "share", "requests"), [("0.7.1", 0.9, 256), ("0.11.0", 0.9, 1024), ("0.33.0", 0.92, 1024)]
)
def test_share_and_requests_of_vllm_follow_the_release(job, version, share, requests):
    plan = job(VLLM, {"vllm": version})
    found = settings(plan, resolve("Qwen/Qwen2.5-7B-Instruct"), find("h100-80gb"))
    assert (plan.inference.gpu_memory_utilization or found.utilization, found.max_num_seqs) == (share, requests)
