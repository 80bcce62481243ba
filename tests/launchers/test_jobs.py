"""From scripts to jobs: what is started, on what, and where it stands."""

from __future__ import annotations

import pytest

from gpulint.launchers.commands.wrappers import unwrap
from gpulint.launchers.reading import open_jobs, recognise_file
from gpulint.launchers.shell.script import Script
from gpulint.launchers.shell.shell import commands
from gpulint.run.check import check
from gpulint.settings.settings import Settings
from gpulint.source.document import Document

AXOLOTL = "base_model: meta-llama/Llama-3.1-8B\ndatasets: []\nmicro_batch_size: 1\nsequence_len: 2048\n"


@pytest.fixture
def jobs(launched):
    """What a script starts; `files` are others beside it."""
    return lambda script, files=None, name="run.sh": launched(script, name, files)


def test_flags_become_a_job(jobs):
    (opened,) = jobs("vllm serve meta-llama/Llama-3.1-8B -tp 4 --max-model-len 8192\n").opened
    job = opened.reading.job
    assert (job.model, job.parallelism.tensor, job.inference.max_model_len) == ("meta-llama/Llama-3.1-8B", 4, 8192)
    assert opened.part == "line 1"
    assert job.origins["inference.max_model_len"].span.line == 1


SBATCH = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gres=gpu:h100:8
#SBATCH --mem=512G
srun torchrun --nproc_per_node 8 --nnodes $SLURM_NNODES train.py \\
  --model_name_or_path meta-llama/Llama-3.1-8B --per_device_train_batch_size 2 --bf16 --learning_rate 1e-5 \\
  --output_dir out
