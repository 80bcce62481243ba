"""The baseline: findings that were there when gpulint came, written down so that only new ones are reported."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from ..settings.settings import SettingsError

if TYPE_CHECKING:
    from ..finding import Finding, Report

SCHEMA = "gpulint-baseline/1"


def subtract(report: Report, path: str) -> None:
    """Take the baseline's findings out of a report.

    Entries of checked files that no finding matches any more are counted as `gone`. Findings match by fingerprint,
    which holds no line number. Raises SettingsError for a file that is not a baseline.
    """
    entries = _read(path)
    known = {entry["fingerprint"] for entry in entries}
    present = {finding.fingerprint for finding in report.findings}
    report.baselined = sum(finding.fingerprint in known for finding in report.findings)
    report.findings = [finding for finding in report.findings if finding.fingerprint not in known]
    folder = os.path.dirname(os.path.abspath(path))
    checked = {os.path.abspath(file.path) for file in report.files if file.status == "checked"}
    report.gone = [
        f"{entry['path']}: {entry['name']}"
        for entry in entries
        if entry["fingerprint"] not in present and os.path.join(folder, entry["path"]) in checked
    ]


def text(report: Report, path: str) -> str:
    """The findings of a report as a baseline file at `path`, in an order that makes small diffs."""
    folder = os.path.dirname(os.path.abspath(path))
    entries = sorted((_entry(finding, folder) for finding in report.findings), key=lambda entry: [*entry.values()])
    return json.dumps({"schema": SCHEMA, "findings": entries}, indent=1, ensure_ascii=False) + "\n"


def _entry(finding: Finding, folder: str) -> dict[str, str]:
    path = os.path.relpath(os.path.abspath(finding.location.path), folder).replace(os.sep, "/")
    return {"path": path, "rule": finding.rule, "name": finding.name, "fingerprint": finding.fingerprint}


def _read(path: str) -> list[dict[str, Any]]:
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except OSError as error:
        raise SettingsError(f"{path}: cannot read the baseline: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise SettingsError(f"{path}: not a baseline: invalid JSON") from None
    entries = data.get("findings") if isinstance(data, dict) and data.get("schema") == SCHEMA else None
    if not isinstance(entries, list) or not all(_is_entry(entry) for entry in entries):
        raise SettingsError(f"{path}: not a baseline ({SCHEMA}); create one with --write-baseline")
    return entries


def _is_entry(entry: Any) -> bool:
    return isinstance(entry, dict) and all(isinstance(entry.get(key), str) for key in ("path", "name", "fingerprint"))
