"""What is offered at the cursor (`|`)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulint.editor.completion import MAX_MODELS, complete
from gpulint.editor.reading import Read
from gpulint.editor.workspace import Workspace, syntax_of

from .texts import AXOLOTL, DEEPSPEED, SCRIPT, SKYRL


@pytest.fixture
def offered(workspace, opened):
    """The offers at the cursor of a text, by label; the texts around them with each written are what is compared."""

    def offer(name: str, marked: str):
        offset = marked.index("|")
        text = marked.replace("|", "", 1)
        path = opened(name, text)
        read = workspace.understood(path, text.count("\n", 0, offset))
        items = complete(read, path, text, offset, syntax_of(path, text)).items
        return {item.label: (item, text[: item.start] + item.text + text[item.end :]) for item in items}

    return offer


def test_keys_that_the_mapping_lacks_with_their_help(offered):
    items = offered("a.yaml", AXOLOTL + "grad|\n")
    item, text = items["gradient_accumulation_steps"]
    assert text == AXOLOTL + "gradient_accumulation_steps: \n"
    assert "whole number" in item.help
    assert "micro_batch_size" not in items


def test_keys_of_a_list_item(offered):
    items = offered("a.yaml", AXOLOTL.replace("    type: alpaca\n", "    type: alpaca\n    sp|\n"))
    assert "split" in items
    assert "path" not in items


def test_values_of_an_enumeration_and_booleans(offered):
    items = offered("a.yaml", AXOLOTL.replace("bf16: true", "bf16: t|"))
    assert items["true"][1] == AXOLOTL
    assert "paged_adamw_8bit" in offered("a.yaml", AXOLOTL.replace("adamw_torch", "pa|"))


def test_words_that_a_format_knows_and_no_schema_lists(offered):
    assert {"gae", "rloo"} <= offered("a.yaml", SKYRL.replace("grpo", "|")).keys()


def test_models_at_the_key_of_the_model(offered):
    items = offered("a.yaml", AXOLOTL.replace("NousResearch/Meta-Llama-3-8B", "nousresearch/meta-llama-3|"))
    item, text = items["NousResearch/Meta-Llama-3-8B"]
    assert text == AXOLOTL
    assert item.detail == "8.03 B parameters"


def test_models_are_capped_and_more_typing_leads_on(workspace, opened):
    text = AXOLOTL.replace("NousResearch/Meta-Llama-3-8B", "a")
    path = opened("a.yaml", text)
    offer = complete(workspace.understood(path, 0), path, text, len("base_model: a"), "yaml")
    assert len(offer.items) == MAX_MODELS
    assert not offer.whole


@pytest.mark.parametrize("ending", ['"|"', '"|', "|"])
def test_json_keys_are_quoted_once(offered, ending):
    items = offered("ds.json", DEEPSPEED.replace('"overlap_comm": true', '"overlap_comm": true,\n    ' + ending))
    text = items["contiguous_gradients"][1]
    assert text.count('"contiguous_gradients') == 1
    assert '""' not in text
    assert "stage" not in items


def test_json_values(offered):
    assert '"stage": 3,' in offered("ds.json", DEEPSPEED.replace('"stage": 2', '"stage": |'))["3"][1]


def test_flags_in_the_spelling_of_the_command(offered):
    items = offered("run.sh", SCRIPT.replace("--max-model-len 8192", "--max-model-len 8192 --max-num|"))
    assert "--max-num-seqs " in items["--max-num-seqs"][1]
    assert "--max-model-len" not in items


def test_flags_in_a_list_of_arguments(offered):
    pod = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: a\n"
        "    image: vllm/vllm-openai:v0.10.0\n    args:\n    - --model=NousResearch/Meta-Llama-3-8B\n    - --max-mod|\n"
    )
    assert "- --max-model-len\n" in offered("pod.yaml", pod)["--max-model-len"][1]


@pytest.mark.parametrize(
    ("typed", "label"),
    [
        ("# gpulint: gpu=h2|", "h200-141gb"),
        ("# gpulint: ignore[memory|", "unknown-key-ignored"),
        ("# gpulint: ignore[memory-tight, |", "unknown-key-ignored"),
        ("# gpulint: |", "ignore["),
    ],
)
def test_names_in_comments(offered, typed, label):
    items = offered("a.yaml", AXOLOTL + typed + "\n")
    assert label in items


def test_a_comment_of_others_is_left_alone(offered):
    assert offered("a.yaml", AXOLOTL + "# lora|\n") == {}


@given(
    st.sampled_from([AXOLOTL, DEEPSPEED, SCRIPT]),
    st.integers(0, 400),
    st.text(st.sampled_from('ab:-"# \n{['), max_size=5),
)
def test_any_cursor_is_answered(base, cut, typed):
    text = base[:cut] + typed + base[cut:]
    name = {"b": "a.yaml", "{": "a.json", "#": "a.sh"}[base[0]]
    offer = complete(Read(), name, text, min(len(text), cut + len(typed)), syntax_of(name, text))
    assert all(0 <= item.start <= item.end <= len(text) for item in offer.items)


def test_what_is_not_yet_a_config_is_read_without_the_line(tmp_path):
    workspace = Workspace()
    path = str(tmp_path / "a.yaml")
    workspace.put(path, AXOLOTL + "lora_al\n", 1)
    assert workspace.reading(path).held == ()
    assert workspace.understood(path, AXOLOTL.count("\n")).held
