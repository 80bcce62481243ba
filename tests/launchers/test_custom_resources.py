"""Custom resources of Kubernetes: what each starts, on what, and where that stands."""

from __future__ import annotations

import pytest

from gpulint.formats.core.registry import find
from gpulint.launchers.reading import open_jobs, recognise_file
from gpulint.settings.settings import Settings
from gpulint.source.edit.edit import apply

KUBEAI = """apiVersion: kubeai.org/v1
kind: Model
metadata: {name: chat}
spec:
  url: hf://org/model
  engine: VLLM
  args:
    - --max-model-len=8192
    - --gpu-memory-utilization=0.8
  resourceProfile: nvidia-gpu-h100:2
"""

RUNTIME = """apiVersion: production-stack.vllm.ai/v1alpha1
kind: VLLMRuntime
metadata: {name: chat}
spec:
  model: {modelURL: org/model, maxModelLen: 8192, maxNumSeqs: 32}
  vllmConfig:
    tensorParallelSize: 2
    gpuMemoryUtilization: "0.8"
    enableChunkedPrefill: true
  deploymentConfig:
    resources: {gpu: "2", memory: 64Gi}
    shmSize: 8Gi
    image: {name: lmcache/vllm-openai:2025-05-27-v1}
"""

KAITO = """apiVersion: v1
kind: ConfigMap
metadata: {name: params}
data:
  inference_config.yaml: |
    max_probe_steps: 6
    vllm:
      max-model-len: 8192
      gpu-memory-utilization: 0.7
---
apiVersion: kaito.sh/v1beta1
kind: Workspace
metadata: {name: chat}
resource: {instanceType: Standard_NC96ads_A100_v4}
inference:
  preset: {name: deepseek-r1-distill-qwen-14b}
  config: params
"""

KSERVE = """apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: chat}
spec:
  predictor:
    nodeSelector: {nvidia.com/gpu.product: NVIDIA-L4}
    model:
      modelFormat: {name: huggingface}
      storageUri: hf://org/model:main
      args: [--model_name=chat, --max_log_len, "10", --disable_lower_case, --max-model-len=8192]
      resources: {limits: {nvidia.com/gpu: 1, memory: 24Gi}}
"""

LLM = """apiVersion: serving.kserve.io/v1alpha1
kind: LLMInferenceService
metadata: {name: chat}
spec:
  model: {uri: hf://org/model, name: org/model}
  parallelism: {data: 16, dataLocal: 8, expert: true, tensor: 1}
  template:
    containers:
      - name: main
        env:
          - {name: VLLM_ADDITIONAL_ARGS, value: "--max-model-len 8192 --enforce-eager"}
        resources: {limits: {nvidia.com/gpu: 8}}
  worker: {containers: [{name: main}]}
  prefill:
    parallelism: {tensor: 2}
    template:
      containers:
        - name: main
          resources: {limits: {nvidia.com/gpu: 2}}
"""

OME = """apiVersion: ome.io/v1beta1
kind: ClusterBaseModel
metadata: {name: chat}
spec: {storage: {storageUri: hf://org/model}}
---
apiVersion: ome.io/v1beta1
kind: ClusterServingRuntime
metadata: {name: big}
spec:
  engineConfig:
    nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}
    leader:
      runner:
        image: vllm/vllm-openai:v0.9.1
        command: [vllm, serve, $(MODEL_PATH), --tensor-parallel-size, "8", --pipeline-parallel-size=2]
        resources: {limits: {nvidia.com/gpu: 8}}
    worker: {size: 1}
---
apiVersion: ome.io/v1beta1
kind: InferenceService
metadata: {name: chat}
spec:
  model: {name: chat}
  runtime: {name: big}
"""

