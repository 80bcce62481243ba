"""What only a checkpoint's name says is a guess: a renamed checkpoint changes how wide an answer is, not what fails."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpulint import Settings, check
from gpulint.models.catalogue import config_of, find
from gpulint.models.names import published_quantization

BASES = ("Qwen/Qwen2.5-7B-Instruct", "meta-llama/Llama-3.1-70B-Instruct")
"""Of the two the second one in 16 bits exceeds every card here, and in 4 bits none that takes it."""

GROUP = {"weights": {"num_bits": 4, "type": "int", "symmetric": True, "group_size": 128}}
FORMATS = {
    None: None,
    "compressed-tensors": {"quant_method": "compressed-tensors", "config_groups": {"group_0": GROUP}},
    "awq": {"quant_method": "awq", "bits": 4, "group_size": 128},
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 128},
    "fp8": {"quant_method": "fp8"},
    "bitsandbytes": {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
}
WORDS = {
    "AWQ": (None, "awq", "compressed-tensors"),
    "GPTQ": (None, "gptq", "compressed-tensors"),
    "GPTQ-Int4": (None, "gptq", "compressed-tensors"),
    "w4a16": (None, "gptq", "compressed-tensors"),
    "quantized.w4a16": (None, "gptq", "compressed-tensors"),
    "FP8": (None, "fp8"),
    "FP8-dynamic": (None, "fp8"),
    "bnb-4bit": (None, "bitsandbytes"),
}
"""Words that are added to a name, and how such a checkpoint may be stored."""

CARDS = ("v100-32gb", "t4", "l40s", "h100-80gb")
OPTIONS = ("", "quantization: compressed-tensors", "quantization: awq", "quantization: fp8", "kv-cache-dtype: fp8")
OWNERS = ("someone/", "/data/models/", "/mnt/cache/hub/models--someone--")


@cache
def served(model, stored, option, card):
    """The kinds of the errors, with all findings, about a served model; `stored` beside it where it is read."""
    with TemporaryDirectory() as folder:
        if stored is not Ellipsis:
            config = {key: value for key, value in config_of(find(model)).items() if key != "quantization_config"}
            if FORMATS[stored] is not None:
                config["quantization_config"] = FORMATS[stored]
            home = Path(folder, "models", "read", "Checkpoint")
            home.mkdir(parents=True)
            (home / "config.json").write_text(json.dumps(config))
            model = "read/Checkpoint"
        path = Path(folder, "vllm.yaml")
        path.write_text(f"model: {model}\nmax-model-len: 4096\ndtype: half\ntensor-parallel-size: 1\n{option}\n")
        found = check([str(path)], Settings(gpu=card, gpus=1, root=folder)).findings
    return {"memory" if item.estimate else item.rule for item in found if item.severity == "error"}, found


@settings(max_examples=20)
@given(
    base=st.sampled_from(BASES), word=st.sampled_from(sorted(WORDS)), owner=st.sampled_from(OWNERS[:2]),
    option=st.sampled_from(OPTIONS), card=st.sampled_from(CARDS),
)  # fmt: skip
@example(base=BASES[1], word="AWQ", owner="someone/", option="", card="h100-80gb")
@example(base=BASES[0], word="w4a16", owner="someone/", option="", card="v100-32gb")
def test_what_fails_under_a_name_fails_however_it_is_stored(base, word, owner, option, card):
    """No error appears by a name, and none that holds for all that it may mean vanishes."""
    name = f"{owner}{base.partition('/')[2]}-{word}"
    errors, found = served(name, ..., option, card)
    states = [served(base, stored, option, card)[0] for stored in WORDS[word]]
    if not option:
        assert errors == set.intersection(*states), [item.message for item in found]
    else:
        assert errors <= set.union(*states)
        assert "GPU207" not in errors


def test_a_guess_warns_and_says_so():
    errors, found = served("someone/Qwen2.5-7B-Instruct-AWQ", ..., "", "v100-32gb")
    (warning,) = (item for item in found if item.rule == "GPU206")
    assert not errors
    assert warning.severity == "warning"
    assert any("by its name" in note and "16 bits" in note for note in warning.notes)


def test_a_stated_method_is_no_contradiction_of_a_guess():
    assert not any(
        item.rule == "GPU207"
        for item in served("someone/Qwen2.5-7B-Instruct-AWQ", ..., "quantization: compressed-tensors", "l40s")[1]
    )


@pytest.mark.parametrize(
    ("name", "card", "refused"),
    [
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "v100-32gb", {"GPU206"}),
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "t4", set()),
        ("RedHatAI/Qwen2.5-7B-Instruct-quantized.w4a16", "v100-32gb", {"GPU206"}),
        ("RedHatAI/Qwen2.5-7B-Instruct-quantized.w4a16", "t4", set()),
    ],
)
def test_what_the_catalogue_or_a_series_says_is_known(name, card, refused):
    assert served(name, ..., "", card)[0] == refused


def test_a_series_of_one_publisher_has_one_scheme():
    assert published_quantization("RedHatAI/Qwen3-8B-quantized.w8a8")["ignore"][0] == "lm_head"
    assert published_quantization("someone/Qwen3-8B-quantized.w4a16") is None
    assert published_quantization("neuralmagic/Meta-Llama-3-8B-Instruct-quantized.w4a16") is None


def test_an_id_with_a_twin_in_16_bits_says_how_it_is_stored():
    """`X` beside `X-BF16` is stored packed, and its row has to say so."""
    from gpulint.models.catalogue import search

    twins = [find(row.id[: -len("-BF16")]) for row in search("-bf16") if row.id.lower().endswith("-bf16")]
    stored = [row for row in twins if row is not None]
    assert len(stored) > 3
    for row in stored:
        assert "quantization_config" in config_of(row), row.id


@pytest.mark.parametrize(
    ("name", "severity"),
    [
        ("TheBloke/Mistral-7B-v0.1-GPTQ", "error"),
        ("someone/Mistral-7B-v0.1-GPTQ", "warning"),
        ("/data/models/Mistral-7B-v0.1-AWQ", "warning"),
        ("someone/a-model-that-nobody-knows-GPTQ", "warning"),
    ],
)
def test_a_checkpoint_packed_again_is_an_error_where_its_packing_is_known(tmp_path, name, severity):
    path = tmp_path / "config.yaml"
    path.write_text(
        f"base_model: {name}\ndatasets: [{{path: tatsu-lab/alpaca, type: alpaca}}]\nsequence_len: 1024\n"
        "adapter: qlora\nload_in_4bit: true\nlora_target_linear: true\nmicro_batch_size: 1\nbf16: true\n"
    )
    found = check([str(path)], Settings(root=str(tmp_path), preview=True)).findings
    assert [item.severity for item in found if item.rule == "GPU368"] == [severity]
