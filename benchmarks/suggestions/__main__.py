"""Whether jobs that do not fit are told what would: `python -m benchmarks.suggestions --corpus DIR [--jobs 200]`.

Takes corpus configs, each with the largest NVIDIA GPU of the catalogue that its job does not fit, as evenly over the
formats as they are there. Each is checked, the first edit offered is applied as `--fix --unsafe-fixes` would, and the
file is checked again. Prints figures by format and every job for which something is wrong. The corpus is copied first;
nothing in DIR is changed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import chain

from .choose import Chosen, candidate, spread
from .outcome import GOOD, Outcome, outcome

TARGET = 0.95
KINDS = (*GOOD, "silent", "broken")


def main(arguments: list[str]) -> int:
    """Run, print, and exit with 1 where fewer than TARGET are told something that holds."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.suggestions", description=__doc__)
    parser.add_argument("--corpus", required=True, help="folder of configs with an INDEX.json that lists them")
    parser.add_argument("--jobs", type=int, default=200, help="how many jobs")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", help="only paths that contain this")
    parser.add_argument("--verbose", action="store_true", help="print what every job was told")
    given = parser.parse_args(arguments)
    with open(os.path.join(given.corpus, "INDEX.json"), encoding="utf-8") as file:
        paths = sorted(item["path"] for item in json.load(file))
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(given.processes) as pool:
        root = os.path.realpath(os.path.join(folder, "corpus"))
        shutil.copytree(given.corpus, root)
        found = [item for item in pool.map(partial(candidate, root), paths, chunksize=16) if item is not None]
        jobs = [item for item in spread(found, given.jobs) if not given.only or given.only in item.path]
        groups = _by_folder(jobs)
        outcomes = list(chain(*pool.map(partial(_outcomes, root), groups)))
    _print(outcomes, len(found), verbose=given.verbose)
    good = sum(item.kind in GOOD for item in outcomes)
    return int(good < TARGET * len(outcomes))


def _by_folder(jobs: list[Chosen]) -> list[list[Chosen]]:
    """Jobs of one repository together: their edits may be in a file that they share."""
    groups: dict[str, list[Chosen]] = {}
    for item in jobs:
        groups.setdefault(item.path.split("/")[0], []).append(item)
    return sorted(groups.values(), key=len, reverse=True)


def _outcomes(root: str, group: list[Chosen]) -> list[Outcome]:
    return [outcome(root, item) for item in group]


def _print(outcomes: list[Outcome], of: int, *, verbose: bool) -> None:
    table = Counter((item.chosen.format, item.kind) for item in outcomes)
    formats = sorted({item.chosen.format for item in outcomes})
    width = max(map(len, formats), default=6)
    print(f"{len(outcomes)} jobs of {of} that some NVIDIA GPU is too small for")
    print(f"{'format':<{width}}  jobs  " + "  ".join(f"{kind:>8}" for kind in KINDS))
    for name in [*formats, "all"]:
        counts = [
            sum(n for (form, what), n in table.items() if name in (form, "all") and what == kind) for kind in KINDS
        ]
        print(f"{name:<{width}}  {sum(counts):>4}  " + "  ".join(f"{count:>8}" for count in counts))
    good = sum(item.kind in GOOD for item in outcomes)
    edits = [item for item in outcomes if item.kind in ("edit", "broken")]
    print(f"told what fits, or that nothing does: {good} of {len(outcomes)} ({good / max(1, len(outcomes)):.1%})")
    print(f"edits that hold: {sum(item.kind == 'edit' for item in edits)} of {len(edits)} applied")
    for item in sorted(outcomes, key=lambda item: (KINDS.index(item.kind), item.chosen.path)):
        if verbose or item.kind not in GOOD:
            print(f"{item.kind}: {item.chosen.path} on {item.chosen.gpu}: {item.reason}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
