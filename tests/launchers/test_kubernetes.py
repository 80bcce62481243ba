"""Workloads: what their containers start, on which GPUs, and where that stands."""

from __future__ import annotations

import pytest

SERVER = """apiVersion: apps/v1
kind: Deployment
metadata: {name: chat}
spec:
  replicas: 3
  template:
    spec:
      nodeSelector:
        cloud.google.com/gke-accelerator: nvidia-h100-80gb
      containers:
        - name: server
          image: vllm/vllm-openai:v0.9.1
          args: ["--model", "$(MODEL)", "--tensor-parallel-size=2", "--max-model-len", "8192"]
          env:
            - {name: MODEL, value: meta-llama/Llama-3.1-8B}
          resources:
            limits: {nvidia.com/gpu: 2, memory: 64Gi}
          volumeMounts: [{name: shm, mountPath: /dev/shm}]
      volumes:
        - {name: shm, emptyDir: {medium: Memory, sizeLimit: 8Gi}}
"""


def test_the_arguments_of_an_image_are_its_flags(launched):
    (opened,) = launched(SERVER).opened
    job = opened.reading.job
    assert opened.part.startswith("Deployment chat, container server")
    assert (job.model, job.parallelism.tensor, job.inference.max_model_len) == ("meta-llama/Llama-3.1-8B", 2, 8192)
    assert job.versions["vllm"] == "0.9.1"
    assert job.origins["model"].span.line == 15


def test_the_pod_says_the_hardware(launched):
    (opened,) = launched(SERVER).opened
    hardware = opened.reading.job.hardware
    assert opened.gpu is not None
    assert opened.gpu.name == "h100-80gb"
    assert (hardware.gpus, hardware.asked_gpus) == (2, 2)
    assert hardware.host_memory == 64 << 30
    assert hardware.shared_memory == 8 << 30
    assert opened.reading.job.origins["hardware.gpu"].span.line == 9


def test_a_script_for_a_shell(launched):
    text = SERVER.replace(
        'args: ["--model", "$(MODEL)", "--tensor-parallel-size=2", "--max-model-len", "8192"]',
        "command: [bash, -c]\n          args:\n            - |\n              set -e\n"
        "              vllm serve $MODEL \\\n                --tensor-parallel-size 2 --max-num-seqs 16\n",
    )
    (opened,) = launched(text).opened
    assert opened.reading.job.model == "meta-llama/Llama-3.1-8B"
    assert opened.reading.job.inference.max_num_seqs == 16
    line = opened.reading.job.origins["inference.max_num_seqs"].span.line
    assert "--max-num-seqs 16" in text.splitlines()[line - 1]


def test_an_indexed_job_spans_its_pods(launched):
    text = """apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  completionMode: Indexed
  parallelism: 4
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: worker
          image: trainer
          command: [torchrun, --nproc_per_node=8, --nnodes=4, train.py, --model_name_or_path, org/m, --bf16,
                    --per_device_train_batch_size, "2", --learning_rate, "1e-5", --output_dir, out]
          resources: {limits: {nvidia.com/gpu: 8}}
"""
    (opened,) = launched(text).started
    assert (opened.reading.job.hardware.gpus, opened.reading.job.hardware.nodes) == (32, 4)
    assert opened.reading.job.micro_batch_size == 2


@pytest.mark.parametrize(
    ("container", "reason"),
    [
        ("{name: a, image: nginx}", "its command is in the image"),
        ("{name: a, image: x, command: [sleep, infinity]}", "starts no program that gpulint knows"),
    ],
)
def test_a_pod_without_a_job_says_why(launched, container, reason):
    text = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {{containers: [{container}]}}\n"
    found = launched(text)
    assert (found.kind, found.opened, found.reason) == ("kubernetes", [], reason)


