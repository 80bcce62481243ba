"""A config of the project that a command names in another way than by its path."""

import pytest

from gpulint.launchers.reading import open_jobs, recognise_file
from gpulint.settings.settings import Settings

CONFIG = """\
model_name_or_path: Qwen/Qwen2.5-0.5B-Instruct
stage: sft
finetuning_type: full
dataset: identity
template: qwen
cutoff_len: 1536
output_dir: out
per_device_train_batch_size: 3
bf16: true
"""
OUMI = """\
model: {model_name: Qwen/Qwen2.5-0.5B-Instruct, model_max_length: 1536}
data: {train: {datasets: [{dataset_name: yahma/alpaca-cleaned}]}}
training: {trainer_type: TRL_SFT, per_device_train_batch_size: 3, output_dir: out}
"""
RL = "uv run python examples/run_grpo_math.py --config {} policy.train_micro_batch_size=3 cluster.gpus_per_node=5\n"


def jobs(path="scripts/run.sh"):
    return open_jobs(recognise_file(path), Settings(root=".")).opened


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("configs/sft.yaml", True),
        ("$ROOT/configs/sft.yaml", True),
        ("${ANY}/configs/sft.yaml", True),
        ('"$ROOT/configs/sft.yaml"', True),
        ("$ROOT//configs/sft.yaml", True),
        ("$CONFIG_DIR/near.yaml", True),
        ("$RESULT/near.yaml", False),
        ("$ROOT/configs/other.yaml", False),
        ("$ROOT/configs/$NAME.yaml", False),
        ("$ROOT$NAME/configs/sft.yaml", False),
        ("$CONFIG", False),
    ],
)
def test_a_config_behind_a_variable(project, word, found):
    project({"scripts/run.sh": f"llamafactory-cli train {word}\n", "configs/sft.yaml": CONFIG, "near.yaml": CONFIG})
    lengths = [item.reading.job.sequence_length for item in jobs()]
    assert (1536 in lengths) is found


def test_a_file_that_the_script_writes_is_not_the_one_of_the_project(project):
    script = "cat > $ROOT/configs/sft.yaml <<EOF\n" + CONFIG.replace("1536", "768") + "EOF\n"
    project({"scripts/run.sh": script + "llamafactory-cli train $ROOT/configs/sft.yaml\n", "configs/sft.yaml": CONFIG})
    assert 1536 not in [item.reading.job.sequence_length for item in jobs()]


@pytest.mark.parametrize("option", ["--deepspeed $ROOT/configs/ds.json", "--deepspeed=$ROOT/configs/ds.json"])
def test_an_option_behind_a_variable(project, option):
    run = "torchrun --nproc-per-node 4 train.py --model_name_or_path Qwen/Qwen2.5-0.5B --output_dir out --bf16 True"
    run += " --per_device_train_batch_size 1 --gradient_checkpointing True --max_length 2048"
    project({"scripts/run.sh": f"{run} {option}\n", "configs/ds.json": '{"zero_optimization": {"stage": 1}}'})
    (only,) = jobs()
    assert (only.reading.job.parallelism.zero.stage, only.reading.problems) == (1, [])


@pytest.mark.parametrize(("place", "found"), [("configs/small.yaml", 1), ("src/small.yaml", 0)])
def test_the_scheme_of_oumi_is_the_checkout(project, place, found):
    project({"scripts/run.sh": "oumi train -c oumi://configs/small.yaml\n", place: OUMI})
    assert [item.reading.job.micro_batch_size for item in jobs()] == [3] * found


@pytest.mark.parametrize(
    ("path", "kinds"),
    [("examples/configs/grpo_math_1B.yaml", []), ("examples/configs/mine.yaml", ["unresolved-reference"])],
)
def test_a_config_that_nemo_rl_ships_lies_under_the_overrides(project, path, kinds):
    project({"scripts/run.sh": RL.format(path)})
    (only,) = jobs()
    assert [item.kind for item in only.reading.problems] == kinds
    if not kinds:
        assert (only.reading.job.hardware.gpus, only.reading.job.model) == (5, "Qwen/Qwen2.5-1.5B")
