from __future__ import annotations

import json
import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from gpulint.finding import FileResult, Finding, JobResult, Location, Report, Suggestion
from gpulint.report import registry
from gpulint.report.data import github, json_estimate, json_report, sarif
from gpulint.report.html import svg
from gpulint.report.text import estimate as text_estimate
from gpulint.report.text import full
from gpulint.rules.load import RuleText
from gpulint.source.edit.replacement import Edit
from gpulint.source.node import Span

RESULT = JobResult("", "exceeds")

RULES = [
    RuleText("GPU101", "optimizer-states-exceed-gpu", "error", "Optimizer states exceed the GPU", "They do.", ""),
    RuleText("GPU001", "unknown-key", "warning", "Nobody reads this key", "A typo is silent.", "https://example.org/r"),
    RuleText("GPU999", "never-fired", "info", "Not in the log", "", ""),
]


def test_text(report, golden):
    golden("report.txt", full.render(report))


def test_text_in_colour_is_the_same_text(report):
    plain = re.sub(r"\x1b\[[0-9;]*m", "", full.render(report, colour=True))
    assert plain == full.render(report)


@pytest.mark.parametrize("width", [60, 80, 100])
def test_messages_break_at_the_width_of_the_terminal(report, width):
    lines = full.render(report, width=width).splitlines()
    framed = [line for line in lines if " | " in line and "GiB)" not in line and "->" not in line]
    assert max(map(len, framed)) <= width
    words = " ".join(" ".join(line.split("|", 1)[1].strip(" ^-") for line in framed).split())
    assert report.findings[0].message in words


def test_links_lead_to_the_file_and_show_the_same(report):
    linked = full.render(report, links=True)
    assert "\x1b]8;;file:///" in linked
    assert re.sub(r"\x1b\]8;;[^\x1b]*\x1b\\", "", linked) == full.render(report)


def test_json(report, golden):
    golden("report.json", json_report.render(report))


def test_sarif(report, golden):
    golden("report.sarif", sarif.render(report, RULES, "0.1.0"))


def test_github(report, golden):
    golden("report.github", github.render(report))


@pytest.mark.parametrize("name", ["concise", "grouped", "json-lines", "rdjson", "gitlab", "junit", "azure", "markdown"])
def test_other_formats(report, golden, name):
    golden(f"report.{name}", rendered(name, report))


def test_estimate_text(estimate, golden):
    golden("estimate.txt", text_estimate.render("train.yaml", estimate, explain=True))


def test_derivation_fits_a_terminal(estimate):
    derivation = text_estimate.render("train.yaml", estimate, explain=True).partition("Derivation\n")[2]
    assert "60.00 GiB = 2 tensors x 4 B x 8,030,261,248  mean and variance\n" in derivation
    assert max(map(len, derivation.splitlines())) <= 100


def test_derivation_as_json(estimate):
    plain, told = (
        json.loads(json_estimate.render([("a", estimate, RESULT)], explain=explain)) for explain in (False, True)
    )
    assert "terms" not in plain["estimates"][0]
    assert [term["bytes"] for term in told["estimates"][0]["terms"]] == [term.size for term in estimate.terms]


def test_estimate_json(estimate, golden):
    golden("estimate.json", json_estimate.render([("train.yaml", estimate, RESULT)]))


def test_estimate_svg(estimate, golden):
    golden("estimate.svg", svg.render([("train.yaml", estimate, RESULT)]))


def test_svg_holds_hostile_names(estimate):
    ET.fromstring(
        svg.render([('<a onload="x">\x1b&', estimate, RESULT), ("b", replace(estimate, capacity=None), RESULT)])
    )


def test_no_output_format_lets_a_workflow_command_or_escape_through(report):
    for rendered in (full.render(report), github.render(report)):
        assert "\x1b" not in rendered
        assert "##[" not in rendered
        assert "\u202e" not in rendered
        commands = [line for line in rendered.splitlines() if line.lstrip().startswith("::")]
        assert len(commands) in (0, 3)


def test_secrets_are_not_printed(report):
    span = report.findings[0].location.span._replace(line=2)
    finding = replace(report.findings[0], location=replace(report.findings[0].location, span=span))
    rendered = full.render(Report(findings=[finding], texts=report.texts))
    assert "hf_token" in rendered
    assert "hf_abc" not in rendered


def test_json_estimate_components_sum_to_allocated(estimate):
    item = json_estimate.as_object("train.yaml", estimate, RESULT)
    split = dict(item["components"])
    split.pop("runtime")
    assert sum(split.values()) == item["per_gpu"]["allocated"]


@pytest.mark.parametrize("name", registry.FORMATS)
def test_an_empty_report_renders(name):
    assert isinstance(rendered(name, Report()), str)


def rendered(name: str, report: Report) -> str:
    return registry.render(name, report, registry.Context("0.1.0", False, False, 0, False, lambda: RULES, list))


