"""Who names whom."""

import os

import pytest

from gpulint.repository.references import MAX_SIZE, naming, naming_above
from gpulint.run.check import check
from gpulint.settings.settings import Settings

TRAIN = (
    "torchrun --nproc-per-node 8 train.py --model_name_or_path Qwen/Qwen2.5-32B --per_device_train_batch_size 1"
    " --gradient_accumulation_steps 8 --bf16 True --gradient_checkpointing True --max_length 2048 --deepspeed {}"
    " --output_dir out\n"
)
ENGINE = (
    '{"zero_optimization": {"stage": 1}, "bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": 1,'
    ' "gradient_accumulation_steps": 8}\n'
)


def below(paths):
    return [os.path.relpath(path) for path in paths]


@pytest.mark.parametrize(
    ("name", "text", "names"),
    [
        ("run.sh", "x --deepspeed configs/ds.json\n", True),
        ("run.sh", "x --deepspeed=./configs/ds.json\n", True),
        ("run.sh", "x --deepspeed 'configs/ds.json'.\n", True),
        ("configs/a/run.sh", "x --deepspeed ds.json\n", True),
        ("configs/a/run.sh", "x --deepspeed configs/ds.json\n", True),
        ("a/b/run.sh", "x --deepspeed ${ROOT}/ds.json\n", True),
        ("a/b/run.sh", "x --deepspeed $ROOT/configs/ds.json\n", True),
        ("a/b/run.sh", "x --deepspeed ../../configs/ds.json\n", True),
        ("a/b/run.sh", "x --deepspeed /data/me/configs/ds.json\n", False),
        ("a/b/run.sh", "x --deepspeed $ROOT/other/ds.json\n", False),
        ("a/b/run.sh", "x --deepspeed ds.json\n", False),  # another file of the same name
        ("configs/train.yaml", "deepspeed: ds.json\n", True),
        ("run.sh", "x --deepspeed configs/my_ds.json\n", False),
        ("run.sh", "x --deepspeed configs/ds.json.bak\n", False),
        ("run.sh", "x --deepspeed configs/ds\n", False),
        ("notes.md", "configs/ds.json\n", False),
        (".venv/run.sh", "configs/ds.json\n", False),
        ("run.sh", "configs/ds.json" + " " * MAX_SIZE, False),
    ],
)
def test_a_file_is_named_by_its_whole_name(project, name, text, names):
    project({name: text, "configs/ds.json": "{}"})
    assert below(naming(["configs/ds.json"], ".")) == [name] * names


@pytest.mark.parametrize(
    "text",
    [
        "python -m x --config-name=ppo\n",
        "tune run x --config ppo\n",
        "defaults:\n  - ppo\n",
        "defaults:\n- /a/ppo@b.c\n",
    ],
)
def test_a_yaml_is_also_named_by_its_stem(project, text):
    project({"run.sh": text, "other.sh": "python -m ppo --ppo ppo\n", "configs/ppo.yaml": "a: 1\n"})
    assert below(naming(["configs/ppo.yaml"], ".")) == ["run.sh"]


def test_above_the_nearest_folder_comes_first_and_others_not_at_all(project):
    project({"run.sh": "a/c/t.yaml", "a/run.sh": "c/t.yaml", "b/run.sh": "a/c/t.yaml", "a/c/t.yaml": ""})
    assert [below(paths) for paths in naming_above("a/c/t.yaml", ".")] == [["a/run.sh"], ["run.sh"]]


def found(paths):
    report = check(paths, Settings(gpu="h100-80gb", gpus=8))
    return [file.path for file in report.files], {item.location.path for item in report.findings if item.estimate}


def test_a_changed_engine_file_checks_the_jobs_that_name_it(project):
    project({"scripts/train.sh": TRAIN.format("conf/ds.json"), "conf/ds.json": ENGINE, "pyproject.toml": ""})
    files, memory = found(["conf/ds.json"])
    assert files == ["conf/ds.json", "scripts/train.sh"]
    assert memory == {"scripts/train.sh"}
    (own, other) = check(["conf/ds.json"], Settings(gpu="h100-80gb", gpus=8)).files
    assert (own.jobs, other.reason) == ((), "names conf/ds.json")
    assert [job.verdict for job in other.jobs] == ["exceeds"]


def test_jobs_of_the_same_file_that_do_not_use_it_are_left_out(project):
    other = TRAIN.format("conf/other.json")
    project({"train.sh": "# conf/ds.json\n" + other, "conf/ds.json": ENGINE, "conf/other.json": ENGINE})
    assert found(["conf/ds.json"]) == (["conf/ds.json"], set())
    (own,) = check(["conf/ds.json"], Settings()).files
    assert [job.verdict for job in own.jobs] == ["not-checked"]


def test_the_way_may_go_over_a_config(project):
    config = "model_name_or_path: Qwen/Qwen2.5-32B\nstage: sft\nfinetuning_type: full\ndataset: x\ntemplate: qwen\n"
    config += "cutoff_len: 2048\noutput_dir: o\nbf16: true\ndeepspeed: conf/ds.json\n"
    project({"run/go.sh": "FORCE_TORCHRUN=1 llamafactory-cli train $ROOT/conf/sft.yaml\n", "conf/sft.yaml": config})
    project({"conf/ds.json": ENGINE, "run/other.sh": TRAIN.format("conf/other.json"), "pyproject.toml": ""})
    assert found(["conf/ds.json"])[0][:2] == ["conf/ds.json", "conf/sft.yaml"]


def test_a_walked_folder_is_no_question_about_others(project):
    project({"scripts/train.sh": TRAIN.format("conf/ds.json"), "conf/ds.json": ENGINE, "pyproject.toml": ""})
    assert found(["conf"]) == (["conf/ds.json"], set())
