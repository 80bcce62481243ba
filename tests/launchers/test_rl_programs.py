"""Command lines of the training stacks around Hugging Face models."""

import pytest

from gpulint.launchers.reading import open_jobs, recognise_file
from gpulint.settings.settings import Settings

FILES = {
    "grpo.yaml": "defaults: grpo_math_1B.yaml\npolicy: {model_name: x/y}\ncluster: {gpus_per_node: 8}\n",
    "train.yaml": "model: {model_name: x/y}\ntraining: {per_device_train_batch_size: 2}\n",
    "recipe.yaml": "step_scheduler: {local_batch_size: 2}\nmodel: {pretrained_model_name_or_path: x/y}\n",
}

TORCHRUN = (
    "torchrun --nproc-per-node=4 examples/llm_finetune/finetune.py -c recipe.yaml --step_scheduler.local_batch_size 8"
)


@pytest.mark.parametrize(
    ("command", "format_", "path", "value"),
    [
        ("uv run examples/run_grpo.py --config grpo.yaml cluster.num_nodes=4", "nemo_rl", "hardware.gpus", 32),
        ("uv run ./examples/run_grpo.py --config=grpo.yaml ++policy.train_micro_batch_size=1", "nemo_rl",
         "micro_batch_size", 1),
        ("oumi train -c train.yaml --training.per_device_train_batch_size 4", "oumi", "micro_batch_size", 4),
        ("oumi distributed torchrun -m oumi train -c train.yaml", "oumi", "micro_batch_size", 2),
        ("automodel recipe.yaml --nproc-per-node 4", "nemo_automodel", "micro_batch_size", 2),
        (TORCHRUN, "nemo_automodel", "micro_batch_size", 8),
        ("python -m verl.trainer.main_ppo actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4", "verl",
         "micro_batch_size", 4),
    ],
)  # fmt: skip
def test_commands(tmp_path, command, format_, path, value):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n{command}\n")
    jobs = open_jobs(recognise_file(str(tmp_path / "run.sh")), Settings(root=str(tmp_path)))
    (opened,) = jobs.opened
    assert opened.reading.format == format_
    assert opened.reading.job.get(path) == value
    assert [item for item in opened.reading.problems if item.kind == "unknown-key"] == []


def test_an_override_is_edited_in_its_place(tmp_path):
    from gpulint.source.edit.edit import apply

    micro = "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4"
    text = f"python -m verl.trainer.main_ppo \\\n  {micro} trainer.nnodes=1\n"
    (tmp_path / "run.sh").write_text(text)
    found = recognise_file(str(tmp_path / "run.sh"))
    (opened,) = open_jobs(found, Settings(root=str(tmp_path))).opened
    from gpulint.formats.verl.format import FORMAT

    edits = FORMAT.edits(opened.reading, {"micro_batch_size": 1})
    assert apply(text, edits) == text.replace("per_gpu=4", "per_gpu=1")


def test_an_override_is_added_behind_the_last(tmp_path):
    from gpulint.formats.verl.format import FORMAT
    from gpulint.source.edit.edit import apply

    text = "python -m verl.trainer.main_ppo \\\n    data.max_response_length=64 \\\n    trainer.nnodes=1\n"
    (tmp_path / "run.sh").write_text(text)
    (opened,) = open_jobs(recognise_file(str(tmp_path / "run.sh")), Settings(root=str(tmp_path))).opened
    edits = FORMAT.edits(opened.reading, {"rl.vllm_gpu_memory_utilization": 0.4})
    added = " \\\n    actor_rollout_ref.rollout.gpu_memory_utilization=0.4\n"
    assert apply(text, edits) == text.removesuffix("\n") + added


def test_megatron_swift_on_two_nodes(launched):
    text = (
        "NNODES=2 NODE_RANK=0 NPROC_PER_NODE=4 CUDA_VISIBLE_DEVICES=0,1,2,3 \\\n"
        "megatron sft --model Qwen/Qwen2.5-7B --tensor_model_parallel_size 4 --micro_batch_size 1 \\\n"
        "  --global_batch_size 16 --max_length 2048 --no_save_optim\n"
    )
    (opened,) = launched(text, "train.sh").opened
    job = opened.reading.job
    assert (opened.reading.format, job.hardware.gpus, job.hardware.nodes) == ("megatron_swift", 8, 2)
    assert (job.gradient_accumulation_steps, opened.reading.problems) == (8, [])


@pytest.mark.parametrize(("batch", "kinds"), [(4, []), (3, ["contradiction"])])
def test_more_gpus_than_the_script_starts_processes_on_are_idle(tmp_path, batch, kinds):
    (tmp_path / "run.sh").write_text(
        "NPROC_PER_NODE=2 megatron sft --model Qwen/Qwen2.5-7B --tuner_type full --tensor_model_parallel_size 1 "
        f"--micro_batch_size 2 --global_batch_size {batch} --max_length 1024\n"
    )
    settings = Settings(root=str(tmp_path), gpus=8)
    (opened,) = open_jobs(recognise_file(str(tmp_path / "run.sh")), settings).opened
    assert opened.reading.job.hardware.gpus == 2
    assert [item.kind for item in opened.reading.problems] == kinds
