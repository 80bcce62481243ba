"""The benchmark of suggestions: what it takes for an unintended change, and how it spreads jobs over formats."""

from __future__ import annotations

from benchmarks.suggestions.choose import Chosen, spread
from benchmarks.suggestions.outcome import outcome, unintended

CONFIG = """base_model: meta-llama/Llama-3.1-8B
datasets: [{path: tatsu-lab/alpaca, type: alpaca}]
sequence_len: 2048  # a comment
micro_batch_size: 8
gradient_accumulation_steps: 1
gradient_checkpointing: true
bf16: true
optimizer: adamw_torch_fused
learning_rate: 1.0e-5
num_epochs: 1
adapter: lora
lora_r: 16
lora_target_linear: true
"""


def test_a_key_that_the_words_do_not_name_is_unintended():
    after = CONFIG.replace("micro_batch_size: 8", "micro_batch_size: 4").replace("bf16: true", "bf16: false")
    assert unintended("a.yaml", CONFIG, after, "micro_batch_size: 4") == "changes bf16 as well"
    assert unintended("a.yaml", CONFIG, after, "micro_batch_size: 4, bf16: false") == ""


def test_a_file_that_does_not_parse_is_told():
    assert unintended("a.yaml", CONFIG, CONFIG + "a: [", "a").startswith("no yaml after it")


def test_scripts_are_compared_word_by_word():
    before, after = "vllm serve x\n", "vllm serve x --max-num-seqs 8\n"
    assert unintended("a.sh", before, after, "max-num-seqs: 8") == ""
    assert unintended("a.sh", before, after, "enforce-eager: true") != ""
    shorter = after.replace("8", "4")
    assert unintended("a.sh", after, shorter, "max-num-seqs: 4") == ""
    assert unintended("a.sh", after, shorter.replace("serve x", "serve y"), "max-num-seqs: 4") != ""


def test_an_argument_of_a_list_is_named_by_the_one_before():
    before = "command: [vllm, serve, x, --max-model-len, '8192', --port, '80']\n"
    assert unintended("a.yaml", before, before.replace("8192", "4096"), "max-model-len: 4096") == ""
    assert unintended("a.yaml", before, before.replace("80'", "81'"), "max-model-len: 4096") != ""
    short = before.replace("max-model-len", "max-model")
    assert unintended("a.yaml", short, short.replace("8192", "4096"), "max-model-len: 4096") == ""


def test_every_format_gets_its_turn():
    found = [Chosen(f"{name}{i}", name, "training", "t4") for name, n in (("a", 9), ("b", 2)) for i in range(n)]
    chosen = list(spread(found, 6))
    assert [item.format for item in chosen].count("b") == 2
    assert [item.format for item in chosen].count("a") == 4
    assert chosen == list(spread(found, 6))


def test_an_offered_edit_is_applied_checked_and_taken_back(tmp_path):
    (tmp_path / "train.yaml").write_text(CONFIG)
    found = outcome(str(tmp_path), Chosen("train.yaml", "axolotl", "training", "rtx-4090"))
    assert found.kind == "edit"
    assert (tmp_path / "train.yaml").read_text() == CONFIG
