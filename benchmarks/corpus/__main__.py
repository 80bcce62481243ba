"""Which files of a corpus are recognised, which become jobs, and how long that takes.

python -m benchmarks.corpus ../shared/corpus                       # a table, a row a label
python -m benchmarks.corpus ../shared/corpus --list wrong          # the files behind a figure
python -m benchmarks.corpus ../shared/corpus --gpu h100-80gb --gpus 8

The folder holds an INDEX.json: a list of `{"path", "format"}`. Each file is read and its jobs are estimated, without
rules and suggestions. Times are those of the processor, the first file of the run left out of the slowest.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpulint import Settings, estimate
from gpulint.estimator.estimate import NotEstimable
from gpulint.formats.core.format import NoJobError
from gpulint.launchers.reading import UnrecognisedError, open_jobs, recognise_file
from gpulint.models.model import UnknownModel
from gpulint.settings.settings import project_root
from gpulint.source.document import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable

LISTS = ("wrong", "silent", "crash", "slow", "skipped")
SLOW = 1.0
"""Seconds after which a file counts as slow."""


class Outcome(NamedTuple):
    """What came of one file; `kind` is the format or launcher it was taken for, `reason` why there is no job."""

    path: str
    label: str
    expected: tuple[str, ...] | None
    kind: str
    jobs: int
    reason: str
    crash: str
    seconds: float

    @property
    def recognised(self) -> bool:
        """Whether it was taken for what it is."""
        return self.kind in self.expected if self.expected is not None else not self.kind

    @property
    def settled(self) -> bool:
        """Whether it became a job or said in one line why not."""
        return not self.crash and (self.jobs > 0 or bool(self.reason and "\n" not in self.reason))


def outcomes(folder: Path, settings: Settings) -> list[Outcome]:
    """Read and estimate every file of the corpus."""
    labels = json.loads(Path(__file__).with_name("labels.json").read_text(encoding="utf-8"))
    found = []
    for row in json.loads((folder / "INDEX.json").read_text(encoding="utf-8")):
        label = row["format"]
        found.append(_outcome(folder, row["path"], label, _expected(row["path"], label, labels), settings))
    return found


def _expected(path: str, label: str, labels: dict[str, dict[str, list[str] | str | None]]) -> tuple[str, ...] | None:
    """The kinds that a file may be taken for; None for no config. The longest corrected path counts."""
    right = max((given for given in labels["corrected"] if path.startswith(given)), key=len, default="")
    corrected = labels["corrected"].get(right, "")
    if corrected is None:
        return None
    if corrected:
        return (str(corrected),)
    return tuple(labels["kinds"].get(label) or (label,))


def _outcome(folder: Path, path: str, label: str, expected: tuple[str, ...] | None, settings: Settings) -> Outcome:
    file = os.path.join(folder, path)
    start = time.process_time()
    kind, jobs, reason, crash = "", 0, "", ""
    try:
        recognised = recognise_file(file)
        kind = recognised.kind
        found = open_jobs(recognised, settings.with_options(root=project_root(os.path.dirname(file))))
        jobs, reason = len(found.opened), found.reason
        for opened in found.opened:
            try:
                estimate(opened.reading.job, os.path.dirname(file), opened.project.root)
            except (NotEstimable, UnknownModel):
                continue
    except UnrecognisedError:
        pass
    except NoJobError as error:
        reason = error.reason
    except SourceError as error:
        reason = error.reason
    except Exception as error:
        crash = " ".join(f"{type(error).__name__}: {error}".split())
    return Outcome(path, label, expected, kind, jobs, reason, crash, time.process_time() - start)


def table(found: list[Outcome]) -> list[str]:
    """One line a label and one for all: files that are configs, recognised, jobs, silent, crashes, the slowest."""
    by_label: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in found:
        by_label["(no config)" if outcome.expected is None else outcome.label].append(outcome)
    configs = [outcome for outcome in found if outcome.expected is not None]
    head = ("label", "files", "recognised", "jobs", "skipped", "neither", "crash", "slowest s")
    lines = ["{:<24} {:>5} {:>10} {:>5} {:>7} {:>7} {:>5} {:>9}".format(*head)]
    for name, rows in [*sorted(by_label.items()), ("all configs", configs)]:
        right = sum(row.recognised for row in rows)
        jobs = sum(row.jobs > 0 for row in rows)
        settled = sum(row.settled for row in rows)
        crashed = sum(bool(row.crash) for row in rows)
        slowest = max(row.seconds for row in rows)
        lines.append(
            f"{name:<24} {len(rows):>5} {right:>10} {jobs:>5} {settled - jobs:>7} {len(rows) - settled:>7} "
            f"{crashed:>5} {slowest:>9.2f}"
        )
    share = sum(row.recognised for row in configs) / len(configs)
    settled_share = sum(row.settled for row in configs) / len(configs)
    slow = sum(row.seconds > SLOW for row in found)
    lines.append(
        f"recognised {share:.2%}, a job or one line why not {settled_share:.2%}, "
        f"crashes {sum(bool(row.crash) for row in found)}, over {SLOW:.0f} s {slow}"
    )
    return lines


def listed(found: list[Outcome], which: str) -> list[str]:
    """The files behind one figure of the table."""
    tests: dict[str, Callable[[Outcome], bool]] = {
        "wrong": lambda row: not row.recognised,
        "silent": lambda row: row.expected is not None and not row.settled,
        "crash": lambda row: bool(row.crash),
        "slow": lambda row: row.seconds > SLOW,
        "skipped": lambda row: row.settled and not row.jobs,
    }
    chosen = [row for row in found if tests[which](row)]
    return [
        f"{row.label}: {row.path}: {row.kind or 'unrecognised'}, {row.crash or row.reason or f'{row.seconds:.2f} s'}"
        for row in chosen
    ]


def main() -> int:
    """Read the corpus and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gpu", default="h100-80gb")
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--list", choices=LISTS)
    options = parser.parse_args()
    settings = Settings(gpu=options.gpu, gpus=options.gpus)
    found = outcomes(options.folder, settings)
    found[0] = found[0]._replace(seconds=0.0)
    print("\n".join(listed(found, options.list) if options.list else table(found)))
    return 1 if any(row.crash for row in found) else 0


if __name__ == "__main__":
    raise SystemExit(main())
