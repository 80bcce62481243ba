"""Lines that are cut or joined by mistake: what gpulint says is what bash does."""

from __future__ import annotations

import shutil
import subprocess

import pytest

SERVE = "vllm serve Qwen/Qwen2.5-0.5B"
BASH = shutil.which("bash")


def argv_of(text, tmp_path):
    """The words that the first `vllm` of a script receives, from bash itself."""
    stub = tmp_path / "bin" / "vllm"
    stub.parent.mkdir()
    stub.write_text(
        '#!/bin/sh\nfor word; do printf "%s\\n" "$word"; done\nprintf "CVD=%s\\n" "$CUDA_VISIBLE_DEVICES"\n'
    )
    stub.chmod(0o755)
    script = tmp_path / "bash.sh"
    script.write_text(text)
    path = f"{stub.parent}:/usr/bin:/bin"
    ran = subprocess.run([BASH, script], env={"PATH": path}, capture_output=True, text=True, check=False)
    return ran.stdout.splitlines()


def problems(launched, text):
    found = launched(text, "run.sh")
    return [
        (problem.kind, problem.key)
        for opened in [*found.opened, *found.bare]
        for problem in opened.reading.problems
        if problem.kind in ("joined-words", "cut-command", "unexported-variable", "expanded-too-early")
    ]


@pytest.mark.skipif(BASH is None, reason="no bash on this machine")
@pytest.mark.parametrize(
    ("text", "said", "reaches"),
    [
        (f"{SERVE} \\\n  --max-num-seqs 7\n", [], ["--max-num-seqs", "7"]),
        (f"{SERVE} --max-model-len 512\n  --max-num-seqs 7\n", [("cut-command", "--max-num-seqs")], ["512"]),
        (f"{SERVE} --max-model-len 512 \\ \n  --max-num-seqs 7\n", [("cut-command", "--max-num-seqs")], [" "]),
        (f"{SERVE} --max-model-len 512 \\\n# why\n  --max-num-seqs 7\n", [("cut-command", "--max-num-seqs")], ["512"]),
        (f"{SERVE} --max-model-len 5\\\n--max-num-seqs 7\n", [("joined-words", "--max-num-seqs")], ["5--max-num-seqs"]),
        (f"{SERVE} --max-model-len 512\\\n  --max-num-seqs 7\n", [], ["512", "--max-num-seqs", "7"]),
        (f"CUDA_VISIBLE_DEVICES=0,1 \\\n\n{SERVE}\n", [("unexported-variable", "CUDA_VISIBLE_DEVICES")], ["CVD="]),
        (f"CUDA_VISIBLE_DEVICES=0,1\n{SERVE}\n", [("unexported-variable", "CUDA_VISIBLE_DEVICES")], ["CVD="]),
        (f"export CUDA_VISIBLE_DEVICES=0,1\n{SERVE}\n", [], ["CVD=0,1"]),
        (f"CUDA_VISIBLE_DEVICES=0,1 \\\n{SERVE}\n", [], ["CVD=0,1"]),
        (f"set -a\nCUDA_VISIBLE_DEVICES=0,1\n{SERVE}\n", [], ["CVD=0,1"]),
    ],
)  # fmt: skip
def test_what_is_said_is_what_bash_does(launched, tmp_path, text, said, reaches):
    words = argv_of(text, tmp_path)
    assert [word for word in reaches if word not in words] == []
    assert problems(launched, text) == said


@pytest.mark.parametrize(
    ("quote", "said"),
    [("'", []), ('"', [("expanded-too-early", "SLURM_NODEID")])],
)
def test_a_variable_of_the_task_is_kept_by_single_quotes(launched, quote, said):
    command = f"srun bash -c {quote}torchrun --nnodes 2 --nproc_per_node 3 --node_rank $SLURM_NODEID my.py{quote}\n"
    assert problems(launched, f"#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gres=gpu:3\n{command}") == said
