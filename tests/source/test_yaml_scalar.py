from __future__ import annotations

import math

import pytest
import yaml
from comparison import same
from hypothesis import given
from hypothesis import strategies as st

from gpulint.source.document import SourceError
from gpulint.source.read import parse
from gpulint.source.yaml.scalar import resolve


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2e-4", "2e-4"),
        ("2.0e-4", 2e-4),
        ("2.e-4", 2e-4),
        ("2.0e4", "2.0e4"),
        ("1e5", "1e5"),
        (".5", 0.5),
        ("+.5", "+.5"),
        ("off", False),
        ("Yes", True),
        ("y", "y"),
        ("yEs", "yEs"),
        ("012", 10),
        ("08", "08"),
        ("0o17", "0o17"),
        ("0x1F", 31),
        ("0b101", 5),
        ("1_000", 1000),
        ("1:30", 90),
        ("-1:30:00", -5400),
        ("1:30.5", 90.5),
        ("1:60", "1:60"),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("~", None),
        ("NULL", None),
        ("nUll", "nUll"),
        ("", None),
        ("2024-01-31", "2024-01-31"),
        ("99999999999999999999", 99999999999999999999),
        ("100000000000000000000", "100000000000000000000"),
        ("0x_", "0x_"),
        ("0b_", "0b_"),
        ("9" * 5000, "9" * 5000),
        ("1" + ":1" * 300 + ".0", "1" + ":1" * 300 + ".0"),
    ],
)
def test_plain_scalars_mean_what_yaml_1_1_says(text, value):
    assert same(resolve(text), value)


def test_nan_is_a_float():
    assert math.isnan(resolve(".nan"))


@pytest.mark.parametrize(
    "text",
    [
        "!!float 3",
        '!!int "0x10"',
        "!!str 3",
        "!!bool 'ON'",
        "!!null ''",
        "!!float -.inf",
        "!!float 1:30",
        "! 12",
        "! '12'",
    ],
)
def test_explicit_tags_construct_as_in_pyyaml(text):
    assert same(parse(text, "a", "yaml").root.plain(), yaml.safe_load(text))


@pytest.mark.parametrize("text", ["!!int x", "!!bool 3", "!!float ''", "!!int ''"])
def test_a_value_that_its_tag_refuses_is_an_error(text):
    with pytest.raises(SourceError, match="not a valid !!"):
        parse(f"a: {text}", "a", "yaml")


NUMBERS = st.text(alphabet="0123456789+-._:eExbo ABCDEFabcdefINFinfNaTZ~=<", max_size=12)
WORDS = st.sampled_from(["yes", "no", "on", "off", "true", "false", "null", "y", "n"]).flatmap(
    lambda word: st.sampled_from([word, word.upper(), word.title(), word[:1] + word[1:].upper()])
)


@given(NUMBERS | WORDS | st.integers().map(str) | st.floats().map(str))
def test_a_scalar_is_what_safe_load_makes_of_it(text):
    try:
        theirs = yaml.safe_load(f"[{text}]")
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError):
        return  # PyYAML crashes on texts such as 0x_ and 2024-99-99
    assert same(parse(f"[{text}]", "a", "yaml").root.plain(), theirs)