LLMAZ = """apiVersion: llmaz.io/v1alpha1
kind: OpenModel
metadata: {name: chat}
spec:
  source: {modelHub: {modelID: org/model}}
  inferenceConfig:
    flavors:
      - name: a10
        limits: {nvidia.com/gpu: 1}
---
apiVersion: inference.llmaz.io/v1alpha1
kind: Playground
metadata: {name: chat}
spec:
  modelClaim: {modelName: chat}
  backendRuntimeConfig:
    version: v0.8.5
    args: [--max-model-len, "8192"]
"""

LWS = """apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: chat}
spec:
  replicas: 3
  leaderWorkerTemplate:
    size: 2
    leaderTemplate:
      spec:
        nodeSelector: {cloud.google.com/gke-accelerator: nvidia-h100-80gb}
        containers:
          - name: leader
            image: vllm/vllm-openai:v0.8.5
            command:
              - sh
              - -c
              - "bash serve.sh leader --ray_cluster_size=$(LWS_GROUP_SIZE);
                vllm serve org/model --tensor-parallel-size 8 --pipeline-parallel-size $(LWS_GROUP_SIZE)"
            resources: {limits: {nvidia.com/gpu: "8"}}
            volumeMounts: [{name: shm, mountPath: /dev/shm}]
        volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 15Gi}}]
    workerTemplate:
      spec:
        containers:
          - name: worker
            image: vllm/vllm-openai:v0.8.5
            command: [sh, -c, "bash serve.sh worker --ray_address=$(LWS_LEADER_ADDRESS)"]
            resources: {limits: {nvidia.com/gpu: "8"}}
"""

STORM = """apiVersion: orchestration.aibrix.ai/v1alpha1
kind: StormService
metadata: {name: chat}
spec:
  template:
    spec:
      roles:
        - name: prefill
          template:
            spec:
              containers:
                - {name: s, image: x, command: [vllm, serve, org/model, --max-model-len=8192],
                   resources: {limits: {nvidia.com/gpu: 1}}}
"""


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        (KUBEAI, "kubeai", ("org/model", 1, 8192, "h100-80gb", 2, "0.8.3")),
        (RUNTIME, "production_stack", ("org/model", 2, 8192, None, 2, "0.33.0")),
        (KAITO, "kaito", ("deepseek-ai/DeepSeek-R1-Distill-Qwen-14B", 1, 8192, "a100-80gb", 4, "0.25.1")),
        (KSERVE, "kserve", ("org/model", 1, 8192, "l4", 1, "0.33.0")),
        (LLM, "kserve", ("org/model", 1, 8192, None, 16, "0.33.0")),
        (OME, "ome", ("org/model", 8, None, "h100-80gb", 16, "0.9.1")),
        (LLMAZ, "llmaz", ("org/model", 1, 8192, "a10", 1, "0.8.5")),
        (LWS, "leaderworkerset", ("org/model", 8, None, "h100-80gb", 16, "0.8.5")),
        (STORM, "aibrix", ("org/model", 1, 8192, None, 1, "0.33.0")),
    ],
)
def test_what_a_resource_serves(launched, text, kind, expected):
    found = launched(text)
    assert found.kind == kind
    opened = found.opened[0]
    job = opened.reading.job
    gpu = opened.gpu.name if opened.gpu is not None else None
    assert (
        job.model,
        job.parallelism.tensor,
        job.inference.max_model_len,
        gpu,
        job.hardware.asked_gpus,
        job.versions["vllm"],
    ) == expected
    assert not [item for item in opened.reading.problems if item.kind == "unknown-key"]


@pytest.mark.parametrize("text", [KUBEAI, RUNTIME, KAITO, KSERVE])
def test_a_change_is_written_where_the_value_stands(launched, text):
    (opened,) = launched(text).opened
    form = find(opened.reading.format)
    edits = form.edits(opened.reading, {"inference.max_model_len": 4096})
    changed = apply(text, edits)
    assert changed == text.replace("8192", "4096")
    assert launched(changed).opened[0].reading.job.inference.max_model_len == 4096


