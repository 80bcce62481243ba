"""Manifests of servers outside Kubernetes: what each starts, on which GPUs, or why it starts nothing."""

from __future__ import annotations

import pytest

from gpulint.formats.core.registry import find

RECIPE = """model:
  model_id: org/model
  base_args: [--trust-remote-code, --max-model-len, "8192"]
meta:
  hardware: {h200: verified, b200: verified}
variants:
  default:
    vram_minimum_gb: 250
  small:
    model_id: org/model-FP8
    vram_minimum_gb: 60
    extra_args: ["--kv-cache-dtype", "fp8"]
  fixed:
    tp: 4
    supported_hardware: [mi355x]
    vram_minimum_gb: 60
"""


def test_each_variant_of_a_recipe_is_a_server(launched):
    found = launched(RECIPE)
    assert found.kind == "vllm_recipe"
    first, second, third = (opened.reading.job for opened in found.opened)
    assert [opened.part for opened in found.opened] == ["variant default", "variant small", "variant fixed"]
    assert (first.model, first.parallelism.tensor, first.inference.max_model_len) == ("org/model", 8, 8192)
    assert (second.model, second.parallelism.tensor, second.inference.kv_cache_dtype) == ("org/model-FP8", 1, "fp8")
    assert (third.parallelism.tensor, third.hardware.gpu) == (4, "mi355x")
    assert (first.hardware.gpu, first.hardware.asked_gpus) == ("h200-141gb", 8)
    assert second.origins["model"].span.line == 10


@pytest.mark.parametrize(
    ("added", "gpu", "expected"),
    [
        ("", None, ("h200-141gb", 8, None)),
        ("", "b300-288gb", ("b300-288gb", 1, None)),
        ("compatible_strategies: [multi_node_tp]\n", "l40s", ("l40s", 8, None)),
        ("compatible_strategies: [multi_node_tp]\n", "rtx-4090", ("rtx-4090", 11, None)),
        ("hardware_overrides: {hopper: {extra_args: [--max-num-seqs, '16']}}\n", None, ("h200-141gb", 8, 16)),
        ("hardware_overrides: {hopper: {extra_args: [--max-num-seqs, '16']}}\n", "b300-288gb", ("b300-288gb", 1, None)),
        ("strategy_overrides: {single_node_tp: {tp: {blackwell: 2, default: 4}}}\n", None, ("h200-141gb", 4, None)),
        ("strategy_overrides: {single_node_tp: {tp: {blackwell: 2, default: 4}}}\n", "b200", ("b200-180gb", 2, None)),
        ("compatible_strategies: [multi_node_dep]\n", None, ("h200-141gb", 1, None)),
    ],
)
def test_a_recipe_is_split_as_its_page_says(launched, added, gpu, expected):
    job = launched(RECIPE + added, gpu=gpu).opened[0].reading.job
    assert (job.hardware.gpu, job.parallelism.tensor, job.inference.max_num_seqs) == expected


def test_fp4_variants_run_on_blackwell(launched):
    text = RECIPE.replace("    vram_minimum_gb: 250", "    vram_minimum_gb: 250\n    precision: nvfp4")
    assert launched(text).opened[0].reading.job.hardware.gpu == "b200-180gb"


def test_recipes_that_vllm_itself_does_not_serve(launched):
    assert "vLLM-Omni" in launched(RECIPE.replace("--trust-remote-code", "--omni")).reason
    assert "sets no model" in launched("deploy_type: pd\nparallel_flag: --tp\nprefill: {}\ndecode: {}\n").reason


VALUES = """servingEngineSpec:
  modelSpec:
    - name: chat
      repository: vllm/vllm-openai
      tag: v0.8.5
      modelURL: org/model
      requestGPU: 4
      requestMemory: 64Gi
      shmSize: 4Gi
      nodeSelectorTerms:
        - matchExpressions:
            - {key: nvidia.com/gpu.product, operator: In, values: [NVIDIA-L4]}
      vllmConfig:
        tensorParallelSize: 4
        maxModelLen: 8192
        extraArgs: [--enforce-eager, --max-model-len=4096]
    - name: cpu
      modelURL: org/small
      requestGPU: 0
"""


