"""The JSON that is printed is the JSON that `schemas/` describes, which is what its classes declare."""

from __future__ import annotations

import json
import sys
from dataclasses import fields, is_dataclass

import jsonschema
import pydantic
import pytest
from click.testing import CliRunner

from gpulint.cli import main
from gpulint.finding import JobResult
from gpulint.report.data import json_estimate, json_report, shape
from gpulint.settings.keys import KEYS


@pytest.fixture
def schema(root):
    def read(name: str):
        return json.loads((root / "schemas" / f"{name}.json").read_text(encoding="utf-8"))

    return read


@pytest.mark.parametrize("name", ["report", "estimate", "plan", "settings", "rule", "job"])
def test_every_schema_is_one(schema, name):
    jsonschema.Draft202012Validator.check_schema(schema(name))


@pytest.mark.skipif(
    tuple(map(int, pydantic.VERSION.split(".")[:2])) < (2, 13), reason="older releases spell the same schema otherwise"
)
def test_the_schemas_are_made_of_their_classes(root, monkeypatch):
    monkeypatch.syspath_prepend(str(root / "scripts"))
    from declared_schemas import texts

    made = dict(texts())
    sys.modules.pop("declared_schemas")
    assert sorted(made) == ["estimate", "job", "plan", "report", "rule", "settings"]
    for name, text in made.items():
        assert (root / "schemas" / f"{name}.json").read_text(encoding="utf-8") == text, "run python scripts/build.py"


def test_every_field_of_the_output_has_a_meaning_and_sizes_have_their_unit():
    classes = [each for each in vars(shape).values() if is_dataclass(each)]
    assert shape.PerGpu in classes
    assert shape.Finding in classes
    for each in classes:
        for item in fields(each):
            assert item.metadata["description"].endswith("."), (each, item.name)
    sizes = [item for each in (shape.PerGpu, shape.Components, shape.HostMemory) for item in fields(each)]
    assert {item.metadata["json_schema_extra"]["x-unit"] for item in sizes} == {"bytes"}


SFT = (
    "base_model: meta-llama/Llama-3.1-8B\nmicro_batch_size: 9\nsequence_len: 4096\nadapter: lora\nlora_r: 16\n"
    "lora_alpha: 8\nlora_target_linear: true\ndatasets: [{path: a, type: alpaca}]\n"
)
SERVER = "#!/bin/sh\nvllm serve meta-llama/Llama-3.1-8B --max-model-len 8192 --tensor-parallel-size 2\n"


@pytest.fixture
def configs(tmp_path, monkeypatch):
    """A training config that needs too much, a server, one that is no config, and one that cannot be read."""
    monkeypatch.chdir(tmp_path)
    for name, text in (("train.yaml", SFT), ("serve.sh", SERVER), ("other.yaml", "a: 1\n"), ("broken.yaml", "a: [\n")):
        (tmp_path / name).write_text(text)
    return ["train.yaml", "serve.sh", "other.yaml", "broken.yaml"]


def printed(*arguments):
    return json.loads(CliRunner().invoke(main, list(arguments)).stdout)


def test_what_check_prints(schema, configs):
    made = printed("check", "--isolated", "--output-format", "json", "--gpu", "t4", *configs)
    jsonschema.validate(made, schema("report"))
    assert {each["status"] for each in made["files"]} >= {"checked", "error"}
    memory = [each for each in made["findings"] if "estimate" in each]
    assert [each["path"] for each in memory] == ["train.yaml"]
    assert any(each["edits"] for finding in memory for each in finding["suggestions"])


def test_each_line_of_json_lines_is_a_finding(schema, configs):
    result = CliRunner().invoke(main, ["check", "--isolated", "--output-format", "json-lines", "--gpu", "t4", *configs])
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert found
    for finding in found:
        jsonschema.validate(finding, schema("report")["properties"]["findings"]["items"])


@pytest.mark.parametrize("options", [(), ("--explain",), ("--gpu", "a100-80gb", "--gpus", "2", "--explain")])
def test_what_estimate_prints(schema, configs, options):
    made = printed("estimate", "--isolated", "--format", "json", *options, *configs[:2])
    jsonschema.validate(made, schema("estimate"))
    training, server = made["estimates"]
    assert (training["kind"], server["kind"]) == ("training", "inference")
    assert ("terms" in training) == ("--explain" in options)


def test_a_key_that_is_not_declared_is_no_report(schema, report):
    made = json_report.as_object(report)
    made["findings"][0]["colour"] = "red"
    with pytest.raises(jsonschema.ValidationError, match="colour"):
        jsonschema.validate(made, schema("report"))


def test_the_report(schema, report):
    jsonschema.validate(json_report.as_object(report), schema("report"))


def test_the_estimate(schema, estimate):
    for explain in (False, True):
        made = json.loads(json_estimate.render([("train.yaml", estimate, JobResult("", "fits"))], explain=explain))
        jsonschema.validate(made, schema("estimate"))


def test_the_plan(schema, tmp_path):
    from gpulint.launchers.reading import open_config
    from gpulint.report.data import json_plan
    from gpulint.rules.facts.facts import Facts
    from gpulint.rules.load import load_rules
    from gpulint.rules.suggest.plan import plan_of
    from gpulint.settings.settings import Settings

    path = tmp_path / "job.yaml"
    path.write_text(
        "gpulint: job/v1\nkind: training\nmodel: meta-llama/Llama-3.1-8B\nweights: {dtype: bfloat16}\n"
        "micro_batch_size: 4\nsequence_length: 2048\n"
    )
    for gpu in ("a100-80gb", "b300-288gb", None):
        opened = open_config(str(path), Settings(gpu=gpu, root=str(tmp_path)))
        plan = plan_of(Facts(opened.reading, opened.project, opened.gpu), load_rules())
        jsonschema.validate(json.loads(json_plan.render([("job.yaml", plan)], "rank")), schema("plan"))


def test_the_settings_file_has_the_keys_of_its_schema(schema):
    assert {*KEYS, "extend", "overrides", "suppressions"} == set(schema("settings")["properties"])


def test_sarif_has_the_shape_that_code_scanning_needs(report):
    """A part of SARIF 2.1.0 in our own words; the whole is checked with the published schema by hand at releases."""
    from gpulint.report.data import sarif

    log = json.loads(sarif.render(report, [], "0.1.0"))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    assert run["tool"]["driver"]["name"] == "gpulint"
    for result in run["results"]:
        assert result["level"] in ("error", "warning", "note")
        assert result["message"]["text"]
        region = result["locations"][0]["physicalLocation"]["region"]
        assert 1 <= region["startLine"] <= region["endLine"]
        assert min(region["startColumn"], region["endColumn"]) >= 1
        assert result["partialFingerprints"]
