"""`gpulint init`: settings, a pre-commit entry and a CI job for a repository of configs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from .. import __version__
from .console import COULD_NOT, Refused, complain

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..source.document import Document

HOME = "https://github.com/gpulint/gpulint"
HOOKS = ".pre-commit-config.yaml"
WORKFLOW = ".github/workflows/gpulint.yml"
GITLAB = ".gitlab-ci.yml"
JOB = "gpulint"
CHECKOUT = "actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1"
"""The commit that the tag names in the action's repository."""


class Kept(Exception):  # noqa: N818
    """A file that stays as it is, and why."""


class Made(NamedTuple):
    """What init does to one file: `make` gets the text that is there, None for no file, and gives the new one."""

    path: str
    make: Callable[[str | None], str]
    then: str


@click.command("init")
@click.option("--gpu", metavar="NAME", help="GPU that the jobs run on, such as h100-80gb; see `gpulint gpus`.")
@click.option("--gpus", type=click.IntRange(1), metavar="N", help="Number of GPUs per job, over all nodes.")
@click.option("--ci", type=click.Choice(["github", "gitlab"]), help="Also write a job for this CI system.")
def command(gpu: str | None, gpus: int | None, ci: str | None) -> None:
    """Set up gpulint here: gpulint.toml, a pre-commit hook and, with --ci, a CI job.

    The settings are written to this directory, the other files to the root of the repository. Existing files are kept:
    lists get a new entry, nothing else changes. Exit code 2: a file could not be written.
    """
    root = _repository(os.getcwd())
    files = [_settings(*_named(gpu, gpus)), Made(os.path.join(root, HOOKS), with_hook, "run `pre-commit install` once")]
    if ci == "github":
        files.append(Made(os.path.join(root, *WORKFLOW.split("/")), _workflow, "checks every pull request"))
    elif ci == "gitlab":
        files.append(Made(os.path.join(root, GITLAB), with_job, "findings appear in the merge request"))
    failed = [_write(made) for made in files]
    if any(failed):
        raise SystemExit(COULD_NOT)


def _named(gpu: str | None, count: int | None) -> tuple[str | None, int | None]:
    """The catalogue's name of a GPU, and how many there are."""
    if gpu is None:
        return None, count
    from ..hardware.catalogue import UnknownGpu, counted, find

    try:
        return find(gpu).name, counted(gpu, count)
    except UnknownGpu as error:
        raise Refused(str(error)) from None


def _repository(folder: str) -> str:
    """The nearest folder with `.git` at or above `folder`; `folder` where there is none."""
    here = folder
    while not os.path.exists(os.path.join(here, ".git")):
        above = os.path.dirname(here)
        if above == here:
            return folder
        here = above
    return here


def _write(made: Made) -> bool:
    """Write one file and say so; whether that failed."""
    path = os.path.relpath(made.path)
    try:
        there = _text(path)
        text = made.make(there)
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(text)
    except Kept as why:
        click.echo(f"kept {path}: {why}")
        return False
    except Refused as error:
        return complain(f"{path}: not written: {error.message}")
    except OSError as error:
        return complain(f"{path}: not written: {error.strerror}")
    click.echo(f"{'wrote' if there is None else 'extended'} {path}: {made.then}")
    return False


def _text(path: str) -> str | None:
    """The text of a file, None where there is none. Raises Refused for what is no file of UTF-8."""
    if not os.path.lexists(path):
        return None
    if os.path.islink(path) or not os.path.isfile(path):
        raise Refused("it is a link or a directory")
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except UnicodeDecodeError:
        raise Refused("the existing file is not UTF-8") from None


def _settings(gpu: str | None, gpus: int | None) -> Made:
    from ..settings.file import nearest

    here = os.path.realpath(os.getcwd())
    found = nearest(here)
    path = found if found and os.path.dirname(found) == here else os.path.join(here, "gpulint.toml")

    def make(there: str | None) -> str:
        if there is None:
            return settings_text(gpu, gpus)
        if gpu or gpus:
            raise Refused("it already has settings; add gpu and gpus yourself")
        raise Kept("it already has settings")

    where = f"{gpus} x {gpu}" if gpus else gpu
    then = f"configs are checked for {where}" if gpu else "set your GPU there; without one memory is not checked"
    return Made(path, make, then)