def test_values_of_the_production_stack(launched):
    (opened,) = launched(VALUES).opened
    job = opened.reading.job
    assert (opened.part, job.model, job.parallelism.tensor) == ("model chat", "org/model", 4)
    assert (job.inference.enforce_eager, job.inference.max_model_len, job.versions["vllm"]) == (True, 4096, "0.8.5")
    assert (job.hardware.gpu, job.hardware.asked_gpus, job.hardware.shared_memory) == ("l4", 4, 4 << 30)
    assert job.origins["parallelism.tensor"].span.line == 14
    assert job.origins["inference.max_model_len"].span.line == 16


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("servingEngineSpec:\n  modelSpec:\n  - {name: a, enabled: false}\n", "a is not enabled"),
        ("servingEngineSpec:\n  modelSpec:\n  - {name: a, requestGPU: 0}\n", "a requests no GPU"),
        ("routerSpec: {enableRouter: true}\n", "sets no model"),
        ("suite: x\ntests: []\n", "helm-unittest"),
    ],
)
def test_values_without_a_server(launched, text, reason):
    found = launched(text)
    assert found.opened == []
    assert reason in found.reason


def test_ray_serve_llm(jobs_of):
    text = """applications:
  - name: llm
    import_path: ray.serve.llm:build_openai_app
    args:
      llm_configs:
        - model_loading_config: {model_id: chat, model_source: org/model}
          accelerator_type: L4
          engine_kwargs: {tensor_parallel_size: 2, max_model_len: 4096}
"""
    (job,) = jobs_of(text)
    assert (job.model, job.parallelism.tensor, job.hardware.gpus, job.hardware.gpu) == ("org/model", 2, 2, "l4")


RAY_LLM = """deployment_config: {}
engine_config:
  model_id: org/model
  type: VLLMEngine
  max_total_tokens: 2048
  engine_kwargs: {max_num_seqs: 64}
scaling_config:
  num_workers: 4
  num_gpus_per_worker: 1
  resources_per_worker: {accelerator_type_a100_80g: 0.01}
"""


def test_a_model_of_ray_llm_has_a_rank_for_each_worker(jobs_of):
    (job,) = jobs_of(RAY_LLM)
    assert (job.parallelism.tensor, job.inference.max_model_len, job.inference.max_num_seqs) == (4, 2048, 64)
    assert (job.hardware.gpus, job.hardware.gpu) == (4, "a100-80gb")


def test_a_change_is_told_under_the_names_of_ray_llm(launched):
    (opened,) = launched(RAY_LLM).opened
    describe = find(opened.reading.format).describe
    changes = {"inference.max_model_len": 1024, "parallelism.tensor": 2, "inference.max_num_seqs": 8}
    assert describe(opened.reading, changes) == "max_total_tokens: 1024, num_workers: 2, max_num_seqs: 8"


def test_an_application_names_its_models_as_files(launched):
    text = "applications:\n- import_path: rayllm:app\n  args:\n    models: [models/one.yaml, models/two.yaml]\n"
    found = launched(text, files={"models/one.yaml": RAY_LLM})
    assert [opened.reading.job.model for opened in found.opened] == ["org/model", None]
    (problem,) = found.opened[1].reading.problems
    assert (problem.kind, problem.values["path"], problem.span.line) == ("unresolved-reference", "models/two.yaml", 4)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (RAY_LLM.replace("VLLMEngine", "TRTLLMEngine"), "TRTLLMEngine"),
        (RAY_LLM.replace("num_gpus_per_worker: 1", "num_gpus_per_worker: 0"), "no GPU"),
        ("applications:\n- import_path: a:b\n  args: {embedding_models: [x.yaml]}\n", "embedding"),
    ],
)
def test_ray_files_without_a_job(launched, text, reason):
    assert reason in launched(text).reason


TRUSS = """model_name: chat
base_image:
  image: lmsysorg/sglang:v0.4.6.post1-cu124
model_cache:
  - {repo_id: org/model, use_volume: true, volume_folder: chat}
docker_server:
  start_command: sh -c "truss-transfer-cli && python3 -m sglang.launch_server --model-path /app/model_cache/chat --tp 4"
resources:
  accelerator: H100:4
  use_gpu: true
"""


def test_the_start_command_of_a_truss(jobs_of):
    (job,) = jobs_of(TRUSS)
    assert (job.inference.engine, job.model, job.parallelism.tensor) == ("sglang", "org/model", 4)
    assert (job.hardware.gpu, job.hardware.asked_gpus, job.versions["sglang"]) == ("h100-80gb", 4, "0.4.6.post1")
    assert job.origins["model"].span.line == 5


def test_an_engine_of_a_truss(jobs_of):
    text = """model_name: chat
resources: {accelerator: H100_40GB, use_gpu: true}
trt_llm:
  build:
    base_model: decoder
    checkpoint_repository: {repo: org/model, source: HF}
    max_seq_len: 4096
    quantization_type: fp8_kv
    tensor_parallel_count: 1
  runtime: {kv_cache_free_gpu_mem_fraction: 0.6}
"""
    (job,) = jobs_of(text)
    assert (job.model, job.inference.max_model_len, job.inference.gpu_memory_utilization) == ("org/model", 4096, 0.6)
    assert (job.weights.quantization.method, job.inference.kv_cache_dtype) == ("fp8", "fp8")
    assert job.hardware.gpu == "h100-80gb-mig-3g.40gb"


