"""Every file of the published corpus, checked on the hardware that it or its index entry states: no crash, and every
default finding, whose changes are reviewed as a diff. `python -m benchmarks.corpus.crater` prints what was reviewed.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict

from benchmarks.corpus.crater import crater, where
from gpulint.run.check import INTERNAL_ERROR


def test_the_corpus_is_walked_and_its_findings_are_known(shared, golden):
    folder = shared / "corpus"
    report = crater(folder, jobs=2)
    failed = [f"{file.path}: {file.reason}" for file in report.files if file.reason.startswith(INTERNAL_ERROR)]
    assert failed == []
    for finding in report.findings:
        text = report.texts[finding.location.path]
        assert 0 <= finding.location.span.start <= finding.location.span.end <= len(text)
    places = defaultdict(list)
    for finding in report.findings:
        path, _, line = where(finding, folder).rpartition(":")
        places[path].append(f"{line} {finding.rule} {finding.severity}")
    summary = {
        "files": dict(sorted(Counter(file.status for file in report.files).items())),
        "formats": dict(sorted(Counter(file.format for file in report.files if file.status == "checked").items())),
        "findings": dict(sorted(Counter(f"{item.rule} {item.severity}" for item in report.findings).items())),
        "where": {path: sorted(found) for path, found in sorted(places.items())},
    }
    golden("crater.json", json.dumps(summary, indent=1))
