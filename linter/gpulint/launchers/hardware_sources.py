"""Who states the hardware of a job: the run, a comment, the launcher, the settings; and whose word counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..job.origin import Origin

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..job.job import Job
    from ..settings.directives import Directives
    from .launch import Launch
    from .project import Hardware


class Source(NamedTuple):
    """Hardware that somebody states, and the origin of each part; without one the reading has it already."""

    hardware: Hardware
    origin: Callable[[str, object], Origin] | None


def say_where(job: Job, hardware: Hardware, sources: list[Source]) -> None:
    """Set the hardware of a job with the origin of the first source that states each part; a group has GPUs of them."""
    for name, value in hardware._asdict().items():
        source = next((source for source in sources if getattr(source.hardware, name) is not None), None)
        if value is not None and source is not None and source.origin is not None:
            field = "granted_gpus" if name == "gpus" and "hardware.granted_gpus" in job.origins else name
            setattr(job.hardware, field, value)
            job.origins[f"hardware.{field}"] = source.origin(name, value)


def from_command_line(name: str, value: object) -> Origin:
    """An option of the run."""
    return Origin("command line", f"--{name} {value}")


def from_settings(name: str, value: object) -> Origin:  # noqa: ARG001
    """A key of the settings file."""
    return Origin("settings", f"{name} in the settings file")


def from_comment(directives: Directives, path: str) -> Callable[[str, object], Origin]:
    """A comment in the file."""
    return lambda name, value: Origin(  # noqa: ARG005
        "comment", f"gpulint comment on line {directives.lines[name]}", path, name
    )


def from_launch(launch: Launch) -> Callable[[str, object], Origin]:
    """What starts the job, at the place that says it."""
    origins = launch.resources.origins

    def origin(name: str, value: object) -> Origin:  # noqa: ARG001
        found = next((origins[key] for key in _ORIGINS[name] if key in origins), None)
        return found or Origin("derived", f"hardware of {launch.part}")

    return origin


_ORIGINS = {"gpu": ("gpu", "gpu"), "gpus": ("processes", "gpus_per_node"), "nodes": ("nodes", "nodes")}
"""The resources that say each part of the hardware, best first."""


def without_idle(sources: list[Source], processes: int | None) -> list[Source]:
    """The sources without the GPUs of one that has more than the launcher starts processes on: those run on fewer."""
    return [
        source._replace(hardware=source.hardware._replace(gpus=None))
        if processes and (source.hardware.gpus or 0) > processes
        else source
        for source in sources
    ]
