import json
from pathlib import Path

import pytest

from gpulint.formats.core import keys
from gpulint.formats.core.keys import MAX_SUGGESTIONS, default, key_problems, unknown_keys
from gpulint.source.read import parse

SCHEMAS = Path(__file__).parents[2] / "schemas"
OWN = ("axolotl", "deepspeed", "accelerate")


def found(text, schema="axolotl", syntax="yaml", **options):
    return [
        (problem.kind, problem.key, problem.values)
        for problem in key_problems(parse(text, f"c.{syntax}", syntax), schema, **options)
    ]


def test_a_known_key_is_silent():
    assert found("base_model: m\nlearning_rate: 2e-4\nsequence_len: '2048'\n") == []


def test_an_unknown_key_gets_a_suggestion_and_its_treatment():
    ((kind, key, values),) = found("base_model: m\nmicro_batchsize: 2\n")
    assert (kind, key) == ("unknown-key", "micro_batchsize")
    assert values["suggestion"] == "micro_batch_size"
    assert values["treatment"] == "ignored"
    assert values["upstream"] == "axolotl 0.19.0"


def test_the_span_is_that_of_the_key():
    (problem,) = unknown_keys(parse("base_model: m\n  \nsequence_length: 2\n", "c.yaml", "yaml"), "axolotl")
    assert (problem.span.line, problem.span.column, problem.span.end_column) == (3, 1, 16)


def test_a_key_of_another_section_is_found_there():
    ((_, key, values),) = found("base_model: m\nnum_generations: 8\n")
    assert key == "num_generations"
    assert values["suggestion"] == "trl.num_generations"


def test_nested_sections_have_their_own_keys():
    ((kind, key, values),) = found("base_model: m\ntrl:\n  num_generation: 8\n")
    assert (kind, key, values["suggestion"]) == ("unknown-key", "trl.num_generation", "trl.num_generations")
    assert values["spelling"] == "num_generations"


def test_deepspeed_refuses_inside_zero_and_ignores_at_the_top():
    problems = found(
        '{"zero_optimization": {"stage": 3, "offload_parm": {}}, "zero_optimisation": {}}', "deepspeed", "json"
    )
    assert [(key, values["treatment"], values["suggestion"]) for _, key, values in problems] == [
        ("zero_optimization.offload_parm", "refused", "zero_optimization.offload_param"),
        ("zero_optimisation", "ignored", "zero_optimization"),
    ]


def test_auto_stands_for_any_value():
    assert (
        found(
            '{"train_batch_size": "auto", "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"}}',
            "deepspeed",
            "json",
        )
        == []
    )


def test_a_value_upstream_would_refuse_is_a_wrong_type():
    ((kind, key, values),) = found("base_model: m\nwarmup_steps: 0.1\n")
    assert (kind, key, values["expected"], values["found"]) == ("wrong-type", "warmup_steps", "a whole number", "0.1")


def test_a_list_where_a_mapping_belongs():
    ((kind, key, values),) = found("base_model: m\nfsdp_config: [a]\n")
    assert (kind, key, values["found"]) == ("wrong-type", "fsdp_config", "a list")


@pytest.mark.parametrize("blank", ["${BATCH}", "'{{ batch }}'", ""])
def test_blanks_are_no_wrong_type(blank):
    assert found(f"base_model: m\nmicro_batch_size: {blank}\n") == []


def test_a_key_of_another_section_is_named_but_not_renamed():
    ((_, _, values),) = found('{"zero_optimization": {"stage": 3}, "overlap_comm": true}', "deepspeed", "json")
    assert (values["suggestion"], values["spelling"]) == ("zero_optimization.overlap_comm", "")


def test_a_misspelt_old_key_leads_to_the_new_one():
    ((_, key, values),) = found("base_model: m\nevaluation_stratgy: steps\n")
    assert (key, values["suggestion"]) == ("evaluation_stratgy", "eval_strategy")


def test_a_removed_key_is_never_suggested():
    ((_, _, values),) = found("base_model: m\nmax_packed_sequence_length: 8\n")
    assert values["suggestion"] != "max_packed_sequence_len"


def test_an_old_key_whose_successor_takes_another_value_is_not_renamed():
    ((kind, _, values),) = found("base_model: m\nflash_attention: true\n")
    assert (kind, values["replacement"], values["spelling"]) == ("deprecated-key", "", "")
    assert "attn_implementation" in values["instead"]


