"""The tables of what vLLM and SGLang do by release: a row states what changed, on its side of the boundary alone."""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise

import pytest

from gpulint.estimator.serving.sglang import profile as sglang
from gpulint.estimator.serving.vllm import profile as vllm
from gpulint.upstream.behaviour import numbers, older

ENGINES = {"vllm": vllm, "sglang": sglang}
ROWS = [(name, index) for name, engine in ENGINES.items() for index in range(len(engine.table()["profiles"]))]


@pytest.mark.parametrize(("name", "index"), ROWS)
def test_a_row_holds_from_its_release_on_and_says_what_changed(name, index):
    engine, rows = ENGINES[name], ENGINES[name].table()["profiles"]
    since, changed = rows[index]["since"], {key: value for key, value in rows[index].items() if key != "since"}
    before = engine.profile(rows[index - 1]["since"] if index else "0.0.1")
    assert changed
    for key, value in changed.items():
        now = getattr(engine.profile(since), key)
        assert plain(now) == value
        assert now != getattr(before, key), "nothing changed"
    for field in fields(before):
        if field.name not in changed:
            assert getattr(engine.profile(since), field.name) == getattr(before, field.name)


@pytest.mark.parametrize("name", ENGINES)
def test_rows_stand_in_the_order_of_releases(name):
    releases = [row["since"] for row in ENGINES[name].table()["profiles"]]
    assert releases == sorted(releases, key=numbers)
    assert all(older(first, second) for first, second in pairwise(releases))


@pytest.mark.parametrize("name", ENGINES)
def test_a_version_that_nobody_states_is_the_newest(name):
    engine = ENGINES[name]
    newest = engine.table()["profiles"][-1]["since"]
    assert engine.profile(None) == engine.profile("main") == engine.profile(newest) != engine.profile("0.0.1")


def test_every_sampler_that_a_release_of_vllm_names_is_there_and_every_one_is_named():
    named = set()
    for release in ("0.0.1", *(row["since"] for row in vllm.table()["profiles"])):
        found = vllm.profile(release)
        named |= {found.sampler, found.sampler_may_be, found.v2_sampler}
    assert named == set(vllm.table()["samplers"])


def test_a_sampler_takes_what_its_tensors_do():
    assert [vllm.sampler(name).bytes for name in ("sort", "pivot", "copy", "argmax")] == [38, 14, 6, 2]
    assert vllm.NO_SAMPLER.bytes == vllm.NO_SAMPLER.states == 0


def plain(value):
    """Tuples as the lists of a JSON file."""
    return [plain(item) for item in value] if isinstance(value, tuple | list) else value
