"""What decides of a job: hardware that the run names, files that are not here, and options that nobody knows."""

from __future__ import annotations

import pytest

from gpulint.launchers.reading import open_jobs, recognise_file
from gpulint.run.check import check
from gpulint.settings.file import Value
from gpulint.settings.layers import Layers
from gpulint.settings.settings import Settings

TRAIN = "train.py --model_name_or_path Qwen/Qwen2.5-7B --output_dir out --num_train_epochs 1 --learning_rate 1e-5\n"
VERL = (
    "export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7\n"
    "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B"
    " data.train_batch_size=116 actor_rollout_ref.rollout.n=5{}\n"
)


@pytest.fixture
def job(tmp_path):
    def read(text, name="run.sh"):
        (tmp_path / name).write_text(text)
        (opened,) = open_jobs(recognise_file(str(tmp_path / name)), Settings(root=str(tmp_path))).opened
        return opened.reading.job

    return read


def layers(**given):
    return Layers({name: Value(value, f"--{name}") for name, value in given.items()}, isolated=True)


@pytest.mark.parametrize(("walked", "gpus"), [(True, 4), (False, 2)])
def test_hardware_of_the_run_fills_in_for_a_folder_and_replaces_for_a_file(tmp_path, walked, gpus):
    path = tmp_path / "run.sh"
    path.write_text("torchrun --nproc_per_node 4 " + TRAIN)
    found = layers(gpus=2)
    found.within([str(tmp_path if walked else path)])
    (opened,) = open_jobs(recognise_file(str(path)), found.of(str(path))).opened
    assert opened.reading.job.hardware.gpus == gpus


def test_hardware_of_the_run_counts_where_nothing_is_stated(tmp_path):
    path = tmp_path / "run.sh"
    path.write_text("deepspeed " + TRAIN)
    found = layers(gpus=3, gpu="h100-80gb")
    found.within([str(tmp_path)])
    (opened,) = open_jobs(recognise_file(str(path)), found.of(str(path))).opened
    assert (opened.reading.job.hardware.gpus, opened.gpu.name) == (3, "h100-80gb")


@pytest.mark.parametrize(("stated", "gpus"), [(" trainer.n_gpus_per_node=1", 1), ("", 8)])
def test_a_program_that_says_how_many_gpus_it_uses_is_believed(job, stated, gpus):
    assert job(VERL.format(stated)).hardware.gpus == gpus


@pytest.mark.parametrize(
    ("config", "unread"), [("conf/$NAME.yaml", True), ("conf/gone.yaml", True), ("", False), ("train.txt", False)]
)
def test_a_config_that_is_not_here_leaves_no_verdict(job, config, unread):
    found = job(
        f"accelerate launch my_run.py {config} --model_name_or_path Qwen/Qwen2.5-7B --output_dir out"
        " --per_device_train_batch_size 4 --num_train_epochs 1 --learning_rate 1e-5\n"
    )
    assert (config in found.unread if unread else found.unread == "") is True


def test_a_job_whose_config_is_not_here_is_not_checked(tmp_path):
    (tmp_path / "run.sh").write_text(
        "accelerate launch my_run.py conf/$NAME.yaml --model_name_or_path Qwen/Qwen2.5-72B --output_dir out"
        " --per_device_train_batch_size 64 --num_train_epochs 1 --learning_rate 1e-5\n"
    )
    report = check([str(tmp_path)], Settings(root=str(tmp_path), gpu="rtx-4090", gpus=1))
    assert [item for item in report.findings if item.severity == "error"] == []
    (told,) = report.not_checked()
    assert "conf/$NAME.yaml" in told.why


@pytest.mark.parametrize(("option", "unread"), [("--tp 8", True), ("--tp_size 8", False), ("--odd 8", False)])
def test_an_unknown_option_may_split_the_job(job, option, unread):
    assert bool(job(f"trtllm-serve Qwen/Qwen3-8B {option}\n").unread) is unread


@pytest.mark.parametrize(("script", "left"), [("my_run.py", True), ("run_clm.py", False)])
def test_what_a_script_of_ones_own_loads_is_open(job, script, left):
    found = job(
        f"python {script} --model_name_or_path Qwen/Qwen2.5-7B --output_dir out --lora_r 8"
        " --per_device_train_batch_size 4 --num_train_epochs 1 --learning_rate 1e-5\n"
    )
    assert ("weights.dtype" in found.unstated) is left