@pytest.mark.parametrize("text", [KUBEAI, KSERVE, STORM])
def test_an_option_is_added_behind_the_arguments(launched, text):
    opened = launched(text).opened[0]
    edits = find(opened.reading.format).edits(opened.reading, {"inference.max_num_seqs": 8})
    assert launched(apply(text, edits)).opened[0].reading.job.inference.max_num_seqs == 8


@pytest.mark.parametrize(
    ("text", "known", "typo"),
    [
        (KUBEAI, "--max-model-len", "--max-modle-len"),
        (KAITO, "max-model-len:", "max-modle-len:"),
        (KSERVE, "--max-model-len", "--max-modle-len"),
        (LLM, "--max-model-len", "--max-modle-len"),
        (LLMAZ, "--max-model-len", "--max-modle-len"),
        (STORM, "--max-model-len", "--max-modle-len"),
    ],
)
def test_a_typo_is_found_at_its_line(launched, text, known, typo):
    text = text.replace(known, typo)
    problems = launched(text).opened[0].reading.problems
    (problem,) = [item for item in problems if item.kind == "unknown-key"]
    assert problem.key == "max-modle-len"
    assert typo in text.splitlines()[problem.span.line - 1]


def test_a_profile_of_the_cluster_itself(launched):
    opened = launched(KUBEAI.replace("nvidia-gpu-h100:2", "my-b200-pool:4")).opened[0]
    assert (opened.gpu, opened.reading.job.hardware.asked_gpus) == (None, 4)
    assert opened.reading.job.versions["vllm"] == "0.33.0"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("nvidia-gpu-h100:2", "cpu:6"), "serves on the CPU (cpu)"),
        (("engine: VLLM", "engine: OLlama"), "starts OLlama, whose flags gpulint does not read"),
        (("hf://org/model", "model"), "a URL without a scheme is not a model"),
    ],
)
def test_a_model_that_is_no_vllm_server_says_why(launched, change, reason):
    found = launched(KUBEAI.replace(*change))
    assert (found.opened, found.reason) == ([], reason)


def test_what_the_operator_adds_is_no_word_of_the_file(launched):
    (opened,) = launched(RUNTIME).opened
    origins = opened.reading.job.origins
    assert opened.reading.job.inference.chunked_prefill is True
    assert opened.reading.job.hardware.shared_memory == 8 << 30
    off = launched(RUNTIME.replace("    enableChunkedPrefill: true\n", "")).opened[0].reading.job
    assert off.inference.chunked_prefill is False
    assert off.origins["inference.chunked_prefill"].kind == "default"
    assert origins["parallelism.tensor"].span.line == 7


