"""`gpulint estimate`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from ..check import internal_error
from ..origin import Origin
from ..settings import SettingsError
from .changes import changes_of
from .console import COULD_NOT, Refused, colour, complain
from .options import hardware_options, layers_of

if TYPE_CHECKING:
    from ..reading import Opened
    from ..settings import Settings


@click.command("estimate")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@hardware_options
@click.option(
    "--format", "output_format", type=click.Choice(["text", "json", "svg"]), default="text", help="Output format."
)
@click.option(
    "--set", "sets", multiple=True, metavar="FIELD=VALUE", help="Change a field of the job, such as micro_batch_size=4."
)
@click.option("--explain", is_flag=True, help="Print the derivation of each component as arithmetic.")
def command(
    files: tuple[str, ...],
    config: str | None,
    isolated: bool,
    output_format: str,
    sets: tuple[str, ...],
    explain: bool,
    **options: Any,
) -> None:
    """Print the memory each config needs on its fullest GPU, component by component."""
    from ..estimator.estimate import NotEstimable
    from ..models.model import UnknownModel
    from ..reading import UnrecognisedError
    from ..source.document import SourceError

    layers = layers_of(config, isolated=isolated, options=options)
    try:
        changes = changes_of(sets) if sets else {}
    except SettingsError as error:
        raise Refused(str(error)) from None
    done, failed = [], False
    for file in files:
        try:
            done += _estimate_file(file, layers.of(file), changes, explain=explain)
        except UnrecognisedError:
            failed = complain(f"{file}: not a config of a known format")
        except SourceError as error:
            failed = complain(str(error))
        except (NotEstimable, UnknownModel) as error:
            failed = complain(f"{file}: {error}")
        except Exception as error:  # as in `check`: a defect on one file must not hide the others
            failed = complain(f"{file}: {internal_error(error)}")
    if output_format == "json":
        from ..report import json_estimate

        click.echo(json_estimate.render(((file, estimate) for file, estimate, _ in done), explain=explain))
    elif output_format == "svg":
        from ..report import svg

        if done:
            click.echo(svg.render([(file, estimate) for file, estimate, _ in done]))
    else:
        from ..report import text_estimate

        coloured = colour()
        blocks = [
            text_estimate.render(file, estimate, colour=coloured, explain=explain, fitting=fitting)
            for file, estimate, fitting in done
        ]
        if blocks:
            click.echo("\n\n".join(blocks))
    sys.exit(COULD_NOT if failed else 0)


def _estimate_file(
    file: str, settings: Settings, changes: dict[str, Any], *, explain: bool
) -> list[tuple[str, Any, str]]:
    """The estimates of a file's jobs: what to call each, the estimate, and GPUs that it fits where none is given."""
    from ..estimator.estimate import NotEstimable
    from ..reading import open_jobs, recognise_file

    jobs = open_jobs(recognise_file(file), settings)
    if not jobs.opened:
        raise NotEstimable(jobs.reason)
    single = len(jobs.opened) == 1
    return [
        (
            file if single or not opened.part else f"{file} ({opened.part})",
            *_estimate_job(opened, jobs.kind, changes, explain=explain),
        )
        for opened in jobs.opened
    ]


def _estimate_job(opened: Opened, kind: str, changes: dict[str, Any], *, explain: bool) -> tuple[Any, str]:
    from ..estimator import estimate_job
    from ..estimator.estimate import NotEstimable
    from ..models.resolve import resolve

    job, path = opened.reading.job, opened.reading.config.path
    if changes:
        job = job.with_changes(changes)
        job.origins.update({path: Origin("command line", "--set") for path in changes})
    if job.model is None:
        raise NotEstimable(f"a {kind} file names no model; estimate the config that uses it")
    model = resolve(job.model, os.path.dirname(os.path.abspath(path)), opened.project.root)
    estimate = estimate_job(job, model, opened.gpu)
    if explain:
        from ..estimator.explain import explained

        estimate = explained(estimate, job, model, opened.gpu)
    fitting = ""
    if opened.gpu is None:
        from ..hardware.catalogue import gpus

        names = [gpu.name for gpu in gpus() if estimate.per_gpu.high <= gpu.usable]
        fitting = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
        fitting = fitting or "no single GPU of the catalogue"
    return estimate, fitting
