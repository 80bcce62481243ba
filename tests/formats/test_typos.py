"""What was probably meant, and when two words are only slips of each other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulint.formats.core.typos import nearest, nearest_word, slip, slips


def test_dashes_and_case_are_the_same_word():
    assert nearest("Micro-Batch-Size", ["sequence_len", "micro_batch_size"]) == "micro_batch_size"


def test_a_longer_key_gets_no_did_you_mean():
    assert nearest("k" * 500, ["k" * 499]) == ""


@pytest.mark.parametrize(
    ("key", "name", "expected"),
    [
        ("overlap_com", "overlap_comm", True), ("lora_aplha", "lora_alpha", True),
        ("max-modle-len", "max_model_len", True),
        ("batchsize", "batch_size", True), ("learning_rat", "learning_rate", True), ("profile", "profiler", False),
        ("datasets", "dataset", False), ("patch_size", "batch_size", False), ("load_in_8bit", "load_in_4bit", False),
        ("fps", "fp8", False), ("model_name", "model_name_or_path", False), ("min_lr", "lr_min", False),
    ],
)  # fmt: skip
def test_a_slip_of_the_hand_is_told_from_another_word(key, name, expected):
    assert slip(key, name) is expected
    assert slip(name, key) is expected


@pytest.mark.parametrize(("word", "meant"), [("bf61", ""), ("adamw_4bit", ""), ("lroa", "lora"), ("x", ""), ("", "")])
def test_figures_are_never_slips_and_short_words_have_one_at_most(word, meant):
    assert nearest_word(word, ["lora", "bf16", "adamw_8bit", "no"]) == meant


@given(st.text("abc", max_size=8), st.text("abc", max_size=8))
def test_slips_are_a_distance(one, other):
    assert slips(one, other) == slips(other, one) <= max(len(one), len(other))
    assert (slips(one, other) == 0) == (one == other)
