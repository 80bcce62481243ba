from __future__ import annotations

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulint.report.masking import without_secrets
from gpulint.rules.secrets import MAX_FOUND, secrets
from gpulint.source.read import parse

TOKEN = "hf_" + "QwErTyUiOpAsDfGhJkLzXcVbNmQaWsEdRf"


def found(text, name="run.sh", syntax="shell"):
    return list(secrets(parse(text, name, syntax)))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (f"export HF_TOKEN={TOKEN}\n", "Hugging Face token"),
        (f"# {TOKEN}\n", "Hugging Face token"),
        ("export WANDB_API_KEY=1f9c4e7ab02d6358e91c7f40a6d2b8835ce0174f\n", "Weights & Biases key"),
        ("wandb login 1f9c4e7ab02d6358e91c7f40a6d2b8835ce0174f\n", "Weights & Biases key"),
        ("AWS_ACCESS_KEY_ID=AKIAQ3EGR7TYU5IOPAS2\n", "AWS access key"),
        ("aws_secret_access_key = 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\n", "AWS secret key"),
        ("GH=ghp_Q1w2E3r4T5y6U7i8O9p0A1s2D3f4G5h6J7k8\n", "GitHub token"),
    ],
)
def test_a_credential_is_found_where_it_stands(text, kind):
    (problem,) = found(text)
    assert problem.values["found"] == kind
    assert problem.span.line == 1
    assert text[problem.span.start : problem.span.end] == max(re.findall(r"[\w/+]+", text), key=len)


@pytest.mark.parametrize(
    "text",
    [
        "export HF_TOKEN=hf_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n",
        "export HF_TOKEN=hf_YOURtokenGOESherePLEASEreplaceITnow\n",
        "export HF_TOKEN=$HF_TOKEN\n",
        "export HF_TOKEN=<your token>\n",
        "sha: 1f9c4e7ab02d6358e91c7f40a6d2b8835ce0174f\n",
        "export WANDB_API_KEY=0000000000000000000000000000000000000000\n",
        "model: hf_models/llama\n",
    ],
)
def test_placeholders_and_other_text_are_left_alone(text):
    assert found(text) == []


def test_the_value_is_in_no_value_of_the_problem():
    (problem,) = found(f"export HF_TOKEN={TOKEN}\n")
    assert all(TOKEN not in value and TOKEN[:8] not in value for value in problem.values.values())


def test_a_file_of_secrets_is_cut_short():
    letters = "QwErTyUiOpAsDfGhJkLzXcVbNmQaWsEdR"
    lines = [f"T{number}=hf_{letters}{string.ascii_letters[number]}" for number in range(MAX_FOUND + 10)]
    assert len(found("\n".join(lines))) == MAX_FOUND


@given(st.text(max_size=300))
def test_any_text_is_read_without_an_error(text):
    assert len(found("hf_ wandb AKIA " + text.replace("\0", ""))) <= MAX_FOUND


@pytest.mark.parametrize(
    "line",
    [
        f"docker run -e HF_TOKEN={TOKEN} image",
        "wandb login 1f9c4e7ab02d6358e91c7f40a6d2b8835ce0174f",
        "GH=ghp_Q1w2E3r4T5y6U7i8O9p0A1s2D3f4G5h6J7k8",
        "key nvapi-Q1w2E3r4T5y6U7i8O9p0A1s2D3f4G5h6J7k8",
    ],
)
def test_the_frame_of_a_report_hides_the_value(line):
    assert not re.search(r"QwErTy|1f9c4e|Q1w2E3", without_secrets(line))
