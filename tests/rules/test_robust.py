"""Whatever a config holds, checking it ends with findings or a SourceError."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpulint.rules.index import rule_files
from gpulint.source.document import SourceError

CONFIGS = [
    next(iter(yaml.safe_load_all(example["config"])))
    for file in rule_files()
    if file.id != "GPU020"  # whose examples nothing can parse
    for example in file.source["examples"]
    if isinstance(example["config"], str) and example.get("file", "").endswith("yaml" if "file" in example else "")
]
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**18), 10**18),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "auto", "null", "${X}", "bf16", "8", "x" * 300]),
    st.lists(st.one_of(st.none(), st.integers(), st.text(max_size=5)), max_size=3),
    st.dictionaries(st.text(max_size=5), st.one_of(st.none(), st.integers()), max_size=2),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_odd_values_anywhere_are_survived(check, data):
    config = dict(data.draw(st.sampled_from(CONFIGS)))
    for key in data.draw(st.lists(st.sampled_from(sorted(config)), max_size=3)):
        config[key] = data.draw(ODD)
    gpu, gpus = data.draw(st.sampled_from([None, "h100-80gb", "t4"])), data.draw(st.sampled_from([None, 1, 8]))
    try:
        check(json.dumps(config), gpu, gpus)
    except (KeyError, IndexError):
        raise
    except (SourceError, LookupError):
        return


TORCHTUNE = """\
tokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer}
checkpointer: {_component_: torchtune.training.FullModelHFCheckpointer}
optimizer: {_component_: torch.optim.AdamW}
loss: {_component_: torchtune.modules.loss.LinearCrossEntropyLoss}
dataset: {_component_: torchtune.datasets.alpaca_dataset}
batch_size: 2
"""


@pytest.mark.parametrize(
    "config",
    [
        {"model_name_or_path": "Qwen/Qwen2.5-0.5B", "stage": "sft", "finetuning_type": "lora", "lora_rank": "1e308"},
        {
            "gpulint": "job/v1",
            "kind": "training",
            "model": "Qwen/Qwen3-30B-A3B",
            "micro_batch_size": 1,
            "sequence_length": 512,
            "parallelism": {"tensor": 1 << 60},
        },
    ],
)
def test_numbers_beyond_all_measure_are_survived(check, config):
    """A rank beyond 64 bits is no number; ranks beyond what a model has leave each one column."""
    check(json.dumps(config), None, 1)


def test_a_rank_that_is_no_number_is_the_builders_default(facts_of):
    text = "model:\n  _component_: torchtune.models.llama3_1.lora_llama3_1_8b\n  lora_rank: []\n"
    assert facts_of(text + TORCHTUNE).job.adapter.r == 8
