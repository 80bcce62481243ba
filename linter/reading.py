"""From a path to a Reading: open, recognise, decide the hardware, let the format fill the Job."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from .directives import Directives, read_directives
from .origin import Origin
from .source.document import Document, SourceError
from .source.node import Span
from .source.read import read

if TYPE_CHECKING:
    from .formats.format import Format, Project, Reading
    from .hardware.gpu import Gpu
    from .settings import Settings


class Opened(NamedTuple):
    """A file that is a config of a known format, read; `gpu` is None where nobody named one."""

    reading: Reading
    project: Project
    gpu: Gpu | None
    directives: Directives


class UnrecognisedError(Exception):
    """A readable file of no known format."""


def open_config(path: str, settings: Settings) -> Opened:
    """Read the config at `path` against the hardware that counts for it.

    The first that names a GPU, GPUs or nodes wins: the command line, a `# gpulint:` comment, the config
    itself, the settings file. Raises SourceError, UnrecognisedError, and UnknownGpu as a SourceError with the place.
    """
    from .formats.registry import recognise

    document = read(path)
    form = recognise(document)
    if form is None:
        raise UnrecognisedError(path)
    return open_document(document, form, settings)


def open_document(document: Document, form: Format, settings: Settings) -> Opened:
    """`open_config` for a document already read and recognised."""
    directives = read_directives(document)
    stated = _Hardware(settings.gpu, settings.gpus, settings.nodes).or_else(
        _Hardware(directives.gpu, directives.gpus, directives.nodes)
    )
    configured = _Hardware(settings.configured_gpu, settings.configured_gpus, settings.configured_nodes)
    lines = directives.lines
    project = _project(document, settings, stated, lines.get("gpu", 0) if not settings.gpu else 0)
    reading = form.read(document, project)
    known = stated.or_else(_said(reading))
    hardware = known.or_else(configured)
    if hardware != known:
        project = _project(document, settings, hardware, 0)
        reading = form.read(document, project)
    elif hardware.gpu != stated.gpu:
        project = project._replace(gpu=_find_gpu(hardware.gpu, document, reading.job.origins["hardware.gpu"].span))
    job = reading.job
    for name, value in hardware._asdict().items():
        if value is None:
            continue
        if getattr(settings, name) is not None:
            origin = Origin("command line", f"--{name} {value}")
        elif getattr(directives, name) is not None:
            origin = Origin("comment", f"gpulint comment on line {lines[name]}", document.path, name)
        elif getattr(known, name) is not None:
            continue
        else:
            origin = Origin("settings", f"{name} of the settings file")
        setattr(job.hardware, name, value)
        job.origins[f"hardware.{name}"] = origin
    if project.gpu is not None:
        job.hardware.gpu = project.gpu.name
    return Opened(reading, project, project.gpu, directives)


class _Hardware(NamedTuple):
    gpu: str | None
    gpus: int | None
    nodes: int | None

    def or_else(self, other: _Hardware) -> _Hardware:
        """What is missing here, from `other`."""
        return _Hardware(self.gpu or other.gpu, self.gpus or other.gpus, self.nodes or other.nodes)


def _said(reading: Reading) -> _Hardware:
    """The hardware that the config itself states; not what its format assumed."""
    job = reading.job
    stated = {
        name: value
        for name, value in (("gpu", job.hardware.gpu), ("gpus", job.hardware.gpus), ("nodes", job.hardware.nodes))
        if f"hardware.{name}" in job.origins and job.origins[f"hardware.{name}"].kind in ("file", "derived")
    }
    return _Hardware(stated.get("gpu"), stated.get("gpus"), stated.get("nodes"))  # type: ignore[arg-type]


def _project(document: Document, settings: Settings, hardware: _Hardware, line: int) -> Project:
    from .formats.format import Project

    root = settings.root or os.path.dirname(os.path.abspath(document.path))
    gpu = _find_gpu(hardware.gpu, document, Span(line, 1, line, 1, 0, 0) if line else None)

    def open_reference(reference: str, from_path: str) -> Document | None:
        return _open_reference(reference, from_path, root)

    return Project(root, gpu, hardware.gpus, hardware.nodes, open_reference)


def _open_reference(reference: str, from_path: str, root: str) -> Document | None:
    """The file a config names, next to it or below the project root; never outside the root, never absolute."""
    if os.path.isabs(reference) or "\0" in reference or len(reference) > 1024:
        return None
    folder = os.path.dirname(os.path.abspath(from_path))
    inside = [os.path.realpath(root) + os.sep, os.path.realpath(folder) + os.sep]
    for base in dict.fromkeys((folder, root)):
        path = os.path.join(base, reference)
        if os.path.isfile(path) and os.path.realpath(path).startswith(tuple(inside)):
            return read(shown_path(path))
    return None


def shown_path(path: str) -> str:
    """`path` relative to where the user stands if it lies below, else absolute."""
    return os.path.abspath(path).removeprefix(os.path.join(os.getcwd(), ""))


def _find_gpu(name: str | None, document: Document, span: Span | None) -> Gpu | None:
    """The catalogue's GPU; an unknown name becomes a SourceError at `span`, the place that named it."""
    if name is None:
        return None
    from .hardware.catalogue import UnknownGpu, find

    try:
        return find(name)
    except UnknownGpu as error:
        line, column = (span.line, span.column) if span else (0, 0)
        raise SourceError(document.path, str(error), line, column) from None
