"""Parameters of adapters beyond LoRA, as published runs counted them and as PEFT's own code factors sizes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpulint.estimator.states.parameters import trainable_parameters
from gpulint.job.job import Adapter, Job
from gpulint.models.adapter_parts import factorization, rotation_blocks
from gpulint.models.adapter_types import MODELLED, OPTIONS, kind_of, virtual_tokens
from gpulint.models.lora import NotAdaptable, adapted, common_parts
from gpulint.models.resolve import resolve

ROWS = json.loads((Path(__file__).parent / "published_adapters.json").read_text())["rows"]
LLAMA = "meta-llama/Llama-3.2-3B"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['type']}-{row['r']}-{row['trainable']}")
def test_parameters_are_those_that_runs_printed(row):
    adapter = Adapter(row["type"], row["r"], targets=row["targets"], options=row["options"])
    # what a 16-bit AdaLoRA makes of its count of ranks from 0.21 on is no parameter of these runs
    job = Job(model=LLAMA, method="lora", adapter=adapter, versions={"peft": "0.20"})
    assert trainable_parameters(job, resolve(LLAMA)) == row["trainable"]


def test_every_type_has_a_name_in_peft_s_spelling():
    assert kind_of(Adapter("LN_TUNING")) == "lntuning"
    assert kind_of(Adapter("bone")) == "miss"
    assert set(OPTIONS) <= MODELLED


def test_targets_differ_by_type():
    model = resolve(LLAMA)
    names = {module.name.rpartition(".")[2] for module in adapted(model, Adapter("ia3"))}
    assert names == {"k_proj", "v_proj", "down_proj"}
    assert {module.name.rpartition(".")[2] for module in adapted(model, Adapter("vera"))} == {"q_proj", "v_proj"}


def test_prompts_adapt_no_module_and_need_a_count():
    adapter = Adapter("prompt_tuning", options={"num_virtual_tokens": 20})
    assert adapted(resolve(LLAMA), adapter) == ()
    assert virtual_tokens(adapter) == 20
    with pytest.raises(NotAdaptable, match="num_virtual_tokens"):
        common_parts(resolve(LLAMA), Adapter("p_tuning"), ())


def test_two_factors_of_a_size():
    assert factorization(128, 4) == (4, 32)
    assert factorization(128, -1) == (8, 16)
    assert factorization(127, -1) == (1, 127)
    assert factorization(3072, 5) == (4, 768)


def test_rotations_take_a_divisor_of_the_inputs():
    assert rotation_blocks(Adapter("oft"), 3072, 0) == (96, 32)
    assert rotation_blocks(Adapter("oft", options={"oft_block_size": 30}), 3072, 0) == (96, 32)
    assert rotation_blocks(Adapter("oft", options={"oft_block_size": 0}), 3072, 8) == (8, 384)
    with pytest.raises(NotAdaptable, match="BOFT"):
        rotation_blocks(Adapter("boft", options={"boft_block_size": 5}), 3072, 0)
