"""A share of what upstream's validators refuse is found at the key, and no mended twin is accused."""

from __future__ import annotations

import json

import pytest

from benchmarks.refusals import changed_files, score

SHARE = 9
"""Every so many cases: `python -m benchmarks.refusals` runs all."""


@pytest.mark.parametrize("upstream", score.upstreams())
def test_a_share_of_the_refusals_is_found(upstream, monkeypatch, tmp_path):
    table = json.loads((score.HERE / f"{upstream}.json").read_text(encoding="utf-8"))
    table["cases"] = table["cases"][::SHARE]
    (tmp_path / f"{upstream}.json").write_text(json.dumps(table), encoding="utf-8")
    monkeypatch.setattr(score, "HERE", tmp_path)
    scored = score.scored(upstream)
    missed = [item.text for item in scored.outcomes if not item.found]
    assert len(missed) <= 1, missed
    assert scored.accused == 0, [item.text for item in scored.outcomes if item.accused]


@pytest.mark.parametrize("upstream", score.upstreams())
def test_a_case_has_an_answer_and_differs_from_its_twin(upstream):
    table = json.loads((score.HERE / f"{upstream}.json").read_text(encoding="utf-8"))
    for case in table["cases"]:
        base = table["bases"][case["base"]]
        if "lines" in base:
            twin = changed_files.texts(base, case["also"])
            wrong = changed_files.texts(base, case["also"], case["replace"])
            assert wrong != twin, case
            assert any(place in text for text in wrong.values() for place in case["at"]), case
            assert case["answer"], case
            assert case["level"] in ("error", "warning"), case
            continue
        twin = {**table["bases"][case["base"]], **case["also"]}
        wrong = {key: value for key, value in {**twin, **case["set"]}.items() if key not in case["drop"]}
        assert case["answer"], case
        assert wrong != twin, case
        assert case["at"], case
