"""Servers beside vLLM as launchers start them: their flags, variables, images and versions."""

from __future__ import annotations

import pytest

from gpulint.formats.core.registry import find
from gpulint.launchers.commands.images import elsewhere, entrypoint
from gpulint.repository.images import versions
from gpulint.rules.facts.facts import Facts
from gpulint.rules.suggest.change import change_job
from gpulint.run.check import check
from gpulint.settings.settings import Settings
from gpulint.source.edit.edit import apply

COMPOSE = """services:
  llm:
    image: {image}
    environment:
{environment}
    command: {command}
    deploy:
      resources:
        reservations:
          devices:
            - {{driver: nvidia, count: 2, capabilities: [gpu]}}
"""


def service(image, command="", environment=("HF_HOME=/data",)):
    listed = "\n".join(f"      - {item}" for item in environment)
    return COMPOSE.format(image=image, command=command, environment=listed)


TGI = "ghcr.io/huggingface/text-generation-inference:2.3.1"


def test_variables_are_options_of_tgi_and_flags_win(jobs_of):
    text = service(TGI, "--max-total-tokens 4096", ("MODEL_ID=org/model", "MAX_TOTAL_TOKENS=8192", "NUM_SHARD=1"))
    (job,) = jobs_of(text)
    assert (job.inference.engine, job.model, job.inference.max_model_len) == ("tgi", "org/model", 4096)
    assert (job.parallelism.tensor, job.hardware.gpus, job.hardware.asked_gpus) == (1, 1, 2)
    assert job.origins["model"].span.line == 5
    assert job.versions["tgi"] == "2.3.1"


def test_tgi_takes_every_gpu_that_it_sees(jobs_of):
    (job,) = jobs_of(service(TGI, "--model-id org/model"))
    assert (job.parallelism.tensor, job.hardware.gpus) == (2, 2)
    assert job.origins["parallelism.tensor"].kind == "derived"
    (job,) = jobs_of(service(TGI, "--model-id org/model --sharded false"))
    assert job.parallelism.tensor == 1


@pytest.mark.parametrize(
    ("tag", "total", "share"), [("1.4.5", 2048, 0.95), ("2.3.1", 4096, 0.95), ("3.3.7", None, 0.9)]
)
def test_defaults_of_tgi_moved(jobs_of, tag, total, share):
    (job,) = jobs_of(service(TGI.replace("2.3.1", tag), "--model-id org/model"))
    assert (job.inference.max_model_len, job.inference.gpu_memory_utilization) == (total, share)


def test_the_memory_fraction_of_tgi_counts_before_its_wiggle_room(jobs_of):
    (job,) = jobs_of(service(TGI, "--model-id org/model --cuda-memory-fraction 0.5"))
    assert job.inference.gpu_memory_utilization == 0.475


def test_tgi_packs_experts_with_bitsandbytes(jobs_of):
    (job,) = jobs_of(service(TGI, "--model-id org/model --quantize bitsandbytes-nf4"))
    packed = job.weights.quantization
    assert (packed.method, packed.experts, packed.double_quant) == ("bnb-nf4", True, True)


def test_flags_of_lmdeploy(jobs_of):
    command = "lmdeploy serve api_server org/model --tp 2 --cache-max-entry-count 0.5 --quant-policy 8 --session 4096"
    (job,) = jobs_of(service("openmmlab/lmdeploy:v0.9.0", command))
    assert (job.inference.engine, job.model, job.parallelism.tensor) == ("lmdeploy", "org/model", 2)
    assert (job.inference.gpu_memory_utilization, job.inference.kv_cache_dtype) == (0.5, "int8")
    assert job.inference.max_model_len == 4096
    assert job.versions["lmdeploy"] == "0.9.0"


@pytest.mark.parametrize("program", ["trtllm-serve", "trtllm-serve serve"])
def test_flags_of_tensorrt_llm(jobs_of, program):
    command = f"{program} org/model --tp_size 2 --max_batch_size 16 --kv_cache_free_gpu_memory_fraction 0.6"
    (job,) = jobs_of(service("nvcr.io/nvidia/tensorrt-llm/release:1.0.0", command))
    assert (job.inference.engine, job.model, job.parallelism.tensor) == ("tensorrt-llm", "org/model", 2)
    assert (job.inference.max_num_seqs, job.inference.gpu_memory_utilization) == (16, 0.6)
    assert (job.inference.max_num_batched_tokens, job.inference.block_size) == (8192, 32)