class TestKaito:
    def test_the_config_map_wins_over_what_kaito_passes(self, launched):
        (opened,) = launched(KAITO).opened
        job = opened.reading.job
        assert job.inference.gpu_memory_utilization == 0.7
        assert job.origins["inference.gpu_memory_utilization"].span.line == 9
        plain = launched(KAITO.replace("  config: params\n", "")).opened[0].reading.job
        assert plain.inference.gpu_memory_utilization == 0.84
        assert plain.inference.max_model_len == -1
        assert plain.origins["inference.gpu_memory_utilization"].kind == "default"
        assert plain.origins["model"].kind == "derived"

    @pytest.mark.parametrize(
        ("preset", "machine", "count", "degrees"),
        [
            ("phi-4-mini-instruct", "Standard_NC96ads_A100_v4", "", (1, 1, 4)),
            ("llama-3.3-70b-instruct", "Standard_NC96ads_A100_v4", "", (4, 1, 1)),
            ("deepseek-r1-0528", "Standard_NC80adis_H100_v5", ", count: 6", (2, 5, 1)),
            ("qwen2.5-coder-32b-instruct", "Standard_NC24ads_A100_v4", "", (1, 2, 1)),
            # 130.5 GB over 67.2 GB a GPU: only the 2 % of room that KAITO adds ask for the third
            ("gpt-oss-120b", "Standard_NC24ads_A100_v4", "", (1, 3, 1)),
            ("gpt-oss-120b", "Standard_NC48ads_A100_v4", "", (2, 2, 1)),
            ("phi-4", "Standard_NC24ads_A100_v4", "", (1, 1, 1)),
        ],
    )
    def test_the_degrees_follow_the_machine(self, launched, preset, machine, count, degrees):
        text = KAITO.replace("deepseek-r1-distill-qwen-14b", preset)
        text = text.replace("Standard_NC96ads_A100_v4", machine + count)
        parallel = launched(text).opened[0].reading.job.parallelism
        assert (parallel.tensor, parallel.pipeline, parallel.data) == degrees

    def test_a10_machines_get_a_smaller_share(self, launched):
        text = KAITO.replace("Standard_NC96ads_A100_v4", "Standard_NV36ads_A10_v5").replace("  config: params\n", "")
        assert launched(text).opened[0].reading.job.inference.gpu_memory_utilization == 0.82

    def test_tuning(self, launched):
        text = """apiVersion: kaito.sh/v1beta1
kind: Workspace
metadata: {name: tune}
resource: {instanceType: Standard_NC24ads_A100_v4}
tuning:
  preset: {name: phi-3-mini-128k-instruct}
  method: qlora
"""
        (opened,) = launched(text).opened
        job = opened.reading.job
        assert (job.kind, job.method, job.model) == ("training", "lora", "microsoft/Phi-3-mini-128k-instruct")
        assert job.weights.quantization.method == "bnb-nf4"
        assert (job.versions["transformers"], job.versions["bitsandbytes"]) == ("5.14.1", "0.46.1")
        assert (job.adapter.r, job.adapter.targets[0], job.micro_batch_size) == (8, "k_proj", 1)
        assert (job.activation_checkpointing, job.sequence_length) == ("full", 1024)
        text += """  config: mine
---
apiVersion: v1
kind: ConfigMap
metadata: {name: mine}
data:
  training_config.yaml: |
    training_config:
      LoraConfig: {r: 32}
      TrainingArguments:
        per_device_train_batch_size: 4
"""
        own = launched(text).opened[0].reading.job
        assert (own.adapter.r, own.micro_batch_size, own.weights.quantization) == (32, 4, None)
        assert own.origins["micro_batch_size"].span.line == 18

    @pytest.mark.parametrize("preset", ["no-such-preset", "<your-preset>"])
    def test_an_unknown_preset(self, launched, preset):
        found = launched(KAITO.replace("deepseek-r1-distill-qwen-14b", f'"{preset}"'))
        assert found.opened == []
        assert preset in found.reason

    def test_any_model_of_the_hub_is_a_preset(self, launched):
        text = KAITO.replace("deepseek-r1-distill-qwen-14b", "org/some-model")
        assert launched(text).opened[0].reading.job.model == "org/some-model"


