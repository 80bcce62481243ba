"""Pods in custom resources that no module reads, and llm-d's Helm values."""

from __future__ import annotations

import pytest

ROLES = """apiVersion: workloads.example.org/v1
kind: RoleBasedGroup
metadata: {name: pd}
spec:
  roles:
    - name: prefill
      standalonePattern:
        template:
          spec:
            nodeSelector: {nvidia.com/gpu.product: NVIDIA-L4}
            containers:
              - name: engine
                image: lmsysorg/sglang:v0.5.9
                command: [python3, -m, sglang.launch_server]
                args: [--model-path, org/model, --tp-size, "2"]
                resources: {limits: {nvidia.com/gpu: "2"}}
    - name: decode
      leaderWorkerPattern:
        size: 2
        template:
          spec:
            containers:
              - image: lmsysorg/sglang:v0.5.9
                command: [python3, -m, sglang.launch_server, --model-path, org/model, --tp-size, "16"]
"""

GRAPH = """apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
metadata: {name: agg}
spec:
  services:
    Worker:
      resources: {limits: {gpu: "4"}}
      extraPodSpec:
        mainContainer:
          image: nvcr.io/nvidia/ai-dynamo/vllm-runtime:0.7.0
          command: [python3, -m, dynamo.vllm]
          args: [--model, org/model, --tensor-parallel-size, "4"]
"""


def test_a_role_that_stands_alone_is_a_job_and_one_of_leaders_and_workers_is_not(launched):
    found = launched(ROLES)
    assert found.kind == "custom_resource"
    (opened,) = found.opened
    assert opened.part.startswith("RoleBasedGroup pd, prefill, container engine")
    job = opened.reading.job
    assert (job.model, job.parallelism.tensor, job.hardware.gpu, job.hardware.asked_gpus) == ("org/model", 2, "l4", 2)


def test_a_service_of_a_graph_is_a_job_on_the_gpus_beside_its_pod(launched):
    (opened,) = launched(GRAPH).opened
    job = opened.reading.job
    assert "Worker" in opened.part
    assert (job.model, job.parallelism.tensor, job.hardware.asked_gpus) == ("org/model", 4, 4)
    assert job.origins["hardware.asked_gpus"].span.line == 7


def test_a_service_over_several_nodes_says_why_it_is_none(launched):
    found = launched(GRAPH.replace("    Worker:\n", "    Worker:\n      multinode: {nodeCount: 2}\n"))
    assert found.opened == []
    assert found.reason == "its pods form groups that gpulint does not know"


def test_a_custom_resource_without_a_pod_is_no_config(launched):
    from gpulint.launchers.reading import UnrecognisedError

    with pytest.raises(UnrecognisedError):
        launched("apiVersion: example.org/v1\nkind: Route\nmetadata: {name: a}\nspec: {host: a}\n")


VALUES = """modelArtifacts:
  name: org/model
  uri: hf://{uri}
decode:
  parallelism: {tensor: 4}
  acceleratorTypes: {labelKey: nvidia.com/gpu.product, labelValues: [NVIDIA-H100-80GB-HBM3]}
  containers:
    - image: ghcr.io/llm-d/llm-d:v0.2.0
      modelCommand: vllmServe
      args: [--max-model-len, "8192"]
prefill:
  create: false
  containers: [{image: i, modelCommand: vllmServe}]
"""


@pytest.mark.parametrize(
    ("uri", "model"), [("org/other", "org/other"), ('"{{ .Values.modelArtifacts.name }}"', "org/model")]
)
def test_values_of_llm_d_start_vllm_for_each_role_that_is_created(launched, uri, model):
    found = launched(VALUES.replace("{uri}", uri))
    assert found.kind == "llm_d_values"
    (opened,) = found.opened
    job = opened.reading.job
    assert opened.part.startswith("decode")
    assert (job.model, job.parallelism.tensor, job.inference.max_model_len) == (model, 4, 8192)
    assert (job.hardware.gpu, job.hardware.asked_gpus) == ("h100-80gb", 4)


def test_values_of_llm_d_for_another_device_say_so(launched):
    found = launched("accelerator: {type: intel-gaudi}\n" + VALUES.replace("{uri}", "org/model"))
    assert found.opened == []
    assert found.reason == "its servers run on Intel Gaudi, which gpulint does not estimate"


def test_a_path_on_a_volume_is_the_model_below_its_mount(launched):
    (opened,) = launched(VALUES.replace("hf://{uri}", "pvc://claim/models/llama")).opened
    assert opened.reading.job.model == "/model-cache/models/llama"