def test_a_config_file_of_tensorrt_llm(jobs_of):
    options = "kv_cache_config:\n  free_gpu_memory_fraction: 0.7\n  dtype: fp8\ncuda_graph_config: {}\n"
    text = service("nvcr.io/nvidia/tensorrt-llm/release:1.0.0", "trtllm-serve org/model --config extra.yaml")
    (job,) = jobs_of(text, files={"extra.yaml": options})
    assert (job.model, job.inference.gpu_memory_utilization, job.inference.kv_cache_dtype) == ("org/model", 0.7, "fp8")


def test_the_file_of_tensorrt_llm_wins_over_its_flags(jobs_of):
    """Under the options' other names too (tensorrt_llm/commands/serve.py update_llm_args_with_extra_dict)."""
    command = "trtllm-serve org/model --config extra.yaml --tp_size 1 --max_num_tokens 4096"
    text = service("nvcr.io/nvidia/tensorrt-llm/release:1.0.0", command)
    (job,) = jobs_of(text, files={"extra.yaml": "tensor_parallel_size: 2\ncuda_graph_config: {}\n"})
    assert (job.parallelism.tensor, job.inference.max_num_batched_tokens) == (2, 4096)


def test_a_config_file_of_sglang_under_its_flags(jobs_of):
    text = service("lmsysorg/sglang:v0.5.4-cu126", "python3 -m sglang.launch_server --config s.yaml --tp 2")
    (job,) = jobs_of(text, files={"s.yaml": "model-path: org/model\ntp-size: 1\nmem-fraction-static: 0.7\n"})
    assert (job.model, job.inference.gpu_memory_utilization) == ("org/model", 0.7)
    assert job.versions["sglang"] == "0.5.4"


def test_a_degree_that_is_filled_in_takes_the_gpus_asked_for(jobs_of):
    (job,) = jobs_of(service("vllm/vllm-openai:v0.9.1", "--model org/model --tensor-parallel-size ${CARDS}"))
    assert (job.parallelism.tensor, job.hardware.gpus) == (2, 2)
    assert job.origins["parallelism.tensor"].kind == "assumed"


@pytest.mark.parametrize(
    ("image", "command", "before", "after"),
    [
        ("lmsysorg/sglang:v0.5.4", "python3 -m sglang.launch_server --model org/m --tp 1", "--tp 1", "--tp 2"),
        ("nvcr.io/nvidia/tensorrt-llm/release:1.0.0", "trtllm-serve org/m --tp_size 1", "--tp_size 1", "--tp_size 2"),
        (TGI, "--model-id org/m --num-shard 1", "--num-shard 1", "--num-shard 2"),
    ],
)
def test_a_change_is_written_into_the_launcher(launched, image, command, before, after):
    text = service(image, command)
    (opened,) = launched(text).opened
    changed = change_job(Facts(opened.reading, opened.project, opened.gpu), {"parallelism.tensor": 2})
    assert changed is not None
    assert apply(text, list(changed.edits)) == text.replace(before, after)
    assert changed.facts.job.parallelism.tensor == 2


TRT = "nvcr.io/nvidia/tensorrt-llm/release:1.0.0"


@pytest.mark.parametrize(
    ("image", "command", "gpu", "wanted"),
    [
        (
            "lmsysorg/sglang:v0.5.4",
            "python3 -m sglang.launch_server --model Qwen/Qwen2.5-32B-Instruct --mem-fraction-static 0.7",
            "h100-80gb",
            "mem-fraction-static: 0.85",
        ),
        (
            "lmsysorg/sglang:v0.5.4",
            "python3 -m sglang.launch_server --model Qwen/Qwen2.5-32B-Instruct --mem-fraction-static 0.99",
            "h100-80gb",
            "mem-fraction-static: 0.92",
        ),
        (
            TGI,
            "--model-id meta-llama/Llama-3.1-8B-Instruct --num-shard 1 --max-batch-prefill-tokens 65536",
            "l4",
            "max-batch-prefill-tokens: 8192",
        ),
        (
            TRT,
            "trtllm-serve meta-llama/Llama-3.1-8B-Instruct --max_num_tokens 65536",
            "l4",
            "max_num_tokens: 32768",
        ),
        (
            "openmmlab/lmdeploy:v0.9",
            "lmdeploy serve api_server Qwen/Qwen2.5-14B-Instruct --cache-max-entry-count 0.99",
            "a100-40gb",
            "cache-max-entry-count: 0.88",
        ),
    ],
)
def test_each_engine_is_told_in_its_own_words(tmp_path, image, command, gpu, wanted):
    (tmp_path / "compose.yaml").write_text(service(image, command))
    report = check([str(tmp_path)], Settings(gpu=gpu, gpus=1, select=("GPU203", "GPU209"), root=str(tmp_path)))
    (finding,) = report.findings
    assert wanted in [item.text for item in finding.suggestions]


