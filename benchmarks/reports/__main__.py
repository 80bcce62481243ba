"""Prints how many reports of a draw are found at their line with a remedy, and the errors that are false.

A report is `found` where a finding of the severity that is expected stands at the line, names the cause and suggests a
remedy that the maintainers would give; `partly` where it stands there and names the cause, but is milder or suggests
nothing of the kind; else `missed`. An error is `false` where it is about something else than the cause, or about the
mended files.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent
OUTCOMES = ("found", "partly", "missed")

Finding = dict[str, Any]


class Answer(NamedTuple):
    """What gpulint says of one report."""

    name: str
    kind: str
    outcome: str
    false: list[str]


def findings(folder: Path, command: list[str]) -> list[Finding]:
    """What `gpulint` finds in a copy of a folder without the answers; and what it cannot read."""
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch, "report")
        shutil.copytree(folder, work, ignore=shutil.ignore_patterns("case.json"))
        words = [sys.executable, "-m", "gpulint", *command, "--output-format", "json"]
        done = subprocess.run(words, cwd=work, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout) if done.stdout.startswith("{") else {"findings": []}
    found: list[Finding] = report["findings"]
    return [*found, *map(_unread, _UNREAD.finditer(done.stderr))]


_UNREAD = re.compile(r"^gpulint: (?P<path>[^\s:]+):(?P<line>\d+)(?::\d+)?: (?P<message>.+)$", re.MULTILINE)


def _unread(match: re.Match[str]) -> Finding:
    """A named file that cannot be read is no finding of a rule: the command fails with its place and the reason."""
    return {
        **match.groupdict(), "line": int(match["line"]), "rule": "unreadable", "severity": "error",
        "notes": [match["message"]], "suggestions": [], "related": [],
    }  # fmt: skip


def names_cause(finding: Finding, wanted: dict[str, Any]) -> bool:
    """Whether a finding stands at one of the lines and names the cause, whatever its severity and its remedies."""
    lines = wanted.get("line", finding["line"])
    texts = [finding["message"], *finding["notes"], *_offers(finding), *map(_label, finding["related"])]
    at = finding["line"] in (lines if isinstance(lines, list) else [lines])
    told = re.sub(r"(?<=\d),(?=\d{3})", "", "\n".join(texts))
    return at and re.search(wanted.get("text", ""), told, re.IGNORECASE | re.DOTALL) is not None


def solves(finding: Finding, wanted: dict[str, Any]) -> bool:
    """Whether it is as severe as expected, and one of its suggestions is a remedy."""
    severities = wanted.get("severity", finding["severity"])
    severe = finding["severity"] in (severities if isinstance(severities, list) else [severities])
    remedy = "offers" not in wanted or any(
        re.search(wanted["offers"], text, re.IGNORECASE | re.DOTALL) for text in (*_offers(finding), *finding["notes"])
    )
    return severe and remedy


def _offers(finding: Finding) -> list[str]:
    return [item["text"] for item in finding["suggestions"]]


def _label(related: dict[str, Any]) -> str:
    return str(related.get("label") or related.get("message") or "")


def answer(folder: Path) -> Answer:
    """What gpulint says of the report in a folder, and of its mended files."""
    case = json.loads((folder / "case.json").read_text())
    first, *mended = case["runs"]
    (wanted,) = first["must"]
    found = findings(folder, first["command"])
    named = [finding for finding in found if names_cause(finding, wanted)]
    outcome = "missed" if not named else "found" if any(solves(item, wanted) for item in named) else "partly"
    other = [item for item in found if item["severity"] == "error" and item not in named]
    for run in mended:
        unwanted = run.get("must_not", [{}])
        errors = (item for item in findings(folder, run["command"]) if item["severity"] == "error")
        other += [item for item in errors if any(names_cause(item, each) for each in unwanted)]
    told = [f"{item['path']}:{item['line']} {item['rule']} {item['message']}" for item in other]
    return Answer(folder.name, case["kind"], outcome, told)


def main() -> None:
    """The table of a draw, `first` where none is named; `--missed` lists the others too."""
    names = [word for word in sys.argv[1:] if not word.startswith("-")] or ["first"]
    for draw in names:
        folders = sorted(path.parent for path in (FOLDER / draw).glob("*/case.json"))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            answers = list(pool.map(answer, folders))
        counts = Counter(item.outcome for item in answers)
        share = f"{counts['found'] / len(answers):.0%}"
        print(f"{draw}: {len(answers)} reports, {', '.join(f'{counts[name]} {name}' for name in OUTCOMES)}: {share}")
        for item in answers:
            if "--missed" in sys.argv and item.outcome != "found":
                print(f"  {item.outcome:6} {item.name}: {item.kind}")
            for text in item.false:
                print(f"  false  {item.name}: {text}")


if __name__ == "__main__":
    main()
