from __future__ import annotations

import pytest

LORA = "adapter: lora\nlora_r: 16\nlora_target_linear: true\n"
ZERO3 = (
    '{"bf16": {"enabled": "auto"},'
    ' "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true},'
    ' "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}'
)


def only(checked):
    assert len(checked.findings) == 1, checked.ids()
    return checked.findings[0]


def test_a_clean_config_has_no_findings(check, axolotl):
    assert check(axolotl + LORA, "h100-80gb", 1).ids() == []


def test_without_a_gpu_memory_rules_are_silent(check, axolotl):
    assert check(axolotl.replace("8B", "70B")).ids() == []


def test_the_seed_finding(check, axolotl):
    finding = only(check(axolotl, "a100-40gb", 1))
    assert (finding.rule, finding.name, finding.severity) == ("GPU101", "optimizer-states-exceed-gpu", "error")
    assert finding.location.span.line == 10
    assert finding.estimate is not None
    assert "GiB" in finding.message
    assert finding.related


def test_one_overflow_is_one_finding(check, axolotl):
    for text, gpu, gpus in (
        (axolotl, "rtx-a4000", 1),
        (axolotl.replace("8B", "70B"), "h100-80gb", 8),
        (axolotl.replace("8B", "70B") + LORA, "h100-80gb", 8),
        (axolotl.replace("2048", "1048576") + LORA, "h100-80gb", 1),
    ):
        errors = [finding for finding in check(text, gpu, gpus).findings if finding.severity == "error"]
        assert len(errors) == 1


def test_an_ignored_rule_does_not_give_its_place_to_a_general_one(check, axolotl):
    from gpulint.rules.load import bundled, select

    rules, recipes = bundled()
    assert check(axolotl, "a100-40gb", 1, selection=select(rules, recipes, (), ("GPU101",))).ids() == []


def test_a_finding_points_into_the_referenced_file(check, axolotl):
    text = axolotl.replace("8B", "70B") + "deepspeed: ds/zero2.json\n"
    files = {"ds/zero2.json": ZERO3.replace('"stage": 3', '"stage": 2')}
    finding = only(check(text, "h100-80gb", 8, files=files))
    assert "ds/zero2.json" in {place.path for place in (finding.location, *finding.related)}


def test_a_finding_without_a_place_stands_at_the_model(check, axolotl, own_rule):
    selection = own_rule(at=["rl.generations"])
    assert only(check(axolotl, selection=selection)).location.span.line == 1
    no_model = check('{"train_batch_size": 8, "zero_optimization": {"stage": 2}}', name="ds.json", selection=selection)
    assert only(no_model).location.span[:2] == (1, 1)


def test_related_places_carry_labels(check, axolotl, own_rule):
    selection = own_rule(at=["optimizer.name", {"micro_batch_size": "{micro_batch_size} rows"}])
    finding = only(check(axolotl, selection=selection))
    assert [place.label for place in finding.related] == ["1 rows"]


def test_a_message_with_an_unknown_number_is_no_finding(check, axolotl, own_rule):
    assert check(axolotl, selection=own_rule(message="{gpu.usable}")).ids() == []


def test_an_unresolvable_note_is_left_out(check, axolotl, own_rule):
    assert only(check(axolotl, selection=own_rule(notes=["{gpu.usable}", "kept"]))).notes == ("kept",)


@pytest.mark.parametrize("count", [1, 2])
def test_each_runs_once_for_every_problem(check, axolotl, own_rule, count):
    text = axolotl + LORA + "".join(f"micro_batch_sise{n}: 2\n" for n in range(count))
    selection = own_rule(each="problems.unknown-key", at=["item"], message="`{item.key}`")
    findings = check(text, selection=selection).findings
    assert [finding.message for finding in findings] == [f"`micro_batch_sise{n}`" for n in range(count)]
    assert len({finding.fingerprint for finding in findings}) == count


def test_fingerprints_survive_moved_lines_and_differ_between_rules(check, axolotl):
    before = only(check(axolotl, "a100-40gb", 1))
    after = only(check("# a comment\n\n" + axolotl, "a100-40gb", 1))
    assert before.location.span.line != after.location.span.line
    assert before.fingerprint == after.fingerprint
    assert len(before.fingerprint) == 16
    other = only(check(axolotl.replace("8B", "70B") + LORA, "h100-80gb", 1))
    assert other.fingerprint != before.fingerprint


def test_an_assumed_number_of_gpus_lowers_severity_and_says_so(check, axolotl):
    text = axolotl.replace("8B", "70B") + "deepspeed: zero3.json\n"
    finding = only(check(text, "a100-40gb", None, files={"zero3.json": ZERO3}))
    stated = only(check(text, "a100-40gb", 8, files={"zero3.json": ZERO3}))
    assert (stated.severity, finding.severity) == ("error", "warning")
    assert finding.confidence != stated.confidence
    assert any("hardware.gpus 8" in note for note in finding.notes)


def test_secrets_are_not_printed(check, axolotl, own_rule):
    text = axolotl + LORA + "hub_token: abc\nwandb_api_key: hf_secretsecret\n"
    for key in ("hub_token", "wandb_api_key"):
        finding = only(check(text, selection=own_rule(message=f"{{config.{key}}}")))
        assert finding.message == "***"


def test_rules_apply_to_their_kind_and_format_only(check, axolotl, own_rule):
    assert check(axolotl, selection=own_rule(applies={"kind": "inference"})).ids() == []
    assert check(axolotl, selection=own_rule(applies={"formats": ["vllm"]})).ids() == []
    assert check(axolotl, selection=own_rule(applies={"kind": "training", "formats": ["axolotl"]})).ids() == ["TEAM001"]


def test_duplicate_keys_are_found_in_referenced_files_too(check, axolotl):
    twice = ZERO3.replace('"stage": 3', '"stage": 3, "stage": 3')
    checked = check(axolotl + LORA + "deepspeed: zero3.json\n", None, 2, files={"zero3.json": twice})
    assert [(finding.rule, finding.location.path) for finding in checked.findings] == [("GPU003", "zero3.json")]
