"""What a job is read against: its hardware, the files that it may name, the releases that run it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from ..repository.pins import Pin, pins_for
from ..source.document import SourceError
from ..source.node import Span
from ..source.referenced import open_referenced
from .commands.images import upstream

if TYPE_CHECKING:
    from ..formats.core.format import Project
    from ..hardware.gpu import Gpu
    from ..job.job import Job
    from ..settings.settings import Settings
    from ..source.document import Document
    from .launch import Launch


class Hardware(NamedTuple):
    """Hardware that somebody states."""

    gpu: str | None
    gpus: int | None
    nodes: int | None

    def or_else(self, other: Hardware) -> Hardware:
        """What is missing here, from `other`."""
        return Hardware(self.gpu or other.gpu, self.gpus or other.gpus, self.nodes or other.nodes)


def stated(gpu: str | None, gpus: int | None, nodes: int | None) -> Hardware:
    """Hardware whose number of GPUs may stand in the card's name; a card that nobody knows is refused later."""
    from ..hardware.catalogue import UnknownGpu, counted

    try:
        return Hardware(gpu, gpus or counted(gpu, None), nodes)
    except UnknownGpu:
        return Hardware(gpu, gpus, nodes)


def project_of(
    document: Document, settings: Settings, hardware: Hardware, line: int, launch: Launch | None = None
) -> Project:
    """What is known besides the document; `line` is that of the comment that names the GPU. Raises SourceError."""
    from ..formats.core.format import Project
    from ..models.resolve import declare

    root = settings.root or os.path.dirname(os.path.abspath(document.path))
    gpu = find_gpu(hardware.gpu, document, Span(line, 1, line, 1, 0, 0) if line else None, settings.headroom)
    declare(root, settings.models)

    def open_reference(reference: str, from_path: str) -> Document | None:
        return open_referenced(reference, from_path, root)

    shipped = _shipped(launch)
    launched = launch.versions if launch is not None and not shipped else {}
    stated = {**settings.versions, **launched, **settings.given_versions}
    pins = {**({} if _brings_its_own(launch) else pins_for(document.path, root)), **shipped}
    pins = {name: pin for name, pin in pins.items() if name not in stated}
    versions = {**{name: pin.release for name, pin in pins.items()}, **stated}
    own = Project(root, gpu, hardware.gpus, hardware.nodes, open_reference, versions=versions, pins=pins)
    if launch is None:
        return own
    return own._replace(
        launcher=launch.launcher,
        program=launch.program,
        asked=launch.resources.gpus,
        alone=launch.alone,
        loads=launch.loads,
    )


def _shipped(launch: Launch | None) -> dict[str, Pin]:
    """The releases that an operator brings, which the cluster may run at another release than the one that was read."""
    if launch is None or not launch.ships:
        return {}
    return {name: Pin(name, release, (), False, launch.ships) for name, release in launch.versions.items()}


def _brings_its_own(launch: Launch | None) -> bool:
    """Whether a job runs in an image that a program's authors built, where nothing of the repository is installed."""
    told = launch.resources.told.get("container.image") if launch is not None else None
    return told is not None and upstream(str(told[0]))


def say_pins(job: Job, project: Project) -> None:
    """Where the releases come from that the repository pins."""
    for name, pin in project.pins.items():
        for path in (f"versions.{name}", "inference.version"):
            if path in job.origins and job.origins[path].kind == "derived" and job.get(path) == pin.release:
                job.origins[path] = pin.origin


def find_gpu(name: str | None, document: Document, span: Span | None, headroom: str) -> Gpu | None:
    """The catalogue's GPU less the headroom; an unknown name becomes a SourceError at `span`, which named it."""
    if name is None:
        return None
    from ..hardware.catalogue import UnknownGpu, find

    try:
        return _left(find(name), headroom)
    except UnknownGpu as error:
        line, column = (span.line, span.column) if span else (0, 0)
        raise SourceError(document.path, str(error), line, column) from None


def _left(gpu: Gpu, headroom: str) -> Gpu:
    """A GPU of which some memory, `2 GiB` or `5%`, is to stay free."""
    if not headroom:
        return gpu
    from ..units import bytes_of

    free = bytes_of(headroom, gpu.usable)
    return gpu._replace(usable=max(0, gpu.usable - free))
