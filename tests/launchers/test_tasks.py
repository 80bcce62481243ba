"""Tasks of Slurm and processes of mpirun: how often a command starts, and what each of them is told."""

from __future__ import annotations

import pytest

TRAIN = "train.py --model_name_or_path Qwen/Qwen2.5-0.5B --output_dir out --per_device_train_batch_size 1\n"


def script(header, command):
    return "#!/bin/bash\n" + "".join(f"#SBATCH {line}\n" for line in header) + command


@pytest.fixture
def tasks(launched):
    """`count`, `per_node` and `nodes` of the only start of a script."""

    def read(header, command):
        found = launched(script(header, command), "job.sh")
        (opened,) = found.opened or found.bare
        told = opened.reading.launch
        return tuple(told.get(f"tasks.{name}", (None,))[0] for name in ("count", "per_node", "nodes"))

    return read


@pytest.mark.parametrize(
    ("header", "step", "expected"),
    [
        (["--nodes=3"], "srun", (3, 1, 3)),
        (["--nodes=3", "--ntasks-per-node=5"], "srun", (15, 5, 3)),
        (["--nodes=3", "--ntasks-per-node=5"], "srun --ntasks-per-node=2", (6, 2, 3)),
        (["--nodes=3", "--ntasks-per-node=5"], "srun --nodes=1 --ntasks=1", (1, 1, 1)),
        (["--ntasks=7"], "srun", (7, None, None)),
        (["--nodes=2", "--ntasks=7"], "srun", (7, 4, 2)),
        (["--nodes=3"], "srun --ntasks=$N", (None, None, None)),
        (["--nodes=3", "--ntasks-per-node=5"], "", (None, None, None)),
        ([], "mpirun -np 6", (6, None, None)),
    ],
)
def test_tasks_of_a_step(tasks, header, step, expected):
    assert tasks(header, f"{step} python {TRAIN}") == expected


@pytest.mark.parametrize(
    ("header", "step", "ranks"),
    [
        (["--nodes=2", "--ntasks-per-node=3", "--gres=gpu:3"], "srun", 6),
        (["--nodes=1", "--ntasks-per-node=1", "--gres=gpu:1"], "srun", 1),
        (["--ntasks=5", "--gpus-per-task=1"], "srun", 5),
    ],
)
def test_a_command_that_each_task_runs_has_a_rank_a_task(launched, header, step, ranks):
    (opened,) = launched(script(header, f"{step} python {TRAIN}"), "job.sh").opened
    assert opened.reading.job.world_size == ranks


@pytest.mark.parametrize("place", ["header", "sbatch", "srun"])
def test_hardware_is_asked_for_in_every_place(launched, place):
    options = "--gres=gpu:l4:3"
    texts = {
        "header": script([options], f"srun python {TRAIN}"),
        "sbatch": f"sbatch {options} --wrap='python {TRAIN.strip()}'\n",
        "srun": f"srun {options} python {TRAIN}",
    }
    (opened,) = launched(texts[place], "job.sh").opened
    assert (opened.gpu.name, opened.reading.job.hardware.gpus) == ("l4", 3)


def test_a_step_lies_over_what_the_job_asks_for(launched):
    text = script(["--gres=gpu:l4:4"], f"srun --gres=gpu:a100:2 python {TRAIN}")
    (opened,) = launched(text, "job.sh").opened
    assert (opened.gpu.name[:4], opened.reading.job.hardware.gpus) == ("a100", 2)


@pytest.mark.parametrize("name", ["job.sh", "job.slurm", "job.sbatch", "job.job", "job.sub"])
def test_a_script_that_nobody_knows_is_judged_for_its_launcher(launched, name):
    found = launched(script(["--nodes=1", "--ntasks-per-node=4"], "srun torchrun --nproc_per_node=4 my.py\n"), name)
    (opened,) = found.bare
    assert not found.opened
    assert opened.reading.launch["tasks.per_node"][0] == 4
