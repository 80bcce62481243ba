"""Sharding is changed where it is said: the accelerate config that starts a run, or the DeepSpeed file it names."""

from __future__ import annotations

import json

import pytest

from gpulint.formats.core.registry import find
from gpulint.launchers.reading import open_jobs, recognise_file
from gpulint.rules.suggest.change import reread
from gpulint.settings.settings import Settings

TRAIN = """model_name_or_path: meta-llama/Llama-3.1-8B
per_device_train_batch_size: 1
learning_rate: 1.0e-5
output_dir: o
bf16: true
"""
PLAIN = "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nmixed_precision: bf16\nnum_processes: 8\n"
SCRIPT = "accelerate launch --config_file acc.yaml train.py --config train.yaml\n"
OPTIONS = "--model_name_or_path m --learning_rate 1e-5 --output_dir o --bf16 true\n"
FLAGS = f"accelerate launch --config_file acc.yaml train.py {OPTIONS}"
ZERO3 = {"parallelism.zero.stage": 3}


@pytest.fixture
def started(tmp_path):
    """The one job of a script; `files` lie beside it."""

    def read(script, versions=None, **files):
        for name, text in {"run.sh": script, **files}.items():
            (tmp_path / name.replace("__", ".")).write_text(text)
        settings = Settings(root=str(tmp_path), gpu="h100", versions=versions or {})
        (opened,) = open_jobs(recognise_file(str(tmp_path / "run.sh")), settings).opened
        return opened

    return read


def changed(opened, changes):
    """The name of the file that is edited, its words, and the job afterwards."""
    reading = opened.reading
    form = find(reading.format)
    edits = form.edits(reading, changes)
    assert edits
    after = reread(reading, opened.project, edits)
    assert after is not None
    return {edit.path.rpartition("/")[2] for edit in edits}, form.describe(reading, changes), after.job


WHOLE = PLAIN.replace("MULTI_GPU", "DEEPSPEED") + "deepspeed_config:\n  zero_stage: 3\n  zero3_init_flag: false\n"


@pytest.mark.parametrize(
    ("versions", "divided", "open_"),
    [
        ({"accelerate": "0.34.2"}, False, False),
        ({"accelerate": "1.0.0"}, True, False),
        ({"transformers": "4.39.1"}, False, True),
        ({"transformers": "4.50.0"}, True, True),
        ({"transformers": "5.1.0"}, True, False),
        ({}, True, False),
    ],
)
def test_accelerate_before_1_0_loads_whole_models_where_the_flag_is_off(started, versions, divided, open_):
    """`set_deepspeed_weakref` looked at the flag up to accelerate 0.34; transformers 5 needs a later accelerate."""
    job = started(FLAGS, acc__yaml=WHOLE, versions=versions).reading.job
    assert job.parallelism.zero.init is divided
    assert ("parallelism.zero.init" in job.unstated) is open_
    on = started(FLAGS, acc__yaml=WHOLE.replace("flag: false", "flag: true"), versions=versions).reading.job
    assert on.parallelism.zero.init
    assert "parallelism.zero.init" not in on.unstated


def test_before_accelerate_0_16_nothing_said_was_off(started):
    silent = WHOLE.replace("  zero3_init_flag: false\n", "")
    for release, divided in (("0.15.0", False), ("0.16.0", True)):
        job = started(FLAGS, acc__yaml=silent, versions={"accelerate": release}).reading.job
        assert job.parallelism.zero.init is divided


def test_the_flag_is_set_where_it_stands(started):
    opened = started(FLAGS, acc__yaml=WHOLE, versions={"accelerate": "0.28.0"})
    paths, words, job = changed(opened, {"parallelism.zero.init": True})
    assert paths == {"acc.yaml"}
    assert words == "deepspeed_config.zero3_init_flag: true in acc.yaml"
    assert job.parallelism.zero.init


@pytest.mark.parametrize("script", [SCRIPT, FLAGS])
def test_the_accelerate_file_becomes_a_deepspeed_one(started, script):
    opened = started(script, acc__yaml=PLAIN, train__yaml=TRAIN)
    paths, words, job = changed(opened, {**ZERO3, "parallelism.zero.offload_optimizer.device": "cpu"})
    assert paths == {"acc.yaml"}
    assert words.startswith("distributed_type: DEEPSPEED")
    assert words.endswith(" in acc.yaml")
    assert (job.parallelism.zero.stage, job.parallelism.zero.offload_optimizer.device) == (3, "cpu")


