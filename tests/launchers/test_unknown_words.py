"""Words of a command that only the run knows, and sizes that it fills in."""

from __future__ import annotations

import pytest

from gpulint import check
from gpulint.estimator.estimate import NotEstimable
from gpulint.launchers.reading import open_jobs, recognise_file
from gpulint.run.estimated import estimated
from gpulint.settings.settings import Settings


def opened(tmp_path, text, **settings):
    (tmp_path / "serve.sh").write_text(text)
    (found,) = open_jobs(recognise_file(str(tmp_path / "serve.sh")), Settings(root=str(tmp_path), **settings)).opened
    return found


@pytest.mark.parametrize(
    "line",
    [
        "vllm serve --model org/model --enforce-eager $EXTRA",
        "vllm serve org/model --block-size 16 $EXTRA --max-model-len 4096",
        "vllm serve org/model `extra` --block-size 16 $(more) $EVEN_MORE",
        'python3 -m sglang.launch_server --model-path org/model --page-size 16 "$@"',
    ],
)
def test_what_a_variable_holds_is_no_value_and_no_model(tmp_path, line):
    reading = opened(tmp_path, line + "\n").reading
    assert reading.job.model == "org/model"
    assert [item for item in reading.problems if item.kind in ("wrong-type", "unknown-key")] == []


def test_the_beginning_of_an_option_that_was_removed_stands_for_it(tmp_path):
    problems = opened(tmp_path, "vllm serve org/model --disable-log-request\n").reading.problems
    assert [(item.kind, item.key) for item in problems] == [("deprecated-key", "disable-log-requests")]


@pytest.mark.parametrize("flag", ["--tensor-parallel-size $TP", "--pipeline-parallel-size $PP"])
def test_a_model_is_not_estimated_where_nobody_says_over_how_many_gpus_it_is_split(tmp_path, flag):
    line = f"vllm serve meta-llama/Llama-3.1-70B-Instruct {flag}\n"
    with pytest.raises(NotEstimable, match="parallel size is filled in when the job starts"):
        estimated(opened(tmp_path, line, gpu="h100-80gb"))
    told = opened(tmp_path, line, gpu="h100-80gb", gpus=8)
    assert told.reading.job.model_shards == 8
    assert estimated(told).estimate.verdict == "fits"


def test_set_tells_the_split(tmp_path):
    found = opened(tmp_path, "vllm serve meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size $TP\n")
    assert estimated(found, {"parallelism.tensor": 4}).job.parallelism.tensor == 4


@pytest.mark.parametrize("command", ["vllm serve org/model --max-model-len", "sglang serve org/model --context-length"])
def test_a_length_that_the_run_fills_in_is_a_guess(tmp_path, command):
    assert opened(tmp_path, f"{command} $LENGTH\n").reading.job.unstated == ["inference.max_model_len"]


def test_an_unknown_length_leaves_the_verdict_open(tmp_path):
    line = "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len {}\n"
    stated = estimated(opened(tmp_path, line.format(131072), gpu="l4")).estimate
    unknown = estimated(opened(tmp_path, line.format("$LENGTH"), gpu="l4")).estimate
    assert (stated.verdict, unknown.verdict) == ("exceeds", "tight")


FITS_NOT = "vllm serve meta-llama/Llama-3.1-70B-Instruct {} --max-model-len 4096"
LEFT_OUT = (
    "torchrun --nproc_per_node 2 pretrain_gpt.py --num-layers 3 --hidden-size 64 --num-attention-heads 2 --save out {}"
)


@pytest.mark.parametrize("line", [FITS_NOT, LEFT_OUT])
@pytest.mark.parametrize(
    ("more", "severity"),
    [
        ("", "error"),
        ('"$@"', "error"),  # nothing, where the script is started as it stands
        ("$EXTRA_ARGS", "warning"),
        ('"${EXTRA[@]}"', "warning"),
        ("--seed $SEED", "error"),  # the value of an option
    ],
)
def test_an_error_is_no_more_than_a_warning_where_further_arguments_may_mend_it(tmp_path, line, more, severity):
    (tmp_path / "run.sh").write_text(line.format(more) + "\n")
    found = check([str(tmp_path / "run.sh")], Settings(root=str(tmp_path), gpu="h100-80gb", gpus=8)).findings
    assert {item.severity for item in found if item.rule in ("GPU202", "GPU670")} == {severity}
