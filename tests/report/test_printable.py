from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulint.report.masking import without_secrets
from gpulint.report.printable import printable


@given(st.text())
def test_printable_text_has_no_control_characters(text):
    out = printable(text)
    assert all(char >= " " for char in out)
    assert "##[" not in out


@given(st.text())
def test_masking_keeps_the_length(text):
    line = text.replace("\n", " ")
    assert len(without_secrets(line)) == len(line)


@pytest.mark.parametrize(
    "line",
    [
        "hf_token: abc123",
        'wandb_api_key: "k"',
        "  - aws_secret_access_key = xyz",
        'password: "p"',
        "x: hf_ABCDEFGHIJKL",
    ],
)
def test_secrets_are_masked(line):
    assert "***" in without_secrets(line) or "*" in without_secrets(line)
    for secret in ("abc123", '"k"', "xyz", '"p"', "hf_ABC"):
        assert secret not in without_secrets(line)


@pytest.mark.parametrize(
    "line",
    [
        "max_new_tokens: 512",
        "pad_token: <pad>",
        "tokenizer: x",
        "num_token_ids: 3",
        "special_tokens:",
        "batch: 2",
        "--max-num-batched-token=8192",
        "--token-id 3",
        "--model /hf_llama_models",
        "path: hf_checkpoints/last",
    ],
)
def test_ordinary_keys_are_left_alone(line):
    assert without_secrets(line) == line
