"""What images start, and what an image that its program does not publish may know."""

from __future__ import annotations

import pytest

from gpulint.launchers.commands.images import entrypoint, upstream, why_alone
from gpulint.repository.images import versions

POD = """apiVersion: v1
kind: Pod
spec:
  containers:
    - name: server
      image: {image}
      args: [{args}]
      resources: {{limits: {{nvidia.com/gpu: 1}}}}
"""


@pytest.mark.parametrize(
    ("image", "command"),
    [
        ("ghcr.io/ggml-org/llama.cpp:server-cuda", ["llama-server"]),
        ("ghcr.io/ggml-org/llama.cpp:server-b10481@sha256:aa", ["llama-server"]),
        ("ghcr.io/ggml-org/llama.cpp:light-cuda", []),
        ("vllm/vllm-openai:v0.9.1", ["vllm", "serve"]),
    ],
)
def test_the_program_of_an_image(image, command):
    assert entrypoint(image) == command


@pytest.mark.parametrize(
    ("image", "found"),
    [
        ("nvcr.io/nvidia/ai-dynamo/vllm-runtime:0.8.1", {"vllm": "0.12.0"}),
        ("nvcr.io/nvidia/ai-dynamo/sglang-runtime:0.9.0", {"sglang": "0.5.8"}),
        ("nvcr.io/nvidia/ai-dynamo/vllm-runtime:0.2.0", {}),
        ("registry.redhat.io/rhaiis/vllm-cuda-rhel9:3.0.0", {"vllm": "0.8.4"}),
        ("registry.redhat.io/rhaiis/vllm-cuda-rhel9:3.3.0", {}),
    ],
)
def test_the_version_that_another_product_ships(image, found):
    assert versions(image) == found


def test_a_microservice_of_nvidia_says_why_it_is_no_job(launched):
    image = "nvcr.io/nim/meta/llama3-8b-instruct:1.0.3"
    assert not upstream(image)
    found = launched(f"services:\n  llm:\n    image: {image}\n")
    assert found.opened == []
    assert found.reason == why_alone(image) != ""
    assert launched(POD.format(image=image, args="")).reason == found.reason


@pytest.mark.parametrize(
    ("args", "engine", "model"),
    [
        ("--model, org/model, --max-model-len, '8192'", "vllm", "org/model"),
        ("--model-id=org/model, --num-shard=1", "tgi", "org/model"),
        ("serve, --model, org/model, --max-model-len, '8192'", "vllm", "org/model"),
    ],
)
def test_arguments_tell_the_server_of_an_unknown_image(launched, args, engine, model):
    (opened,) = launched(POD.format(image="registry.example.org/team/server:1", args=args)).opened
    assert (opened.reading.job.inference.engine, opened.reading.job.model) == (engine, model)
    service = f"services:\n  s:\n    image: registry.example.org/team/server:1\n    command: [{args}]\n"
    assert launched(service).opened[0].reading.job.inference.engine == engine


def test_arguments_that_tell_no_server_start_none(launched):
    assert launched(POD.format(image="registry.example.org/x:1", args="--model, a, --verbose")).opened == []


@pytest.mark.parametrize(
    ("image", "flag", "found"),
    [
        ("vllm/vllm-openai:v0.9.1", "--mxfp4-layers", ["mxfp4-layers"]),
        ("team/vllm-fork:1", "--mxfp4-layers", []),
        ("team/vllm-fork:1", "--max-modl-len", ["max-modl-len"]),
    ],
)
def test_a_fork_may_have_options_of_its_own_but_not_misspelt_ones(launched, image, flag, found):
    args = f"--model, org/model, --served-model-name, m, {flag}, '8'"
    (opened,) = launched(POD.format(image=image, args=args)).opened
    assert [item.key for item in opened.reading.problems if item.kind == "unknown-key"] == found


@pytest.mark.parametrize(
    ("image", "carries"),
    [
        ("vllm/vllm-openai:v0.9.0", False),
        ("vllm/vllm-openai:v0.10.1.1", True),
        ("docker.io/vllm/vllm-openai:v0.11.0", True),
        ("vllm/vllm-openai:v0.11.1", False),
        ("vllm/vllm-openai:latest", False),
        ("rocm/vllm-openai-rocm:v0.10.1", False),
    ],
)
def test_an_image_of_vllm_brought_flashinfer_before_it_was_required(image, carries):
    assert ("flashinfer-python" in versions(image)) == carries


@pytest.mark.parametrize(("value", "said"), [("1", True), ("0", False), (None, None)])
def test_the_sampler_that_the_environment_asks_for(launched, value, said):
    environment = f"    environment: {{VLLM_USE_FLASHINFER_SAMPLER: '{value}'}}\n" if value else ""
    command = "    command: --model Qwen/Qwen3-8B\n"
    found = launched(f"services:\n  llm:\n    image: vllm/vllm-openai:v0.10.1.1\n{environment}{command}")
    (opened,) = found.opened
    assert opened.reading.job.inference.flashinfer_sampler is said
    assert opened.reading.job.versions["flashinfer-python"] == "0.2.6"
