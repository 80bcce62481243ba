"""Whether the tests fail when the code is wrong: mistakes are planted one at a time in a copy of the checkout.

python -m benchmarks.mutation kept [--only WORD]             # those of kept.json, each with the tests that must fail
python -m benchmarks.mutation record [TESTS ...]             # which tests enter which function, for `random`: slow
python -m benchmarks.mutation random --count 200 --seed 1    # random ones; the share killed, and the survivors

A random mutant is drawn by operator (operators.py) first and then by place, of the folders estimator, formats and rules
of the package. The tests most likely to see it are run until one fails: those that enter its function by the map that
`record` wrote, nearest and shortest first, else those of the mirrored path and those that import or mention its module.
Exit code 0: all were killed; 1: some survived.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING

from .operators import choices, mutants
from .reached import PACKAGE, Map, chosen, record
from .tree import ROOT, Outcome, Tree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .mutant import Mutant

KEPT = Path(__file__).with_name("kept.json")
MAP = ROOT / ".mutation"
FOLDERS = ("estimator", "formats", "rules")


def main(arguments: list[str] | None = None) -> int:
    """Plant, or record; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.mutation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    kept = commands.add_parser("kept", help="plant the mutants of kept.json")
    kept.add_argument("--only", default="", metavar="WORD", help="those with WORD in their file or description")
    kept.set_defaults(run=_kept)
    map_ = commands.add_parser("record", help="record which tests enter which functions")
    map_.add_argument("tests", nargs="*", help="files or folders of tests; all without one")
    map_.set_defaults(run=_record)
    drawn = commands.add_parser("random", help="plant random mutants")
    drawn.add_argument("--count", type=int, default=200)
    drawn.add_argument("--seed", type=int, default=0)
    drawn.add_argument("--skip", type=int, default=0, metavar="N", help="go on after the first N of the draw")
    drawn.add_argument("--seconds", type=float, default=60, help="of tests that are run against a mutant")
    drawn.add_argument("--limit", type=float, default=300, help="seconds that one run may take")
    drawn.add_argument("--folders", nargs="*", default=FOLDERS, metavar="FOLDER", help="of the package")
    drawn.set_defaults(run=_random)
    for command in (map_, drawn):
        command.add_argument("--map", type=Path, default=MAP, help="the folder of the map")
    options = parser.parse_args(arguments)
    code: int = options.run(options)
    return code


def _kept(options: argparse.Namespace) -> int:
    rows = json.loads(KEPT.read_text(encoding="utf-8"))["mutants"]
    rows = [row for row in rows if options.only in row["file"] or options.only in row["about"]]
    survived = 0
    with Tree() as tree:
        clean = tree.test(sorted({test for row in rows for test in row["tests"]}), 1800, "-n0")
        if clean.failed:
            print(f"the tests fail without a mutant:\n{clean.said}")
            return 1
        for row in rows:
            text = tree.read(row["file"])
            if text.count(row["old"]) != 1:
                print(f"gone: {row['file']}: {row['old'].strip()}")
                survived += 1
                continue
            tree.write(row["file"], text.replace(row["old"], row["new"]))
            failed = [test for test in row["tests"] if tree.test([test], 600, "-n0").failed]
            tree.write(row["file"], text)
            survived += len(failed) < len(row["tests"])
            word = "killed" if len(failed) == len(row["tests"]) else "SURVIVED"
            print(f"{word}: {row['file']}: {row['about']}", flush=True)
    print(f"{len(rows) - survived} of {len(rows)} killed")
    return int(survived > 0)


def _record(options: argparse.Namespace) -> int:
    files: list[str] = []
    for name in options.tests or ["tests"]:
        found = sorted((ROOT / name).rglob("test_*.py")) if (ROOT / name).is_dir() else [ROOT / name]
        files += [file.relative_to(ROOT).as_posix() for file in found]
    with Tree() as tree:
        record(tree, options.map, files)
    return 0


def _random(options: argparse.Namespace) -> int:
    known = Map.read(options.map)
    tests = {file.relative_to(ROOT).as_posix(): file.read_text() for file in sorted((ROOT / "tests").rglob("test_*"))}
    killed = 0
    lived: list[str] = []
    with Tree() as tree:
        for mutant in _draw(tree, options.folders, options.seed, options.count)[options.skip :]:
            begun, text = time.monotonic(), tree.read(mutant.path)
            picked = chosen(mutant, known, tests, options.seconds)
            tree.write(mutant.path, mutant.applied(text))
            outcome = tree.test(picked, options.limit, "-n0") if picked else Outcome(failed=False, said="no test")
            tree.write(mutant.path, text)
            killed += outcome.failed
            why = next((line for line in outcome.said.splitlines() if "FAILED" in line), outcome.said.strip()[-110:])
            word = "killed" if outcome.failed else "LATE" if outcome.late else "SURVIVED"
            told = f"{word} ({time.monotonic() - begun:.0f} s, {len(picked)}: {why[:110]}) {mutant.difference(text)}"
            print(told, flush=True)
            if not outcome.failed:
                lived.append(told)
    print("\nSurvivors, and runs that did not end in time, which are not counted as killed\n" + "\n\n".join(lived))
    print(f"\n{killed} of {killed + len(lived)} killed ({100 * killed / max(1, killed + len(lived)):.0f} %)")
    return int(bool(lived))


def _draw(tree: Tree, folders: list[str], seed: int, count: int) -> list[Mutant]:
    """`count` different mutants; a longer draw of the same seed begins with the shorter one."""
    found = [mutant for path, text in _modules(tree, folders) for mutant in mutants(path, text)]
    by_operator = dict(choices(found))
    source = random.Random(seed)  # noqa: S311
    drawn: list[Mutant] = []
    while len(drawn) < min(count, len(found)):
        mutant = source.choice(by_operator[source.choice(list(by_operator))])
        if mutant not in drawn:
            drawn.append(mutant)
    return drawn


def _modules(tree: Tree, folders: list[str]) -> Iterator[tuple[str, str]]:
    for folder in folders:
        for file in sorted((tree.path / PACKAGE / folder).rglob("*.py")):
            path = file.relative_to(tree.path).as_posix()
            yield path, tree.read(path)


if __name__ == "__main__":
    raise SystemExit(main())
