"""The plan: a row for every recipe that applies, a reason for every one that does not."""

from __future__ import annotations

import pytest

from gpulint.rules.load import load_rules
from gpulint.rules.suggest.plan import SORTS, plan_of
from gpulint.source.edit.edit import apply

LORA = "adapter: lora\nlora_r: 16\nlora_target_linear: true\n"


@pytest.fixture
def plan(facts_of):
    def make(text: str, gpu: str | None, gpus: int | None = 1):
        return plan_of(facts_of(text, gpu, gpus), load_rules())

    return make


def test_every_recipe_that_the_format_can_say_has_a_row_or_a_reason(plan, axolotl):
    found = plan(axolotl, "a100-40gb")
    named = {row.recipe for row in found.rows if row.recipe} | {item.recipe for item in found.absent}
    recipes = {name for name, item in load_rules().recipes.items() if item.kind == "training" and not item.room}
    assert named < recipes
    assert recipes - named <= {
        "fsdp-offload",
        "optimizer-in-backward",
        "quantized-base",
    }  # axolotl: with FSDP, not, QLoRA
    assert all(item.reason for item in found.absent)
    assert all(row.reason for row in found.rows)


def test_what_a_format_has_no_key_for_is_said_in_words_alone(plan):
    text = """\
checkpoint_dir: checkpoints/google/gemma-2b
precision: bf16-true
lora_r: 8
train: {micro_batch_size: 4, global_batch_size: 16, max_seq_length: 2048}
data: {class_path: litgpt.data.Alpaca2k}
"""
    found = plan(text, "l4-24gb")
    assert found.facts.reading.format == "litgpt"
    assert all(row.edits for row in found.rows if row.kind != "hardware")
    absent = {item.recipe: item.reason for item in found.absent}
    assert absent["checkpointing"].startswith("no key in this format; would need ")
    assert not {"vllm-sleep", "zero3", "fsdp-offload"} & absent.keys()  # other tools' own


def test_a_server_is_told_of_no_other_engines_recipes(plan):
    found = plan("model: Qwen/Qwen2.5-7B-Instruct\nmax-model-len: 8192\n", "l4-24gb")
    assert found.facts.reading.format == "vllm"
    assert not {"larger-share", "smaller-share", "smaller-prefill"} & {item.recipe for item in found.absent}


def test_rows_say_what_the_edited_file_needs(plan, axolotl):
    found = plan(axolotl + LORA, "rtx-4090")
    written = [row for row in found.rows if row.edits]
    assert written
    for row in written:
        again = plan(apply(axolotl + LORA, row.edits), "rtx-4090")
        assert again.now.needed == row.estimate.needed
        assert again.now.verdict == row.verdict


def test_two_recipes_that_one_file_says_alike_are_one_row(plan, axolotl):
    found = plan(axolotl + "bf16: true\n", "h100-80gb")
    assert len({row.change for row in found.rows}) == len(found.rows)
    twin = next(item for item in found.absent if item.recipe == "zero3-offload-all")
    assert twin.reason == "the same change here as zero3-offload"


def test_a_job_with_room_to_spare_is_told_what_larger_batch_fits(plan, axolotl):
    text = axolotl.replace("8B", "8B-Instruct") + LORA
    found = plan(text, "h100-80gb")
    assert found.now.verdict == "fits"
    room = next(row for row in found.rows if row.recipe == "larger-micro-batch")
    changed = plan(apply(text, room.edits), "h100-80gb")
    assert changed.now.verdict == "fits"
    assert changed.facts.job.micro_batch_size * changed.facts.job.gradient_accumulation_steps == 4
    assert changed.facts.job.micro_batch_size > 1


def test_without_a_gpu_it_names_those_that_hold_the_job(plan, axolotl):
    found = plan(axolotl + LORA, None)
    assert found.rows == ()
    assert "h100-80gb" in found.fitting
    assert "t4" not in found.fitting
    assert plan(axolotl + LORA, found.fitting[0]).now.verdict == "fits"


def test_sorts(plan, axolotl):
    found = plan(axolotl, "a100-40gb")
    whole = sorted(row.change for row in found.rows)
    assert all(sorted(row.change for row in found.in_order(sort)) == whole for sort in SORTS)
    needs = [row.estimate.needed for row in found.in_order("memory")]
    assert needs == sorted(needs)
    verdicts = [row.verdict for row in found.in_order("verdict")]
    assert verdicts == sorted(verdicts, key=["fits", "tight", "exceeds", "unknown"].index)


def test_a_job_whose_length_nobody_states_is_judged_by_its_states(plan):
    text = "gpulint: job/v1\nkind: training\nmodel: meta-llama/Llama-3.1-8B\nweights: {dtype: bfloat16}\n"
    found = plan(text, "a100-40gb")
    assert found.now.verdict == "exceeds"
    lora = next(row for row in found.rows if row.recipe == "lora")
    assert lora.verdict == "unknown"
    assert "states" in lora.reason


def test_an_unknown_model_has_no_plan_and_a_reason(facts_of, axolotl):
    facts = facts_of(axolotl.replace("meta-llama/Llama-3.1-8B", "nobody/nothing"), "t4")
    assert plan_of(facts, load_rules()) is None
    assert "nobody/nothing" in facts.estimate_reason
