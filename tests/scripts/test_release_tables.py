"""How the spans of keys are made out of what each release takes."""

from __future__ import annotations

import json

import pytest

from gpulint.upstream.key_releases.table import _unfolded
from scripts.release_keys import folded, written
from scripts.releases.archives import final, numbers
from scripts.releases.read import Files
from scripts.releases.table import spans, understood

READ = [
    ("1.0", {"old", "kept", "part", "part.a"}),
    ("1.1", {"kept", "part"}),  # a layout whose parts are not understood
    ("1.1.post1", {"kept", "part", "part.a", "part.b"}),
    ("1.2", {"new", "kept", "old"}),
]


def test_a_key_comes_and_goes():
    assert spans(READ) == {
        "kept": "",
        "new": "1.2",
        "old": "- 1.1 1.2",
        "part": "- 1.2",
        "part.a": "- 1.2",
        "part.b": "1.1.post1 1.2",
    }


def test_releases_of_an_unknown_layout_in_front_are_left_out():
    many = {f"k{number}" for number in range(7)}
    read = [("1", {"k1"}), ("2", many), ("3", many - {"k2"})]
    assert [release for release, _ in understood(read)] == ["2", "3"]
    with pytest.raises(ValueError, match="4 has 1 keys"):
        understood([*read, ("4", {"k1"})])


@pytest.mark.parametrize(
    ("version", "is_final"),
    [("0.4.6.post5", True), ("1.0", True), ("1.0rc1", False), ("1.0.dev2", False), ("2.0a1", False)],
)
def test_final_releases(version, is_final):
    assert final(version) == is_final


def test_numbers_of_releases_sort():
    releases = ["0.10.0", "0.9.2", "0.9.2.post1", "0.9"]
    assert sorted(releases, key=numbers) == ["0.9", "0.9.2", "0.9.2.post1", "0.10.0"]


def test_a_table_is_read_as_it_was_written():
    keys = ["a", "part.b", "part.c", "part.inner.d", "x-y=fp8"]
    assert sorted(_unfolded(folded(keys))) == keys
    made = {"package": "tool", "groups": {"": {"a": "1.0", "part.b": "1.0", "part.c": "1.0", "d": ""}}}
    assert json.loads(written(made))["groups"] == {"": {"": "d", "1.0": "a part.{b,c}"}}


def test_classes_that_moved_are_read_where_they_are():
    from scripts.releases.packages import trl

    files = Files(
        "trl", "0.26.0",
        {
            "trl/trainer/kto_config.py": "class KTOConfig(_KTOConfig):\n    pass\n",
            "trl/experimental/kto/kto_config.py": "class KTOConfig(Base):\n    beta: float = 1\n    _own: int = 0\n",
            "trl/experimental/other/config.py": "class OtherConfig(Base):\n    gamma: float = 0.1\n",
        },
        "trl/",
    )  # fmt: skip
    assert trl(files) == {"": {"beta"}, "KTOConfig": {"beta"}}
