"""The `gpulint` command."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from . import __version__, check
from .check import internal_error
from .settings import FAIL_ON, Settings, SettingsError, load

if TYPE_CHECKING:
    from collections.abc import Callable

    from .finding import Report
    from .reading import Opened

COULD_NOT = 2
"""Exit code for what could not be done: unreadable files, unknown GPUs, bad settings."""


class _Refused(click.ClickException):
    """A one-line message and exit code 2."""

    exit_code = COULD_NOT

    def show(self, file: Any = None) -> None:
        """Print the message cleaned of control characters."""
        from .report.printable import printable

        click.echo(f"gpulint: {printable(self.message)}", err=True, file=file)


def _hardware_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--nodes", type=click.IntRange(1), metavar="N", help="Nodes that the GPUs are spread over."),
        click.option("--gpus", type=click.IntRange(1), metavar="N", help="GPUs of the whole job, over all nodes."),
        click.option("--gpu", metavar="NAME", help="GPU to check against, such as h100-80gb; see `gpulint gpus`."),
        click.option(
            "--set-version", multiple=True, metavar="NAME=VERSION", help="Version of a package, such as trl=0.19.1."
        ),
        click.option("--isolated", is_flag=True, help="Read no settings file."),
        click.option("--config", metavar="FILE", help="Settings file instead of the nearest gpulint.toml."),
    ):
        command = option(command)
    return command


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="gpulint", message="%(prog)s %(version)s")
def main() -> None:
    """Find what will run out of GPU memory, what is a mistake and what is waste, in the configs that start the jobs.

    Needs no GPU, no torch and no network.
    """


@main.command("check")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@_hardware_options
@click.option(
    "--output-format",
    type=click.Choice(["text", "json", "sarif", "github"]),
    help="How findings are printed. [default: github under GitHub Actions, else text]",
)
@click.option(
    "--fail-on", type=click.Choice(FAIL_ON), help="Least severity that makes the exit code 1. [default: error]"
)
@click.option("--select", multiple=True, metavar="RULE", help="Run only these rules (id, prefix or name); repeatable.")
@click.option("--ignore", multiple=True, metavar="RULE", help="Leave these rules out; repeatable.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="Leave these paths out; repeatable.")
@click.option("--rules", multiple=True, metavar="DIR", help="Folder with rule files of your own; repeatable.")
@click.option("--preview", is_flag=True, default=None, help="Also run rules that are in preview.")
@click.option("--skip-unknown", is_flag=True, help="Skip named files of no known format instead of failing.")
def check_command(
    paths: tuple[str, ...], config: str | None, isolated: bool, output_format: str | None, **options: Any
) -> None:
    """Check config files, and the folders below which they lie.

    Exit code 0: nothing at or above --fail-on. 1: findings. 2: something could not be read or understood; the
    other files are still checked.
    """
    from .rules.rule import RuleError

    settings = _settings(config, isolated=isolated, options=options)
    _known_gpu(settings)
    try:
        report = check(paths, settings)
    except RuleError as error:
        raise _Refused(str(error)) from None
    if not report.files:
        raise _Refused(f"no config or launcher (.yaml, .yml, .json, .toml, .sh, .slurm) in {', '.join(paths)}")
    _print_report(
        report, output_format or ("github" if os.environ.get("GITHUB_ACTIONS") == "true" else "text"), settings
    )
    sys.exit(_exit_code(report, settings))


@main.command("estimate")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@_hardware_options
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text", help="Output format.")
@click.option("--explain", is_flag=True, help="Print the derivation of each component as arithmetic.")
def estimate_command(
    files: tuple[str, ...], config: str | None, isolated: bool, output_format: str, explain: bool, **options: Any
) -> None:
    """Print the memory each config needs on its fullest GPU, component by component."""
    from .estimator.estimate import NotEstimable
    from .models.model import UnknownModel
    from .reading import UnrecognisedError
    from .source.document import SourceError

    settings = _settings(config, isolated=isolated, options=options)
    _known_gpu(settings)
    done, failed = [], False
    for file in files:
        try:
            done += _estimate_file(file, settings, explain=explain)
        except UnrecognisedError:
            failed = _complain(f"{file}: not a config of a known format")
        except SourceError as error:
            failed = _complain(str(error))
        except (NotEstimable, UnknownModel) as error:
            failed = _complain(f"{file}: {error}")
        except Exception as error:  # as in `check`: a defect on one file must not hide the others
            failed = _complain(f"{file}: {internal_error(error)}")
    if output_format == "json":
        from .report import json_estimate

        click.echo(json_estimate.render(((file, estimate) for file, estimate, _ in done), explain=explain))
    else:
        from .report import text_estimate

        colour = _colour()
        blocks = [
            text_estimate.render(file, estimate, colour=colour, explain=explain, fitting=fitting)
            for file, estimate, fitting in done
        ]
        if blocks:
            click.echo("\n\n".join(blocks))
    sys.exit(COULD_NOT if failed else 0)


@main.command("explain")
@click.argument("rule")
@click.option("--rules", multiple=True, metavar="DIR", help="Folder with rule files of your own; repeatable.")
def explain_command(rule: str, rules: tuple[str, ...]) -> None:
    """Explain a rule: what it finds, why it matters, examples. RULE is an id or a name."""
    from .rules.explain import page
    from .rules.load import all_rules, find_rule
    from .rules.rule import RuleError

    try:
        click.echo(page(find_rule(rule, all_rules(rules))))
    except RuleError as error:
        raise _Refused(str(error)) from None


@main.command("rules")
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text", help="Output format.")
@click.option("--rules", multiple=True, metavar="DIR", help="Folder with rule files of your own; repeatable.")
def rules_command(output_format: str, rules: tuple[str, ...]) -> None:
    """List the rules."""
    from .report import listing
    from .rules.load import all_rules
    from .rules.rule import RuleError

    try:
        known = all_rules(rules)
    except RuleError as error:
        raise _Refused(str(error)) from None
    click.echo(listing.rules(known, output_format))


@main.command("gpus")
@click.argument("query", required=False)
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text", help="Output format.")
def gpus_command(query: str | None, output_format: str) -> None:
    """List the GPUs of the catalogue and the memory that torch sees on them."""
    from .hardware.catalogue import UnknownGpu, find, gpus
    from .report import listing

    known = gpus()
    if query:
        matching = [gpu for gpu in known if query.lower() in gpu.name or query.lower() in gpu.title.lower()]
        try:
            known = tuple(matching) or (find(query),)
        except UnknownGpu as error:
            raise _Refused(str(error)) from None
    click.echo(listing.gpus(known, output_format))


@main.command("models")
@click.argument("query", required=False)
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text", help="Output format.")
def models_command(query: str | None, output_format: str) -> None:
    """List the models of the catalogue whose id contains QUERY, with their exact parameter counts."""
    from .models.catalogue import search
    from .report import listing

    found = search(query or "")
    if not found:
        raise _Refused(f"no model in the catalogue matches {query!r}; a path to its config.json works in any config")
    click.echo(listing.models(found, output_format))


def _estimate_file(file: str, settings: Settings, *, explain: bool) -> list[tuple[str, Any, str]]:
    """The estimates of a file's jobs: what to call each, the estimate, and GPUs that it fits where none is given."""
    from .estimator.estimate import NotEstimable
    from .reading import open_jobs, recognise_file

    jobs = open_jobs(recognise_file(file), settings)
    if not jobs.opened:
        raise NotEstimable(jobs.reason)
    single = len(jobs.opened) == 1
    return [
        (
            file if single or not opened.part else f"{file} ({opened.part})",
            *_estimate_job(opened, jobs.kind, explain=explain),
        )
        for opened in jobs.opened
    ]