class TestKServe:
    def test_prefill_is_a_server_of_its_own(self, launched):
        decode, prefill = launched(LLM).opened
        assert decode.reading.job.parallelism.data == 16
        assert decode.reading.job.parallelism.expert == 16
        assert decode.reading.job.hardware.nodes == 2
        assert prefill.part.startswith("LLMInferenceService chat, prefill")
        assert (prefill.reading.job.parallelism.tensor, prefill.reading.job.hardware.asked_gpus) == (2, 2)

    def test_stored_files_have_no_name(self, launched):
        (opened,) = launched(KSERVE.replace("hf://org/model:main", "s3://bucket/model")).opened
        assert opened.reading.job.model is None
        assert "MODEL_PATH" not in str(opened.reading.job.model)

    def test_a_model_id_wins_over_the_storage(self, launched):
        (opened,) = launched(KSERVE.replace("--model_name=chat", "--model_id=org/other")).opened
        assert opened.reading.job.model == "org/other"

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            (("name: huggingface", "name: sklearn"), "serves a sklearn model"),
            (("--model_name=chat", "--backend=huggingface"), "serves with Transformers (--backend huggingface)"),
            (("nvidia.com/gpu: 1, ", ""), "requests no GPU"),
        ],
    )
    def test_a_service_without_vllm_says_why(self, launched, change, reason):
        found = launched(KSERVE.replace(*change))
        assert (found.opened, found.reason) == ([], reason)

    def test_a_runtime_of_the_same_file(self, launched):
        text = """apiVersion: serving.kserve.io/v1alpha1
kind: ServingRuntime
metadata: {name: mine}
spec:
  containers:
    - name: kserve-container
      image: vllm/vllm-openai:v0.9.1
      command: [python, -m, vllm.entrypoints.openai.api_server]
      args: [--model, /mnt/models, --max-num-seqs=16]
---
""" + KSERVE.replace("name: huggingface}", "name: vLLM}\n      runtime: mine").replace(
            '--model_name=chat, --max_log_len, "10", --disable_lower_case, ', ""
        )
        (opened,) = launched(text).opened
        job = opened.reading.job
        assert (job.model, job.inference.max_num_seqs, job.inference.max_model_len) == ("org/model", 16, 8192)
        assert job.versions["vllm"] == "0.9.1"

    def test_workers_are_pipeline_stages(self, launched):
        text = KSERVE.replace(
            "    model:\n", "    workerSpec: {pipelineParallelSize: 2, tensorParallelSize: 4}\n    model:\n"
        )
        (opened,) = launched(text).opened
        job = opened.reading.job
        assert (job.parallelism.tensor, job.parallelism.pipeline, job.hardware.nodes) == (4, 2, 2)


class TestOme:
    def test_a_runtime_names_its_model(self, launched):
        text = OME.split("---\n")[1].replace("--pipeline-parallel-size=2", "--served-model-name, org/served")
        (opened,) = launched(text).opened
        assert opened.reading.job.model == "org/served"
        assert opened.reading.job.origins["model"].kind == "assumed"

    def test_a_runtime_that_ome_ships(self, launched):
        text = """apiVersion: ome.io/v1beta1
kind: InferenceService
metadata: {name: chat}
spec:
  model: {name: llama-3-1-8b-instruct}
  runtime: {name: vllm-llama-3-1-8b-instruct}
"""
        (opened,) = launched(text).opened
        job = opened.reading.job
        assert (job.model, job.inference.max_model_len) == ("meta-llama/Llama-3.1-8B-Instruct", 131072)
        assert job.hardware.asked_gpus == 1
        assert job.origins["model"].kind == "derived"
        assert job.origins["inference.max_model_len"].kind == "default"

    def test_a_runtime_of_another_file(self, launched):
        found = launched(OME.split("---\n")[2])
        assert found.reason == "serves chat on the runtime big, which is in another file"


