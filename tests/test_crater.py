"""Every file of the published corpus, checked on the hardware it states or eight H100: no crash, and a summary whose
changes are reviewed as a diff.
"""

from __future__ import annotations

import json
from collections import Counter

from gpulint.check import INTERNAL_ERROR, check
from gpulint.settings import Settings


def test_the_corpus_is_walked_and_its_findings_are_known(shared, golden):
    report = check(
        [str(shared / "corpus")], Settings(configured_gpu="h100-80gb", configured_gpus=8, root=str(shared / "corpus"))
    )
    failed = [f"{file.path}: {file.reason}" for file in report.files if file.reason.startswith(INTERNAL_ERROR)]
    assert failed == []
    for finding in report.findings:
        text = report.texts[finding.location.path]
        assert 0 <= finding.location.span.start <= finding.location.span.end <= len(text)
    summary = {
        "files": dict(sorted(Counter(file.status for file in report.files).items())),
        "formats": dict(sorted(Counter(file.format for file in report.files if file.status == "checked").items())),
        "findings": dict(sorted(Counter(f"{item.rule} {item.severity}" for item in report.findings).items())),
        "where": sorted(
            f"{item.location.path.partition('corpus/')[2]}:{item.location.span.line} {item.rule}"
            for item in report.findings
            if item.severity == "error"
        ),
    }
    golden("crater.json", json.dumps(summary, indent=1))