def _estimate_job(opened: Opened, kind: str, *, explain: bool) -> tuple[Any, str]:
    from .estimator import estimate_job
    from .estimator.estimate import NotEstimable
    from .models.resolve import resolve

    job, path = opened.reading.job, opened.reading.config.path
    if job.model is None:
        raise NotEstimable(f"a {kind} file names no model; estimate the config that uses it")
    model = resolve(job.model, os.path.dirname(os.path.abspath(path)), opened.project.root)
    estimate = estimate_job(job, model, opened.gpu)
    if explain:
        from .estimator.explain import explained

        estimate = explained(estimate, job, model, opened.gpu)
    fitting = ""
    if opened.gpu is None:
        from .hardware.catalogue import gpus

        names = [gpu.name for gpu in gpus() if estimate.per_gpu.high <= gpu.usable]
        fitting = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
        fitting = fitting or "no single GPU of the catalogue"
    return estimate, fitting


def _versions(words: tuple[str, ...]) -> dict[str, str]:
    """`--set-version trl=0.19.1` as a mapping."""
    found = {}
    for word in words:
        name, _, version = word.replace("==", "=").partition("=")
        if not name.strip() or not version.strip():
            raise SettingsError(f"--set-version takes NAME=VERSION, not {word!r}")
        found[name.strip()] = version.strip()
    return found


def _settings(config: str | None, *, isolated: bool, options: dict[str, Any]) -> Settings:
    try:
        given = _versions(options.pop("set_version", ()))
        return load(config, isolated=isolated).with_options(**options, given_versions=given)
    except SettingsError as error:
        raise _Refused(str(error)) from None


def _known_gpu(settings: Settings) -> None:
    """Refuse an unknown GPU of the command line or the settings once, before any file is read."""
    from .hardware.catalogue import UnknownGpu, find

    for name in (settings.gpu, settings.configured_gpu):
        if name is not None:
            try:
                find(name)
            except UnknownGpu as error:
                raise _Refused(str(error)) from None


def _print_report(report: Report, output_format: str, settings: Settings) -> None:
    for file in report.files:
        if file.status == "error":
            place = f":{file.line}:{file.column}" if file.line else ""
            _complain(f"{file.path}{place}: {file.reason}")
    if output_format == "json":
        from .report import json_report

        click.echo(json_report.render(report))
    elif output_format == "sarif":
        from .report import sarif
        from .rules.load import rule_texts

        click.echo(sarif.render(report, rule_texts(settings), __version__))
    elif output_format == "github":
        from .report import github, text

        click.echo("\n".join(filter(None, (github.render(report), text.summary(report)))))
    else:
        from .report import text

        click.echo(text.render(report, colour=_colour()))


def _exit_code(report: Report, settings: Settings) -> int:
    if report.count("error"):
        return COULD_NOT
    serious = FAIL_ON[: FAIL_ON.index(settings.fail_on) + 1] if settings.fail_on != "never" else ()
    return int(any(finding.severity in serious for finding in report.findings))


def _complain(message: str) -> bool:
    from .report.printable import printable

    click.echo(f"gpulint: {printable(message)}", err=True)
    return True


def _colour() -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or sys.stdout.isatty()
