"""The fields of manifests, held against what the API server knows of them."""

from __future__ import annotations

import re

import pytest

from gpulint.formats.core.keys import branches, load
from gpulint.launchers.kubernetes.manifests import field_problems, objects
from gpulint.source.read import parse

POD = """
      containers:
        - name: main
          image: vllm/vllm-openai
          command: [vllm, serve, org/model]
          env: [{name: PORT, value: "8000"}]
          resources: {limits: {nvidia.com/gpu: 8, memory: 64Gi}}
          volumeMounts: [{name: shm, mountPath: /dev/shm}]
      nodeSelector: {cloud.google.com/gke-accelerator-count: "8"}
      volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 16Gi}}]
"""

DEPLOYMENT = f"""apiVersion: apps/v1
kind: Deployment
metadata: {{name: a, labels: {{app: a}}}}
spec:
  replicas: 1
  selector: {{matchLabels: {{app: a}}}}
  template:
    metadata: {{labels: {{app: a}}}}
    spec:{POD}"""

RAY = f"""apiVersion: ray.io/v1
kind: RayCluster
metadata: {{name: a}}
spec:
  rayVersion: 2.52.0
  workerGroupSpecs:
  - groupName: gpu
    replicas: 1
    rayStartParams: {{num-gpus: "8"}}
    template:
      spec:{POD.replace(chr(10), chr(10) + "  ")}"""

LWS = f"""apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {{name: a}}
spec:
  leaderWorkerTemplate:
    size: 2
    restartPolicy: RecreateGroupOnPodRestart
    workerTemplate:
      spec:{POD.replace(chr(10), chr(10) + "  ")}"""

VOLCANO = f"""apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {{name: a}}
spec:
  minAvailable: 1
  tasks:
  - replicas: 1
    name: worker
    template:
      spec:{POD.replace(chr(10), chr(10) + "  ")}"""

PYTORCH = f"""apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {{name: a}}
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: 1
      restartPolicy: OnFailure
      template:
        spec:{POD.replace(chr(10), chr(10) + "    ")}"""

JOBSET = f"""apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {{name: a}}
spec:
  replicatedJobs:
  - name: workers
    template:
      spec:
        parallelism: 2
        template:
          spec:{POD.replace(chr(10), chr(10) + "      ")}"""

STORM = f"""apiVersion: orchestration.aibrix.ai/v1alpha1
kind: StormService
metadata: {{name: a}}
spec:
  replicas: 1
  template:
    metadata: {{labels: {{app: a}}}}
    spec:
      roles:
      - name: prefill
        replicas: 1
        template:
          spec:{POD.replace(chr(10), chr(10) + "      ")}"""

KSERVE = """apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: a}
spec:
  predictor:
    minReplicas: 1
    nodeSelector: {nvidia.com/gpu.product: NVIDIA-L4}
    model:
      modelFormat: {name: huggingface}
      storageUri: hf://org/model
      resources: {limits: {nvidia.com/gpu: 1}}
"""

ALL = {"Deployment": DEPLOYMENT, "RayCluster": RAY, "LeaderWorkerSet": LWS, "Volcano": VOLCANO,
       "PyTorchJob": PYTORCH, "JobSet": JOBSET, "StormService": STORM, "InferenceService": KSERVE}  # fmt: skip


def problems(text: str):
    document = parse(text, "manifest.yaml", "yaml")
    return [problem for item in objects(document)
            for problem in field_problems(document, item)]  # fmt: skip


def said(text: str):
    return [(item.kind, item.key.rpartition(".")[2], item.values.get("spelling", "")) for item in problems(text)]


@pytest.mark.parametrize("name", sorted(ALL))
def test_a_right_manifest_has_no_problem(name):
    assert said(ALL[name]) == []


@pytest.mark.parametrize("name", sorted(ALL))
def test_every_misspelt_field_is_found_and_corrected(name):
    spelled = re.compile(r"(?<=[ {])(?!memory|app|Worker|num-gpus|apiVersion|kind|spec)([A-Za-z]{5,})(?=:)")
    fields = list(spelled.finditer(ALL[name]))
    assert len(fields) >= 8
    for field in fields:
        word = field.group()
        misspelt = ALL[name][: field.start()] + word[:-2] + word[-1] + word[-2] + ALL[name][field.end() :]
        if word[-1] != word[-2] and (("unknown-key", word[:-2] + word[-1] + word[-2], word)) not in said(misspelt):
            pytest.fail(f"{word}: {said(misspelt)}")


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ('value: "8000"', "value: 8000", "value"),
        ("labels: {app: a}", "labels: {app: 1}", "app"),
        ("replicas: 1", 'replicas: "1"', "replicas"),
        ('-count: "8"', "-count: 8", "com/gke-accelerator-count"),
        ("command: [vllm, serve, org/model]", "command: vllm serve org/model", "command"),
        ("labels: {app: a}", "labels: {app: yes}", "app"),
    ],
)
def test_a_value_of_another_type_is_refused(old, new, key):
    found = problems(DEPLOYMENT.replace(old, new, 1))
    assert [problem.kind for problem in found] == ["wrong-type"]
    assert found[0].key.endswith(key)


def test_quantities_null_and_placeholders_are_fine():
    assert said(DEPLOYMENT.replace("nvidia.com/gpu: 8", 'nvidia.com/gpu: "8"')) == []
    assert said(DEPLOYMENT.replace("replicas: 1", "replicas: ${REPLICAS}")) == []
    assert said(DEPLOYMENT.replace("replicas: 1", "replicas:")) == []


def test_a_word_outside_an_enumeration_is_refused():
    (problem,) = problems(LWS.replace("RecreateGroupOnPodRestart", "recreate"))
    assert problem.kind == "wrong-value"
    assert "RecreateGroupOnPodRestart" in str(problem.values)


def test_each_definition_names_its_operator_and_leads_somewhere():
    schema = load("kubernetes")
    for name, part in schema["$defs"].items():
        assert "/" not in name or part["x-upstream"], name
        waiting = [part]
        while waiting:
            (inner,) = branches(schema, waiting.pop())  # a missing name raises KeyError
            waiting += [item for item in inner.get("properties", {}).values() if "$ref" not in item]
            waiting += [
                inner[key] for key in ("items", "additionalProperties") if "$ref" not in inner.get(key, {"$ref": ""})
            ]
