from __future__ import annotations

import json
from importlib import resources

import pytest

from gpulint.formats.core.format import Project
from gpulint.formats.core.registry import recognise
from gpulint.source.read import parse

AXOLOTL = "base_model: a/b\ndatasets: []\nsequence_len: 64\n"
TRL = "model_name_or_path: a/b\ndataset_name: c/d\nper_device_train_batch_size: 1\noutput_dir: out\nmax_length: 64\n"


def wrong(text, name="config.yaml"):
    document = parse(text, name, "yaml")
    reading = recognise(document).read(document, Project(".", None, None, None, lambda *_: None))
    return {item.key: item.values for item in reading.problems if item.kind == "wrong-value"}


@pytest.mark.parametrize(
    ("text", "key", "meant"),
    [
        (AXOLOTL + "adapter: qlor\n", "adapter", "qlora"),
        (AXOLOTL + "optimizer: adamw_torh\n", "optimizer", "adamw_torch"),
        (AXOLOTL + "optimizer: AdamW_Torch\n", "optimizer", "adamw_torch"),
        (AXOLOTL + "rl: dppo\n", "rl", "dpo"),
        (TRL + "optim: adamw_8bits\n", "optim", "adamw_8bit"),
        (TRL + "save_strategy: step\n", "save_strategy", "steps"),
        (TRL + "eval_strategy: sometimes\n", "eval_strategy", ""),
    ],
)
def test_an_unknown_word_is_told_with_the_one_that_was_meant(text, key, meant):
    (found,) = wrong(text).items()
    assert (found[0], found[1]["suggestion"], found[1]["treatment"]) == (key, meant, "refused")


@pytest.mark.parametrize(
    "text",
    [
        AXOLOTL + "adapter: lora\noptimizer: muon\nlr_scheduler: rex\n",
        AXOLOTL + "optimizer: paged_adamw_8bit\nlr_scheduler: cosine\nsave_strategy: best\n",
        AXOLOTL + "optimizer: ${OPTIMIZER}\n",
        AXOLOTL + "plugins: [our.Plugin]\noptimizer: ours\nadapter: our_adapter\n",
        TRL + "optim: adamw_hf\nlr_scheduler_type: warmup_stable_decay\n",
        "compute_environment: LOCAL_MACHINE\ndistributed_type: 'NO'\nmixed_precision: BF16\nnum_processes: 1\n",
    ],
)
def test_words_that_upstream_or_a_plugin_knows_are_left_alone(text):
    assert wrong(text) == {}


def test_with_a_plugin_only_a_slip_is_told():
    found = wrong(AXOLOTL + "plugins: [our.Plugin]\noptimizer: adamw_torh\n")
    assert found["optimizer"]["treatment"] == "misspelt"


def test_every_key_takes_words_of_sets_that_exist():
    table = json.loads((resources.files("gpulint.formats.core") / "values.json").read_text(encoding="utf-8"))
    named = {name for keys in table["keys"].values() for names in keys.values() for name in names}
    assert named <= set(table["sets"])
    assert all(key in table["keys"][schema] for schema, keys in table["open"].items() for key in keys)
