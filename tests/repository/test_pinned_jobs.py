"""What a pinned release is to a job: its origin, what is nearer than it, and what it does not decide."""

import dataclasses

import pytest

from gpulint.launchers.reading import open_jobs, recognise_file
from gpulint.settings.settings import Settings

TRAIN = """\
model_name_or_path: Qwen/Qwen2.5-1.5B-Instruct
dataset_name: trl-lib/Capybara
bf16: true
max_length: 2048
per_device_train_batch_size: 2
output_dir: out
"""
COMPOSE = """\
services:
  engine:
    image: {}
    command: vllm serve Qwen/Qwen3-8B --max-model-len 8192
    deploy: {{resources: {{reservations: {{devices: [{{driver: nvidia, count: 1, capabilities: [gpu]}}]}}}}}}
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def job(path, **settings):
    return open_jobs(recognise_file(path), Settings(root=".", **settings)).opened[0].reading.job


def test_a_pin_is_a_release_with_an_origin_of_its_own(project):
    (project / "sft.yaml").write_text(TRAIN)
    (project / "requirements.txt").write_text("numpy\ntransformers==4.52.3\ntrl==0.18.0\n")
    found = job("sft.yaml")
    assert (found.versions["transformers"], found.versions["trl"]) == ("4.52.3", "0.18.0")
    assert found.origins["versions.trl"].note == "pinned in requirements.txt:3"


@pytest.mark.parametrize(
    ("settings", "release"),
    [({}, "0.18.0"), ({"versions": {"trl": "0.19.1"}}, "0.19.1"), ({"given_versions": {"trl": "0.20.0"}}, "0.20.0")],
)
def test_what_is_stated_is_nearer_than_a_pin(project, settings, release):
    (project / "sft.yaml").write_text(TRAIN)
    (project / "requirements.txt").write_text("trl==0.18.0\n")
    found = job("sft.yaml", **settings)
    assert found.versions["trl"] == release
    assert ("pinned" in found.origins["versions.trl"].note) is (settings == {})


@pytest.mark.parametrize(
    ("image", "release"),
    [
        ("vllm/vllm-openai:v0.10.2", "0.10.2"),
        ("registry.example.com/x/vllm-openai:kv-v0.8.4-20250401", "0.8.4"),
        ("mine/serve:3", "0.6.3"),  # built from the repository, as far as one can see
    ],
)
def test_the_image_of_a_launcher_is_nearer_than_a_pin(project, image, release):
    (project / "compose.yaml").write_text(COMPOSE.format(image))
    (project / "requirements.txt").write_text("vllm==0.6.3\n")
    assert job("compose.yaml").versions["vllm"] == release


def test_nothing_of_the_repository_is_installed_in_the_image_of_a_program(project):
    (project / "compose.yaml").write_text(COMPOSE.format("vllm/vllm-openai:latest"))
    (project / "requirements.txt").write_text("vllm==0.6.3\n")
    assert job("compose.yaml").versions["vllm"] not in ("0.6.3", "")


def fields(found):
    return {item.name: getattr(found, item.name) for item in dataclasses.fields(found)} | {"origins": 0, "versions": 0}


@pytest.mark.parametrize("package", ["unsloth", "verl", "axolotl", "megatron-core", "vllm", "openrlhf", "litgpt"])
def test_a_pin_of_a_package_that_the_job_does_not_use_changes_nothing_else(project, package):
    (project / "sft.yaml").write_text(TRAIN)
    before = fields(job("sft.yaml"))
    (project / "requirements.txt").write_text(f"{package}==0.1.7\n")
    assert fields(job("sft.yaml")) == before


@pytest.mark.parametrize(("image", "pinned"), [("vllm/vllm-openai:latest", False), ("mine/serve:3", True)])
def test_the_image_of_a_docker_run_brings_its_own(project, image, pinned):
    (project / "serve.sh").write_text(f"docker run --gpus all {image} vllm serve Qwen/Qwen3-8B --max-model-len 8192\n")
    (project / "requirements.txt").write_text("vllm==0.6.3\n")
    assert (job("serve.sh").versions["vllm"] == "0.6.3") is pinned