class TestTraining:
    def test_the_replicas_of_a_pytorch_job_train_together(self, launched):
        text = """apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: train}
spec:
  pytorchReplicaSpecs:
    Master: &pod
      replicas: 1
      template:
        spec:
          nodeSelector: {node.kubernetes.io/instance-type: ml.p5.48xlarge}
          containers:
            - name: pytorch
              image: x
              command: [torchrun, --nproc_per_node=8, train.py, --model_name_or_path, org/m, --output_dir, out,
                        --per_device_train_batch_size, "2", --learning_rate, "1e-5"]
              resources: {limits: {nvidia.com/gpu: 8}}
    Worker:
      <<: *pod
      replicas: 3
"""
        (opened,) = launched(text).opened
        hardware = opened.reading.job.hardware
        assert opened.part.startswith("PyTorchJob train, Master")
        assert (opened.gpu.name, hardware.gpus, hardware.nodes) == ("h100-80gb", 32, 4)

    def test_an_mpi_launcher_has_the_gpus_of_its_workers(self, launched):
        text = """apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: train}
spec:
  mpiReplicaSpecs:
    Launcher:
      template:
        spec:
          containers:
            - {name: l, image: x, command: [mpirun, -np, "16", python, train.py, --model_name_or_path, org/m,
               --output_dir, out, --per_device_train_batch_size, "2", --learning_rate, "1e-5"]}
    Worker:
      replicas: 2
      template:
        spec: {containers: [{name: w, image: x, resources: {limits: {nvidia.com/gpu: 8}}}]}
"""
        (opened,) = launched(text).opened
        assert (opened.reading.job.hardware.gpus, opened.reading.job.hardware.nodes) == (16, 2)

    def test_a_train_job_runs_on_its_runtime(self, launched):
        text = """apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: torch}
spec:
  mlPolicy: {numNodes: 2}
  template:
    spec:
      replicatedJobs:
        - name: node
          template:
            spec:
              template:
                spec:
                  nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}
                  containers: [{name: node, image: x, resources: {limits: {nvidia.com/gpu: 4}}}]
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: train}
spec:
  runtimeRef: {name: torch}
  trainer:
    command: [torchrun, train.py, --model_name_or_path, org/m, --output_dir, out,
              --per_device_train_batch_size, "2", --learning_rate, "1e-5"]
"""
        (opened,) = launched(text).opened
        hardware = opened.reading.job.hardware
        assert (opened.gpu.name, hardware.gpus, hardware.nodes) == ("h100-80gb", 8, 2)
        (more,) = launched(text.replace("  trainer:\n", "  trainer:\n    numNodes: 3\n")).opened
        assert more.reading.job.hardware.nodes == 3

    def test_a_ray_job_runs_on_its_worker_groups(self, launched):
        text = """apiVersion: ray.io/v1
kind: RayJob
metadata: {name: train}
spec:
  entrypoint: |
    cd /app
    python train.py --model_name_or_path org/m --output_dir out \\
      --per_device_train_batch_size 2 --learning_rate 1e-5
  rayClusterSpec:
    headGroupSpec: {template: {spec: {containers: [{name: h, image: x}]}}}
    workerGroupSpecs:
      - {groupName: a, replicas: 2, template: &pod {spec: {containers: [{name: w, image: x,
         resources: {limits: {nvidia.com/gpu: 4}}}]}}}
      - {groupName: b, replicas: 1, template: *pod}
"""
        (opened,) = launched(text).opened
        assert (opened.reading.job.hardware.gpus, opened.reading.job.hardware.nodes) == (12, 3)
        assert opened.reading.job.origins["micro_batch_size"].span.line == 8

    def test_the_tasks_of_a_volcano_job(self, launched):
        text = """apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: train}
spec:
  tasks:
    - name: master
      replicas: 1
      template: {spec: {containers: [{name: m, image: x, command: [mpirun, python, train.py, --model_name_or_path,
                 org/m, --output_dir, out, --per_device_train_batch_size, "2", --learning_rate, "1e-5"]}]}}
    - name: worker
      replicas: 2
      template: {spec: {containers: [{name: w, image: x, resources: {limits: {nvidia.com/gpu: 8}}}]}}
"""
        found = launched(text)
        assert found.kind == "volcano"
        assert found.opened[0].reading.job.hardware.gpus == 16

    def test_a_job_set_starts_what_its_first_job_starts(self, launched):
        text = """apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: train}
spec:
  replicatedJobs:
    - name: workers
      replicas: 2
      template:
        spec:
          parallelism: 2
          template:
            spec:
              containers:
                - {name: w, image: x, resources: {limits: {nvidia.com/gpu: 8}},
                   command: [torchrun, train.py, --model_name_or_path, org/m, --output_dir, out,
                             --per_device_train_batch_size, "2", --learning_rate, "1e-5"]}
"""
        (opened,) = launched(text).opened
        assert (opened.reading.job.hardware.gpus, opened.reading.job.hardware.nodes) == (32, 4)


