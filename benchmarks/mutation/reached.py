"""The map of which tests enter which functions, and the choice of tests that are most likely to see a mutant."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from .seen import probed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from .mutant import Mutant
    from .tree import Tree

PACKAGE = "linter/gpulint"
_LONGEST = 300
"""Seconds that one file of tests may take while it is recorded; longer ones are left out of the map."""


def record(tree: Tree, folder: Path, files: Sequence[str]) -> None:
    """Write into `folder` what the tests of each file enter, one process a file, and say so. The tree keeps probes."""
    for module in sorted((tree.path / PACKAGE).rglob("*.py")):
        path = module.relative_to(tree.path).as_posix()
        tree.write(path, probed(path, tree.read(path)))
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        out = folder / (file.replace("/", ".") + ".json")
        plugin = ("-n0", "-p", "benchmarks.mutation.seen", "--seen", str(out.resolve()), "--maxfail=1000")
        said = tree.test([file], _LONGEST, *plugin).said.splitlines()
        print(f"{file}: {said[-1] if said else ''}", flush=True)


class Map(NamedTuple):
    """`entered`: the tests that enter a function `path:name`, or any of a file `path`; `seconds` of each test."""

    entered: dict[str, set[str]]
    seconds: dict[str, float]

    @classmethod
    def read(cls, folder: Path) -> Map:
        """What `record` wrote; empty where it did not."""
        found = cls(defaultdict(set), {})
        for file in sorted(folder.glob("*.json")):
            read = json.loads(file.read_text(encoding="utf-8"))
            for test, (seconds, numbers) in read["tests"].items():
                found.seconds[test] = seconds
                for function in (read["functions"][number] for number in numbers):
                    found.entered[function].add(test)
                    found.entered[function.partition(":")[0]].add(test)
        return found


def chosen(mutant: Mutant, known: Map, tests: dict[str, str], seconds: float) -> list[str]:
    """The tests to run, likeliest first, until `seconds` are full.

    `tests` are the files of tests and their text. Of what the map knows to enter the function (outside of functions:
    the file) those in the files that mirror the module's path come first, then those in files that import or mention
    it, then the others, and the shortest first. Of files that the map does not know the two nearest are run whole.
    """
    entered = known.entered.get(f"{mutant.path}:{mutant.where}") or known.entered.get(mutant.path) or set()
    mapped = {test.partition("::")[0] for test in known.seconds}
    ranks = {file: rank(mutant, file, text) for file, text in tests.items()}
    ordered = sorted(entered, key=lambda test: (ranks.get(test.partition("::")[0], 9), known.seconds[test], test))
    others = ((near, len(tests[file]), file) for file, near in ranks.items() if file not in mapped and near < _FAR)
    unmapped = [file for *_, file in sorted(others)[:_WHOLE]]
    kept = _within(ordered, known, seconds)
    return [*unmapped, *kept] if unmapped and not ranks[unmapped[0]] else [*kept, *unmapped]


_FAR = 3
_WHOLE = 2
"""Files run whole of those that the map does not know."""


def _within(ordered: Iterable[str], known: Map, seconds: float) -> list[str]:
    kept: list[str] = []
    spent = 0.0
    for test in ordered:
        if spent + known.seconds[test] <= seconds and len(kept) < _MOST:
            kept.append(test)
            spent += known.seconds[test] + _EACH
    return kept


_MOST = 600
_EACH = 0.005
"""Seconds that a test takes beside its own: set up and told of."""


def rank(mutant: Mutant, file: str, text: str) -> int:
    """How near a file of tests is to a mutant.

    0 mirrors its path, 1 imports the module, 2 mentions it or has a word of its path in the name, 3 none of them.
    """
    steps = mutant.path.removeprefix(f"{PACKAGE}/").removesuffix(".py").split("/")
    stem, folder = file.rpartition("/")[2].removeprefix("test_").removesuffix(".py"), steps[0]
    if f"tests/{folder}/" in file and stem in steps[1:]:
        return 0
    if re.search(rf"\bgpulint\.{re.escape('.'.join(steps))}\b", text):
        return 1
    name = mutant.where.rpartition(".")[2].strip("_")
    mentioned = (name, steps[-1]) if len(name) > 5 else (steps[-1],)
    shared = {word for step in steps[1:] for word in step.split("_")} & set(stem.split("_"))
    named = f"tests/{folder}/" in file and shared
    return 2 if named or any(re.search(rf"\b{re.escape(word)}\b", text) for word in mentioned) else _FAR
