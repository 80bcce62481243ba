"""Helm releases whose values stand in the object that asks for them, and the values of app-template."""

import pytest

STACK = """servingEngineSpec:
  modelSpec:
    - name: llama
      repository: vllm/vllm-openai
      tag: v0.11.0
      modelURL: meta-llama/Llama-3.1-8B-Instruct
      replicaCount: 1
      requestGPU: 2
      vllmConfig: {tensorParallelSize: 2, maxModelLen: 4096}
"""

APP = """controllers:
  engine:
    containers:
      app:
        image: {repository: vllm/vllm-openai, tag: v0.11.0}
        args: [--model, Qwen/Qwen3-8B, --max-model-len, $(LENGTH)]
        env: {LENGTH: 8192, TOKEN: {valueFrom: {secretKeyRef: {name: a, key: b}}}}
        resources: {limits: {nvidia.com/gpu: 1}}
      exporter:
        image: {repository: prom/exporter, tag: v1}
defaultPodOptions:
  nodeSelector: {nvidia.com/gpu.product: NVIDIA-L4}
"""


def indented(text, by):
    return "".join(" " * by + line for line in text.splitlines(keepends=True))


def flux(values):
    return (
        "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: serving}\nspec:\n"
        f"  chart: {{spec: {{chart: own}}}}\n  values:\n{indented(values, 4)}"
    )


def argo(values, key="valuesObject:"):
    return (
        "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: serving}\nspec:\n  source:\n"
        f"    chart: own\n    helm:\n      {key}\n{indented(values, 8)}"
    )


def k3s(values):
    return (
        "apiVersion: helm.cattle.io/v1\nkind: HelmChart\nmetadata: {name: serving}\nspec:\n"
        f"  valuesContent: |-\n{indented(values, 4)}"
    )


WRITTEN = [flux, argo, lambda values: argo(values, "values: |"), k3s]


@pytest.mark.parametrize("write", WRITTEN)
def test_values_of_production_stack(launched, write):
    text = write(STACK)
    found = launched(text)
    assert found.kind == "gitops"
    (opened,) = found.opened
    job = opened.reading.job
    assert (job.model, job.parallelism.tensor, job.inference.max_model_len, job.versions["vllm"]) == (
        "meta-llama/Llama-3.1-8B-Instruct", 2, 4096, "0.11.0",
    )  # fmt: skip
    line = next(number for number, line in enumerate(text.splitlines(), 1) if "maxModelLen" in line)
    assert job.origins["inference.max_model_len"].span.line == line
    assert "serving" in opened.part


@pytest.mark.parametrize("write", [str, *WRITTEN])
def test_values_of_app_template(launched, write):
    (opened,) = launched(write(APP)).opened
    job = opened.reading.job
    assert (job.model, job.inference.max_model_len, opened.gpu.name) == ("Qwen/Qwen3-8B", 8192, "l4")
    assert job.hardware.asked_gpus == 1


def test_a_controller_of_app_template_has_pod_options_and_a_switch(launched):
    text = (
        "controllers:\n"
        "  main:\n"
        "    pod: {nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}}\n"
        "    containers: {a: {image: {repository: vllm/vllm-openai}, args: [--model, Qwen/Qwen3-8B]}}\n"
        "  other:\n"
        "    enabled: false\n"
        "    containers: {b: {image: {repository: vllm/vllm-openai}, args: [--model, Qwen/Qwen3-4B]}}\n"
        "defaultPodOptions: {nodeSelector: {nvidia.com/gpu.product: NVIDIA-L4}}\n"
    )
    (opened,) = launched(text).opened
    assert (opened.reading.job.model, opened.gpu.name) == ("Qwen/Qwen3-8B", "h100-80gb")


def test_pods_in_the_values_of_another_chart(launched):
    values = "pod:\n  containers:\n    - image: vllm/vllm-openai:v0.11.0\n      args: [--model, Qwen/Qwen3-8B]\n"
    (opened,) = launched(flux(values)).opened
    assert opened.reading.job.model == "Qwen/Qwen3-8B"


def test_a_chart_that_is_not_known_is_no_launcher_and_says_so_beside_one(launched):
    other = flux("replicas: 1\n")
    deployment = (
        "---\napiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers: [{name: a, image: nginx:1}]\n"
    )
    assert "own" in launched(other + deployment).reason


def test_a_nim_says_why_it_is_no_job(launched):
    text = "apiVersion: apps.nvidia.com/v1alpha1\nkind: NIMService\nmetadata: {name: llama}\nspec: {replicas: 1}\n"
    found = launched(text)
    assert (found.kind, found.opened) == ("nim", [])
    assert "selects" in found.reason
