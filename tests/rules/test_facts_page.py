"""Everything that a rule can name is on the page of facts, and nothing else."""

from __future__ import annotations

import re

import pytest

from gpulint.rules.examples import open_example
from gpulint.rules.expression import UNKNOWN
from gpulint.rules.facts import facts_page, vocabulary
from gpulint.rules.facts.facts import FACTS, Facts
from gpulint.rules.facts.job_types import accepts, job_types
from gpulint.rules.index import rule_files
from gpulint.rules.syntax import ARITY

PAGE = facts_page.page()
NAMES = re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE)


def test_every_name_that_a_rule_can_read_is_on_the_page_once():
    readable = {*FACTS, *job_types(), *vocabulary.PROBLEM_KINDS, *ARITY, *facts_page.FAMILIES}
    readable |= {f"item.{name}" for name in vocabulary.ITEM_VALUES}
    families = {"model", "format"}  # a Job field may share its name with nothing else
    assert {*NAMES} == readable
    assert [name for name in {*NAMES} if NAMES.count(name) > 1 and name not in families] == []


def test_every_name_on_the_page_is_readable():
    for name in [*FACTS, *job_types(), *(f"item.{value}" for value in vocabulary.ITEM_VALUES)]:
        assert vocabulary.is_known(name), name
    for family in facts_page.FAMILIES:
        head = family.partition("<")[0]
        example = {"origin.": "origin.micro_batch_size", "item.": "item.key"}.get(head, f"{head}x")
        assert vocabulary.is_known(example), family
        assert not vocabulary.is_known(head), family
    assert not vocabulary.is_known("versions.torch.upper")
    assert not vocabulary.is_known("versions.__class__")


def test_every_row_has_a_type_and_a_meaning_and_every_field_its_own():
    for row in [*facts_page.fact_rows(), *facts_page.job_rows()]:
        assert row.type, row
        assert row.meaning.endswith("."), row
    assert facts_page.job_meanings().keys() == job_types().keys()
    assert facts_page.FUNCTIONS.keys() == ARITY.keys()


TYPES = {
    "whole number": int, "number": (int, float), "text": str, "true or false": bool, "list of text": list,
    "list of whole numbers": list, "any": object,
}  # fmt: skip


def facts_of_examples():
    for file in rule_files()[::2]:
        for example in file.source["examples"][:1]:
            for opened in open_example(example, file.rule.file).opened:
                yield Facts(opened.reading, opened.project, opened.gpu)


def test_facts_are_of_the_types_that_the_page_states():
    seen = set()
    for facts in facts_of_examples():
        for path, fact in FACTS.items():
            value = facts.get(path)
            if value is UNKNOWN or value is None:
                continue
            seen.add(path)
            wanted = TYPES[fact.type]
            right = isinstance(value, wanted) and (wanted in (bool, object) or not isinstance(value, bool))
            assert right, (path, fact.type, value)
        for path, kind in job_types().items():
            value = facts.get(path)
            assert value is UNKNOWN or value is True or accepts(kind, value), (path, kind, value)
    assert len(seen) > 0.7 * len(FACTS), sorted(set(FACTS) - seen)


@pytest.mark.parametrize("path", ["micro_batch_size", "parallelism.zero.stage", "gpu.usable"])
def test_units_are_on_the_page(path):
    unit = vocabulary.unit_of_fact(path)
    assert f"| `{path}` | whole number | {unit or '-'} |" in PAGE
