"""Whether every stable rule finds its mistake in published configs: `python -m benchmarks.rules CORPUS`.

From the examples of each rule follows what makes it fire (`mistake`): keys and values of a format. They are written
into files of the corpus, evenly over those of the format, first without the example's model; where that does not make
the mistake, with it. Each file is checked before and after on the example's hardware by all stable rules. A row a rule
and format: files it was written into, found at a line that was written, found elsewhere, excused by something else that
the file says, silent, on the file as published already, and the rules that came along. Nothing in CORPUS is changed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpulint.rules.index import rule_files
from gpulint.rules.load import load_rules
from gpulint.settings.settings import Settings

from .files import File, file_of, paths
from .files import chosen as chosen_files
from .mistake import mistakes
from .plant import Field, Planted, conditions_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpulint.rules.load import RuleFile

    from .mistake import Mistake

TRIES = 3
"""Files to try for each to plant in: some cannot hold a key where it would count."""

OUTCOMES = ("found", "elsewhere", "excused", "unknown", "silent", "there", "unwritten")


class Row(NamedTuple):
    """The plantings of one mistake."""

    mistake: Mistake
    planted: list[Planted]


def main() -> int:
    """Plant and print; exits with 1 where a rule is silent about a mistake that its condition holds for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rules", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--files", type=int, default=8, help="so many files of each mistake's format")
    parser.add_argument("--only", nargs="*", default=(), help="ids of rules")
    parser.add_argument("--verbose", action="store_true", help="every planting that was not found, and its company")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    chosen = [file for file in rule_files() if file.status == "stable" and (not given.only or file.id in given.only)]
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(given.processes) as pool:
        found = pool.map(partial(file_of, str(given.corpus.resolve())), paths(given.corpus), chunksize=16)
        files = [file for file in found if file is not None]
        shares = [chosen[number :: given.processes] for number in range(given.processes)]
        work = partial(_rows, given.corpus.resolve(), folder, files, given.files)
        rows = [*chain(*pool.map(work, range(given.processes), shares))]
    rows.sort(key=lambda row: row.mistake.rule)
    _print(rows, chosen, verbose=given.verbose)
    return int(any(item.outcome == "silent" for row in rows for item in row.planted))


def _rows(
    corpus: Path,
    folder: str,
    files: list[File],
    count: int,
    share: int,
    chosen: Sequence[RuleFile],
) -> list[Row]:
    """The rows of some rules, planted in a copy of the corpus of their own."""
    copy = os.path.join(os.path.realpath(folder), str(share), "corpus")
    shutil.copytree(corpus, copy)
    selection = load_rules(Settings())
    field = Field(selection)
    rows: list[Row] = []
    for file in chosen:
        for mistake in mistakes(file, selection):
            here = chosen_files(files, mistake)
            planted: list[Planted] = []
            for item in here[: TRIES * count]:
                planted.append(_planted(field, _moved(item, str(corpus), copy), mistake, file))
                if sum(each.outcome != "unwritten" for each in planted) == count:
                    break
            rows.append(Row(mistake, planted))
    return rows


def _moved(file: File, corpus: str, copy: str) -> File:
    return file._replace(path=file.path.replace(corpus, copy, 1), root=file.root.replace(corpus, copy, 1))


def _planted(field: Field, file: File, mistake: Mistake, rule: RuleFile) -> Planted:
    """With the file's own model where that makes the mistake, else with the example's."""
    conditions = conditions_of(rule.source["when"])
    if not mistake.by_model or mistake.values or mistake.absent:
        plain = field.plant(file, mistake, rule.rule, conditions, model=False)
        if plain.outcome not in ("excused", "unknown", "unwritten") or mistake.model is None:
            return plain
    with_model = field.plant(file, mistake, rule.rule, conditions, model=True)
    return with_model if mistake.by_model or with_model.outcome in ("found", "elsewhere") else plain


def _print(rows: list[Row], chosen: Sequence[RuleFile], *, verbose: bool) -> None:
    form = "{:<7} {:<38} {:<12}" + " {:>9}" * len(OUTCOMES) + "  {}"
    print(form.format("rule", "name", "format", *OUTCOMES, "came along"))
    names = {file.id: file.name for file in chosen}
    for mistake, planted in rows:
        counts = Counter(item.outcome for item in planted)
        along = Counter(rule for item in planted for rule, _ in item.company)
        words = ", ".join(f"{rule} {count}" for rule, count in sorted(along.items()))
        name = names[mistake.rule]
        print(form.format(mistake.rule, name[:38], mistake.format, *(counts[kind] or "" for kind in OUTCOMES), words))
        if verbose:
            _explain(mistake, planted)
    _summary(rows, chosen)


def _explain(mistake: Mistake, planted: list[Planted]) -> None:
    written = {**mistake.values, **dict.fromkeys(mistake.absent)}
    print(f"    plants {json.dumps(written, default=str)[:300]}")
    for item in planted:
        if item.outcome != "found":
            print(f"    {item.outcome}: {_short(item.path)}: {item.why}")
        for rule, message in item.company:
            print(f"    with {rule}: {_short(item.path)}: {message}")


def _short(path: str) -> str:
    return path.partition("/corpus/")[2]


def _summary(rows: list[Row], chosen: Sequence[RuleFile]) -> None:
    by_rule: dict[str, Counter[str]] = defaultdict(Counter)
    for mistake, planted in rows:
        by_rule[mistake.rule].update(item.outcome for item in planted)
    total = sum(by_rule.values(), Counter[str]())
    found = [rule for rule, counts in by_rule.items() if counts["found"]]
    print(f"{len(chosen)} rules, {len(found)} found where planted; " + _counted(total))
    without = [file for file in chosen if not by_rule[file.id]["found"]]
    reasons = json.loads(Path(__file__).with_name("reasons.json").read_text(encoding="utf-8"))["rules"]
    for file in without:
        counted = _counted(by_rule[file.id])
        print(f"not found: {file.id} {file.name}{f' ({counted})' if counted else ''}: {reasons.get(file.id, '?')}")


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{counts[kind]} {kind}" for kind in OUTCOMES if counts[kind])


if __name__ == "__main__":
    raise SystemExit(main())
