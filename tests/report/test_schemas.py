"""The JSON that is printed is the JSON that `schemas/` describes."""

from __future__ import annotations

import json

import jsonschema
import pytest

from gpulint.report.data import json_estimate, json_report
from gpulint.settings.keys import KEYS


@pytest.fixture
def schema(root):
    def read(name: str):
        return json.loads((root / "schemas" / f"{name}.json").read_text(encoding="utf-8"))

    return read


@pytest.mark.parametrize("name", ["report", "estimate", "plan", "settings", "rule", "job"])
def test_every_schema_is_one(schema, name):
    jsonschema.Draft202012Validator.check_schema(schema(name))


def test_the_report(schema, report):
    jsonschema.validate(json_report.as_object(report), schema("report"))


def test_the_estimate(schema, estimate):
    for explain in (False, True):
        made = json.loads(json_estimate.render([("train.yaml", estimate)], explain=explain))
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
