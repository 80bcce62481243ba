"""Every row of `gpulint.upstream` on both sides of its boundaries; rows have a sentence and a source, and are used."""

from __future__ import annotations

import ast
import re

import pytest

from gpulint.upstream.behaviour import (
    Default,
    Span,
    as_of,
    at_release,
    default_of,
    earlier,
    former_defaults,
    is_release,
    numbers,
    older,
    still_in,
)

from .conftest import BEHAVIOURS, BY_TYPE, DEFAULTS, MODULES, spans

SPANS = list(spans())
ROWS = {**BEHAVIOURS, **BY_TYPE, **DEFAULTS}
RELEASE = re.compile(r"\d+(\.\d+)*(\.post\d+)?")


def below(release):
    """A release just before another: 5.10 -> 5.9.999, 2024.8 -> 2024.7.999, 5.0 -> 4.999."""
    *head, last = numbers(release)
    while not last:
        *head, last = head
    return ".".join(map(str, [*head, last - 1, 999]))


@pytest.mark.parametrize(("at", "span"), [span[1:] for span in SPANS], ids=[span[0] for span in SPANS])
def test_a_row_holds_from_its_first_release_to_before_the_one_that_ends_it(at, span):
    if span is None:
        assert [at(version) for version in (None, "0.0.1", "9999")] == [False, False, False]
        return
    newest = not span.until
    assert [at(version) for version in (None, "", "main", "9999.1")] == [newest] * 4
    if span.since:
        assert (at(below(span.since)), at(span.since), at(f"v{span.since}+cu126")) == (False, True, True)
    if span.until:
        assert (at(below(span.until)), at(span.until), at(f"{span.until}.post1")) == (True, False, False)
    if not span.since:
        assert at("0.0.1")


@pytest.mark.parametrize("name", ROWS)
def test_a_row_says_where_it_is_from_and_bounds_releases(name):
    row = ROWS[name]
    spans = [Span(row.since, row.until)] if name not in BY_TYPE else [*filter(None, [*row.types.values(), row.others])]
    assert re.search(r"\w{3}", row.source), "no source"
    for release in (bound for span in spans for bound in (span.since, span.until) if bound):
        assert RELEASE.fullmatch(release)
    for span in spans:
        assert not (span.since and span.until) or numbers(span.since) < numbers(span.until)


@pytest.mark.parametrize("name", [*BEHAVIOURS, *BY_TYPE])
def test_a_behaviour_is_a_sentence_about_its_package(name):
    says = ROWS[name].says
    assert says[0].islower(), "the package is the subject"
    assert says.split()[0].rstrip(",").endswith("s"), "and the sentence begins with its verb"
    assert not says.endswith(".")


@pytest.mark.parametrize("name", BY_TYPE)
def test_types_are_named_where_they_differ_from_the_others(name):
    row = BY_TYPE[name]
    assert row.others is not None or row.types
    assert [type_ for type_, span in row.types.items() if span == row.others] == []


def test_one_row_of_a_default_holds_at_a_time():
    names = {(row.package, name.partition("[")[0], row.name) for name, row in DEFAULTS.items()}
    for package, table, key in names:
        rows = [
            row
            for name, row in DEFAULTS.items()
            if row.package == package and row.name == key and name.startswith(f"{table}[")
        ]
        bounds = {bound for row in rows for bound in (row.since, row.until) if bound}
        for version in [*bounds, *map(below, bounds)]:
            assert sum(row.at(version) for row in rows) <= 1, (table, key, version)
        assert not any(row.at(None) for row in rows), (table, key)


