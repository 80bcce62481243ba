"""Options that several commands share, and the settings they lead to."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ..settings.file import Value, is_size
from ..settings.globs import anchored
from ..settings.layers import Layers
from ..settings.settings import SettingsError
from ..upstream.packages import known_package
from .console import Refused

if TYPE_CHECKING:
    from collections.abc import Callable


def hardware_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of every command that reads configs: hardware, versions, settings file."""
    for option in (
        click.option("--headroom", metavar="SIZE", help='Memory to keep free on each GPU, such as "2 GiB" or "5%".'),
        click.option("--nodes", type=click.IntRange(1), metavar="N", help="Number of nodes."),
        click.option("--gpus", type=click.IntRange(1), metavar="N", help="Number of GPUs of the job, over all nodes."),
        click.option("--gpu", metavar="NAME", help="GPU to check against, such as h100-80gb; see `gpulint gpus`."),
        click.option(
            "--set-version",
            multiple=True,
            metavar="NAME=VERSION",
            help="Version of a package, such as trl=0.19.1.",
        ),
        click.option("--isolated", is_flag=True, help="Read no settings file."),
        click.option("--config", metavar="FILE", help="Settings file to use instead of the nearest gpulint.toml."),
    ):
        command = option(command)
    return command


def selection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of every command that runs rules: which, and on which files."""
    for option in (
        click.option("--exclude", multiple=True, metavar="GLOB", help="Additional paths to exclude; repeatable."),
        click.option("--preview/--no-preview", default=None, help="Also run preview rules."),
        click.option("--rules", multiple=True, metavar="DIR", help="Directory with your own rule files; repeatable."),
        click.option("--ignore", multiple=True, metavar="RULES", help="Additional rules to disable."),
        click.option(
            "--extend-select",
            multiple=True,
            metavar="RULES",
            help="Additional rules, including preview rules.",
        ),
        click.option("--select", multiple=True, metavar="RULES", help="Run only these rules: ids, prefixes or names."),
    ):
        command = option(command)
    return command


_LISTS = ("select", "extend_select", "ignore")
"""Options that take several words, with commas or again."""


def layers_of(config: str | None, *, isolated: bool, options: dict[str, Any]) -> Layers:
    """The settings of a run: files, then options. Refuses what cannot be followed, an unknown GPU included."""
    layers = optional_layers(config, isolated=isolated, options=options)
    try:
        settings = layers.of(os.curdir)
    except SettingsError as error:
        raise Refused(str(error)) from None
    _known_gpu(settings.configured_gpu, settings.configured_gpus)
    return layers


def optional_layers(config: str | None, *, isolated: bool, options: dict[str, Any]) -> Layers:
    """The same, where the settings of the folder are not looked at yet."""
    context = click.get_current_context()
    sources = {
        parameter.name: f"{parameter.opts[0]}"
        if context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        else str(parameter.envvar)
        for parameter in context.command.params
    }
    try:
        given = {"given_versions": _versions(options.pop("set_version", ())), **options}
        given = {name: _read(name, value) for name, value in given.items() if value not in (None, (), {}, "")}
    except SettingsError as error:
        raise Refused(str(error)) from None
    count = _known_gpu(given.get("gpu"), given.get("gpus"))
    if count is not None:
        given["gpus"] = count
    origins = {"given_versions": sources.get("set_version", "")}
    return Layers(
        {name: Value(value, origins.get(name) or sources.get(name, "")) for name, value in given.items()},
        config,
        isolated=isolated,
    )


def _read(name: str, value: Any) -> Any:
    """The value of an option as Settings hold it."""
    if name in _LISTS:
        return tuple(word.strip() for item in value for word in item.split(",") if word.strip())
    if name == "exclude":
        return tuple(anchored(glob, os.getcwd()) for glob in value)
    if name == "headroom" and not is_size(value):
        raise SettingsError(f'--headroom takes a size such as "2 GiB" or "5%", not {value!r}')
    return value


def _versions(words: tuple[str, ...]) -> dict[str, str]:
    """`--set-version trl=0.19.1` as a mapping."""
    found = {}
    for word in words:
        name, _, version = word.replace("==", "=").partition("=")
        if not name.strip() or not version.strip():
            raise SettingsError(f"--set-version takes NAME=VERSION, not {word!r}")
        try:
            package = known_package(name)
        except ValueError as error:
            raise SettingsError(f"--set-version {word}: {error}") from None
        found[package] = version.strip()
    return found


def _known_gpu(name: str | None, count: int | None) -> int | None:
    """How many GPUs the command line or the settings state, also in the card's name.

    Refuses an unknown GPU once, before any file is read.
    """
    from ..hardware.catalogue import UnknownGpu, counted

    try:
        return counted(name, count)
    except UnknownGpu as error:
        raise Refused(str(error)) from None
