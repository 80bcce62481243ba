"""Products: the figure and its formula are one thing."""

from __future__ import annotations

import pytest

from gpulint.estimator.terms import Product, largest, terms, total


def test_a_formula_multiplies_to_its_size():
    shared = Product("inner states", 2.0, ((8192, "tokens"), 3, 28672), 4)
    assert shared.formula == "2 B x 8,192 tokens x 3 x 28,672 / 4 GPUs"
    assert shared.size == 2 * 8192 * 3 * 28672 / 4


@pytest.mark.parametrize(
    ("product", "formula"),
    [
        (Product("plain", 52_095_120), "52,095,120 B"),
        (Product("gone", -8 << 30), "-8,589,934,592 B"),
        (Product("a width of its own", 4.125, ((1, "requests"), 1, 10)), "4.125 B x 1 request x 10"),
    ],
)
def test_factors_of_one_are_left_out_but_for_what_they_count(product, formula):
    assert product.formula == formula


def test_lines_sum_to_the_total_whatever_rounding_leaves():
    thirds = [Product("a", 1, (10,), 3), Product("b", 1, (20,), 3), Product("none", 0.0)]
    lines = terms("activations", thirds, "somewhere")
    assert [line.label for line in lines] == ["a", "b"]
    assert sum(line.size for line in lines) == total(thirds) == 10
    assert sum(line.size for line in terms("activations", thirds, "", 12)) == 12


def test_a_line_has_its_own_source_where_it_names_one():
    own, common = terms("weights", [Product("a", 1, source="here"), Product("b", 2)], "there")
    assert (own.source, common.source) == ("here", "there")


def test_the_largest_candidate_is_alive_at_the_widest_instant():
    small, large = [Product("a", 1), Product("b", 1)], [Product("c", 3)]
    assert largest(small, large, []) is large
