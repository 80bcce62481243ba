"""Mistakes are planted where the operators say, one at a time, in a copy."""

from __future__ import annotations

import ast
import json

import pytest

from benchmarks.mutation.__main__ import KEPT
from benchmarks.mutation.mutant import Mutant
from benchmarks.mutation.operators import mutants
from benchmarks.mutation.reached import Map, chosen, rank
from benchmarks.mutation.seen import probed
from benchmarks.mutation.tree import Tree

SAMPLE = '''\
"""A module: 7 < 8."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SIZE = 3


def longer(a: int, b: int = 2) -> bool:
    """Whether a < b."""
    if a < b and not b:
        raise ValueError("a " + "b")
    return max(a, 1.5) == b


class Box:
    def rows(self, n: int | None) -> list[str]:
        é = "name" if n else "two words"
        return [é] * -(-(n or 1) // self.width)
'''
EXPECTED = """\
SIZE = 4
b: int = 3) -> bool
if False:
a <= b and not b
a < b or not b
a < b and b:
return False
min(a, 1.5) == b
max(a, 1.65) == b
max(a, 1.5) != b
"name_" if n else "two words"
"name" if False else "two words"
return []
[é] * (n or 1 // self.width)
(n and 1) // self.width
(n or 2) // self.width
"""


def test_every_operator_changes_one_place_and_no_words():
    found = [(mutant, mutant.applied(SAMPLE)) for mutant in mutants("a.py", SAMPLE)]
    changed = {mutant.difference(SAMPLE).rpartition("\n+")[2] for mutant, _ in found}
    for expected in EXPECTED.splitlines():
        assert sum(expected in line for line in changed) == 1, expected
    assert len(changed) == len(found) == len(EXPECTED.splitlines())
    for _, text in found:
        ast.parse(text)
    assert {mutant.where for mutant, _ in found} == {"", "longer", "Box.rows"}
    assert {mutant.operator for mutant, _ in found} == {
        "boundary", "constant", "arithmetic", "not", "and, or", "extreme", "returned", "branch",
    }  # fmt: skip


def test_a_probe_notes_each_function_that_is_entered(monkeypatch):
    from benchmarks.mutation import seen

    monkeypatch.setattr(seen, "SEEN", set())
    names = {}
    exec(compile(probed("a.py", SAMPLE), "a.py", "exec"), names)
    names["longer"](3)
    assert list(seen.SEEN) == ["a.py:longer"]


def test_tests_that_enter_the_function_are_chosen_nearest_and_shortest_first():
    mutant = Mutant("linter/gpulint/estimator/zero.py", "not", "shares", 0, 1, "")
    texts = {
        "tests/estimator/test_zero.py": "",
        "tests/estimator/test_host.py": "from gpulint.estimator.zero import shares",
        "tests/rules/test_plan.py": "",
        "tests/estimator/test_new.py": "import gpulint.estimator.zero",
    }
    assert [rank(mutant, file, text) for file, text in texts.items()] == [0, 1, 3, 1]
    seconds = {
        "tests/rules/test_plan.py::a": 0.1,
        "tests/estimator/test_zero.py::slow": 3.0,
        "tests/estimator/test_zero.py::b": 0.2,
        "tests/estimator/test_host.py::c": 0.1,
        "tests/estimator/test_host.py::elsewhere": 0.1,
    }
    known = Map(
        {"linter/gpulint/estimator/zero.py:shares": {test for test in seconds if "elsewhere" not in test}}, seconds
    )
    assert chosen(mutant, known, texts, 3.45) == [
        "tests/estimator/test_zero.py::b",
        "tests/estimator/test_zero.py::slow",
        "tests/estimator/test_host.py::c",
        "tests/rules/test_plan.py::a",
        "tests/estimator/test_new.py",
    ]


def test_a_copy_is_written_and_the_checkout_is_not(tmp_path, monkeypatch):
    import subprocess

    root = tmp_path / "root"
    (root / "tests").mkdir(parents=True)
    (root / "sums.py").write_text("def both(a, b):\n    return a + b\n")
    (root / "tests" / "test_sums.py").write_text("import sums\n\ndef test_sums():\n    assert sums.both(2, 3) == 5\n")
    (root / "pyproject.toml").write_text("[tool.pytest.ini_options]\npythonpath = ['.']\n")
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    with Tree(root) as tree:
        outcomes = []
        for old, new in (("+", "-"), ("-", "+"), ("+", "*")):
            tree.write("sums.py", tree.read("sums.py").replace(old, new))
            outcomes.append(tree.test(["tests/test_sums.py"], 60).failed)
        copy = tree.path
    assert outcomes == [True, False, True]
    assert (root / "sums.py").read_text() == "def both(a, b):\n    return a + b\n"
    assert not copy.exists()


@pytest.mark.parametrize("row", json.loads(KEPT.read_text(encoding="utf-8"))["mutants"], ids=lambda row: row["about"])
def test_a_mutant_that_is_kept_has_its_line_and_its_tests(root, row):
    """A line that was moved or rewritten is planted anew where it is now, or its mutant is dropped."""
    text = (root / row["file"]).read_text(encoding="utf-8")
    assert text.count(row["old"]) == 1
    ast.parse(text.replace(row["old"], row["new"]))
    for test in row["tests"]:
        file, *_, name = test.split("::")
        assert f"def {name}(" in (root / file).read_text(encoding="utf-8")
