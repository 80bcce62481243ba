"""What `gpulint check --fix` and its kin write and say."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from .console import COULD_NOT, complain
from .outputs import complaints, exit_code

if TYPE_CHECKING:
    from ..finding import Report
    from ..run.fixing import Fixes
    from ..settings.layers import Layers
    from .outputs import Outputs


def finish(fixes: Fixes, mode: str, outputs: Outputs, layers: Layers, *, unsafe: bool) -> int:
    """Write or show the fixes, then what is left; the exit code."""
    from ..report.text.fixes import diff, totals

    failed = False
    if mode == "fix":
        failed = _write(fixes)
        outputs.write(fixes.report, layers)
    else:
        failed = complaints(fixes.report)
        if mode == "diff":
            click.echo(diff(fixes.changes), nl=False)
        else:
            failed = _write(fixes) or failed
    _tell_held(fixes)
    click.echo(
        totals(fixes, unsafe=unsafe, written=mode != "diff"),
        err=mode == "diff" or (mode == "fix" and not outputs.for_people),
    )
    if failed:
        return COULD_NOT
    if mode == "fix":
        return exit_code(fixes.report, layers.of(os.curdir))
    return int(mode == "diff" and bool(fixes.changes))


def _write(fixes: Fixes) -> bool:
    """Write what the fixes changed; whether something could not be written."""
    from ..run.fixing import write

    failed = write(fixes)
    for path, reason in failed:
        complain(f"{path}: not written: {reason}")
    return bool(failed)


def _tell_held(fixes: Fixes) -> None:
    """Say on standard error which fixes were held back, and why."""
    from ..report.printable import printable

    for finding, reason in fixes.held:
        span = finding.location.span
        place = f"{finding.location.path}:{span.line}:{span.column}"
        click.echo(printable(f"{place}: {finding.rule} not fixed: {reason}"), err=True)


def offer_fixes(report: Report) -> None:
    """Say what --fix could do."""
    from ..report.text.fixes import offer

    text = offer(report.findings)
    if text:
        click.echo(text)
