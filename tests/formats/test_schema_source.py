"""The reader of upstream config classes that the maintenance scripts share."""

import importlib.util
import zipfile
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "scripts" / "schema_source.py"


@pytest.fixture(scope="module")
def source():
    spec = importlib.util.spec_from_file_location("schema_source", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
def properties(source):
    return source.Classes({"m": TEXT}).properties("Config")


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


def test_extra_decides_about_unknown_keys(source):
    classes = source.Classes({"m": TEXT})
    assert classes.object("Inner")["x-unknown-keys"] == "refused"
    assert classes.object("Config")["x-unknown-keys"] == "ignored"


def test_archives_are_read_without_their_outer_folder(source, tmp_path):
    path = tmp_path / "tool-1.2-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tool/config.py", "x = 1")
        archive.writestr("tool/readme.txt", "no")
    assert source.read_archive(path, "tool/") == {"tool/config.py": "x = 1"}
    assert source.find_archive(tmp_path, "tool") == path
    assert source.version_of(path) == "1.2"