def hostile(text: str) -> Report:
    """A report in which everything that a file can decide is `text`."""
    span = Span(1, 1, 1, 2, 0, 1)
    place = Location(text, span, text)
    finding = Finding(
        "GPU001", "unknown-key", "warning", "high", text, place, (place,), (Suggestion(text, 1),), (text,)
    )  # fmt: skip
    files = [FileResult(text, "axolotl", "checked"), FileResult("b", None, "error", text, 1, 1)]
    return Report(files, [finding], {text: text})


HOSTILE = (
    "\x1b[31mred\x07", "##[add-mask]x", "##vso[task.setvariable variable=x]y", "::set-output name=a::b\r\n::error::x",
    "]]>&lt;<script>alert(1)</script>", "| `a` | [x](javascript:1) @everyone", "\u202egnp.exe", "a;b=c,d:e%0A",
    "\ud800", "``` \n</details><img src=x>", "x" * 300,
)  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("name", registry.FORMATS)
def test_hostile_text_stays_text(name, text):
    out = rendered(name, hostile(text))
    out.encode("utf-8")
    if name not in ("json", "json-lines", "sarif", "rdjson", "gitlab"):  # their encoder escapes
        assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", out)
    if name == "azure":
        assert all(re.match(r"##vso\[task\.logissue [^\]]*\]", line) for line in out.splitlines())
        assert out.count("##vso[") == 2
    elif name not in ("json", "json-lines", "sarif", "rdjson", "gitlab"):
        assert "##[" not in out
        assert "##vso[" not in out
    if name == "github":
        assert len([line for line in out.splitlines() if line.startswith("::")]) == len(out.splitlines()) == 2
    if name == "junit":
        ET.fromstring(out.encode())
    if name == "markdown":
        spoken = re.sub(r"(?<!`)(`+)(?!`)(.*?)(?<!`)\1(?!`)", "", out, flags=re.DOTALL)
        assert set(re.findall(r"(?<!\\)<\S", spoken)) <= {"<d", "<s", "</"}
        assert not re.search(r"@(?!\u200b)\w", spoken)
        assert out.count("</details>") - out.count("`</details>") >= 1
    if name in ("json", "sarif", "rdjson", "gitlab"):
        json.loads(out)


def test_junit_counts_what_it_holds(report):
    root = ET.fromstring(rendered("junit", report))
    assert int(root.get("tests")) == len(root.findall(".//testcase"))
    assert int(root.get("failures")) == len(root.findall(".//failure")) == 2
    assert int(root.get("errors")) == len(root.findall(".//error"))


def test_gitlab_fingerprints_are_unique(report):
    twice = replace(report, findings=[*report.findings, *report.findings])
    marks = [issue["fingerprint"] for issue in json.loads(rendered("gitlab", twice))]
    assert len(set(marks)) == len(marks) == 4


def test_rdjson_counts_bytes_and_carries_the_fix(report):
    text = "é: 1\nb: 2\n"
    edit = Edit("x.yaml", 3, 4, "9")
    finding = Finding(
        "GPU001", "n", "warning", "high", "m", Location("x.yaml", Span(1, 4, 1, 5, 3, 4)),
        suggestions=(Suggestion("s", None, "safe", (edit,)),),
    )  # fmt: skip
    (item,) = json.loads(rendered("rdjson", Report(findings=[finding], texts={"x.yaml": text})))["diagnostics"]
    span = {"start": {"line": 1, "column": 5}, "end": {"line": 1, "column": 6}}
    assert item["location"]["range"] == span
    assert item["suggestions"] == [{"range": span, "text": "9"}]


def test_a_long_report_fits_a_comment(report):
    many = replace(report, findings=[replace(report.findings[0], message="word " * 40)] * 900)
    out = rendered("markdown", many)
    assert len(out) < 65_536
    assert "900 findings do not fit in one comment" in out


def test_an_empty_sarif_log_has_results():
    assert json.loads(sarif.render(Report(), RULES, "0.1.0"))["runs"][0]["results"] == []


def test_sarif_keeps_to_the_limits_of_code_scanning(report, monkeypatch):
    monkeypatch.setattr(sarif, "MAX_RESULTS", 3)
    monkeypatch.setattr(sarif, "MAX_LOCATIONS", 2)
    first = replace(report.findings[0], related=report.findings[0].related * 5)
    many = replace(report, findings=[*report.findings[1:] * 4, first])
    (run,) = json.loads(sarif.render(many, RULES, "0.1.0"))["runs"]
    assert [result["level"] for result in run["results"]] == ["error", "warning", "warning"]
    assert len(run["results"][0]["relatedLocations"]) == 1
    told = run["invocations"][0]["toolExecutionNotifications"]
    assert told[-1]["message"]["text"] == "2 findings left out, more than 3"
