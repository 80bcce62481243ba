"""Defaults that moved between releases of accelerate, LLaMA-Factory, ms-swift, torchtune, verl and PEFT."""

import pytest

from gpulint.estimator.estimate_job import estimate
from gpulint.formats.core.format import Project
from gpulint.formats.core.registry import find
from gpulint.job.job import Job
from gpulint.source.read import parse

FACTORY = "model_name_or_path: Qwen/Qwen2.5-0.5B\nstage: sft\ndo_train: true\nfinetuning_type: lora\ntemplate: qwen\n"
SERVED = "model_name_or_path: Qwen/Qwen2.5-0.5B\ntemplate: qwen\ninfer_backend: vllm\n"
ACCELERATE = (
    "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_processes: 8\nfsdp_config: {fsdp_version: 1}\n"
)
SWIFT = (
    "model: Qwen/Qwen2.5-7B\ntuner_type: full\nmicro_batch_size: 1\nmax_length: 1024\ntensor_model_parallel_size: 1\n"
)


TUNE = (
    "model: {_component_: torchtune.models.qwen2.qwen2_0_5b}\noptimizer: {_component_: torch.optim.AdamW, lr: 1e-5}\n"
    "checkpointer: {_component_: torchtune.training.FullModelHFCheckpointer}\ndtype: bf16\nbatch_size: 2\n"
)
VERL = "actor_rollout_ref: {model: {path: Qwen/Qwen2.5-0.5B}, actor: {ppo_micro_batch_size_per_gpu: 2}}\n"
PADDED = VERL.replace("{path", "{use_remove_padding: false, path")
VERL_SFT = (
    "data: {micro_batch_size_per_gpu: 2}\nmodel: {partial_pretrain: Qwen/Qwen2.5-0.5B}\ntrainer: {n_gpus_per_node: 8}\n"
)


def job(form, text, **versions):
    named = {name.replace("_", "-"): version for name, version in versions.items()}
    project = Project("/nowhere", None, 8, None, lambda *_: None, versions=named)
    return find(form).read(parse(text, "config.yaml", "yaml"), project).job


@pytest.mark.parametrize(
    ("form", "text", "path", "package", "releases"),
    [
        ("llamafactory", FACTORY, "sequence_length", "llamafactory", {"0.9.0": 1024, "0.9.1": 2048, "": 2048}),
        ("llamafactory", SERVED, "inference.max_model_len", "llamafactory", {"0.9.0": 2048, "0.9.1": 4096, "": 4096}),
        ("llamafactory", SERVED, "inference.gpu_memory_utilization", "llamafactory",
         {"0.9.2": 0.9, "0.9.3": 0.7, "": 0.7}),
        ("accelerate", ACCELERATE, "parallelism.fsdp.use_orig_params", "accelerate",
         {"0.24.1": False, "0.25.0": True, "": True}),
        ("verl", VERL, "packing", "verl", {"0.6.1": False, "0.7.0": True, "": True}),
        ("verl", PADDED, "packing", "verl", {"0.6.1": False, "": False}),
        ("verl_sft", VERL_SFT, "activation_checkpointing", "verl", {"0.4.0": "none", "0.4.1": "full", "": "full"}),
        ("verl_sft", VERL_SFT, "parallelism.fsdp.version", "verl", {"0.3.0": 1, "0.4.0": 2, "": 2}),
        ("torchtune", TUNE, "parallelism.fsdp.version", "torchtune", {"0.2.1": 1, "0.3.0": 2, "": 2}),
        ("megatron_swift", SWIFT, "loss.compiled", "ms_swift", {"3.12.6": False, "4.0.0": True, "": True}),
    ],
)  # fmt: skip
def test_a_release_has_its_own_default(form, text, path, package, releases):
    for version, value in releases.items():
        found = job(form, text, **({package: version} if version else {}))
        assert found.get(path) == value, version


@pytest.mark.parametrize(
    ("program", "version", "lengths"),
    [
        ("sft", "0.11.4", (1024, None)),
        ("sft", "0.13.0", (1024, None)),
        ("dpo", "0.11.4", (512, 128)),
        ("dpo", "0.12.0", (None, None)),
        ("dpo", "0.14.0", (1024, 512)),
        ("kto", "0.13.0", (512, 128)),
        ("reward", "0.13.0", (512, None)),
        ("reward", "0.14.0", (1024, None)),
    ],
)
def test_lengths_of_trl_s_trainers(program, version, lengths):
    text = "model_name_or_path: Qwen/Qwen2.5-0.5B\nlearning_rate: 1e-5\nper_device_train_batch_size: 2\n"
    project = Project("/nowhere", None, 8, None, lambda *_: None, None, {"trl": version}, f"trl {program}")
    found = find("hf_trainer").read(parse(text, "config.yaml", "yaml"), project).job
    assert (found.sequence_length, found.rl.prompt_length) == lengths


def test_a_stated_value_is_that_of_every_release():
    assert job("llamafactory", FACTORY + "cutoff_len: 4096\n", llamafactory="0.8.0").sequence_length == 4096


@pytest.mark.parametrize(
    ("version", "width"), [("0.6.2", 4), ("0.7.0", 2), ("0.11.1", 2), ("0.12.0", 4), ("0.21.2", 4), ("", 4)]
)
def test_adapters_had_the_dtype_of_an_unpacked_base(version, width):
    found = estimate(adapted({"peft": version} if version else {}))
    assert found.components["adapter"] == width * found.trainable_parameters


def test_adapters_over_packed_weights_were_float32_all_along():
    packed = {"quantization": {"method": "bnb-nf4", "bits": 4}}
    found = estimate(adapted({"peft": "0.11.1"}, weights={"dtype": "bfloat16", **packed}))
    assert found.components["adapter"] == 4 * found.trainable_parameters


def adapted(versions, **more):
    plain = {
        "kind": "training", "model": "Qwen/Qwen2.5-0.5B", "weights": {"dtype": "bfloat16"}, "method": "lora",
        "adapter": {"type": "lora", "r": 8, "targets": ["q_proj"]}, "micro_batch_size": 1, "sequence_length": 64,
        "hardware": {"gpu": "a100-80gb", "gpus": 1}, "versions": versions,
    }  # fmt: skip
    return Job.validate({**plain, **more})


def test_a_version_pinned_beside_the_command_counts(tmp_path):
    from gpulint.launchers.reading import open_jobs, recognise_file
    from gpulint.settings.settings import Settings

    (tmp_path / "sft.yaml").write_text(FACTORY)
    script = tmp_path / "run.sh"
    script.write_text("pip install llamafactory==0.9.0\nllamafactory-cli train sft.yaml\n")
    (opened,) = open_jobs(recognise_file(str(script)), Settings(root=str(tmp_path))).opened
    assert opened.reading.job.sequence_length == 1024