def test_docker_run_starts_the_entrypoint_of_its_image(jobs_of):
    script = "resources:\n  accelerators: L4:2\nenvs:\n  MODEL: org/model\nrun: |\n"
    script += "  docker run --gpus all --shm-size 1g -e MAX_TOTAL_TOKENS=2048 -p 1:2 \\\n"
    script += "    ghcr.io/huggingface/text-generation-inference:2.3.1 --model-id $MODEL\n"
    (job,) = jobs_of(script)
    assert (job.inference.engine, job.model, job.inference.max_model_len) == ("tgi", "org/model", 2048)
    assert (job.hardware.gpus, job.hardware.shared_memory, job.versions["tgi"]) == (2, 1 << 30, "2.3.1")
    assert job.origins["model"].span.line == 4


@pytest.mark.parametrize(
    ("release", "flags", "total", "step"),
    [
        ("1.4.5", "", 2048, 4096),
        ("2.0.4", "--max-input-tokens 1000", 4096, 1050),
        ("2.4.0", "--max-input-tokens 1000 --max-batch-size 4", 4096, 4000),
        ("2.4.1", "--max-input-tokens 1000", None, 4096),
        ("3.3.7", "", None, None),
    ],
)
def test_lengths_of_tgi_by_release(jobs_of, release, flags, total, step):
    (job,) = jobs_of(service(TGI.replace("2.3.1", release), f"--model-id org/model {flags}"))
    assert (job.inference.max_model_len, job.inference.max_num_batched_tokens) == (total, step)


@pytest.mark.parametrize(
    ("image", "stated"),
    [
        ("vllm/vllm-openai:v0.8.5", {"vllm": "0.8.5"}),
        ("mirror.local:5000/vllm/vllm-openai:v0.10.0", {"vllm": "0.10.0", "flashinfer-python": "0.2.6"}),
        ("lmcache/vllm-openai:v0.3.2", {}),
        ("opea/vllm-gaudi:1.22.0", {}),
        ("lmsysorg/sglang:v0.4.6.post1-cu124", {"sglang": "0.4.6.post1"}),
        ("ghcr.io/huggingface/text-generation-inference:2.4.1-rocm", {"tgi": "2.4.1"}),
        ("x/huggingface-text-generation-inference-cu124.2-3.ubuntu2204.py311", {"tgi": "2.3"}),
        ("vllm/vllm-openai:latest", {}),
    ],
)
def test_versions_of_images(image, stated):
    assert versions(image) == stated


def test_images_for_other_devices():
    assert elsewhere("opea/vllm-gaudi:1.22.0") == "Intel Gaudi"
    assert elsewhere("ghcr.io/huggingface/text-embeddings-inference:cpu-1.7") == "CPUs"
    assert elsewhere("vllm/vllm-openai:v0.9.1") == ""
    assert entrypoint("vllm/vllm-openai@sha256:0") == ["vllm", "serve"]


@pytest.mark.parametrize("name", ["tgi", "lmdeploy", "trtllm", "sglang"])
def test_a_typo_among_flags_is_refused_where_it_stands(launched, name):
    commands = {
        "tgi": (TGI, "--model-id org/m --max-total-token 9"),
        "lmdeploy": ("openmmlab/lmdeploy:v0.9.0", "lmdeploy serve api_server org/m --max-batchsize 9"),
        "trtllm": ("nvcr.io/nvidia/tensorrt-llm/release:1.0.0", "trtllm-serve org/m --max_batchsize 9"),
        "sglang": ("lmsysorg/sglang:v0.5.4", "python3 -m sglang.launch_server --model org/m --context-lenght 9"),
    }
    (opened,) = launched(service(*commands[name])).opened
    problems = [item for item in opened.reading.problems if item.kind == "unknown-key"]
    assert find(name).name == opened.reading.format
    assert [item.span.line for item in problems] == [6]


@pytest.mark.parametrize(
    "flags", ["--num-gpus 8 --ulysses-degree 4", "--dit-cpu-offload false", "--model-type diffusion"]
)
def test_a_server_of_images_is_no_job_and_has_no_unknown_options(tmp_path, flags):
    (tmp_path / "serve.sh").write_text(f"sglang serve --model-path Wan-AI/Wan2.2-T2V-A14B-Diffusers {flags}\n")
    report = check([str(tmp_path / "serve.sh")], Settings(root=str(tmp_path), gpu="h100-80gb"))
    assert report.findings == []
    assert "diffusion" in report.files[0].reason
