"""From a path to Readings: open, recognise, decide the hardware, let the format fill the Job.

A config is one job. A launcher may start several, each with a config of its own: flags on a command line, a mapping
inside the launcher, or another file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..formats.core.placeholders import is_blank
from ..formats.core.releases import of_release, read_as_stated
from ..formats.core.unknown_keys_policy import settled
from ..job.origin import Origin
from ..settings.directives import Directives, read_directives
from ..source.document import Document
from ..source.read import parse, read
from .applied import apply
from .granted import tell_spread
from .hardware_sources import (
    Source,
    from_command_line,
    from_comment,
    from_launch,
    from_settings,
    say_where,
    without_idle,
)
from .project import Hardware, find_gpu, project_of, say_pins
from .project import stated as hardware_of
from .unknown_options import leave_open

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..formats.core.format import Format, Project, Reading
    from ..hardware.gpu import Gpu
    from ..settings.settings import Settings
    from .launch import Launch, Launcher, Resources


class Opened(NamedTuple):
    """A job, read; `gpu` is None where nobody named one. `part` says which of its file's jobs it is.

    `of_launcher`: it is no job, and its problems are those of the file that starts some.
    """

    reading: Reading
    project: Project
    gpu: Gpu | None
    directives: Directives
    part: str = ""
    of_launcher: bool = False


class Jobs(NamedTuple):
    """What one file was found to be: its format or kind of launcher, and its jobs; `reason` says why there is none.

    `unread` is what would settle it where the file starts a job that could not be read. `bare` are the launchers of
    scripts that nobody knows.
    """

    kind: str
    opened: list[Opened]
    reason: str = ""
    unread: str = ""
    bare: tuple[Opened, ...] = ()

    @property
    def started(self) -> list[Opened]:
        """Those that are jobs, and not a launcher's own problems."""
        return [item for item in self.opened if not item.of_launcher]


class UnrecognisedError(Exception):
    """A readable file of no known format."""


class Recognised(NamedTuple):
    """A readable file and what it is: a config of `form`, or a launcher."""

    document: Document
    form: Format | None
    launcher: Launcher | None

    @property
    def kind(self) -> str:
        """The name of the format or of the kind of launcher."""
        named = self.form or self.launcher
        return named.name if named is not None else ""


def recognise_file(path: str) -> Recognised:
    """Read the file at `path` and say what it is. Raises SourceError and UnrecognisedError."""
    from ..formats.core.registry import recognise

    document = read(path)
    form = recognise(document)
    if form is not None:
        return Recognised(document, form, None)
    from .registry import recognise as recognise_launcher

    launcher = recognise_launcher(document)
    if launcher is None:
        raise UnrecognisedError(path)
    return Recognised(document, None, launcher)


def open_jobs(found: Recognised, settings: Settings) -> Jobs:
    """Every job of a file, read against the hardware that counts for it.

    The first that names a GPU, GPUs or nodes wins: the command line, a `# gpulint:` comment, the launcher that starts
    the config, the config itself, the settings file. Raises SourceError, also for an unknown GPU, with the place.
    """
    if found.form is not None:
        opened = open_document(found.document, found.form, settings)
        launch = _launch_nearby(found.document, found.form, opened)
        if launch is not None:
            opened = open_document(found.document, found.form, settings, launch)
        return Jobs(found.kind, [opened])
    return _open_launches(found.document, found.launcher, settings)  # type: ignore[arg-type]


def open_config(path: str, settings: Settings) -> Opened:
    """The first job of the file at `path`. Raises SourceError, and UnrecognisedError where there is none."""
    jobs = open_jobs(recognise_file(path), settings)
    if not jobs.started:
        raise UnrecognisedError(jobs.reason)
    return jobs.started[0]


