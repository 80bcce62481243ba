"""`gpulint check`."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ..report.registry import FORMATS
from ..run.check import check
from ..settings.settings import FAIL_ON
from .console import COULD_NOT, Refused, complain
from .fixes import finish, offer_fixes
from .options import hardware_options, layers_of, selection_options
from .outputs import InOrder, Outputs, complaints, exit_code, named_order, write_file
from .progress import Progress

FEW = 16
"""Named files from which several processes are worth their start, and from which a fact is told once."""

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..finding import Report
    from ..run.fixing import Fixes
    from ..settings.layers import Layers


@click.command("check", cls=InOrder)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@hardware_options
@selection_options
@click.option(
    "--output-format",
    "formats",
    multiple=True,
    type=click.Choice([*FORMATS, "text"]),
    metavar="FORMAT",
    help=f"Output format: {', '.join(FORMATS)}; repeatable. [default: full; github or azure in their CI]",
)
@click.option(
    "--output-file",
    "files",
    multiple=True,
    metavar="FILE",
    help="File for the preceding --output-format, instead of standard output; repeatable.",
)
@click.option(
    "--fail-on", type=click.Choice(FAIL_ON), help="Lowest severity that makes the exit code 1. [default: error]"
)
@click.option("--baseline", metavar="FILE", help="Do not report findings that are in this baseline.")
@click.option("--write-baseline", metavar="FILE", help="Write a baseline of current findings and exit.")
@click.option("--add-ignore", metavar="REASON", help="Write a suppression comment for each finding and exit.")
@click.option("--fix", "fixing", is_flag=True, help="Apply safe fixes and report the remaining findings.")
@click.option("--unsafe-fixes", is_flag=True, help="Also apply fixes that change training behavior.")
@click.option("--fix-only", is_flag=True, help="Apply fixes and report nothing; implies --fix.")
@click.option("--diff", "diffing", is_flag=True, help="Print the fixes as a patch, write nothing; implies --fix-only.")
@click.option("--statistics", is_flag=True, help="Show how often each rule fired; output files stay complete.")
@click.option("--show-all", is_flag=True, help="Show every finding of a folder, also where it repeats another.")
@click.option("--watch", "watching", is_flag=True, help="Check again whenever a file changes, until interrupted.")
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="Number of processes. [default: one per CPU]")
@click.option("--stdin-filename", metavar="PATH", help="File name of standard input (-).")
@click.option("-q", "--quiet", is_flag=True, help="Print only findings.")
@click.option("-v", "--verbose", is_flag=True, help="Print skipped files and the reasons.")
@click.option("--skip-unknown", is_flag=True, help="Skip named files of unknown format instead of failing.")
@click.option("--require-verdict", is_flag=True, help="Fail where the memory of a job could not be checked.")
def command(
    paths: tuple[str, ...],
    config: str | None,
    isolated: bool,
    formats: tuple[str, ...],
    files: tuple[str, ...],
    write_baseline: str | None,
    add_ignore: str | None,
    fixing: bool,
    unsafe_fixes: bool,
    fix_only: bool,
    diffing: bool,
    statistics: bool,
    show_all: bool,
    watching: bool,
    jobs: int | None,
    stdin_filename: str | None,
    quiet: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Check config files and directories.

    Exit code 0: no findings at or above --fail-on remain. 1: findings, or jobs that --require-verdict does not let
    pass; with --diff, there is something to fix.
    2: a file could not be read, parsed or written; the other files are still checked.
    """
    outputs = Outputs.chosen(
        formats,
        files,
        named_order(),
        statistics=statistics,
        quiet=quiet,
        verbose=verbose,
        once=_many(paths) and not show_all,
    )
    layers = layers_of(config, isolated=isolated, options={**options, **({"baseline": None} if write_baseline else {})})
    changing = fixing or fix_only or diffing
    if "-" in paths:
        if changing or watching or write_baseline or add_ignore is not None:
            raise Refused("standard input does not work with --fix, --watch, --write-baseline or --add-ignore")
        paths = tuple(stdin_filename or "stdin.yaml" if path == "-" else path for path in paths)
        with _standard_input(stdin_filename or "stdin.yaml"):
            report = _checked(paths, layers, 1)
        outputs.write(report, layers)
        sys.exit(exit_code(report, layers.of(os.curdir)))
    if watching:
        _watch(paths, layers, outputs, jobs)
    if changing:
        fixes = _fixed(paths, layers, unsafe=unsafe_fixes)
        mode = "diff" if diffing else "fix-only" if fix_only else "fix"
        sys.exit(finish(fixes, mode, outputs, layers, unsafe=unsafe_fixes))
    report = _checked(paths, layers, jobs)
    if write_baseline:
        _write_baseline(report, write_baseline)
    if add_ignore is not None:
        _add_ignores(report, add_ignore)
    outputs.write(report, layers)
    if outputs.for_people:
        offer_fixes(report)
    sys.exit(exit_code(report, layers.of(os.curdir)))


