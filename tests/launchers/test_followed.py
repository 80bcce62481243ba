"""Scripts that scripts start or read: followed inside the project, never run."""

from __future__ import annotations

import pytest

from gpulint.launchers.reading import open_jobs, recognise_file
from gpulint.rules.suggest.change import reread
from gpulint.run.check import check
from gpulint.settings.settings import Settings

SERVE = 'vllm serve "$1" --tensor-parallel-size ${TP:-1} --max-model-len 8192\n'


def test_a_started_script_knows_its_arguments_and_what_was_exported(launched):
    (opened,) = launched("export TP=4\nbash bin/serve.sh Qwen/Qwen2.5-7B\n", "run.sh", {"bin/serve.sh": SERVE}).opened
    job = opened.reading.job
    assert (job.model, job.parallelism.tensor) == ("Qwen/Qwen2.5-7B", 4)
    assert opened.part == "script serve.sh, line 1"
    assert job.origins["inference.max_model_len"].file.endswith("bin/serve.sh")
    assert any(path.endswith("run.sh") for path in (item.path for item in opened.reading.references.values()))


@pytest.mark.parametrize(
    ("command", "tensor"),
    [
        ("TP=2\nbash serve.sh m", 1),
        ("TP=2 bash serve.sh m", 2),
        ("TP=2\nexport TP\n./serve.sh m", 2),
        ("TP=2\nsource serve.sh m", 2),
        ("declare -x TP=2\nsrun bash -x serve.sh m", 2),
        ("source env.sh\nvllm serve m -tp $TP", 8),
        ('source "$(dirname "$0")/env.sh"\nbash "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/serve.sh" m', 8),
    ],
)
def test_which_variables_a_script_sees(jobs_of, command, tensor):
    (job,) = jobs_of(command + "\n", "run.sh", {"serve.sh": SERVE, "env.sh": "export TP=8\n"})
    assert job.parallelism.tensor == tensor


def test_all_arguments_are_passed_on(jobs_of):
    files = {"serve.sh": 'vllm serve m "$@"\n'}
    (job,) = jobs_of("bash serve.sh -tp 2 --max-model-len 4096\n", "run.sh", files)
    assert (job.parallelism.tensor, job.inference.max_model_len) == (2, 4096)


def test_a_submitted_script_asks_for_its_own_nodes(launched):
    job_file = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gres=gpu:h100:8\nsrun vllm serve m -tp 16\n"
    (opened,) = launched("sbatch --parsable job.sbatch\n", "submit.sh", {"job.sbatch": job_file}).opened
    assert (opened.reading.job.hardware.asked_gpus, opened.reading.job.hardware.nodes) == (16, 2)


def test_a_task_that_starts_a_script(launched):
    task = "resources:\n  accelerators: H100:4\nrun: |\n  bash serve.sh m\n"
    (opened,) = launched(task, "task.yaml", {"serve.sh": SERVE}).opened
    assert opened.gpu.name == "h100-80gb"
    assert opened.part.endswith("script serve.sh, line 1")


def test_scripts_in_a_ring_end(jobs_of):
    ring = {"a.sh": "bash b.sh\nvllm serve m\n", "b.sh": "bash a.sh\nsource b.sh\nvllm serve n\n"}
    assert [job.model for job in jobs_of("bash a.sh\n", "run.sh", ring)] == ["n", "m"]


def test_a_script_outside_the_project_is_not_read(tmp_path):
    (tmp_path / "secret.sh").write_text("vllm serve m\n")
    inside = tmp_path / "project"
    inside.mkdir()
    (inside / "run.sh").write_text("bash ../secret.sh\nsource ../secret.sh\n")
    assert open_jobs(recognise_file(str(inside / "run.sh")), Settings(root=str(inside))).opened == []


def test_findings_stand_in_the_script_that_holds_the_mistake(tmp_path):
    (tmp_path / "run.sh").write_text("bash serve.sh\n")
    (tmp_path / "serve.sh").write_text("vllm serve Qwen/Qwen2.5-7B \\\n  --max-modle-len 8192\n")
    report = check([str(tmp_path / "run.sh")], Settings(root=str(tmp_path)))
    (found,) = [item for item in report.findings if "max-modle-len" in item.message]
    assert found.location.path.endswith("serve.sh")
    assert found.location.span.line == 2


def test_a_comment_in_the_script_silences_its_line(tmp_path):
    (tmp_path / "run.sh").write_text("bash serve.sh\n")
    (tmp_path / "serve.sh").write_text("vllm serve m --max-modle-len 8192  # gpulint: ignore[GPU001,GPU002]\n")
    report = check([str(tmp_path / "run.sh")], Settings(root=str(tmp_path)))
    assert not [item for item in report.findings if "max-modle-len" in item.message]


def test_flags_of_a_followed_script_are_read_again_from_its_own_text(launched):
    from gpulint.formats.core.registry import find

    (opened,) = launched("bash serve.sh m\n", "run.sh", {"serve.sh": SERVE}).opened
    edits = find("vllm").edits(opened.reading, {"inference.max_model_len": 4096})
    again = reread(opened.reading, opened.project, edits)
    assert again.job.inference.max_model_len == 4096
    assert again.job.model == "m"
