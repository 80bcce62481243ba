from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from gpulint.finding import Report
from gpulint.report import github, json_estimate, json_report, sarif, text, text_estimate
from gpulint.rules.load import RuleText

RULES = [
    RuleText("GPU101", "optimizer-states-exceed-gpu", "error", "Optimizer states exceed the GPU", "They do.", ""),
    RuleText("GPU001", "unknown-key", "warning", "Nobody reads this key", "A typo is silent.", "https://example.org/r"),
    RuleText("GPU999", "never-fired", "info", "Not in the log", "", ""),
]


def test_text(report, golden):
    golden("report.txt", text.render(report))


def test_text_in_colour_is_the_same_text(report):
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text.render(report, colour=True))
    assert plain == text.render(report)


def test_json(report, golden):
    golden("report.json", json_report.render(report))


def test_sarif(report, golden):
    golden("report.sarif", sarif.render(report, RULES, "0.1.0"))


def test_github(report, golden):
    golden("report.github", github.render(report))


def test_estimate_text(estimate, golden):
    golden("estimate.txt", text_estimate.render("train.yaml", estimate, explain=True))


def test_derivation_fits_a_terminal(estimate):
    derivation = text_estimate.render("train.yaml", estimate, explain=True).partition("derivation\n")[2]
    assert "60.00 GiB = 2 tensors x 4 B x 8,030,261,248  mean and variance\n" in derivation
    assert max(map(len, derivation.splitlines())) <= 100


def test_derivation_as_json(estimate):
    plain, told = (json.loads(json_estimate.render([("a", estimate)], explain=explain)) for explain in (False, True))
    assert "terms" not in plain["estimates"][0]
    assert [term["bytes"] for term in told["estimates"][0]["terms"]] == [term.size for term in estimate.terms]


def test_estimate_json(estimate, golden):
    golden("estimate.json", json_estimate.render([("train.yaml", estimate)]))


def test_no_output_format_lets_a_workflow_command_or_escape_through(report):
    for rendered in (text.render(report), github.render(report)):
        assert "\x1b" not in rendered
        assert "##[" not in rendered
        assert "\u202e" not in rendered
        commands = [line for line in rendered.splitlines() if line.lstrip().startswith("::")]
        assert len(commands) in (0, 3)


def test_secrets_are_not_printed(report):
    span = report.findings[0].location.span._replace(line=2)
    finding = replace(report.findings[0], location=replace(report.findings[0].location, span=span))
    rendered = text.render(Report(findings=[finding], texts=report.texts))
    assert "hf_token" in rendered
    assert "hf_abc" not in rendered


def test_json_estimate_components_sum_to_allocated(estimate):
    item = json_estimate.as_object("train.yaml", estimate)
    split = dict(item["components"])
    split.pop("runtime")
    assert sum(split.values()) == item["per_gpu"]["allocated"]


@pytest.mark.parametrize("renderer", [text.render, json_report.render, github.render])
def test_an_empty_report_renders(renderer):
    assert isinstance(renderer(Report()), str)


def test_an_empty_sarif_log_has_results():
    assert json.loads(sarif.render(Report(), RULES, "0.1.0"))["runs"][0]["results"] == []