def _many(paths: tuple[str, ...]) -> bool:
    """Whether a run is over folders or many files."""
    return any(os.path.isdir(path) for path in paths) or len(paths) > FEW


def _checked(paths: tuple[str, ...], layers: Layers, jobs: int | None) -> Report:
    """The report of a run; refuses rule files and settings that cannot be used, and paths without any config."""
    from ..rules.rule import RuleError
    from ..settings.settings import SettingsError

    if jobs is None:
        jobs = (os.cpu_count() or 1) if _many(paths) else 1
    progress = Progress()
    try:
        report = check(paths, layers, jobs=jobs, progress=progress)
    except (RuleError, SettingsError) as error:
        raise Refused(str(error)) from None
    finally:
        progress.end()
    return _something(report, paths)


def _fixed(paths: tuple[str, ...], layers: Layers, *, unsafe: bool) -> Fixes:
    from ..rules.rule import RuleError
    from ..run.fixing import fix
    from ..settings.settings import SettingsError

    try:
        fixes = fix(paths, layers, unsafe=unsafe)
    except (RuleError, SettingsError) as error:
        raise Refused(str(error)) from None
    _something(fixes.report, paths)
    return fixes


def _something(report: Report, paths: tuple[str, ...]) -> Report:
    """The report, refused where no path led to a file."""
    if not report.files:
        raise Refused(f"no config or launcher (.yaml, .yml, .json, .toml, .sh, .slurm) in {', '.join(paths)}")
    return report


@contextmanager
def _standard_input(path: str) -> Iterator[None]:
    """While it lasts, the file at `path` reads as what comes from standard input."""
    from ..source.overlay import instead

    data = sys.stdin.buffer.read()
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise Refused(f"{path}: standard input is not UTF-8") from None
    with instead({os.path.realpath(path): text}):
        yield


def _watch(paths: tuple[str, ...], layers: Layers, outputs: Outputs, jobs: int | None) -> NoReturn:
    """Check now and after every change, until interrupted."""
    from ..models.resolve import forget
    from ..run.watch import changes

    referenced: set[str] = set()
    try:
        for _ in chain([None], changes(paths, layers, referenced)):
            layers.forget()
            forget()
            click.clear()
            try:
                report = _checked(paths, layers, jobs)
            except Refused as refused:
                refused.show()
                continue
            referenced.update(report.texts)
            outputs.write(report, layers)
            click.echo("watching for changes; press Ctrl-C to stop", err=True)
    except KeyboardInterrupt:
        sys.exit(0)
    raise AssertionError("watching never ends")


def _write_baseline(report: Report, path: str) -> NoReturn:
    from ..run.baseline import text

    write_file(path, text(report, path))
    number = _counted(len(report.findings), "finding")
    click.echo(f"{number} written to {path}; use --baseline {path}, or baseline in the settings")
    sys.exit(COULD_NOT if complaints(report) else 0)


def _add_ignores(report: Report, reason: str) -> NoReturn:
    from ..run.ignoring import add_ignores

    added = add_ignores(report, reason)
    for path, why in added.refused:
        complain(f"{path}: {why}")
    click.echo(f"{_counted(added.comments, 'comment')} written to {_counted(added.files, 'file')}")
    sys.exit(COULD_NOT if complaints(report) or added.refused else 0)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
