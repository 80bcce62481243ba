"""What people are told of a folder: a fact once, with its places, the gravest first, on one screen."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gpulint.finding import FileResult, Finding, Location, Report
from gpulint.report import registry
from gpulint.report.problems import SCREEN, is_retired, told
from gpulint.source.node import Span


def finding(path, line=1, message="m", rule="GPU101", severity="error") -> Finding:
    span = Span(line, 1, line, 2, 2 * line - 2, 2 * line - 1)
    return Finding(rule, f"name-{rule}", severity, "high", message, Location(path, span), fingerprint=f"{path}{line}")


def report_of(*findings: Finding, texts: dict[str, str] | None = None) -> Report:
    paths = dict.fromkeys(item.location.path for item in findings)
    same = {path: f"# {path}\n" * 50 for path in paths}
    return Report([FileResult(path, "axolotl", "checked") for path in paths], [*findings], {**same, **(texts or {})})


def rendered(name: str, report: Report, *, once: bool = True, most: int | None = None) -> str:
    return registry.render(name, report, registry.Context("0", False, False, 0, False, list, list, once, most))


MANY = [finding(f"{number}/a.yaml", number + 1) for number in range(7)]


@pytest.mark.parametrize("name", ["full", "grouped", "github", "azure", "markdown"])
def test_a_fact_of_many_files_is_told_once_with_its_places(name):
    out = rendered(name, report_of(*MANY, finding("b.yaml", message="another")))
    assert "also in 6 files: 1/a.yaml:2, 2/a.yaml:3, 3/a.yaml:4 and 3 more" in out
    assert "4/a.yaml" not in out
    assert out.count("also in") == 1
    assert "another" in out


@pytest.mark.parametrize("name", ["json", "sarif", "junit", "gitlab", "rdjson", "json-lines", "concise"])
def test_programs_are_told_every_place(name):
    report = report_of(*MANY)
    out = rendered(name, report, most=1)
    assert all(item.location.path in out for item in MANY)
    assert out == rendered(name, report, once=False) or name == "concise"


def test_all_findings_as_they_are_where_few_files_were_named():
    out = rendered("full", report_of(*MANY), once=False)
    assert all(f"{item.location.path}:{item.location.span.line}:1: error" in out for item in MANY)
    assert "7 errors in 7 files checked" in out


def test_the_totals_say_findings_and_problems():
    out = rendered("full", report_of(*MANY, finding("b.yaml", severity="warning")))
    assert out.splitlines()[-1] == "7 errors, 1 warning in 2 distinct problems; 8 files checked"
    assert rendered("full", report_of(MANY[0])).splitlines()[-1] == "1 error in 1 file checked"


@pytest.mark.parametrize("change", [{"message": "n"}, {"rule": "GPU102"}, {"severity": "warning"}])
def test_what_differs_is_told_apart(change):
    assert len(told(report_of(finding("a.yaml"), finding("b.yaml", **change)), once=True)) == 2


def test_other_lines_of_the_file():
    (problem,) = told(report_of(finding("a.yaml"), finding("a.yaml", 3), finding("a.yaml", 9)), once=True)
    assert problem.also() == ["also on lines 3, 9"]


def test_a_copy_is_named_also_where_the_message_differs():
    texts = dict.fromkeys(("a.yaml", "b/a.yaml"), "same\ntext\n")
    found = [finding("a.yaml", 2), finding("b/a.yaml", 2, message="of another release")]
    (problem,) = told(report_of(*found, texts=texts), once=True)
    assert problem.finding is found[0]
    assert problem.also() == ["also in 1 copy of this file: b/a.yaml"]
    assert len(told(report_of(*found), once=True)) == 2


def test_two_findings_at_one_place_of_a_copy_stay_two():
    texts = dict.fromkeys(("a.yaml", "b.yaml"), "same\n")
    found = [finding(path, message=message) for path in texts for message in ("first job", "second job")]
    problems = told(report_of(*found, texts=texts), once=True)
    assert [(item.finding.message, len(item.copies)) for item in problems] == [("first job", 1), ("second job", 1)]


def test_the_file_in_use_stands_for_its_retired_copies():
    texts = dict.fromkeys(("archive/a.yaml", "train/a.yaml", "z/old/a.yaml"), "same\n")
    (problem,) = told(report_of(*(finding(path) for path in texts), texts=texts), once=True)
    assert problem.finding.location.path == "train/a.yaml"
    assert problem.also() == ["also in 2 copies of this file: archive/a.yaml, z/old/a.yaml"]


@pytest.mark.parametrize(
    "path", ["old/a.yaml", "x/Archive/y/a.sh", "deprecated/a.sh", "a/legacy/b.sh", "backup/a.json", "a.bak", "a.bak.sh"]
)
def test_retired(path):
    assert is_retired(path)


@pytest.mark.parametrize("path", ["golden/a.yaml", "a/older/b.yaml", "old.yaml", "archive.sh", "bakery/a.yaml", "a.sh"])
def test_in_use(path):
    assert not is_retired(path)


def test_a_screen_has_errors_first_and_one_of_each_rule():
    found = [finding(f"{number}.yaml", message=f"w{number}", severity="warning") for number in range(40)]
    found += [finding(f"{number}.yaml", message=f"e{number}", rule="GPU102") for number in range(3)]
    found += [finding("9.yaml", message="e9", rule="GPU103"), finding("9.yaml", message="i", severity="info")]
    lines = rendered("full", report_of(*found), most=SCREEN).splitlines()
    heads = [line for line in lines if ": error" in line or ": warning" in line]
    assert [line.split()[2] for line in heads] == ["GPU102", "GPU103", "GPU102", "GPU102", *["GPU101"] * 4]
    assert len(lines) < 40 + len(heads) + 3
    assert "37 more findings (36 warnings, 1 info): --show-all, or --output-format json" in lines
    assert lines[-1] == "4 errors, 40 warnings, 1 info in 40 files checked"


def test_no_warning_takes_the_place_of_an_error():
    long = replace(finding("b.yaml", message="long", rule="GPU102"), notes=tuple(map(str, range(50))))
    found = [finding("a.yaml"), long, finding("c.yaml", message="short"), finding("d.yaml", severity="warning")]
    out = rendered("full", report_of(*found), most=SCREEN)
    assert "c.yaml:1:1: error" in out
    assert "2 more findings (1 error, 1 warning)" in out


def test_one_long_problem_is_shown():
    long = replace(finding("b.yaml"), notes=tuple(map(str, range(50))))
    assert "= 49" in rendered("full", report_of(long), most=SCREEN)


def test_infos_alone_are_counted():
    out = rendered("grouped", report_of(finding("a.yaml", severity="info")), most=SCREEN)
    assert out.splitlines()[0] == "1 more finding (1 info): --show-all, or --output-format json"


def test_a_password_in_a_message_is_in_no_output():
    item = finding("a.yaml", message="https://reader:Zebra91@example.com is unknown")
    item = replace(item, notes=("see https://reader:Zebra91@example.com",))
    for name in registry.FORMATS:
        assert "Zebra91" not in rendered(name, report_of(item)), name
    assert json.loads(rendered("json", report_of(item)))["findings"][0]["fingerprint"] == "a.yaml1"