def test_a_leader_serves_and_its_workers_join(launched):
    (opened,) = launched(LWS).opened
    job = opened.reading.job
    assert opened.part.startswith("LeaderWorkerSet chat, leader, container leader")
    assert (job.parallelism.pipeline, job.hardware.nodes, job.hardware.shared_memory) == (2, 2, 15 << 30)


def test_a_file_of_several_kinds_has_the_name_of_the_custom_one(launched):
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: a, image: nginx}]}\n---\n"
    found = launched(pod + KUBEAI)
    assert (found.kind, len(found.opened)) == ("kubeai", 1)


def test_the_items_of_a_list_are_objects(launched):
    only = launched(f"apiVersion: v1\nkind: List\nitems:\n  - {STORM.replace(chr(10), chr(10) + '    ').rstrip()}\n")
    assert (only.kind, len(only.opened)) == ("aibrix", 1)
    body = KUBEAI.replace("\n", "\n    ").rstrip()
    found = launched(f"apiVersion: v1\nkind: List\nitems:\n  - {body}\n---\n{STORM}")
    assert len(found.opened) == 2


def test_a_manifest_in_json(tmp_path):
    path = tmp_path / "model.json"
    path.write_text(
        '{"apiVersion": "kubeai.org/v1", "kind": "Model", "metadata": {"name": "m"}, "spec": {"engine": "VLLM",\n'
        '"url": "hf://org/model", "args": ["--max-model-len=8192"], "resourceProfile": "nvidia-gpu-l4:1"}}'
    )
    (opened,) = open_jobs(recognise_file(str(path)), Settings(root=str(tmp_path))).opened
    assert (opened.reading.job.model, opened.reading.job.inference.max_model_len) == ("org/model", 8192)
    assert opened.reading.job.origins["model"].span.line == 2


