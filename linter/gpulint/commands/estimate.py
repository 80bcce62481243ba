"""`gpulint estimate`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from ..run.check import internal_error
from ..settings.settings import SettingsError
from .changes import changes_of
from .console import COULD_NOT, Refused, complain, terminal
from .options import hardware_options, layers_of

if TYPE_CHECKING:
    from ..launchers.reading import Opened
    from ..run.estimated import Estimated
    from ..settings.settings import Settings


@click.command("estimate")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@hardware_options
@click.option(
    "--format", "output_format", type=click.Choice(["text", "json", "svg"]), default="text", help="Output format."
)
@click.option(
    "--set", "sets", multiple=True, metavar="FIELD=VALUE", help="Set a field of the job, such as micro_batch_size=4."
)
@click.option("--explain", is_flag=True, help="Print how each component is computed.")
def command(
    files: tuple[str, ...],
    config: str | None,
    isolated: bool,
    output_format: str,
    sets: tuple[str, ...],
    explain: bool,
    **options: Any,
) -> None:
    """Estimate the peak memory per GPU of each config, by component."""
    from ..estimator.estimate import NotEstimable
    from ..launchers.reading import UnrecognisedError
    from ..source.document import SourceError

    layers = layers_of(config, isolated=isolated, options=options)
    try:
        changes = changes_of(sets) if sets else {}
    except SettingsError as error:
        raise Refused(str(error)) from None
    done: list[tuple[str, Estimated]] = []
    failed = False
    for file in files:
        try:
            for name, opened in _jobs(file, layers.of(file)):
                try:
                    done.append((name, _estimate(opened, changes, explain=explain)))
                except NotEstimable as error:
                    failed = complain(f"{name}: {error}")
        except UnrecognisedError:
            failed = complain(f"{file}: unknown config format")
        except (SourceError, SettingsError) as error:
            failed = complain(str(error))
        except NotEstimable as error:
            failed = complain(f"{file}: {error}")
        except Exception as error:  # as in `check`: a defect on one file must not hide the others
            failed = complain(f"{file}: {internal_error(error)}")
    _print(done, output_format, explain=explain)
    sys.exit(COULD_NOT if failed else 0)


def _print(done: list[tuple[str, Estimated]], output_format: str, *, explain: bool) -> None:
    if output_format == "json":
        from ..report.data import json_estimate

        found = ((file, item.estimate, item.result) for file, item in done)
        click.echo(json_estimate.render(found, explain=explain))
    elif output_format == "svg":
        from ..report.html import svg

        if done:
            click.echo(svg.render([(file, item.estimate, item.result) for file, item in done]))
    else:
        from ..report.text import estimate as text_estimate

        style = terminal()
        blocks = [
            text_estimate.render(
                file, item.estimate, style, explain=explain, fitting=_fitting(item), result=item.result
            )
            for file, item in done
        ]
        if blocks:
            click.echo("\n\n".join(blocks))


def _jobs(file: str, settings: Settings) -> list[tuple[str, Opened]]:
    """The jobs of a file and what to call each."""
    from ..estimator.estimate import NotEstimable
    from ..launchers.reading import open_jobs, recognise_file

    jobs = open_jobs(recognise_file(file), settings)
    if not jobs.started:
        raise NotEstimable(jobs.reason)
    single = len(jobs.started) == 1
    return [
        (file if single or not opened.part else f"{file} ({opened.part})", opened) for opened in jobs.started
    ]  # fmt: skip


def _estimate(opened: Opened, changes: dict[str, Any], *, explain: bool) -> Estimated:
    from ..run.estimated import estimated

    found = estimated(opened, changes)
    if explain:
        from ..estimator.explain.explain import explained

        found = found._replace(estimate=explained(found.estimate, found.job, found.model))
    return found


def _fitting(item: Estimated) -> str:
    """The GPUs that a job fits on where none is given."""
    if item.gpu is not None:
        return ""
    from ..hardware.catalogue import gpus

    names = [card.name for card in gpus() if item.estimate.fits_on(card)]
    fitting = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    return fitting or "no single GPU in the catalogue"
