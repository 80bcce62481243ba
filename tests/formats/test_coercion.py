import pytest

from gpulint.formats.core.coercion import accepts, as_boolean, as_integer, as_number, type_text
from gpulint.source.node import Node, Span

NOWHERE = Span(1, 1, 1, 1, 0, 0)


def scalar(value):
    return Node("scalar", value, NOWHERE, str(value))


@pytest.mark.parametrize(
    ("kind", "value", "fits"),
    [
        ("number", "2e-4", True),
        ("number", "fast", False),
        ("number", True, True),
        ("integer", "16", True),
        ("integer", "16.0", True),
        ("integer", 16.0, True),
        ("integer", 0.1, False),
        ("integer", "1e1", False),
        ("integer", "many", False),
        ("boolean", "yes", True),
        ("boolean", "off", True),
        ("boolean", 1, True),
        ("boolean", 2, False),
        ("boolean", "maybe", False),
        ("string", "text", True),
        ("string", 5, False),
    ],
)
def test_pydantic_lax_mode(kind, value, fits):
    assert accepts({"type": kind}, scalar(value), "pydantic") is fits


def test_an_unvalidated_dataclass_refuses_only_what_cannot_work():
    assert accepts({"type": "boolean"}, scalar("anything"), "yaml")
    assert accepts({"type": "integer"}, scalar("1e-4"), "yaml")
    assert not accepts({"type": "number"}, scalar("fast"), "yaml")
    assert not accepts({"type": "number"}, Node("mapping", [], NOWHERE), "yaml")
    assert not accepts({"enum": ["no", "bf16"]}, scalar(False), "yaml")


def test_an_enum_keeps_booleans_and_numbers_apart():
    assert not accepts({"enum": [0, 1]}, scalar(True), "pydantic")
    assert accepts({"enum": ["auto", True]}, scalar(True), "pydantic")


@pytest.mark.parametrize(
    ("value", "integer", "number", "boolean"),
    [
        ("5e8", 500_000_000, 5e8, None),
        (1e9, 1_000_000_000, 1e9, None),
        (True, None, True, True),
        ("true", None, None, True),
        (float("inf"), None, float("inf"), None),
        (None, None, None, None),
        (2.5, None, 2.5, None),
        (2**63 - 1, 2**63 - 1, 2**63 - 1, None),
        (10**400, None, 10**400, None),  # no tensor has a size beyond 64 bits
    ],
)
def test_values(value, integer, number, boolean):
    assert as_integer(value) == integer
    assert as_number(value) == number
    assert as_boolean(value) is boolean


def test_type_text_names_every_choice_once():
    assert type_text([{"enum": ["auto"]}, {"type": ["boolean", "null"]}]) == "auto or true or false"
    assert type_text([{"enum": [1, 2, None]}]) == "one of 1, 2"
    assert type_text([{"type": "object", "properties": dict.fromkeys("abcdefg")}]) == "a mapping (a, b, c, d, e, ...)"
