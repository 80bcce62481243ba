from __future__ import annotations

import pytest

from gpulint.rules.evaluate import problems
from gpulint.rules.expression import UNKNOWN
from gpulint.rules.facts.facts import MAX_ESTIMATES, filled_at_launch

ZERO3 = '{"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3, "reduce_bucket_size": 1e6}}'


def test_job_fields_config_keys_and_origins(facts):
    known = facts()
    assert known.get("micro_batch_size") == 1
    assert known.get("config.optimizer") == "adamw_torch_fused"
    assert known.get("config.nothing") is None
    assert known.has("config.optimizer")
    assert not known.has("config.nothing")
    assert known.get("origin.optimizer.name") == "file"
    assert known.get("origin.parallelism.tensor") in ("default", "derived")
    assert known.reads >= {"micro_batch_size", "config.optimizer"}


def test_a_part_is_true_where_it_exists_and_its_fields_null_where_not(facts):
    assert facts().get("parallelism.zero") is None
    assert facts().get("parallelism.zero.stage") is None
    assert facts().get("zero.stage") == 0
    sharded = facts("deepspeed: z3.json\n", gpus=8, files={"z3.json": ZERO3})
    assert sharded.get("parallelism.zero") is True
    assert sharded.get("zero.stage") == 3
    assert sharded.get("sharded.weights") is True


def test_ranks_that_share_a_sequence_take_one_row_together(facts):
    alone, shared = (facts(text, gpus=8) for text in ("", "context_parallel_size: 2\nflash_attention: true\n"))
    assert (alone.get("data_parallel"), shared.get("data_parallel")) == (8, 8)
    assert shared.get("effective_batch_size") == alone.get("effective_batch_size") // 2


def test_deepspeed_keys_from_wherever_the_config_stands(facts):
    named = facts("deepspeed: z3.json\n", gpus=8, files={"z3.json": ZERO3})
    assert named.get("deepspeed.zero_optimization.stage") == 3
    assert named.has("deepspeed.zero_optimization.reduce_bucket_size")
    assert named.get("deepspeed.fp16.enabled") is None
    itself = facts(text=ZERO3, name="ds.json")
    assert itself.get("deepspeed.zero_optimization.stage") == 3
    assert facts().get("deepspeed.zero_optimization.stage") is UNKNOWN


@pytest.mark.parametrize("value", ["${RL}", "$RL", "{{ rl }}", "<rl>"])
def test_placeholders_of_templates_are_unknown(facts, value):
    assert filled_at_launch(value)
    assert facts(f"rl: '{value}'\n").get("config.rl") is UNKNOWN


@pytest.mark.parametrize("value", ["dpo", 3, None, "a < b > c", "cost $5"])
def test_other_values_are_not(value):
    assert not filled_at_launch(value)


def test_an_unknown_model_leaves_its_facts_unknown(facts, axolotl):
    known = facts(text=axolotl.replace("meta-llama/Llama-3.1-8B", "nobody/nothing-9z"))
    assert known.get("model.known") is False
    assert known.get("model.named") is True
    assert isinstance(known.get("model.error"), str)
    assert known.get("model.parameters") is UNKNOWN
    assert known.get("estimate.peak") is UNKNOWN
    assert known.get("gpu.usable") is UNKNOWN


@pytest.mark.parametrize("name", ["path to your model", "/path/to/llama", "PATH_TO_MODEL", "${MODEL}"])
def test_the_words_of_a_template_name_no_model(facts, axolotl, name):
    assert facts(text=axolotl.replace("meta-llama/Llama-3.1-8B", name)).get("model.named") is False


def test_exact_facts_of_a_known_model(facts):
    known = facts(gpu="h100-80gb", gpus=1)
    assert known.get("model.parameters") == 8_030_261_248
    assert known.get("trainable.parameters") == 8_030_261_248
    assert known.get("micro_batch.tokens") == 2048
    assert known.get("estimate.static") == sum(
        known.get(f"peak.{part}") for part in ("weights", "adapter", "gradients", "optimizer")
    )
    assert known.get("estimate.verdict") == known.estimate.verdict


def test_a_changed_job_is_estimated_once_and_not_without_end(facts):
    known = facts(gpu="h100-80gb", gpus=1)
    first = known.estimate_with({"micro_batch_size": 2})
    assert first is known.estimate_with({"micro_batch_size": 2})
    assert first.needed > known.estimate.needed
    made = [known.estimate_with({"micro_batch_size": 2 + n}) for n in range(MAX_ESTIMATES + 5)]
    assert made[-1] is None


def test_every_problem_value_is_its_own(facts):
    known = facts("micro_batch_sise: 2\n")
    assert known.get("item.key") is UNKNOWN
    (known.item,) = problems(known.reading, "unknown-key")
    assert known.get("item.key") == "micro_batch_sise"
    assert known.get("item.suggestion") == "micro_batch_size"
    assert known.get("item.plugin") is UNKNOWN


def test_peft_s_adaption_prompt_has_no_targets_to_refuse(facts):
    known = facts("adapter: llama-adapter\n")
    assert known.get("adapter.error") is UNKNOWN
    assert known.get("trainable.parameters") is UNKNOWN
    assert "adaption prompt" in known.get("estimate.error")
    named = facts("adapter: lora\nlora_target_modules: [query_key_value]\n")
    assert "query_key_value" in named.get("adapter.error")