@pytest.mark.parametrize(
    ("labels", "gpu"),
    [
        ("karpenter.k8s.aws/instance-gpu-memory: '81920', karpenter.k8s.aws/instance-gpu-name: a100", "a100-80gb"),
        ("karpenter.k8s.aws/instance-gpu-name: a100, karpenter.k8s.aws/instance-gpu-memory: '40960'", "a100-40gb"),
        # as Karpenter's page of instance types lists them for g5, g6, g6e and p5
        ("karpenter.k8s.aws/instance-gpu-name: a10g, karpenter.k8s.aws/instance-gpu-memory: '22888'", "a10g"),
        ("karpenter.k8s.aws/instance-gpu-name: l4, karpenter.k8s.aws/instance-gpu-memory: '22888'", "l4"),
        ("karpenter.k8s.aws/instance-gpu-name: l40s, karpenter.k8s.aws/instance-gpu-memory: '45776'", "l40s"),
        ("karpenter.k8s.aws/instance-gpu-name: h100, karpenter.k8s.aws/instance-gpu-memory: '81920'", "h100-80gb"),
        ("karpenter.k8s.aws/instance-gpu-name: ours, karpenter.k8s.aws/instance-gpu-memory: '81920'", None),
        ("karpenter.k8s.aws/instance-gpu-name: l40s, karpenter.k8s.aws/instance-gpu-memory: '46068'", "l40s"),
        (
            "cloud.google.com/gke-gpu-partition-size: 2g.20gb, cloud.google.com/gke-accelerator: nvidia-a100-80gb",
            "a100-80gb-mig-2g.20gb",
        ),
        ("node.kubernetes.io/instance-type: ml.g5.8xlarge", "a10g"),
        ("nvidia.com/gpu.product: $GPU", None),
    ],
)
def test_labels_name_the_gpu(launched, labels, gpu):
    text = STORM.replace(
        "              containers:", f"              nodeSelector: {{{labels}}}\n              containers:"
    )
    (opened,) = launched(text).opened
    assert (opened.gpu.name if opened.gpu is not None else None) == gpu


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: kaito.sh/v1beta1\nkind: Workspace\n",
        "apiVersion: kaito.sh/v1beta1\nkind: InferenceSet\nspec: []\n",
        "apiVersion: kubeai.org/v1\nkind: Model\nspec: {url: [], engine: 3}\n",
        "apiVersion: ray.io/v1\nkind: RayService\nspec: {serveConfigV2: 'a: ['}\n",
        "apiVersion: ray.io/v1\nkind: RayJob\nspec: {entrypoint: null}\n",
        "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nspec: {predictor: {model: 3}}\n",
        "apiVersion: serving.kserve.io/v1\nkind: LLMInferenceService\nspec: {model: {uri: 3}, prefill: 4}\n",
        "apiVersion: ome.io/v1beta1\nkind: InferenceService\nspec: {model: {name: []}}\n",
        "apiVersion: ome.io/v1beta1\nkind: ServingRuntime\nspec: {engineConfig: {runner: []}}\n",
        "apiVersion: inference.llmaz.io/v1alpha1\nkind: Playground\nspec: {modelClaims: {models: [3, {}]}}\n",
        "apiVersion: inference.llmaz.io/v1alpha1\nkind: Service\nspec: 3\n",
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nspec: {pytorchReplicaSpecs: {Worker: 3}}\n",
        "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nspec: {trainer: [], runtimePatches: 3}\n",
        "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nspec: {replicatedJobs: [{replicas: x}]}\n",
        "apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\nspec: {leaderWorkerTemplate: {size: []}}\n",
        "apiVersion: production-stack.vllm.ai/v1alpha1\nkind: VLLMRuntime\nspec: {model: 1}\n",
        "apiVersion: orchestration.aibrix.ai/v1alpha1\nkind: StormService\nspec: {template: 1}\n",
        "apiVersion: v1\nkind: List\nitems: 3\n---\napiVersion: v1\nkind: Pod\nspec: {containers: 3}\n",
    ],
)
def test_a_malformed_resource_says_why(launched, text):
    found = launched(text)
    assert all(item.reading.job.model is None for item in found.opened)
    assert {problem.kind for item in found.opened for problem in item.reading.problems} <= {"wrong-type", "unknown-key"}
    assert found.reason
    assert "\n" not in found.reason


_KUBEAI = "apiVersion: kubeai.org/v1\nkind: Model\nspec:\n  url: hf://a/b\n  engine: VLLM\n"
_KAITO = "apiVersion: kaito.sh/v1beta1\nkind: Workspace\nresource:\n  instanceType: x\n  labelSelector: {}\n"
_TRAINER = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nspec:\n  trainer:\n    image: a\n"


@pytest.mark.parametrize(
    ("text", "kind", "key", "upstream"),
    [
        (_KUBEAI + "  arg: [--x]\n", "unknown-key", "spec.arg", "KubeAI"),
        (_KUBEAI + "  args: {x: 1}\n", "wrong-type", "spec.args", "KubeAI"),
        (_KAITO + "  cont: 2\n", "unknown-key", "resource.cont", "KAITO"),
        (_TRAINER + "    numNode: 2\n", "unknown-key", "spec.trainer.numNode", "Kubeflow Trainer"),
    ],
)
def test_fields_that_a_definition_lacks(launched, text, kind, key, upstream):
    problems = [problem for item in launched(text).opened for problem in item.reading.problems]
    (problem,) = [item for item in problems if item.kind == kind]
    assert (problem.key, problem.span.line) == (key, 6)
    assert problem.values["upstream"].startswith(upstream)


def test_a_version_without_a_definition_is_left_alone(launched):
    text = "apiVersion: kubeai.org/v9\nkind: Model\nspec: {url: hf://a/b, engine: VLLM, arg: []}\n"
    assert not [problem for item in launched(text).opened for problem in item.reading.problems]
