"""Processor time of `check` and `plan` on corpus files.

python -m benchmarks.suggestions.times --corpus ../shared/corpus --every 20 --gpu rtx-4090
"""

from __future__ import annotations

import os
import time
from contextlib import redirect_stderr, redirect_stdout, suppress
from io import StringIO
from statistics import median
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable

LIMITS = {"check": 1.0, "plan": 2.0}
"""Seconds that nobody should have to wait for longer."""


@click.command()
@click.option("--corpus", required=True, type=click.Path(exists=True, file_okay=False))
@click.option("--every", default=1, help="Take every so-many-th file.")
@click.option("--gpu", default="rtx-4090", help="GPU to judge against.")
def main(corpus: str, every: int, gpu: str) -> None:
    """Print median and slowest times, and the files above the limits."""
    from gpulint import Settings, check
    from gpulint.run.walk import find_files

    settings = Settings(gpu=gpu, gpus=8)
    os.chdir(corpus)
    files = [found.path for found in find_files(["."], settings)][::every]
    check(files[:3], settings)
    for name, act in (("check", lambda path: check([path], settings)), ("plan", lambda path: _plan(path, gpu))):
        times = {path: _timed(act, path) for path in files}
        slow = {path: seconds for path, seconds in times.items() if seconds > LIMITS[name]}
        worst = max(times.values())
        print(f"{name}: {len(files)} files, median {median(times.values()):.2f} s, slowest {worst:.2f} s")
        print(f"  {len(slow)} above {LIMITS[name]:.0f} s")
        for path, seconds in sorted(slow.items(), key=lambda item: -item[1])[:20]:
            print(f"  {seconds:6.2f} s  {path}")


def _timed(act: Callable[[str], object], path: str) -> float:
    begun = time.process_time()
    act(path)
    return time.process_time() - begun


def _plan(path: str, gpu: str) -> None:
    """What `gpulint plan` does with a file, without printing."""
    from gpulint.commands.plan import command

    words = [path, "--gpu", gpu, "--gpus", "8", "--isolated"]
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()), suppress(SystemExit):
        command.main(words, standalone_mode=False)


if __name__ == "__main__":
    main()
