"""Defaults that moved memory between releases follow the version that settings, an image or an installation states."""

from __future__ import annotations

import pytest

import gpulint
from gpulint.estimator.serving.vllm.settings import settings
from gpulint.hardware.catalogue import find
from gpulint.job.job import Job
from gpulint.launchers.reading import open_jobs, recognise_file
from gpulint.models.resolve import resolve
from gpulint.settings.settings import Settings

VLLM = "vllm serve Qwen/Qwen2.5-7B-Instruct\n"
SFT = "trl sft --model_name_or_path Qwen/Qwen2.5-0.5B --dataset_name a/b --output_dir o\n"
PLAIN = "python run_clm.py --model_name_or_path Qwen/Qwen2.5-0.5B --output_dir o --learning_rate 1e-5\n"
FSDP = "fsdp: full_shard\n"
WRAPPED = "fsdp: full_shard auto_wrap\nfsdp_config: {version: 2}\n"
YAML = """model_name_or_path: Qwen/Qwen2.5-0.5B
per_device_train_batch_size: 1
gradient_accumulation_steps: 4
learning_rate: 1.0e-5
output_dir: o
bf16: true
"""
MOVED = [
    (VLLM, "vllm", "0.11.0", "inference.gpu_memory_utilization"),
    (SFT.replace("trl sft", "trl dpo"), "trl", "0.13.0", "sequence_length"),
    (SFT, "trl", "1.14.0", "loss.kernel"),
    (SFT, "trl", "0.21.0", "activation_checkpointing"),
    (PLAIN, "transformers", "4.57.1", "weights.dtype"),
]
"""A command, a package, an older release of it, and a field whose default moved since."""


@pytest.fixture
def job(tmp_path):
    def read(text, versions=None, name="run.sh"):
        path = tmp_path / name
        path.write_text(text)
        given = Settings(root=str(tmp_path), gpu="h100-80gb", versions=versions or {})
        (opened,) = open_jobs(recognise_file(str(path)), given).opened
        return opened.reading.job

    return read


@pytest.mark.parametrize(("command", "package", "version", "field"), MOVED)
def test_settings_and_installations_choose_the_release(job, command, package, version, field):
    newest, stated = job(command), job(command, {package: version})
    installed = job(f"pip install {package}=={version}\n{command}")
    assert newest.get(field) != stated.get(field)
    assert installed.get(field) == stated.get(field)


def test_an_image_chooses_the_release(job):
    compose = "services: {{a: {{image: 'vllm/vllm-openai:{}', command: --model Qwen/Qwen2.5-7B-Instruct}}}}\n"
    newest, older = (
        job(compose.format("latest"), name="compose.yaml"),
        job(compose.format("v0.11.0"), name="compose.yaml"),
    )
    assert (newest.inference.gpu_memory_utilization, older.inference.gpu_memory_utilization) == (0.92, None)
    assert older.versions["vllm"] == "0.11.0"


@pytest.mark.parametrize(
    ("version", "share", "requests"), [("0.7.1", 0.9, 256), ("0.11.0", 0.9, 1024), ("0.33.0", 0.92, 1024)]
)
def test_share_and_requests_of_vllm_follow_the_release(job, version, share, requests):
    plan = job(VLLM, {"vllm": version})
    found = settings(plan, resolve("Qwen/Qwen2.5-7B-Instruct"), find("h100-80gb"))
    assert (plan.inference.gpu_memory_utilization or found.utilization, found.max_num_seqs) == (share, requests)


@pytest.mark.parametrize(
    ("more", "version", "field", "before", "since"),
    [
        (FSDP, "5.10", "parallelism.fsdp.version", 1, 2),
        (FSDP, "5.10", "parallelism.fsdp.wrap", "none", "transformer"),
        (WRAPPED, "5.4", "parallelism.fsdp.reshard_after_forward", False, True),
        ("", "4.55", "optimizer.name", "adamw_torch", "adamw_torch_fused"),
        ("gradient_checkpointing: true\n", "5", "reentrant", True, False),
    ],
)
def test_the_trainer_of_a_release(job, more, version, field, before, since):
    last = {"5.10": "5.9.0", "5.4": "5.3.0", "5": "4.57.1", "4.55": "4.54.1"}[version]
    assert job(YAML + more, {"transformers": last}, "a.yaml").get(field) == before
    newest = job(YAML + more, None, "a.yaml")
    assert newest.get(field) == since
    assert newest.versions["transformers"] == "5.23.0"
    assert field in newest.origins


ONE = {
    "gpulint": "job/v1", "kind": "training", "model": "Qwen/Qwen2.5-0.5B", "method": "full", "objective": "sft",
    "weights": {"dtype": "bfloat16"}, "optimizer": {"name": "adamw_torch"}, "micro_batch_size": 4,
    "sequence_length": 2048, "attention": "sdpa", "loss": {"kernel": "torch"},
    "hardware": {"gpu": "h100-80gb", "gpus": 1},
}  # fmt: skip
SHARDED = {**ONE, "parallelism": {"fsdp": {"version": 2, "wrap": "transformer"}}, "gradient_accumulation_steps": 4,
           "hardware": {"gpu": "h100-80gb", "gpus": 8}}  # fmt: skip
QLORA = {**ONE, "method": "lora", "weights": {"dtype": "bfloat16", "quantization": {"method": "bnb-nf4", "bits": 4}},
         "adapter": {"type": "lora", "r": 8, "targets": "all-linear"}}  # fmt: skip
SGLANG = {"gpulint": "job/v1", "kind": "inference", "model": "Qwen/Qwen2.5-7B-Instruct",
          "inference": {"engine": "sglang"}, "hardware": {"gpu": "h100-80gb", "gpus": 1}}  # fmt: skip


@pytest.mark.parametrize(
    ("plan", "package", "last", "newest"),
    [
        (ONE, "transformers", "4.45.2", "5.23.0"),  # float32 logits in the model, then in the loss
        (ONE, "torch", "1.13.1", "2.13.0"),  # no foreach optimizers
        (SHARDED, "accelerate", "1.10.1", "1.15.0"),  # FSDP 2 reduces gradients at each micro batch until 1.11
        (QLORA, "bitsandbytes", "0.42.0", "0.50.0"),  # MatMul4Bit holds its input
        (SGLANG, "sglang", "0.4.6", "0.5.23"),  # share of the memory and chunk by rank, then by reserve
    ],
)
def test_an_estimate_follows_the_release_and_is_the_newest_where_none_is_stated(plan, package, last, newest):
    unstated, old, new = (
        gpulint.estimate(Job.model_validate({**plan, "versions": versions}))
        for versions in ({}, {package: last}, {package: newest})
    )
    assert unstated.phases == new.phases
    assert old.phases != new.phases
