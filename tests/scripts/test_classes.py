"""The reader of upstream config classes that the maintenance scripts share."""

import pytest

from scripts.upstream.classes import Classes

TEXT = """
from enum import Enum
DEFAULT_SIZE = 5
class Kind(str, Enum):
    fast = "fast"
    slow = "slow"
class Base(Model):
    name: str
    size: int = DEFAULT_SIZE
class Inner(Model):
    model_config = ConfigDict(extra="forbid")
    rate: float = 1e-3
class Config(Base):
    kind: Kind | None = None
    inner: Inner = Field(default_factory=Inner)
    many: list[Inner] | None = Field(default=None, alias="lots")
    table: dict[str, int] = {}
    choice: Literal["a", "b"] | bool = "a"
    anything: SomeClassFromElsewhere = None
    old: bool = Field(False, deprecated="use name")
    size: int = Field(pp_int(1e3), ge=0)
"""


@pytest.fixture
def properties():
    return Classes({"m": TEXT}).properties("Config")


@pytest.mark.parametrize(
    ("key", "schema"),
    [
        ("name", {"type": "string"}),
        ("size", {"type": "integer", "default": 1000}),
        ("kind", {"anyOf": [{"enum": ["fast", "slow"]}, {"type": "null"}], "default": None}),
        ("inner", {"$ref": "#/$defs/Inner"}),
        ("lots", {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/Inner"}}, {"type": "null"}], "default": None}),
        ("table", {"type": "object", "additionalProperties": {"type": "integer"}, "default": {}}),
        ("choice", {"anyOf": [{"enum": ["a", "b"]}, {"type": "boolean"}], "default": "a"}),
        ("anything", {"default": None}),
        ("old", {"type": "boolean", "deprecated": True, "default": False}),
    ],
)
def test_fields(properties, key, schema):
    assert properties[key] == schema


def test_an_alias_stands_beside_the_name(properties):
    assert properties["lots"] == properties["many"]


def test_extra_decides_about_unknown_keys():
    classes = Classes({"m": TEXT})
    assert classes.object("Inner")["x-unknown-keys"] == "refused"
    assert classes.object("Config")["x-unknown-keys"] == "ignored"
