from __future__ import annotations

import pytest

from gpulint.rules.examples import run_example, selection_with
from gpulint.rules.index import rule_files

CASES = [
    pytest.param(file, number, id=f"{file.id}-{number}")
    for file in rule_files()
    for number in range(len(file.source["examples"]))
]


@pytest.mark.parametrize(("file", "number"), CASES)
def test_an_example_gives_exactly_the_findings_it_states(file, number):
    outcome = run_example(file.source["examples"][number], selection_with(file.rule), file.rule.file)
    assert sorted(outcome.got) == sorted(outcome.expected), [finding.message for finding in outcome.findings]