def open_document(
    document: Document,
    form: Format,
    settings: Settings,
    launch: Launch | None = None,
    directives: Directives | None = None,
) -> Opened:
    """The job of a config already read and recognised; `launch` is what starts it."""
    directives = directives or read_directives(document)
    optional = Source(Hardware(settings.gpu, settings.gpus, settings.nodes), from_command_line)
    given = [] if settings.fills_in else [optional]
    commented = hardware_of(directives.gpu, directives.gpus, directives.nodes)
    given.append(Source(commented, from_comment(directives, document.path)))
    asked = Hardware(None, None, None)
    if launch is not None:
        asked = Hardware(_known_gpu(launch.resources), _counted(launch), launch.resources.nodes)
        # a launcher beside the config that was named may not be the one that starts it
        processes = launch.resources.processes if launch.part else None
        given = [*without_idle(given, processes), Source(asked, from_launch(launch))]
        (optional,) = without_idle([optional], processes)
    stated = Hardware(None, None, None)
    for source in given:
        stated = stated.or_else(source.hardware)
    configured = hardware_of(settings.configured_gpu, settings.configured_gpus, settings.configured_nodes)
    if settings.fills_in:
        configured = optional.hardware.or_else(configured)
    line = directives.lines.get("gpu", 0) if stated.gpu == directives.gpu else 0
    project = project_of(document, settings, stated, line, launch)
    reading = read_as_stated(form, document, project)
    if launch is not None and launch.resources.processes is None and stated.gpus == asked.gpus is not None:
        # the launch says how many GPUs there are; a program that says how many it uses is started on those
        uncounted = stated._replace(gpus=None, nodes=None)
        if _counts_itself(read_as_stated(form, document, project_of(document, settings, uncounted, line, launch))):
            asked, stated = asked._replace(gpus=None, nodes=None), uncounted
            given[-1] = Source(asked, from_launch(launch))
            project = project_of(document, settings, stated, line, launch)
            reading = read_as_stated(form, document, project)
    said = _said(reading)
    hardware = stated.or_else(said).or_else(configured)
    if hardware != stated.or_else(said):
        project = project_of(document, settings, hardware, 0, launch)
        reading = read_as_stated(form, document, project)
    elif hardware.gpu != stated.gpu:
        stated_at = reading.job.origins["hardware.gpu"].span
        project = project._replace(gpu=find_gpu(hardware.gpu, document, stated_at, settings.headroom))
    if launch is not None and asked.gpus not in (None, stated.gpus):
        # what contradicts the count of the script itself: the one that was given to gpulint only moves the memory
        started = project_of(document, settings, stated._replace(gpus=asked.gpus, nodes=asked.nodes), line, launch)
        reading.problems = read_as_stated(form, document, started).problems
    job = reading.job
    if is_blank(job.model):
        note = f"{job.model} is filled in when the job starts"
        job.model, job.origins["model"] = None, job.origins["model"]._replace(note=note)
    say_where(job, hardware, [*given, Source(said, None), optional, Source(configured, from_settings)])
    if project.gpu is not None:
        job.hardware.gpu = project.gpu.name
    leave_open(reading, launch)
    tell_spread(reading)
    if launch is not None:
        apply(launch, reading, project.root)
    say_pins(job, project)
    reading.problems[:] = settled(of_release(reading.problems, project.versions, project.pins), document, settings.root)
    return Opened(reading, project, project.gpu, directives, launch.part if launch is not None else "")


def _launch_nearby(document: Document, form: Format, opened: Opened) -> Launch | None:
    """The launcher beside a training config that starts it, where neither it nor a comment says on how many GPUs."""
    job = opened.reading.job
    if form.name in _NO_TRAINING or job.kind != "training" or opened.directives.gpus is not None:
        return None
    if _said(opened.reading).gpus is not None:
        return None
    from .sibling_launchers import starting

    launch = starting(document, form.name, opened.project._replace(gpu=None, gpus=None, nodes=None))
    return launch._replace(part="", problems=()) if launch is not None else None


_NO_TRAINING = frozenset({"accelerate", "deepspeed", "job"})
"""Formats that no command of a training run names as its config."""