"""


def test_slurm_says_the_hardware(jobs):
    (opened,) = jobs(SBATCH).started
    hardware = opened.reading.job.hardware
    assert opened.gpu is not None
    assert (hardware.gpu, hardware.gpus, hardware.nodes) == (opened.gpu.name, 16, 2)
    assert opened.gpu.name.startswith("h100")
    assert hardware.host_memory == 512 << 30
    assert opened.reading.job.micro_batch_size == 2
    assert opened.reading.job.origins["hardware.gpu"].span.line == 3


@pytest.mark.parametrize(
    ("lines", "gpus", "nodes"),
    [
        ("#SBATCH -N 4\n#SBATCH --gpus-per-node=8", 32, 4),
        ("#SBATCH --nodes=2 --gpus-per-task=1 --ntasks-per-node=4", 8, 2),
        ("#SBATCH -G a100:16\n#SBATCH -N2", 16, 2),
        ("#SBATCH --gpus 15\n#SBATCH --nodes 2", 16, 2),
        ("#SBATCH --gpus 17\n#SBATCH --nodes 2", 18, 2),
        ("#SBATCH --gres=gpu:4,lscratch:10", 4, None),
    ],
)
def test_ways_to_ask_slurm_for_gpus(jobs, lines, gpus, nodes):
    (opened,) = jobs(f"{lines}\naxolotl train a.yml\n", {"a.yml": AXOLOTL}).started
    assert (opened.reading.job.hardware.gpus, opened.reading.job.hardware.nodes) == (gpus, nodes)


def test_a_config_file_with_flags_over_it(jobs, tmp_path):
    (opened,) = jobs("axolotl train conf/a.yml --micro-batch-size 4\n", {"conf/a.yml": AXOLOTL}).opened
    reading = opened.reading
    assert reading.config.path.endswith("a.yml")
    assert reading.job.sequence_length == 2048
    assert reading.references["launcher"].path.endswith("run.sh")


def test_wrappers_are_taken_off(jobs):
    line = (
        'sudo docker run --gpus all -v /a:/b image bash -c "cd /x && CUDA_VISIBLE_DEVICES=0,1 vllm serve a/b -tp 2"\n'
    )
    (opened,) = jobs(line).opened
    assert opened.reading.job.model == "a/b"
    assert opened.reading.job.hardware.asked_gpus == 2


def test_a_config_that_is_not_there_is_found_at_its_word(tmp_path):
    script = tmp_path / "run.sh"
    script.write_text("axolotl train missing.yml\n")
    report = check([str(script)], Settings(root=str(tmp_path)))
    (finding,) = report.findings
    assert finding.name == "unresolved-reference"
    assert (finding.location.span.line, finding.location.span.column) == (1, 15)


def test_a_script_without_a_known_program_is_skipped(tmp_path):
    script = tmp_path / "run.sh"
    script.write_text("echo hello\n")
    (file,) = check([str(script)]).files
    assert (file.status, file.reason) == ("skipped", "starts no program that gpulint knows")


def test_a_finding_in_a_flag_stands_in_the_script(tmp_path):
    script = tmp_path / "run.sh"
    script.write_text("vllm serve meta-llama/Llama-3.1-8B \\\n  --gpu-memory-utilisation 0.5\n")
    (finding,) = check([str(script)]).findings
    assert finding.location.path.endswith("run.sh")
    assert finding.location.span.line == 2


@pytest.mark.parametrize(
    ("folder", "known"), [("/opt/app", False), ("sub", True), ("/opt && cd sub", False), ("clone", False)]
)
def test_a_config_that_is_named_from_another_folder_is_no_mistake(folder, known, tmp_path):
    (tmp_path / "sub").mkdir()
    path = tmp_path / "run.sh"
    path.write_text(f"#!/bin/bash\ncd {folder}\naxolotl train config.yaml\n")
    found = open_jobs(recognise_file(str(path)), Settings(root=str(tmp_path)))
    problems = [item.kind for opened in found.opened for item in opened.reading.problems]
    assert problems == (["unresolved-reference"] if known else [])


def test_an_option_of_mpirun_may_have_two_values():
    line = "mpirun -np 4 --mca btl tcp,self -x A=b python train.py --model_name_or_path org/m --output_dir out"
    (command,) = commands(Script(line, range(len(line))))
    ((_, program),) = unwrap(command, Document("run.sh", "shell", line, [], [], []))
    assert program.head == "train.py"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("cd /x\npip install y", "starts no program that gpulint knows"),
        ("mpirun -np 2 --mca a b ./xhpl", "starts ./xhpl, which gpulint does not know"),
        (
            "python prepare.py; torchrun train.py --lr 1; python after.py",
            "starts train.py, which gpulint does not know",
        ),
        ("ray start --address=a:6379 --block", "only joins processes of another pod"),
        ("axolotl train /mnt/config.yaml", "starts axolotl with a config that is not in the project"),
        ("tune run full_finetune --config llama3_2/1B_full", "starts tune with a config that is not in the project"),
        ("ollama serve", "starts Ollama, whose flags gpulint does not read"),
        ("python -m venv x && python -m http.server", "starts no program that gpulint knows"),
    ],
)
def test_a_script_without_a_job_says_what_it_starts(text, reason, tmp_path):
    path = tmp_path / "run.sh"
    path.write_text(f"#!/bin/bash\n{text}\n")
    found = open_jobs(recognise_file(str(path)), Settings(root=str(tmp_path)))
    assert (found.opened, found.reason) == ([], reason)


@pytest.mark.parametrize(("kind", "name"), [("a100", "a100-80gb"), ("v100", "v100-32gb"), ("h100", "h100-80gb")])
def test_of_several_sizes_a_cluster_may_mean_slurm_has_the_largest(jobs, kind, name):
    (opened,) = jobs(SBATCH.replace("h100", kind)).started
    assert opened.gpu.name == name


def test_a_script_that_only_generates_is_no_training(jobs):
    found = jobs("python gen.py --model_name_or_path m/x --dataset_name_or_path d --output_dir out --K 4\n")
    assert not found.opened
    assert "gen.py" in found.reason


def test_torchtitan_s_launch_script_with_a_config_that_is_not_here(jobs):
    text = 'CONFIG=${CONFIG:-"./configs/a.toml"}\ntorchrun -m torchtitan.train --job.config_file ${CONFIG} "$@"\n'
    (opened,) = jobs(text).opened
    assert opened.reading.job.model is None
    assert [item.kind for item in opened.reading.problems] == ["unresolved-reference"]


def test_gpus_of_the_command_line_are_held_against_no_variable(tmp_path):
    (tmp_path / "run.sh").write_text("CUDA_VISIBLE_DEVICES=0,1 " + SBATCH.partition("srun ")[2])
    settings = Settings(root=str(tmp_path), gpu="h100-80gb", gpus=8)
    assert "GPU704" not in {item.rule for item in check([str(tmp_path / "run.sh")], settings).findings}