def test_every_row_is_used(root):
    """By its name outside of its module, or, of a default, by the key that it is about."""
    names, words = set(), set()
    for path in [*root.glob("linter/gpulint/**/*.py"), *root.glob("benchmarks/**/*.py")]:
        inside = "upstream" in path.relative_to(root).parts
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and not inside:
                names.add(node.attr)
            elif isinstance(node, ast.Name) and not inside:
                names.add(node.id)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and not inside:
                words.add(node.value)
    ends = {word.rpartition("}")[2] for word in words}  # of what is put in, as in "{program}_ray_micro_batch_size"
    tails = tuple(word for word in ends if word.startswith(("_", ".")))
    assert [name for name in [*BEHAVIOURS, *BY_TYPE] if name.rpartition(".")[2] not in names] == []
    assert [name for name, row in DEFAULTS.items() if row.name not in words and not row.name.endswith(tails)] == []


def test_a_module_is_about_one_package():
    packages = {}
    for name, row in ROWS.items():
        packages.setdefault(row.package, set()).add(name.partition("_models.")[0].rpartition(".")[0])
    assert [modules for modules in packages.values() if len({*filter(None, modules)}) != 1] == []
    assert {row.package for row in ROWS.values()} <= {module.NAME for module in MODULES if hasattr(module, "NAME")}


def test_defaults_of_a_release():
    rows = (
        Default("a", "x", 1, "s", until="2.0"),
        Default("a", "x", None, "s", since="2.0", until="3.1"),
        Default("a", "y", "b", "s", until="3.0"),
    )
    assert [default_of(rows, version, "x", "new") for version in ("1.9", "2.0", "3.0.9", "3.1", None)] == [
        1, None, None, "new", "new",
    ]  # fmt: skip
    assert former_defaults(rows, "2.5") == {"x": None, "y": "b"}
    assert former_defaults(rows, "3.0") == {"x": None}
    assert former_defaults(rows, None) == {}


def test_rows_of_a_table_by_release():
    rows = [{"since": "0", "v": 1}, {"since": "1.2", "v": 2}, {"since": "1.2", "until": "1.10", "v": 3}, {"v": 4}]
    assert [row["v"] for row in at_release(rows, "1.1")] == [1, 4]
    assert [row["v"] for row in at_release(rows, "1.2")] == [1, 2, 3, 4]
    assert [row["v"] for row in at_release(rows, "1.10")] == [1, 2, 4]
    assert [row["v"] for row in at_release(rows, None)] == [1, 2, 4]


def test_rows_of_a_release_replace_what_they_name_of_earlier_ones():
    rows = [{"a": 1, "b": {"x": 1, "y": 2}}, {"since": "1.2", "b": {"x": 3}}, {"since": "1.5", "until": "2", "a": None}]
    assert as_of(rows, "1.1") == {"a": 1, "b": {"x": 1, "y": 2}}
    assert as_of(rows, "1.2") == {"a": 1, "b": {"x": 3}}
    assert as_of(rows, "1.5") == {"a": None, "b": {"x": 3}}
    assert as_of(rows, "2.0") == as_of(rows, None) == {"a": 1, "b": {"x": 3}}


def test_of_two_releases_the_earlier():
    assert earlier("0.9", "0.10") == earlier("0.10", "0.9") == "0.9"


def test_what_a_release_was_the_last_to_have():
    assert still_in("0.9", "0.9.1")
    assert still_in("0.9.1", "0.9.1")
    assert not still_in("0.9.2", "0.9.1")
    assert not still_in(None, "0.9.1")


@pytest.mark.parametrize(
    ("version", "known"), [("1.2", True), ("v3", True), ("main", False), ("", False), (None, False)]
)
def test_a_version_with_numbers_is_a_release(version, known):
    assert is_release(version) is known


@pytest.mark.parametrize(
    ("version", "than", "expected"),
    [
        ("4.57.1", "5", True),
        ("5", "5.0", False),
        ("5.0", "5", False),
        ("5.0.0", "5.0.1", True),
        ("0.10", "0.9.2", False),
        ("v0.9", "0.10", True),
        ("0.4.9.post2", "0.4.9.post3", True),
        ("2.4.1+cu121", "2.4.1", False),
        ("nightly", "5", False),
        ("", "5", False),
    ],
)
def test_which_release_comes_first(version, than, expected):
    assert older(version, than) is expected
