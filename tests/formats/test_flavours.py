"""What the program that reads a Trainer style config changes."""

from __future__ import annotations

import json

import pytest

from gpulint.formats.hf_trainer.trainer_profiles import flavour_of
from gpulint.launchers.reading import open_jobs, recognise_file
from gpulint.settings.settings import Settings
from gpulint.source.read import parse

TRAIN = "model_name_or_path: m\ndeepspeed: ds.json\nper_device_train_batch_size: 16\nlearning_rate: 0.03\n"
DEEPSPEED = {"fp16": {"enabled": True}, "train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3}}


@pytest.mark.parametrize(("more", "kinds"), [("", {"contradiction"}), ("data_tag: base\nclip_grad_norm: 1.0\n", set())])
def test_only_the_trainer_compares_its_arguments_with_the_deepspeed_config(tmp_path, more, kinds):
    (tmp_path / "ds.json").write_text(json.dumps(DEEPSPEED))
    (tmp_path / "train.yaml").write_text(TRAIN + more)
    (opened,) = open_jobs(recognise_file(str(tmp_path / "train.yaml")), Settings(root=str(tmp_path))).opened
    assert {item.kind for item in opened.reading.problems if item.kind == "contradiction"} == kinds
    assert opened.reading.job.micro_batch_size == 16
    assert opened.reading.job.parallelism.zero.stage == 3


@pytest.mark.parametrize(("script", "name"), [("fastchat/train/train.py", "adamw_torch"), ("run_clm.py", "adamw_hf")])
def test_a_script_with_an_optimizer_of_its_own_has_it_in_every_release(tmp_path, script, name):
    command = tmp_path / "train.sh"
    command.write_text(
        f"pip install transformers==4.28.1\npython {script} --model_name_or_path huggyllama/llama-7b"
        " --per_device_train_batch_size 1 --output_dir out\n"
    )
    (opened,) = open_jobs(recognise_file(str(command)), Settings(root=str(tmp_path))).opened
    assert opened.reading.job.optimizer.name == name


def test_fms_hf_tuning_says_lora_in_its_own_words(tmp_path):
    command = tmp_path / "train.sh"
    command.write_text(
        "accelerate launch -m tuning.sft_trainer --model_name_or_path mistralai/Mistral-7B-v0.1 --peft_method lora"
        " --r 16 --target_modules q_proj v_proj --bnb_qlora nf4 --per_device_train_batch_size 4 --packing True\n"
    )
    (opened,) = open_jobs(recognise_file(str(command)), Settings(root=str(tmp_path), gpus=1)).opened
    job = opened.reading.job
    assert (job.method, job.adapter.r, job.adapter.alpha) == ("lora", 16, 32)
    assert job.adapter.targets == ["q_proj", "v_proj"]
    assert (job.weights.dtype, job.weights.quantization.method, job.weights.quantization.bits) == (
        "bfloat16", "bnb-nf4", 4,
    )  # fmt: skip
    assert (job.attention, job.sequence_length, job.packing) == ("flash_attention_2", 4096, True)


@pytest.mark.parametrize(("plugin", "prepared"), [("nf4", False), ("nf4 False", False), ("nf4 True", True)])
def test_fms_acceleration_may_leave_the_preparation_to_the_trainer(tmp_path, plugin, prepared):
    command = tmp_path / "train.sh"
    command.write_text(
        "accelerate launch -m tuning.sft_trainer --model_name_or_path mistralai/Mistral-7B-v0.1 --peft_method lora"
        f" --bnb_qlora {plugin} --per_device_train_batch_size 4\n"
    )
    (opened,) = open_jobs(recognise_file(str(command)), Settings(root=str(tmp_path), gpus=1)).opened
    job = opened.reading.job
    assert (job.weights.quantization.method, job.adapter.prepare_kbit) == ("bnb-nf4", prepared)


@pytest.mark.parametrize(("method", "kind"), [("alora", "lora"), ("pt", "prompt_tuning")])
def test_every_method_of_fms_hf_tuning_but_none_is_an_adapter(tmp_path, method, kind):
    command = tmp_path / "train.sh"
    command.write_text(
        f"accelerate launch -m tuning.sft_trainer --model_name_or_path mistralai/Mistral-7B-v0.1 --peft_method {method}"
        " --per_device_train_batch_size 4\n"
    )
    (opened,) = open_jobs(recognise_file(str(command)), Settings(root=str(tmp_path), gpus=1)).opened
    job = opened.reading.job
    assert (job.method, job.adapter.type, job.adapter.prepare_kbit) == ("lora", kind, False)


@pytest.mark.parametrize(("flag", "reentrant"), [("", True), (" --use_reentrant False", False)])
def test_a_script_may_ask_whether_checkpoints_are_reentrant(tmp_path, flag, reentrant):
    """PEFT's examples/sft/train.py."""
    command = tmp_path / "train.sh"
    command.write_text(
        "pip install transformers==4.37.2\npython train.py --model_name_or_path m --per_device_train_batch_size 1"
        f" --gradient_checkpointing True --output_dir out{flag}\n"
    )
    (opened,) = open_jobs(recognise_file(str(command)), Settings(root=str(tmp_path))).opened
    assert opened.reading.job.reentrant is reentrant


@pytest.mark.parametrize(
    ("keys", "program", "name", "own_parser"),
    [
        ("dataset_mixer: {}\n", "", "alignment-handbook", True),
        ("dataset_mixer: {}\n", "trl sft", "trl", False),
        ("dataset_mixer: {}\n", "examples/run_clm.py", "run-clm", True),
        ("dataset_mixer: {}\nwith_tracking: true\n", "", "open-instruct", True),
        ("dataset_name: a/b\nmax_length: 512\n", "", "trl", False),
        ("dataset_name: a/b\nmax_length: 512\n", "examples/scripts/sft.py", "trl", False),
        ("dataset_name: a/b\nmax_length: 512\n", "own/sft.py", "trl", True),
        ("train_folder: data\n", "own/train.py", "transformers", True),
        ("", "open_instruct.finetune", "open-instruct", True),
    ],
)
def test_the_program_that_is_started_says_more_than_the_keys(keys, program, name, own_parser):
    found = flavour_of(parse(f"model_name_or_path: m\nlearning_rate: 0.1\n{keys}", "c.yaml", "yaml"), program)
    assert (found.name, found.own_parser) == (name, own_parser)


@pytest.mark.parametrize(
    ("script", "packing", "padded", "length"),
    [
        ("run_clm.py", True, False, 1024),
        ("run_clm.py --packing False", False, False, 1024),
        ("run_mlm.py", True, False, None),
        ("run_glue.py", False, True, 128),
        ("run_glue.py --pad_to_max_length False", False, False, 128),
        ("run_qa.py", False, True, 384),
        ("run_ner.py", False, False, None),
        ("train.py", False, False, None),
        ("train.py --pad_to_max_length True", False, True, None),
    ],
)
def test_scripts_fill_rows_or_pad_them(tmp_path, script, packing, padded, length):
    command = tmp_path / "train.sh"
    command.write_text(f"python {script} --model_name_or_path m --per_device_train_batch_size 3 --output_dir out\n")
    (opened,) = open_jobs(recognise_file(str(command)), Settings(root=str(tmp_path))).opened
    job = opened.reading.job
    assert (job.packing, job.padded, job.sequence_length) == (packing, padded, length)