@pytest.mark.parametrize(
    ("tag", "refused_by"),
    [
        ("v0.8.5", None),
        ("v0.17.1", None),
        ("v0.18.0", "vllm 0.18.0"),
        ("v0.25.1", "vllm 0.25.1"),
        ("latest", "vllm from 0.18.0 on"),
    ],
)
def test_the_image_decides_which_options_are_known(launched, tag, refused_by):
    text = SERVER.replace("v0.9.1", tag).replace(
        '"--max-model-len", "8192"', '"--swap-space", "4", "--max-model-len=auto"'
    )
    (opened,) = launched(text).opened
    upstream = [item.values["upstream"] for item in opened.reading.problems if item.kind == "deprecated-key"]
    assert upstream == ([refused_by] if refused_by else [])
    assert opened.reading.job.inference.max_model_len == -1


@pytest.mark.parametrize(
    ("image", "stated"),
    [
        ("vllm/vllm-openai:v0.9.1", "0.9.1"),
        ("registry.local:5000/mirror/vllm-openai:v0.10.0-cu128@sha256:00", "0.10.0"),
        ("nvcr.io/nvidia/vllm:26.02-py3", "0.33.0"),
        ("lmcache/vllm-openai:v0.3.1", "0.33.0"),
        ("vllm/vllm-openai", "0.33.0"),
    ],
)
def test_only_the_tags_of_vllm_are_its_versions(launched, image, stated):
    text = SERVER.replace("vllm/vllm-openai:v0.9.1", image).replace(
        "args: [", "command: [vllm, serve]\n          args: ["
    )
    (opened,) = launched(text).opened
    assert opened.reading.job.versions["vllm"] == stated


@pytest.mark.parametrize(
    ("asked", "told"),
    [("2", 2), ('"3"', 3), ("0.5", 0.5), ("500m", 0.5), ("2000m", 2), ("{{ gpus }}", "{{ gpus }}")],
)
def test_a_limit_of_gpus_is_a_quantity(launched, asked, told):
    quoted = asked if asked.startswith('"') else f"'{asked}'" if "{" in asked else asked
    (opened,) = launched(SERVER.replace("nvidia.com/gpu: 2", f"nvidia.com/gpu: {quoted}")).opened
    assert opened.reading.launch["container.gpu_limit"][0] == told


@pytest.mark.parametrize(
    ("name", "meant"),
    [("nvidia.com/gpus", "nvidia.com/gpu"), ("amd.com/GPU", "amd.com/gpu"), ("nvidia.com/pgpu", None), ("cpu", None)],
)
def test_a_resource_one_letter_off_is_told(launched, name, meant):
    (opened,) = launched(SERVER.replace("nvidia.com/gpu: 2", f"{name}: 2")).opened
    assert opened.reading.launch.get("container.meant_gpu", (None,))[0] == meant


@pytest.mark.parametrize(
    ("machine", "label", "gpu", "other"),
    [
        ("g5.12xlarge", "NVIDIA-H100-80GB-HBM3", None, "H100 80GB"),
        ("g5.12xlarge", "NVIDIA-A10G", "a10g", None),
        ("p4d.24xlarge", "NVIDIA-A100-SXM4-80GB", "a100-40gb", None),
        ("m5.large", "NVIDIA-A10G", "a10g", None),
        ("g5.12xlarge", "a-name-of-our-own", "a10g", None),
    ],
)
def test_labels_of_two_families_name_no_card(launched, machine, label, gpu, other):
    labels = f"""node.kubernetes.io/instance-type: {machine}
        nvidia.com/gpu.product: {label}"""
    (opened,) = launched(SERVER.replace("cloud.google.com/gke-accelerator: nvidia-h100-80gb", labels)).opened
    assert opened.reading.job.hardware.gpu == gpu
    assert opened.reading.launch.get("labels.other_gpu", (None,))[0] == other


def test_a_slice_that_names_no_card_is_that_of_the_newest_card_which_is_cut_so(launched):
    text = SERVER.replace("nvidia.com/gpu: 2", "nvidia.com/mig-1g.10gb: 1").replace(
        "cloud.google.com/gke-accelerator: nvidia-h100-80gb", "pool: mig"
    )
    (opened,) = launched(text).opened
    assert opened.reading.job.hardware.gpu == "h100-80gb-mig-1g.10gb"