def test_a_renamed_key_of_a_section_stays_there():
    ((_, _, values),) = found("base_model: m\nfsdp_config: {fsdp_offload_params: true}\n")
    assert (values["replacement"], values["spelling"]) == ("fsdp_config.offload_params", "offload_params")


@pytest.mark.parametrize("key", ["'{{ key }}'", "'${KEY}'", "__KEY__"])
def test_a_key_that_is_filled_in_is_not_unknown(key):
    assert found(f"base_model: m\n{key}: 1\n") == []


def test_old_keys_name_their_successor():
    ((kind, key, values),) = found("base_model: m\nevaluation_strategy: steps\n")
    assert (kind, key, values["replacement"], values["treatment"]) == (
        "deprecated-key", "evaluation_strategy", "eval_strategy", "accepted",
    )  # fmt: skip


def test_removed_keys_are_refused_unless_they_do_nothing():
    ((kind, _, values),) = found("base_model: m\ns2_attention: true\n")
    assert (kind, values["treatment"]) == ("deprecated-key", "refused")
    assert found("base_model: m\ns2_attention: false\n") == []
    assert found("base_model: m\ns2_attention:\n") == []


def test_an_unknown_key_without_a_value_has_no_effect_and_is_silent():
    assert found("base_model: m\ndebug:\n") == []


@pytest.mark.parametrize("key", ["_comment", "x-anchors", "//"])
def test_keys_set_aside_are_silent(key):
    assert found(json.dumps({"zero_optimization": {"stage": 1}, key: 1}), "deepspeed", "json") == []


def test_a_plugin_key_without_its_plugin_does_nothing():
    text = "base_model: m\nliger_rope: true\n"
    ((kind, key, values),) = found(text, plugins=[])
    assert (kind, key, values["plugin"]) == ("unknown-key", "liger_rope", "axolotl.integrations.liger.LigerPlugin")
    assert found(text, plugins=["axolotl.integrations.liger.LigerPlugin"]) == []


def test_a_mapping_that_may_have_several_shapes_takes_the_keys_of_all():
    text = (
        "base_model: m\ndatasets:\n  - {path: a/b, type: alpaca, shards: 2}\n"
        "  - {path: synthetic, type: _synthetic, length: 5}\n"
    )
    assert found(text) == []
    ((_, key, _),) = found("base_model: m\ndatasets:\n  - {path: a/b, typ: alpaca}\n")
    assert key == "datasets.typ"


def test_the_last_of_equal_keys_counts_once():
    assert len(found("base_model: m\nsequence_length: 1\nsequence_length: 2\n")) == 1


def test_did_you_mean_is_bounded():
    text = "base_model: m\n" + "".join(f"micro_batch_sizes_{number}: 1\n" for number in range(MAX_SUGGESTIONS * 3))
    problems = found(text)
    assert len(problems) == MAX_SUGGESTIONS * 3
    assert sum(bool(values["suggestion"]) for _, _, values in problems) <= MAX_SUGGESTIONS


def test_defaults_are_upstreams():
    assert default("axolotl", "sequence_len") == 512
    assert default("axolotl", "vllm.gpu_memory_utilization") == 0.9
    assert default("deepspeed", "zero_optimization.stage3_prefetch_bucket_size") == 50_000_000
    with pytest.raises(KeyError):
        default("axolotl", "no_such_key")


@pytest.mark.parametrize("name", OWN)
def test_the_schema_is_json_schema_and_every_reference_leads_somewhere(name):
    from jsonschema import Draft202012Validator

    schema = json.loads((SCHEMAS / f"{name}.json").read_text())
    Draft202012Validator.check_schema(schema)
    definitions = schema.get("$defs", {})

    def references(part):
        if isinstance(part, dict):
            if "$ref" in part:
                yield part["$ref"]
            for value in part.values():
                yield from references(value)
        elif isinstance(part, list):
            for value in part:
                yield from references(value)

    assert {reference.rpartition("/")[2] for reference in references(schema)} <= set(definitions)
    assert keys.upstream(name).split()[1][0].isdigit()


@pytest.mark.parametrize("name", OWN)
def test_every_default_fits_its_own_schema(name):
    from jsonschema import Draft202012Validator

    schema = json.loads((SCHEMAS / f"{name}.json").read_text())
    for key, part in schema["properties"].items():
        if "default" in part:
            whole = {**part, "$defs": schema.get("$defs", {})}
            assert Draft202012Validator(whole).is_valid(part["default"]), key
