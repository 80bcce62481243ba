"""The search: cheap looks agree with full estimates, and what it finds has been carried out."""

from __future__ import annotations

import pytest

from gpulint.estimator import budget
from gpulint.rules.load import load_rules
from gpulint.rules.suggest.search import Search

LORA = "adapter: lora\nlora_r: 16\nlora_target_linear: true\n"
JOBS = [
    ("8B", "", "a100-40gb", 1),
    ("8B", LORA, "rtx-4090", 1),
    ("8B", "", "a100-40gb", 8),
    ("70B", LORA, "h100-80gb", 1),
]


@pytest.fixture
def search_of(facts_of, axolotl):
    def make(size: str, extra: str, gpu: str, gpus: int, steps: int = 2_000_000) -> Search:
        facts = facts_of(axolotl.replace("8B", size) + extra, gpu, gpus)
        return Search(facts, load_rules().recipes, steps)

    return make


@pytest.mark.parametrize("job", JOBS)
def test_a_look_rules_out_what_the_full_estimate_exceeds_and_nothing_else(search_of, job):
    search = search_of(*job)
    looked = [option for item in search.saving() for option in item.options]
    assert looked
    for option in looked:
        candidate = search.carried_out(option)
        if candidate is not None and not candidate.changed.edits:
            assert search.may_fit(option) == (candidate.verdict != "exceeds")


def test_ladders_climb_from_the_weakest_factor_to_the_first_that_fits(search_of, facts_of, axolotl):
    text = axolotl.replace("micro_batch_size: 1", "micro_batch_size: 16") + LORA
    search = Search(facts_of(text, "a100-40gb", 1), load_rules().recipes, 2_000_000)
    item = search.ladders["smaller-micro-batch"]
    sizes = [option.changes["micro_batch_size"] for option in item.options]
    assert sizes == sorted(sizes, reverse=True)
    *_, last = search.climbed(search.rungs(item), lambda _: True)
    assert last.verdict == "fits"
    weaker = item.options[: item.options.index(last.option)]
    assert all(search.carried_out(option).verdict != "fits" for option in weaker)
    changed = last.changed.facts.job
    assert changed.micro_batch_size * changed.gradient_accumulation_steps == 16 * 4


def test_combinations_hold_no_two_recipes_that_exclude_each_other(search_of):
    search = search_of("70B", "", "h100-80gb", 8)
    found = list(search.combined(search.saving(), lambda _: True))
    assert found
    for candidate in found:
        assert candidate.option.parts >= 2
        assert not candidate.option.families & candidate.option.excludes
        assert candidate.verdict != "exceeds"


@pytest.mark.parametrize(("left", "looked_at"), [(0.9, True), (1.15, True), (1.16, False)])
def test_a_combination_is_looked_at_where_its_savings_together_come_near_enough(search_of, left, looked_at):
    """Two recipes that fit together, as if what each saves alone left so much of the GPU."""
    search = search_of("8B", "", "a100-40gb", 1)
    parts = {part.ladder.name: part for part in search._parts(search.saving())}
    saved = search.now.needed - int(left * search.facts.gpu.usable)
    pair = parts["fused-loss"]._replace(saved=saved // 3), parts["lora"]._replace(saved=saved - saved // 3)
    assert (search._together(pair) is not None) == looked_at


def test_the_search_ends_soon_after_its_steps(search_of):
    search = search_of("405B", "", "t4", 8, steps=30_000)
    before = budget.spent()
    list(search.combined(search.saving(), lambda _: True))
    assert search.exhausted
    assert budget.spent() - before < 30_000 + 100_000


def test_the_same_job_takes_the_same_steps(search_of):
    taken = []
    for _ in range(2):
        search = search_of("8B", "", "a100-40gb", 8)
        before = budget.spent()
        list(search.combined(search.saving(), lambda _: True))
        taken.append(budget.spent() - before)
    assert taken[0] == taken[1] > 0


def test_the_smallest_share_says_nothing_of_those_between(facts_of):
    """A share of 0.5 leaves no room for the weights, one of 0.98 none for a step; 0.92 has both."""
    text = "model-path: Qwen/Qwen2.5-32B-Instruct\nmem-fraction-static: 0.98\nchunked-prefill-size: 16384\n"
    search = Search(facts_of(text, "h100-80gb", 1), load_rules().recipes, 2_000_000)
    item = search.ladders["smaller-share"]
    assert not search.may_fit(item.options[-1])
    *_, last = search.climbed(search.rungs(item), lambda _: True)
    assert last.verdict == "fits"
    assert last.option.changes["inference.gpu_memory_utilization"] < 0.98