def test_a_truss_of_python(launched):
    found = launched("model_name: x\nresources: {accelerator: A10G, use_gpu: true}\nrequirements: [torch]\n")
    assert found.opened == []
    assert "Python" in found.reason


def test_a_service_of_dstack(jobs_of):
    text = """type: service
image: ghcr.io/huggingface/text-generation-inference:2.3.1
env:
  - MODEL_ID=org/model
  - HF_TOKEN
commands:
  - text-generation-launcher --port 80
    --num-shard 2
port: 80
resources:
  gpu: A100:80GB:2
  shm_size: 8GB
"""
    (job,) = jobs_of(text)
    assert (job.model, job.parallelism.tensor, job.hardware.gpu) == ("org/model", 2, "a100-80gb")
    assert (job.hardware.asked_gpus, job.hardware.shared_memory, job.origins["model"].span.line) == (2, 8 << 30, 4)


@pytest.mark.parametrize(
    ("gpu", "kind", "count"),
    [("24GB", None, 1), ("80GB:2", None, 2), ("L4:4", "l4", 4), ("{name: H100, count: 8}", "h100-80gb", 8)],
)
def test_gpus_of_dstack(jobs_of, gpu, kind, count):
    (job,) = jobs_of(f"type: task\ncommands: [vllm serve org/m]\nresources:\n  gpu: {gpu}\n")
    assert (job.hardware.gpu, job.hardware.asked_gpus) == (kind, count)


def test_a_development_environment_starts_nothing(launched):
    assert "dev-environment" in launched("type: dev-environment\nide: vscode\nimage: vllm/vllm-openai\n").reason


def test_an_experiment_of_beaker(jobs_of):
    text = """version: v2
tasks:
  - name: train
    replicas: 2
    image: {beaker: x/y}
    command: [/bin/sh, -c]
    arguments: ['accelerate launch --num_processes 16 train.py --model_name_or_path org/m
      --per_device_train_batch_size 2 --output_dir /out --learning_rate 1e-5 --gradient_accumulation_steps 4']
    resources: {gpuCount: 8}
"""
    (job,) = jobs_of(text)
    assert (job.model, job.micro_batch_size, job.hardware.gpus, job.hardware.nodes) == ("org/m", 2, 16, 2)


GPU_RECIPE = """workload:
  model: {name: org/model}
  gpus: 16
  image: vllm/vllm-openai:v0.9.1
  framework: vllm
  configFile: serving-args.yaml
"""


def test_values_of_a_gpu_recipe_read_the_file_beside_them(jobs_of):
    (job,) = jobs_of(GPU_RECIPE, files={"serving-args.yaml": "tensor-parallel-size: 8\nmax-model-len: 2048\n"})
    assert (job.model, job.parallelism.tensor, job.inference.max_model_len) == ("org/model", 8, 2048)
    assert (job.hardware.asked_gpus, job.hardware.nodes, job.versions["vllm"]) == (16, 2, "0.9.1")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("serving-args.yaml", "setup.py", "the program setup.py"),
        ("serving-args.yaml", "other.yaml", "given at install time"),
        ("configFile: serving-args.yaml", "envs: []", "has no config file"),
    ],
)
def test_gpu_recipes_without_a_config(launched, old, new, reason):
    assert reason in launched(GPU_RECIPE.replace(old, new)).reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"architectures": ["LlamaForCausalLM"], "hidden_size": 8}', "a model (LlamaForCausalLM), starts no job"),
        (
            '{"model_type": "x", "vocab_size": 8, "quantization_config": {"quant_method": "fp8"}}',
            "a model (x, stored as fp8)",
        ),
        ('{"peft_type": "LORA", "base_model_name_or_path": "org/m"}', "a LORA adapter of org/m"),
        ('{"transformer_layer_cls_to_wrap": "X", "cpu_ram_efficient_loading": true}', "FSDP settings"),
    ],
)
def test_files_that_describe(launched, text, reason):
    found = launched(text, "config.json")
    assert found.opened == []
    assert reason in found.reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("services:\n  a:\n    build: {context: .}\n    image: x/vllm-openai\n", "builds images"),
        ("services:\n  a:\n    image: opea/vllm-gaudi:1.22.0\n    command: --model m\n", "Intel Gaudi"),
        ("services:\n  a:\n    image: redis\n", "starts no program"),
    ],
)
def test_compose_files_without_a_server(launched, text, reason):
    found = launched(text)
    assert found.opened == []
    assert reason in found.reason
