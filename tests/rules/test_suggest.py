from __future__ import annotations

import pytest

from gpulint.hardware.catalogue import find, gpus
from gpulint.rules.suggest.enough import as_able

LORA = "adapter: lora\nlora_r: 16\nlora_target_linear: true\n"


def memory_errors(checked):
    return [
        finding
        for finding in checked.findings
        if finding.rule.startswith(("GPU1", "GPU2")) and finding.severity == "error"
    ]


CASES = [
    ("8B", "2048", "", "a100-40gb", 1),
    ("8B", "2048", "", "a100-80gb", 8),
    ("70B", "2048", "", "h100-80gb", 8),
    ("70B", "2048", LORA, "h100-80gb", 1),
    ("8B", "131072", LORA, "h100-80gb", 1),
    ("8B", "16384", LORA, "rtx-4090", 1),
]


@pytest.mark.parametrize(("size", "length", "extra", "gpu", "gpus"), CASES)
def test_after_any_suggested_edit_no_memory_error_is_left(check, axolotl, edited, size, length, extra, gpu, gpus):
    text = axolotl.replace("8B", size).replace("2048", length) + extra
    checked = check(text, gpu, gpus)
    errors = memory_errors(checked)
    for finding in errors:
        assert finding.suggestions
        for suggestion in finding.suggestions:
            assert suggestion.per_gpu is not None
            if suggestion.edits:
                again = check(edited(text, suggestion), gpu, gpus)
                assert memory_errors(again) == []
                assert suggestion.applicability in ("safe", "unsafe")


def test_fsdp_that_accumulates_whole_gradients_is_told_to_pass_the_batch_at_once(check, axolotl):
    fsdp = "fsdp_version: 2\nfsdp_config: {reshard_after_forward: true, auto_wrap_policy: TRANSFORMER_BASED_WRAP}\n"
    text = axolotl.replace("8B", "70B") + fsdp
    finding = memory_errors(check(text, "h200-141gb", 16))[0]
    assert any("unsharded gradients" in note for note in finding.notes)
    assert "gradient_accumulation_steps: 1" in finding.suggestions[0].text


def test_suggestions_that_fit_come_with_their_bytes_least_change_first(check, axolotl):
    finding = check(axolotl, "a100-40gb", 1).findings[0]
    assert 1 <= len(finding.suggestions) <= 4
    usable = finding.estimate.capacity.usable
    assert all(suggestion.per_gpu <= usable for suggestion in finding.suggestions)


def test_when_nothing_fits_the_smallest_hardware_is_named(check, axolotl):
    text = axolotl.replace("8B", "405B")
    finding = memory_errors(check(text, "t4", 1))[0]
    assert finding.suggestions[0].text.endswith("no GPU in the catalogue is large enough")
    larger = memory_errors(check(axolotl.replace("8B", "70B") + LORA, "t4", 1))[0]
    assert any("fits on" in suggestion.text and suggestion.per_gpu for suggestion in larger.suggestions)


@pytest.mark.parametrize(("gpu", "oldest"), [("rtx-4090", 8.0), ("a100-40gb", 8.0), ("t4", 7.5), ("v100-16gb", 7.0)])
def test_a_larger_card_is_never_of_an_older_kind(gpu, oldest):
    """An RTX 8000 has more memory than an A100 of 40 GB, and no bfloat16."""
    now = find(gpu)
    for card in gpus():
        if card.compute_capability is not None and card.usable > now.usable:
            assert as_able(card, now) == (card.compute_capability >= oldest), card.name


def test_offload_into_more_memory_than_nodes_have_is_not_suggested(check, axolotl):
    finding = memory_errors(check(axolotl.replace("8B", "405B"), "h100-80gb", 8))[0]
    assert not any("offload" in suggestion.text for suggestion in finding.suggestions)
    smaller = memory_errors(check(axolotl.replace("8B", "70B"), "a100-40gb", 8))[0]
    offload = [suggestion for suggestion in smaller.suggestions if "offload" in suggestion.text]
    assert offload
    assert "of host RAM" in offload[0].text


def test_a_rename_is_offered_and_cures_the_finding(check, axolotl, edited):
    text = axolotl + LORA + "gradient_acumulation_stepss: 8\n".replace("gradient_acumulation_stepss", "warmup_stps")
    finding = next(finding for finding in check(text).findings if finding.rule == "GPU001")
    (suggestion,) = finding.suggestions
    assert suggestion.per_gpu is None
    assert "warmup_steps" in edited(text, suggestion)
    assert check(edited(text, suggestion)).ids() == []


def test_a_suggestion_that_would_make_another_error_is_not_shown(check, axolotl):
    fsdp = "fsdp_version: 2\nfsdp_config:\n  auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
    text = axolotl.replace("8B", "70B") + fsdp
    for finding in memory_errors(check(text, "h100-80gb", 4)):
        for suggestion in finding.suggestions:
            assert "adamw_8bit" not in suggestion.text


@pytest.mark.parametrize(("before", "severity", "shown"), [(1, "error", 0), (1, "warning", 1), (6, "error", 1)])
def test_a_remedy_that_trips_another_error_is_not_shown(check, axolotl, own_rule, before, severity, shown):
    """It may trip a warning, and an error that is there without it."""
    selection = own_rule(when="packing == true", suggest=[{"set": {"packing": False, "micro_batch_size": 5}}])
    other = own_rule(id="TEAM002", name="large-batches", when="micro_batch_size >= 5", severity=severity)
    both = selection._replace(rules=(*selection.rules, *other.rules))
    text = axolotl.replace("micro_batch_size: 1", f"micro_batch_size: {before}")
    found = next(item for item in check(text, selection=both).findings if item.rule == "TEAM001")
    assert len(found.suggestions) == shown


def test_suggestions_say_what_they_cost_and_how_much_they_save(check, axolotl):
    finding = memory_errors(check(axolotl, "a100-40gb", 1))[0]
    now = finding.estimate.needed
    for suggestion in finding.suggestions:
        assert suggestion.effect == now - suggestion.per_gpu > 0
    assert any("quality" in suggestion.cost for suggestion in finding.suggestions if "lora" in suggestion.text)
