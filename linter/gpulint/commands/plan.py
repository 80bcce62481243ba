"""`gpulint plan`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from ..run.check import internal_error
from .console import COULD_NOT, complain, terminal
from .options import hardware_options, layers_of

if TYPE_CHECKING:
    from ..rules.suggest.plan import Plan
    from ..settings.settings import Settings


@click.command("plan")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@hardware_options
@click.option(
    "--sort",
    type=click.Choice(["rank", "memory", "verdict"]),
    default="rank",
    help="Sort by how little a change affects the run, by memory, or by what fits.  [default: rank]",
)
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text", help="Output format.")
def command(
    files: tuple[str, ...], config: str | None, isolated: bool, sort: str, output_format: str, **options: Any
) -> None:
    """Show changes to each job, the memory it would need then, and what they cost.

    If the job does not fit its GPU: every change that saves memory, and whether it is enough. If it fits: larger
    settings that also fit. Without a GPU: the GPUs that the job fits on.
    """
    from ..launchers.reading import UnrecognisedError
    from ..rules.rule import RuleError
    from ..settings.settings import SettingsError
    from ..source.document import SourceError

    layers = layers_of(config, isolated=isolated, options=options)
    plans: list[tuple[str, Plan]] = []
    failed = False
    for file in files:
        try:
            for name, plan, reason in _plans(file, layers.of(file)):
                if plan is None:
                    failed = complain(f"{name}: {reason}")
                else:
                    plans.append((name, plan))
        except UnrecognisedError:
            failed = complain(f"{file}: unknown config format")
        except (SourceError, RuleError, SettingsError) as error:
            failed = complain(str(error))
        except Exception as error:  # as in `check`: a defect on one file must not hide the others
            failed = complain(f"{file}: {internal_error(error)}")
    if output_format == "json":
        from ..report.data import json_plan

        click.echo(json_plan.render(plans, sort))
    else:
        from ..report.text import plan as text_plan

        style = terminal()
        if plans:
            click.echo("\n\n".join(text_plan.render(name, plan, sort, style) for name, plan in plans))
    sys.exit(COULD_NOT if failed else 0)


def _plans(file: str, settings: Settings) -> list[tuple[str, Plan | None, str]]:
    """The plan of each job of a file under its name, or why there is none."""
    from ..launchers.reading import open_jobs, recognise_file
    from ..rules.facts.facts import Facts
    from ..rules.load import load_rules
    from ..rules.suggest.plan import PLAN_STEPS, plan_of
    from ..rules.verdict import verdict_of

    jobs = open_jobs(recognise_file(file), settings)
    if not jobs.started:
        return [(file, None, jobs.reason)]
    selection = load_rules(settings)
    found = []
    for opened in jobs.started:
        name = file if len(jobs.started) == 1 or not opened.part else f"{file} ({opened.part})"
        facts = Facts(opened.reading, opened.project, opened.gpu)
        plan = plan_of(facts, selection, PLAN_STEPS // len(jobs.started))
        found.append((name, plan, "" if plan is not None else verdict_of(facts, opened.part).unchecked))
    return found
