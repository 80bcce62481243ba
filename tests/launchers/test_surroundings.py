"""What rules may read of a launch, and the shared memory of its container."""

from __future__ import annotations

import pytest

from gpulint.launchers.reading import Recognised, open_jobs
from gpulint.launchers.registry import recognise
from gpulint.settings.settings import Settings
from gpulint.source.read import parse

MIB = 1 << 20
SERVE = "vllm serve meta-llama/Llama-3.1-8B-Instruct --tensor-parallel-size 2\n"


def opened(text, name="run.sh", syntax="shell"):
    document = parse(text, name, syntax)
    return open_jobs(Recognised(document, None, recognise(document)), Settings(root=".")).opened[0].reading


def pod(container="", spec=""):
    return f"""\
apiVersion: v1
kind: Pod
metadata: {{name: llama}}
spec:
  {spec}
  containers:
  - name: vllm
    image: vllm/vllm-openai:v0.11.0
    args: ["--model", "meta-llama/Llama-3.1-8B-Instruct", "--tensor-parallel-size", "2"]
    {container}
"""


def test_exported_variables_are_told_with_their_place():
    said = opened("export NCCL_P2P_DISABLE=1\n" + SERVE).launch["environment.NCCL_P2P_DISABLE"]
    assert said[0] == "1"
    assert said[1].span.line == 1


def test_what_only_the_shell_knows_is_not_told():
    assert "environment.CUDA_VISIBLE_DEVICES" not in opened("export CUDA_VISIBLE_DEVICES=$GPUS\n" + SERVE).launch


def test_options_of_wrappers_are_told_by_their_name():
    text = (
        "#SBATCH --ntasks-per-node=8\n"
        "srun torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py --num-layers 4 --hidden-size 256 "
        "--num-attention-heads 4 --micro-batch-size 1 --seq-length 128 --max-position-embeddings 128\n"
    )
    launch = opened("#!/bin/bash\n" + text).launch
    assert launch["wrappers"][0] == ["torchrun", "srun"]
    assert launch["torchrun.nproc_per_node"][0] in (8, "8")
    assert launch["slurm.ntasks_per_node"][0] == 8


@pytest.mark.parametrize(
    ("options", "size"),
    [("", 64 * MIB), ("--shm-size 1g", 1024 * MIB), ("--ipc=host", None), ("-v /dev/shm:/dev/shm", None)],
)
def test_docker_gives_64_mib_of_shared_memory_unless_told_otherwise(options, size):
    text = f"docker run --gpus all {options} vllm/vllm-openai:v0.11.0 --model Qwen/Qwen2.5-0.5B\n"
    assert opened(text).job.hardware.shared_memory == size


@pytest.mark.parametrize(
    ("container", "spec", "size"),
    [
        ("", "", 64 * MIB),
        ("", "hostIPC: true", None),
        (
            "volumeMounts: [{name: shm, mountPath: /dev/shm}]",
            "volumes: [{name: shm, emptyDir: {medium: Memory}}]",
            None,
        ),
        (
            "volumeMounts: [{name: shm, mountPath: /dev/shm/}]",
            "volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 2Gi}}]",
            2048 * MIB,
        ),
    ],
)
def test_a_pod_has_64_mib_of_shared_memory_unless_something_is_mounted(container, spec, size):
    assert opened(pod(container, spec), "pod.yaml", "yaml").job.hardware.shared_memory == size


def test_a_container_without_gpus_says_so():
    launch = opened(pod("resources: {limits: {memory: 8Gi}}"), "pod.yaml", "yaml").launch
    assert launch["container.devices"][0] == []
    assert launch["container.image"][0] == "vllm/vllm-openai:v0.11.0"
    assert launch["kind"][0] == "kubernetes"


def test_two_servers_of_one_script_know_of_each_other():
    assert opened(SERVE + SERVE).launch["commands"][0] == 2


def test_a_variable_keeps_its_place_within_bash_c():
    reading = opened("export CUDA_LAUNCH_BLOCKING=1\nsrun bash -c 'vllm serve Qwen/Qwen2.5-7B-Instruct'\n")
    _, origin = reading.launch["environment.CUDA_LAUNCH_BLOCKING"]
    assert origin.span.line == 1
