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
@click.option("--gpus", type=click.IntRange(1), metavar="N", help="GPUs of a whole job, over all nodes.")
@click.option("--ci", type=click.Choice(["github", "gitlab"]), help="Also write a job for this CI server.")
def command(gpu: str | None, gpus: int | None, ci: str | None) -> None:
    """Set gpulint up here: gpulint.toml, an entry for pre-commit, and with --ci a job.

    Settings go to this folder, the others to the root of the repository. What is there already is kept: lists get
    one more entry, nothing else changes. Exit code 2: something could not be written.
    """
    root = _repository(os.getcwd())
    files = [_settings(_named(gpu), gpus), Made(os.path.join(root, HOOKS), with_hook, "run `pre-commit install` once")]
    if ci == "github":
        files.append(Made(os.path.join(root, *WORKFLOW.split("/")), _workflow, "runs on every pull request"))
    elif ci == "gitlab":
        files.append(Made(os.path.join(root, GITLAB), with_job, "findings show in the merge request"))
    failed = [_write(made) for made in files]
    if any(failed):
        raise SystemExit(COULD_NOT)


def _named(gpu: str | None) -> str | None:
    """The catalogue's name of a GPU."""
    if gpu is None:
        return None
    from ..hardware.catalogue import UnknownGpu, find

    try:
        return find(gpu).name
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
        raise Refused("a link or a folder is there")
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except UnicodeDecodeError:
        raise Refused("what is there is not UTF-8") from None


def _settings(gpu: str | None, gpus: int | None) -> Made:
    from ..settings.file import nearest

    here = os.path.realpath(os.getcwd())
    found = nearest(here)
    path = found if found and os.path.dirname(found) == here else os.path.join(here, "gpulint.toml")

    def make(there: str | None) -> str:
        if there is None:
            return settings_text(gpu, gpus)
        if gpu or gpus:
            raise Refused("it has settings already; write gpu and gpus there yourself")
        raise Kept("it has settings already")

    where = f"{gpus} x {gpu}" if gpus else gpu
    then = f"configs are checked on {where}" if gpu else "name your GPU there; memory is not checked without one"
    return Made(path, make, then)


def settings_text(gpu: str | None, gpus: int | None) -> str:
    """A first gpulint.toml; what was not said stands there as a comment."""
    return "\n".join(
        [
            f"# Settings of gpulint: {HOME}/blob/main/docs/settings.md",
            f'gpu = "{gpu}"' if gpu else '# gpu = "h100-80gb"    # `gpulint gpus` lists the names',
            f"gpus = {gpus}" if gpus else "# gpus = 8             # of a whole job, where it does not say so itself",
            '# fail-on = "warning"  # "error" without this line',
            "",
        ]
    )


def with_hook(there: str | None) -> str:
    """A pre-commit configuration with the gpulint hook, nothing else changed. Raises Kept and Refused."""
    entry = {"repo": HOME, "rev": f"v{__version__}", "hooks": [{"id": "gpulint"}]}
    if there is None:
        there = "# Run `pre-commit install` once, and this on every commit.\n"
    document = _yaml(there, HOOKS)
    plain = document.root.plain() or {}
    repos = plain.get("repos") if isinstance(plain, dict) else None
    if not isinstance(plain, dict) or not isinstance(repos, list | None):
        raise Refused("what is there is no pre-commit configuration")
    for repo in repos or ():
        hooks = repo.get("hooks") if isinstance(repo, dict) else None
        if any(isinstance(hook, dict) and hook.get("id") == "gpulint" for hook in hooks or ()):
            raise Kept("it has the gpulint hook already")
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
    document = _yaml(there or "# Findings show in the merge request, by the Code Quality report.\n", GITLAB)
    plain = document.root.plain() or {}
    if not isinstance(plain, dict):
        raise Refused("what is there is no GitLab configuration")
    if JOB in plain:
        raise Kept(f"it has a job {JOB} already")
    stages = plain.get("stages")
    if isinstance(stages, list) and stages and "test" not in stages:
        return _edited(document, JOB, {"stage": stages[0], **job()})
    return _edited(document, JOB, job())


def _workflow(there: str | None) -> str:
    if there is not None:
        raise Kept("it is there already")
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
        raise Refused(f"{error}; write the entry of {HOME}/blob/main/docs/ci.md there yourself") from None