def _open_launches(document: Document, launcher: Launcher, settings: Settings) -> Jobs:
    from ..formats.core.format import NoJobError, Reading
    from ..formats.core.registry import find
    from ..job.job import Job
    from .commands.skip_reasons import NOTHING
    from .gpu_sharing import tell_shares

    directives = read_directives(document)
    given = directives.gpu or settings.gpu if settings.fills_in else settings.gpu or directives.gpu
    asked = Hardware(given or settings.configured_gpu, None, None)
    line = directives.lines.get("gpu", 0) if given == directives.gpu else 0
    started = launcher.launches(document, project_of(document, settings, asked, line))
    opened: list[Opened] = []
    together: list[tuple[Launch, Reading]] = []
    reason = started.reason
    for number, (launch, config) in enumerate((item, item.config) for item in started.launches):
        launch.resources.told["kind"] = (launcher.name, Origin("derived", launcher.title))
        if config.path == document.path:
            config = config._replace(reread=_rereader(document, launcher, settings, number))
        try:
            opened.append(open_document(config, find(launch.format), settings, launch, directives))
            together.append((launch, opened[-1].reading))
        except NoJobError as error:
            reason = reason or error.reason
    if len(together) > 1:
        tell_shares(together)
    if started.problems:
        kind, files = (launcher.name, launcher.upstream), dict(started.files)
        reading = Reading(*kind, document, Job(), files, list(started.problems))
        project = project_of(document, settings, Hardware(None, None, None), 0)
        opened.append(Opened(reading, project, None, directives, of_launcher=True))
    bare = tuple(_open_bare(launch, document, launcher, settings, directives) for launch in started.bare)
    unread = "the config and the script that it starts, in the project" if reason.startswith("starts ") else ""
    unsure = not started.launches and reason != NOTHING and document.syntax != "python"
    return Jobs(launcher.name, opened, reason, unread if unsure else "", bare)


def _open_bare(
    launch: Launch, document: Document, launcher: Launcher, settings: Settings, directives: Directives
) -> Opened:
    """The launcher of a script of no known kind, as a job of which nothing but the ranks and the hardware is known."""
    from ..formats.core.format import Reading
    from ..job.job import Job

    launch.resources.told["kind"] = (launcher.name, Origin("derived", launcher.title))
    launch.resources.told["program"] = (launch.program, Origin("derived", "the command line"))
    files = {**launch.files, f"script {launch.config.path}": launch.config}
    reading = Reading(launcher.name, launcher.upstream, document, Job(), files)
    given = Source(Hardware(None, settings.gpus or directives.gpus, None), from_command_line)
    started = Source(Hardware(None, launch.resources.processes, launch.resources.nodes), from_launch(launch))
    say_where(reading.job, given.hardware.or_else(started.hardware), [given, started])
    card = settings.gpu or directives.gpu or settings.configured_gpu or _known_gpu(launch.resources)
    project = project_of(document, settings, Hardware(card, None, None), 0)
    apply(launch, reading, project.root)
    return Opened(reading, project, project.gpu, directives, launch.part, of_launcher=True)


def _rereader(
    document: Document, launcher: Launcher, settings: Settings, number: int
) -> Callable[[str], Document | None]:
    """Reads the config of the launcher's job again from another text of the file."""

    def reread(text: str) -> Document | None:
        changed = parse(text, document.path, document.syntax)
        project = project_of(changed, settings, Hardware(None, None, None), 0)
        launches = launcher.launches(changed, project).launches
        return launches[number].config if number < len(launches) else None

    return reread


def _counts_itself(reading: Reading) -> bool:
    """Whether the config states the number of GPUs that its program uses."""
    return reading.job.origins["hardware.gpus"].kind == "file"


def _known_gpu(resources: Resources) -> str | None:
    """The GPU that the launcher asks for, if it is one of the catalogue; clusters have names of their own, too."""
    if resources.gpu is None:
        return None
    from ..hardware.catalogue import UnknownGpu, find

    try:
        return find(resources.gpu).name
    except UnknownGpu:
        return None


def _counted(launch: Launch) -> int | None:
    """The GPUs that the job uses: one a process; all that were asked for where training starts its own processes. A
    server uses what its parallel degrees say."""
    from ..formats.core.registry import find

    resources = launch.resources
    if find(launch.format).serves:
        return None
    return resources.processes or resources.gpus


def _said(reading: Reading) -> Hardware:
    """The hardware that the config itself states; not what its format assumed."""
    job = reading.job
    stated = {
        name: value
        for name, value in (("gpu", job.hardware.gpu), ("gpus", job.hardware.gpus), ("nodes", job.hardware.nodes))
        if f"hardware.{name}" in job.origins and job.origins[f"hardware.{name}"].kind in ("file", "derived")
    }
    return Hardware(stated.get("gpu"), stated.get("gpus"), stated.get("nodes"))  # type: ignore[arg-type]
