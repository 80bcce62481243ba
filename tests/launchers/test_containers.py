"""What containers are given: programs of images, mounts, ports, probes, Services, memory, in every launcher."""

from __future__ import annotations

import pytest

TENSOR = "--tensor-parallel-size 3"
MODEL = "Qwen/Qwen2.5-72B-Instruct"
FLAGS = f"--model {MODEL} --tensor-parallel-size 3"
IMAGE = "registry.example.com/ai/serve:1"

COMPOSE = """services:
  v:
    image: {image}
    ipc: host
    volumes: {volumes}
    command: {flags}
    deploy: {{resources: {{reservations: {{devices: [{{driver: nvidia, count: 5, capabilities: [gpu]}}]}}}}}}
"""
POD = """apiVersion: v1
kind: Pod
metadata: {{name: v}}
spec:
  volumes: {volumes}
  containers:
  - name: v
    image: {image}
    args: [{args}]
    volumeMounts: {mounts}
    resources: {{limits: {{nvidia.com/gpu: 5}}}}
"""


def pod(flags: str, image: str = IMAGE, volumes: str = "[]", mounts: str = "[]") -> str:
    args = ", ".join(f'"{word}"' for word in flags.split())
    return POD.format(image=image, args=args, volumes=volumes, mounts=mounts)


@pytest.mark.parametrize(
    ("image", "flags", "engine"),
    [
        (IMAGE, FLAGS, "vllm"),
        (IMAGE, f"serve {FLAGS.replace('--model ', '')}", "vllm"),
        (IMAGE, f"{MODEL} --tensor-parallel-size 3", "vllm"),
        ("registry.example.com/vllm:1", f"--model {MODEL} --port 8000", "vllm"),
        (IMAGE, f"--model-path {MODEL} --tp 3", "sglang"),
        (IMAGE, f"--model-id {MODEL} --num-shard 3", "tgi"),
        (IMAGE, f"--model {MODEL} --port 8000", None),
        (IMAGE, f"scripts/run.py --model {MODEL} --tensor-parallel-size 3", None),
    ],
)
def test_flags_tell_the_program_of_an_image_in_every_launcher(jobs_of, launched, image, flags, engine):
    texts = [
        (f"docker run --gpus 5 {image} {flags}\n", "run.sh"),
        (f"podman run -e A=1 -it {image} {flags}\n", "run.sh"),
        (COMPOSE.format(image=image, flags=flags, volumes="[]"), "compose.yaml"),
        (pod(flags, image), "pod.yaml"),
    ]
    for text, name in texts:
        jobs = [item.reading.job for item in launched(text, name).started]
        found = [job.inference.engine for job in jobs if job.inference]
        assert found == ([engine] if engine else []), name


FOLDER = "/srv/models/Qwen2.5-72B-Instruct"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (f"docker run -v {FOLDER}:/model:ro --gpus all {IMAGE} --model /model --tensor-parallel-size 3\n", "run.sh"),
        (
            f"docker run --mount type=bind,source={FOLDER},target=/model {IMAGE} --model /model {TENSOR}\n",
            "run.sh",
        ),
        (
            COMPOSE.format(image=IMAGE, volumes=f'["{FOLDER}:/model"]', flags=f"--model /model {TENSOR}"),
            "compose.yaml",
        ),
        (
            COMPOSE.format(
                image=IMAGE, volumes=f"[{{type: bind, source: {FOLDER}, target: /model}}]",
                flags=f"--model /model {TENSOR}",
            ),
            "compose.yaml",
        ),
        (
            pod(
                "--model /model --tensor-parallel-size 3", volumes=f"[{{name: m, hostPath: {{path: {FOLDER}}}}}]",
                mounts="[{name: m, mountPath: /model}]",
            ),
            "pod.yaml",
        ),
        (
            pod(
                "--model /model --tensor-parallel-size 3",
                volumes="[{name: m, persistentVolumeClaim: {claimName: all}}]",
                mounts="[{name: m, mountPath: /model, subPath: srv/Qwen2.5-72B-Instruct}]",
            ),
            "pod.yaml",
        ),
    ],
)  # fmt: skip
def test_a_folder_behind_a_mount_names_the_model(jobs_of, text, name):
    (job,) = jobs_of(text, name)
    assert job.model.endswith("srv/models/Qwen2.5-72B-Instruct") or job.model == "srv/Qwen2.5-72B-Instruct"
    assert "in the container" in job.origins["model"].note


def test_a_named_volume_says_nothing_of_the_model(jobs_of):
    (job,) = jobs_of(f"docker run -v qwen2.5-72b-instruct:/model {IMAGE} --model /model --max-model-len 4096\n", "a.sh")
    assert job.model == "/model"


@pytest.mark.parametrize(
    ("options", "gpus"),
    [("--gpus 3", 3), ("--gpus '\"device=0,2\"'", 2), ("--gpus device=1", 1), ("--gpus all", None), ("", None)],
)
def test_gpus_and_memory_of_docker_run(jobs_of, options, gpus):
    (job,) = jobs_of(f"docker run {options} -m 48g {IMAGE} {FLAGS}\n", "run.sh")
    assert (job.hardware.asked_gpus, job.hardware.host_memory) == (gpus, 48 << 30)


@pytest.mark.parametrize(
    "name", ["vllm serve ./base", "trtllm-serve ./base", "python -m sglang.launch_server --model-path ./base"]
)
@pytest.mark.parametrize(
    "fetch",
    [
        f"huggingface-cli download {MODEL} --local-dir ./base",
        f"hf download {MODEL} --local-dir=./base",
        f"git clone https://huggingface.co/{MODEL} base",
    ],
)
def test_a_folder_that_a_script_downloads_to_is_that_model(jobs_of, fetch, name):
    (job,) = jobs_of(f"#!/bin/bash\n{fetch}\n{name}\n", "run.sh")
    assert job.model == MODEL


def test_what_a_build_takes_over_from_a_conversion(jobs_of):
    text = f"""#!/bin/bash
python3 convert_checkpoint.py --model_dir {MODEL} --output_dir ./pieces --tp_size 4 --pp_size 3 \\
  --use_weight_only --weight_only_precision int8
trtllm-build --checkpoint_dir ./pieces --output_dir ./engine --max_batch_size 7
"""
    (job,) = jobs_of(text, "build.sh")
    assert (job.model, job.parallelism.tensor, job.parallelism.pipeline) == (MODEL, 4, 3)
    assert job.weights.quantization.method == "int8"


@pytest.mark.parametrize(
    ("gpu", "kind", "count"),
    [
        ("{name: [L4], count: 3}", "l4", 3),
        ("{name: [L4, L40S], count: {min: 2, max: 4}}", "l40s", 2),
        ("{name: 'L4,A100', memory: 80GB}", "a100-80gb", 1),
        ("[L4, '24GB']", "l4", 1),
    ],
)
def test_lists_of_cards_of_dstack(jobs_of, gpu, kind, count):
    (job,) = jobs_of(f"type: task\ncommands: [vllm serve org/m]\nresources:\n  gpu: {gpu}\n")
    assert (job.hardware.gpu, job.hardware.asked_gpus) == (kind, count)
