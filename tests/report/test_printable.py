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


SECRET = "Zebra-crossing_91"


@pytest.mark.parametrize(
    "line",
    [
        "vllm serve m --api-key % --max-model-len 4096",
        'vllm serve m --api-key "%" --max-model-len 4096',
        "python -m sglang.launch_server --api-key=% --tp 2",
        "docker run -e HF_TOKEN=% -e WANDB_API_KEY=% image --num-shard 2",
        'docker run -e "HF_TOKEN=%" image --num-shard 2',
        "vllm serve https://reader:%@models.example.com/qwen --max-model-len 4096",
        "curl -H 'Authorization: Bearer %' https://example.com",
        "curl -H 'Authorization: Basic %' -H 'X-Api-Key: %' https://example.com/?token=%&x=1",
        'args: ["--api-key", "%", "--tensor-parallel-size", "2"]',
        "env: {HF_TOKEN: %, batch: 2}",
        "- {name: HF_TOKEN, value: %}",
        '{"api_key": "%", "batch": 2, "hub_token": "%"}',
        """--config '{\\"api_key\\": \\"%\\", \\"x\\": 1}'""",
        "export HF_TOKEN=%; torchrun train.py",
        "HF_TOKEN=${HF_TOKEN:-%} torchrun train.py",
        "password: %  # of the registry",
        "helm install --set hf.token=%,replicas=2 chart",
        "wandb login % && torchrun train.py",
    ],
)
def test_the_secret_is_masked_and_nothing_else(line):
    assert without_secrets(line.replace("%", SECRET)) == line.replace("%", "*" * len(SECRET))


@pytest.mark.parametrize(
    ("before", "line", "shown"),
    [
        ("  - --api-key", "  - hunter2", "  - *******"),
        ("  --api-key \\", "  hunter2 --port 80 \\", "  ******* --port 80 \\"),
        ("- name: HF_TOKEN", '  value: "hunter2"', '  value: "*******"'),
        ("- name: TOKENIZER_MODE", "  value: slow", "  value: slow"),
        ("  - --api-key", "  - $(KEY)", "  - $(KEY)"),
        ("  --api-key \\", "  --port 80", "  --port 80"),
        ("hf_token: |", "  hunter two", "  **********"),
        ("chat_template: |", "  hunter two", "  hunter two"),
    ],
)
def test_a_secret_below_its_flag_or_name(before, line, shown):
    assert without_secrets(line, before) == shown


@pytest.mark.parametrize(
    "text", ["token" * 9000, "api_key" * 9000 + " ", '"token": ' * 5000, "://a:" * 9000, "name: " * 9000, "-" * 50_000]
)
def test_a_long_line_is_no_trap(text):
    assert len(without_secrets(text, text)) == len(text)


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
        "docker run -e HF_TOKEN=$HF_TOKEN -v /data:/data image --num-shard 2",
        "HF_TOKEN=${HF_TOKEN} vllm serve m --tensor-parallel-size 2",
        'export HF_TOKEN="$(cat token)" && vllm serve m',
        "vllm serve m --api-key $KEY --max-model-len 4096",
        "token: ${{ secrets.HF_TOKEN }}",
        "token: {{ .Values.token }}",
        "hub_token: null",
        "use_auth_token: true",
        "--use_auth_token train.py",
        "--max-num-batched-tokens 8192 --tokenizer-mode slow --max-tokens 16",
        "  secretName: hf-secret",
        "secretKeyRef: {name: hf-secret, key: token}",
        "  - $HF_TOKEN",
        "git clone ssh://git@github.com/org/repo",
        "vllm serve http://localhost:8000/v1 --seed 3",
        "https://reader:$PASSWORD@models.example.com/qwen",
    ],
)
def test_ordinary_keys_are_left_alone(line):
    assert without_secrets(line) == line