def settings_text(gpu: str | None, gpus: int | None) -> str:
    """A first gpulint.toml; what was not said stands there as a comment."""
    return "\n".join(
        [
            f"# Settings of gpulint: {HOME}/blob/main/docs/settings.md",
            f'gpu = "{gpu}"' if gpu else '# gpu = "h100-80gb"    # `gpulint gpus` lists the names',
            f"gpus = {gpus}" if gpus else "# gpus = 8             # per job, unless the job sets it",
            '# fail-on = "warning"  # "error" without this line',
            "",
        ]
    )


def with_hook(there: str | None) -> str:
    """A pre-commit configuration with the gpulint hook, nothing else changed. Raises Kept and Refused."""
    entry = {"repo": HOME, "rev": f"v{__version__}", "hooks": [{"id": "gpulint"}]}
    if there is None:
        there = "# Run `pre-commit install` once; then this runs on every commit.\n"
    document = _yaml(there, HOOKS)
    plain = document.root.plain() or {}
    repos = plain.get("repos") if isinstance(plain, dict) else None
    if not isinstance(plain, dict) or not isinstance(repos, list | None):
        raise Refused("the existing file is not a pre-commit configuration")
    for repo in repos or ():
        hooks = repo.get("hooks") if isinstance(repo, dict) else None
        if any(isinstance(hook, dict) and hook.get("id") == "gpulint" for hook in hooks or ()):
            raise Kept("it already has the gpulint hook")
    return _edited(document, "repos", [*(repos or ()), entry])


def job() -> dict[str, Any]:
    """The job that GitLab runs."""
    report = "gl-code-quality-report.json"
    return {
        "image": "python:3.13-slim",
        "variables": {"GPULINT_SOURCE": f"{HOME}/archive/refs/tags/v{__version__}.tar.gz", "GPULINT_PATHS": "."},
        "script": [
            'pip install --quiet --root-user-action ignore "gpulint @ $GPULINT_SOURCE"',
            f"gpulint check $GPULINT_PATHS --output-format full --output-format gitlab --output-file {report}",
        ],
        "artifacts": {"when": "always", "reports": {"codequality": report}},
    }


def with_job(there: str | None) -> str:
    """A GitLab configuration with the job, nothing else changed. Raises Kept and Refused."""
    document = _yaml(there or "# Findings appear in the merge request, through the Code Quality report.\n", GITLAB)
    plain = document.root.plain() or {}
    if not isinstance(plain, dict):
        raise Refused("the existing file is not a GitLab configuration")
    if JOB in plain:
        raise Kept(f"it already has a job {JOB}")
    stages = plain.get("stages")
    if isinstance(stages, list) and stages and "test" not in stages:
        return _edited(document, JOB, {"stage": stages[0], **job()})
    return _edited(document, JOB, job())


def _workflow(there: str | None) -> str:
    if there is not None:
        raise Kept("it already exists")
    return f"""name: gpulint
on:
  pull_request:
  push:
    branches: [main]
permissions:
  contents: read
jobs:
  gpulint:
    runs-on: ubuntu-latest
    steps:
      - uses: {CHECKOUT}
      - uses: gpulint/gpulint@v{__version__}
"""


def _yaml(text: str, path: str) -> Document:
    from ..source.document import SourceError
    from ..source.read import parse

    try:
        return parse(text, path, "yaml")
    except SourceError as error:
        place = f"line {error.line}: " if error.line else ""
        raise Refused(f"{place}{error.reason}") from None


def _edited(document: Document, key: str, value: Any) -> str:
    from ..source.edit.edit import EditError, apply, set_key

    try:
        return apply(document.text, set_key(document, key, value))
    except EditError as error:
        raise Refused(f"{error}; add the entry from {HOME}/blob/main/docs/ci.md yourself") from None
