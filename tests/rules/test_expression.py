from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulint.rules.expression import UNKNOWN, evaluate, facts_of, fires
from gpulint.rules.syntax import ExpressionError, parse


class Values:
    """A fact source over a mapping; what is missing is unknown."""

    def __init__(self, **values):
        self.values = {name.replace("__", "."): value for name, value in values.items()}

    def get(self, path):
        return self.values.get(path, UNKNOWN)

    def has(self, path):
        return path in self.values

    def peak_if(self, changes):
        return 10 if changes == {"packing": False} else UNKNOWN


def value(text, **values):
    return evaluate(parse(text), Values(**values))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3", 7),
        ("7 // 2 + 7 % 2", 4),
        ("-2 - -3", 1),
        ("1 < 2 < 3", True),
        ("1 < 3 < 2", False),
        ("'a' in ['a', 'b'] and 'c' not in ('a', 'b')", True),
        ("'8bit' in 'adamw_8bit'", True),
        ("'yes' if 1 > 2 else 'no'", "no"),
        ("none is None and null == None and true", True),
        ("max(1, 2.5) + min([4, 3])", 5.5),
        ("ceil(1.2) + floor(1.8) + len('abc')", 6),
        ("number('2e-4') == 0.0002", True),
        ("divisors(14) == [1, 2, 7, 14] and not known(divisors(0)) and not known(divisors(1000000))", True),
        ("next_of([8, 16, 32], 9) == 16 and next_of([32, 8], 8) == 8 and not known(next_of([8, 16], 17))", True),
        ("lower('ABC') == 'abc' and starts_with('abc', 'ab') and ends_with('abc', 'bc')", True),
        ("any_of(['q_proj', 'lm_head'], ['lm_head'])", True),
        ("any_of('lm_head', ['lm_head']) and not any_of(null, ['a'])", True),
        ("true == 1", False),
        ("false in [0]", False),
    ],
)
def test_values(text, expected):
    assert value(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "missing > 1",
        "not missing",
        "missing and true",
        "missing or false",
        "missing + 1 == 2",
        "1 / 0 > 0",
        "5 % 0 == 0",
        "null > 1",
        "'a' < 2",
        "'a' * 3 == 'aaa'",
        "1e308 * 10 > 1",
        "missing if missing else missing",
        "[missing, 1] == [1, 1]",
        "len(missing) > 0",
        "len(3) > 0",
        "number('two') > 0",
        "'%s' % 1 == '1'",
        "starts_with(3, 'a')",
        "peak_if('micro_batch_size', 1) > 0",
    ],
)
def test_what_is_not_known_stays_unknown_and_never_fires(text):
    assert value(text) is UNKNOWN
    assert not fires(parse(text), Values())


@pytest.mark.parametrize(
    ("text", "expected"),
    [("missing and false", False), ("false and missing", False), ("missing or true", True), ("true or missing", True)],
)
def test_and_or_follow_kleene(text, expected):
    assert value(text) is expected


def test_functions_that_accept_the_unknown():
    assert value("known(a) and not known(b) and not known(c)", a=1, b=None)
    assert value("default(b, 3) + default(c, 4)", b=None) == 7
    assert value("has(config.a) and not has(config.b)", config__a=None)
    assert value("peak_if('packing', false)") == 10


def test_dotted_facts_and_keys_with_dashes():
    tree = parse('config["tensor-parallel-size"] > a.b.c and has(config.x.y)')
    assert facts_of(tree) == {"config.tensor-parallel-size", "a.b.c", "config.x.y"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("__import__('os')", "can be called"),
        ("a.b()", "can be called"),
        ("[x for x in a]", "comprehension"),
        ("lambda: 1", "lambda"),
        ("2 ** 64", "only + - * /"),
        ("a if b", "not an expression"),
        ("a[0]", "dotted name"),
        ("f'{a}'", "f-string"),
        ("b'a' == a", "literals"),
        ("min()", "needs"),
        ("len(a, b)", "needs 1"),
        ("min(*a)", "star"),
        ("peak_if('a', b)", "pairs"),
        ("(a := 1)", "assignment"),
        ("~a", "not allowed"),
        ("a" + " + a" * 400, "at most 1000"),
        ("not " * 40 + "a", "may nest at most"),
        ("(" * 400 + "a" + ")" * 400, "not an expression"),
        ("a\0", "not an expression"),
    ],
)
def test_everything_else_is_refused(text, reason):
    with pytest.raises(ExpressionError, match=r".*") as caught:
        parse(text)
    assert reason in caught.value.reason


@given(st.text(max_size=200))
def test_any_text_parses_or_is_refused(text):
    try:
        tree = parse(text)
    except ExpressionError:
        return
    evaluate(tree, Values(a=1, b="x"))


_LITERALS = st.one_of(st.booleans(), st.none(), st.integers(-5, 5), st.sampled_from(["a", "b"]))


@given(st.recursive(
    st.one_of(st.builds(lambda v: ["const", v], _LITERALS), st.just(["fact", "missing"])),
    lambda children: st.one_of(
        st.builds(lambda a, b: ["and", a, b], children, children),
        st.builds(lambda a, b: ["or", a, b], children, children),
        st.builds(lambda a: ["not", a], children),
    ),
    max_leaves=12,
))  # fmt: skip
def test_replacing_the_unknown_by_a_value_never_flips_a_known_result(tree):
    unknown = evaluate(tree, Values())
    if unknown is not UNKNOWN:
        for filler in (True, False):
            assert bool(evaluate(tree, Values(missing=filler))) == bool(unknown)
