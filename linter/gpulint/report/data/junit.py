"""JUnit XML, as CI servers show test results: a suite a file, a failed case a finding, one that passed if clean."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from ...finding import FileResult
from ..printable import printable

if TYPE_CHECKING:
    from ...finding import Finding, Report


def render(report: Report) -> str:
    """The XML text. A file that could not be read is an error; a skipped one, and a job whose memory was not checked,
    is skipped; infos are passed cases.

    A file that was only reached through another has a suite where something was found in it.
    """
    files = {file.path: file for file in report.files}
    for finding in report.findings:
        files.setdefault(finding.location.path, FileResult(finding.location.path, None, "checked"))
    suites = [_suite(file, report) for file in files.values()]
    failures = sum(finding.severity != "info" for finding in report.findings)
    total = sum(suite.count("<testcase ") for suite in suites)
    head = f'<testsuites name="gpulint" tests="{total}" failures="{failures}" errors="{report.count("error")}">'
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', head, *suites, "</testsuites>"])


def _suite(file: FileResult, report: Report) -> str:
    found = [finding for finding in report.findings if finding.location.path == file.path]
    failures = sum(finding.severity != "info" for finding in found)
    cases = [_case(finding) for finding in found]
    if file.status == "error":
        cases.append(_named("read", file, f"<error message={_attribute(file.reason)}/>"))
    elif file.status == "skipped":
        cases.append(_named("read", file, _skipped(file.reason)))
    elif not cases:
        cases.append(_named("no findings", file, ""))
    unchecked = [job for job in file.jobs if job.unchecked]
    cases += [_named(f"memory {job.part}".strip(), file, _skipped(job.unchecked)) for job in unchecked]
    counts = {"tests": len(cases), "failures": failures, "errors": int(file.status == "error")}
    counts["skipped"] = int(file.status == "skipped") + len(unchecked)
    numbers = " ".join(f'{name}="{number}"' for name, number in counts.items())
    return "\n".join([f"  <testsuite name={_attribute(file.path)} {numbers}>", *cases, "  </testsuite>"])


def _skipped(why: str) -> str:
    return f"<skipped message={_attribute(why)}/>"


def _named(name: str, file: FileResult, body: str) -> str:
    return f"    <testcase name={_attribute(name)} classname={_attribute(file.path)}>{body}</testcase>"


def _case(finding: Finding) -> str:
    span = finding.location.span
    place = f"line {span.line}, column {span.column}"
    name = _attribute(f"{finding.rule} {finding.name} ({span.line}:{span.column})")
    head = f"    <testcase name={name} classname={_attribute(finding.location.path)}"
    advice = [f"help: {suggestion.text}" for suggestion in finding.suggestions]
    text = _text("\n".join([f"{place}: {finding.message}", *finding.notes, *advice]))
    if finding.severity == "info":
        return f"{head}><system-out>{text}</system-out></testcase>"
    what = f"message={_attribute(finding.message)} type={_attribute(finding.severity)}"
    return f"{head}><failure {what}>{text}</failure></testcase>"


def _text(text: str) -> str:
    return escape("\n".join(printable(line) for line in text.split("\n")))


def _attribute(text: str) -> str:
    return quoteattr(printable(text))
