"""Options that several commands share, and the settings they lead to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..settings import Settings, SettingsError, load
from .console import Refused

if TYPE_CHECKING:
    from collections.abc import Callable


def hardware_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of every command that reads configs: hardware, versions, settings file."""
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


def settings_of(config: str | None, *, isolated: bool, options: dict[str, Any]) -> Settings:
    """The settings of a run: file, then options. Refuses what cannot be followed, an unknown GPU included."""
    try:
        given = _versions(options.pop("set_version", ()))
        settings = load(config, isolated=isolated).with_options(**options, given_versions=given)
    except SettingsError as error:
        raise Refused(str(error)) from None
    _known_gpu(settings)
    return settings


def _versions(words: tuple[str, ...]) -> dict[str, str]:
    """`--set-version trl=0.19.1` as a mapping."""
    found = {}
    for word in words:
        name, _, version = word.replace("==", "=").partition("=")
        if not name.strip() or not version.strip():
            raise SettingsError(f"--set-version takes NAME=VERSION, not {word!r}")
        found[name.strip()] = version.strip()
    return found


def _known_gpu(settings: Settings) -> None:
    """Refuse an unknown GPU of the command line or the settings once, before any file is read."""
    from ..hardware.catalogue import UnknownGpu, find

    for name in (settings.gpu, settings.configured_gpu):
        if name is not None:
            try:
                find(name)
            except UnknownGpu as error:
                raise Refused(str(error)) from None
