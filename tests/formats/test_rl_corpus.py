"""Formats around Hugging Face models with launch stacks of their own, against real published configs."""

import json

import pytest

from gpulint.run.check import check
from gpulint.settings.settings import Settings

LABELS = ("nemo_automodel", "nemo_rl", "oumi", "verl", "h2o_llmstudio", "prime_rl")

MISLABELLED = {"dapo-deepseek-v3-64n8g.v2.yaml"}
"""A NeMo RL config counted as verl."""

UNKNOWN = {
    "nemo_automodel": set(),
    "oumi": set(),
    "verl": set(),
    "h2o_llmstudio": {"mmax_time"},
    "prime_rl": set(),
    # read by Megatron forks only, by a former release, or written into the wrong section
    "nemo_rl": {
        "converter_type", "enable_expert_parallel", "average_in_collective", "moe_router_enable_expert_bias",
        "enforce_monotonicity", "max_num_seqs", "track_moe_metrics", "do_not_average_loss", "cp_normalize",
        "calculate_per_token_loss", "scale_loss_by_dp_cp_size", "override_opt_param_scheduler",
        "first_last_layers_bf16", "num_layers_at_start_in_bf16", "num_layers_at_end_in_bf16",
        "fully_parallel_save_process_group", "fully_parallel_load_process_group",
        "fully_parallel_load_exchange_algo", "activation_checkpointing_enabled",
    },
}  # fmt: skip
"""The last part of every key that is reported, each looked at: upstream's own mistakes or leftovers."""


@pytest.fixture(scope="module")
def reports(shared):
    folder = shared / "corpus"
    rows = json.loads((folder / "INDEX.json").read_text())
    found = {}
    for label in LABELS:
        paths = [str(folder / row["path"]) for row in rows if row["format"] == label]
        found[label] = check(paths, Settings())
    return found


@pytest.mark.parametrize("label", LABELS)
def test_every_file_is_read_or_says_why_not(reports, label):
    for file in reports[label].files:
        if file.path.rpartition("/")[2] in MISLABELLED:
            continue
        assert file.format == label, file.path
        assert file.status == "checked" or (file.status == "skipped" and file.reason), (file.path, file.reason)


@pytest.mark.parametrize("label", LABELS)
def test_every_reported_key_is_a_true_one(reports, label):
    findings = [item for item in reports[label].findings if "does not know" in item.message]
    keys = {item.message.split("`")[1].rpartition(".")[2] for item in findings}
    assert keys <= UNKNOWN[label]


@pytest.mark.parametrize("label", LABELS)
def test_no_error_on_what_upstream_ships(reports, label):
    assert [item.message for item in reports[label].findings if item.severity == "error"] == []