def test_the_accelerate_file_becomes_an_fsdp_one(started):
    paths, _, job = changed(
        started(SCRIPT, acc__yaml=PLAIN, train__yaml=TRAIN), {"parallelism.fsdp.sharding": "full_shard"}
    )
    assert paths == {"acc.yaml"}
    assert (job.parallelism.fsdp.version, job.parallelism.fsdp.sharding) == (2, "full_shard")


def test_the_offload_of_fsdp_is_written_in_the_accelerate_file(started):
    fsdp = PLAIN.replace("MULTI_GPU", "FSDP") + "fsdp_config:\n  fsdp_version: 2\n"
    paths, words, job = changed(started(SCRIPT, acc__yaml=fsdp, train__yaml=TRAIN), {"parallelism.fsdp.offload": True})
    assert "fsdp_offload_params: true in acc.yaml" in words
    assert job.parallelism.fsdp.offload is True
    assert paths == {"acc.yaml"}


def test_fsdp_makes_room_for_deepspeed(started):
    fsdp = PLAIN.replace("MULTI_GPU", "FSDP") + "fsdp_config:\n  fsdp_version: 2\n"
    _, words, job = changed(started(SCRIPT, acc__yaml=fsdp, train__yaml=TRAIN), ZERO3)
    assert "no fsdp_config" in words
    assert job.parallelism.fsdp is None


def test_what_else_changes_stays_in_the_training_file(started):
    opened = started(SCRIPT, acc__yaml=PLAIN, train__yaml=TRAIN)
    paths, words, job = changed(opened, {**ZERO3, "activation_checkpointing": "full"})
    assert paths == {"acc.yaml", "train.yaml"}
    assert words.startswith("gradient_checkpointing: true; ")
    assert (job.parallelism.zero.stage, job.activation_checkpointing) == (3, "full")


@pytest.mark.parametrize("named", ["launch", "train"])
def test_the_deepspeed_file_that_is_named(started, named):
    stage2 = json.dumps({"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}})
    if named == "launch":
        acc = PLAIN.replace("MULTI_GPU", "DEEPSPEED").replace("mixed_precision: bf16\n", "")
        opened = started(
            SCRIPT,
            acc__yaml=acc + "deepspeed_config:\n  deepspeed_config_file: ds.json\n",
            train__yaml=TRAIN,
            ds__json=stage2,
        )
    else:
        opened = started(
            "deepspeed --num_gpus 8 train.py --config train.yaml\n",
            train__yaml=TRAIN + "deepspeed: ds.json\n",
            ds__json=stage2,
        )
    paths, words, job = changed(opened, ZERO3)
    assert paths == {"ds.json"}
    gathers = "zero_optimization.stage3_gather_16bit_weights_on_model_save: true"
    assert words == f"zero_optimization.stage: 3, {gathers} in ds.json"
    assert job.parallelism.zero.stage == 3


def test_a_command_takes_deepspeed_as_json(started):
    flags = f"torchrun --nproc_per_node 8 train.py {OPTIONS}"
    paths, _, job = changed(started(flags), ZERO3)
    assert paths == {"run.sh"}
    assert job.parallelism.zero.stage == 3


def test_trl_names_a_config_that_it_ships(started):
    train = TRAIN + "accelerate_config: multi_gpu\n"
    opened = started("trl sft --config train.yaml\n", train__yaml=train)
    _, words, job = changed(opened, {"parallelism.zero.stage": 2})
    assert words == "accelerate_config: zero2"
    assert job.parallelism.zero.stage == 2


@pytest.mark.parametrize("key", ["stage3_param_persistence_threshold", "param_persistence_threshold"])
def test_a_size_is_changed_in_the_deepspeed_file_by_the_name_it_has_there(tmp_path, key):
    zero = {"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3, key: 100_000_000}}
    (tmp_path / "train.yaml").write_text(TRAIN + "deepspeed: zero3.json\n")
    (tmp_path / "zero3.json").write_text(json.dumps(zero))
    (opened,) = open_jobs(recognise_file(str(tmp_path / "train.yaml")), Settings(root=str(tmp_path))).opened
    paths, words, job = changed(opened, {"parallelism.zero.param_persistence_threshold": 4096})
    assert job.parallelism.zero.param_persistence_threshold == 4096
    assert (paths, words) == ({"zero3.json"}, f"zero_optimization.{key}: 4096 in zero3.json")
