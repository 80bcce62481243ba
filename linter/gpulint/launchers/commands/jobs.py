"""From the commands of a launcher to the jobs that they start."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from ...formats.core.coercion import as_integer
from ...formats.core.registry import find
from ...job.origin import Origin
from ...repository.images import versions as versions_of
from ...repository.requirement import requirement
from ...source.places import places_of
from ..containers.mounts import of_project
from ..launch import Launch, Resources, Started
from ..mistakes.starts import Start
from ..mistakes.watch import JOINS, Watch
from ..mistakes.wrong_command import HEADS
from ..shell.script import place, whole
from ..shell.shell import commands
from .accelerate_file import state_processes
from .card_demands import tell_demands
from .cut_lines import cut, early, joined, misspelt, together, unexported
from .environment import allocator, sampler, spread, starts_its_ranks, torchrun
from .environment_facts import tell
from .generated_files import with_written
from .images import elsewhere, upstream
from .made_folders import made_by, with_folders
from .own_launcher import with_launcher
from .programs import begin, named
from .project_files import with_project_files
from .serve_files import served_file
from .skip_reasons import NOTHING, SERVED, starts_ranks
from .skip_reasons import reason as why
from .sourced_scripts import Trail, follow, sourced
from .tasks import ask, ranks_of, tell_tasks
from .wrappers import unwrap

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ...formats.core.format import Problem, Project
    from ...source.document import Document
    from ..shell.script import Script
    from ..shell.shell import Command, Word
    from .made_folders import Made
    from .programs import Begun
    from .tasks import Tasks
    from .wrappers import Unwrapped

MAX_PROCESSES = 10_000
"""Processes of a node, and nodes, that a variable may ask for."""

MAX_JOBS = 50
"""Jobs of one launcher file."""


def jobs_of(
    script: Script,
    file: Document,
    project: Project,
    resources: Resources,
    variables: Mapping[str, str | Word] | None = None,
    part: str = "",
    versions: Mapping[str, str] | None = None,
    arguments: list[Word] | None = None,
    trail: Trail | None = None,
) -> Started:
    """The jobs that a script starts on `resources`.

    `variables` are those that the launcher sets before the script runs, `arguments` what it is started with, `trail`
    the scripts that led to it. A command that names a config file which is not there is a problem and no job, unless
    its flags say enough on their own.
    """
    trail = trail or Trail()
    listed = commands(script, variables, arguments, sourced(file, project, Trail(trail.paths)))
    return jobs_of_commands(listed, file, project, resources, part, versions, trail)


def jobs_of_commands(
    listed: Iterable[Command],
    file: Document,
    project: Project,
    resources: Resources,
    part: str = "",
    versions: Mapping[str, str] | None = None,
    trail: Trail | None = None,
) -> Started:
    """The jobs that commands start; see `jobs_of`. `versions` of packages are those that the image states."""
    gathered = _Gathered(file, resources, part, dict(versions or {}), trail or Trail())
    listed = [command for command in listed if command.words]
    for command, behind in zip(listed, [*listed[1:], None], strict=False):
        project = with_written(command, file, project)
        command = with_project_files(command, file, project)
        for inner, unwrapped in unwrap(command, file):
            gathered.take(_One(command, behind, inner, with_launcher(unwrapped, file)), project)
    return gathered.started()


class _One(NamedTuple):
    """A program that a command ends up running: the command, the one `behind` it, and its own words."""

    command: Command
    behind: Command | None
    inner: Command
    program: Unwrapped


class _Gathered:
    """What the commands of a script have been found to start so far."""

    def __init__(self, file: Document, resources: Resources, part: str, known: dict[str, str], trail: Trail) -> None:
        self.file, self.resources, self.part, self.known, self.trail = file, resources, part, known, trail
        self.launches: list[Launch] = []
        self.bare: list[Launch] = []
        self.problems: list[Problem] = []
        self.scripts: dict[str, Document] = {}
        self._reasons: list[str] = []
        self._unknown: list[Unwrapped] = []
        self._away = False
        self._folders: dict[str, Made] = {}
        self._over: list[object] = []
        self._watch = Watch()

    def started(self) -> Started:
        """All of it."""
        reasons = [*self._reasons, why(self._unknown)]
        reason = next((text for text in reasons if text and text != NOTHING), NOTHING)
        for launch in self.launches:
            launch.resources.told["commands"] = (len(self.launches), Origin("derived", "jobs of one script"))
        said = "" if self.launches else reason
        return Started(self.launches, self.problems, said, self.scripts, self.bare[:MAX_JOBS])

    def take(self, one: _One, project: Project) -> None:
        """What one program starts: the jobs of a script that it follows, a job of its own, or nothing known."""
        program = with_folders(one.program, self._folders)
        self._folders |= made_by(one.program, self.file, self._folders)
        one = one._replace(program=program)
        self.known.update(_pinned(program))
        image = program.image or str(self.resources.told.get("container.image", ("",))[0])
        self._say(self._watch.install(program, one.inner, image, self.file))
        self.known.update(versions_of(program.image))
        self._away = self._away or _leaves(program, self.file, project)

        def start(
            script: Document, own: Resources, set_: Mapping[str, str | Word], arguments: list[Word], way: Trail
        ) -> Started:
            return jobs_of(whole(script), script, project, own, set_, "", self.known, arguments, way)

        served = served_file(program, self.file, project)
        if served is not None:
            self._follow(served)
            return
        followed = follow(program, one.inner, self.file, project, self.resources, self.trail, start)
        if followed is not None:
            self._follow(followed)
            return
        asked = any(name == "sbatch" for name, _ in program.options)
        own = Resources() if asked else self.resources.copy()
        ask(own, program)
        tell(own, program, one.inner.environment, self.file)
        project = of_project(own.mounts, project)
        begun = begin(program, self.file, project, one.inner.environment) if not elsewhere(program.image) else None
        tasks = tell_tasks(own, program)
        self._say(misspelt(one.inner, self.file))
        if begun is not None or starts_ranks(program):
            self._read_text(one, own)
        if begun is None or len(self.launches) >= MAX_JOBS or named(program) in SERVED:
            self._leave(program, own, tasks, project)
        else:
            self._launch(one, begun, own, tasks, project)
        if begun is not None or starts_ranks(program) or program.head in JOINS | HEADS:
            start_ = Start(program, one.inner.environment, own, tasks, self.file, project)
            self._say(self._watch.start(start_, one.command))

    def _say(self, problems: Iterable[Problem]) -> None:
        self.problems += [item for item in problems if item not in self.problems]

    def _follow(self, followed: Started) -> None:
        room = MAX_JOBS - len(self.launches)
        self.launches += [_below(launch, self.file, self.part) for launch in followed.launches[:room]]
        self.problems += followed.problems
        self.scripts |= followed.files
        self.bare += [_below(launch, self.file, self.part) for launch in followed.bare]
        self._reasons.append(followed.reason)

    def _read_text(self, one: _One, own: Resources) -> None:
        self.problems += joined(one.inner, self.file)
        self.problems += together(one.program, self.file)
        self.problems += cut(one.command, one.behind, self.file)
        self.problems += unexported(one.inner, self.file, own)
        self.problems += early(one.command, one.program, own, self.file)

    def _leave(self, program: Unwrapped, own: Resources, tasks: Tasks | None, project: Project) -> None:
        self._unknown.append(program)
        demands = tell_demands(own, program, self.file)
        if (demands or starts_ranks(program)) and len(self.bare) < MAX_JOBS:
            _processes(own, program, self.file, project)
            ranks_of(own, tasks if not program.launchers else None)
            self.bare.append(_bare(program, own, self.file, self.part))

    def _launch(self, one: _One, begun: Begun, own: Resources, tasks: Tasks | None, project: Project) -> None:
        program, variables, file = one.program, one.inner.environment, self.file
        self._count(one, begun, own, tasks, project)
        missing = begun.file is None and any(item.kind == "unresolved-reference" for item in begun.problems)
        if missing and not _says_enough(begun.config):
            if self._away:
                self._unknown.append(program)
            else:
                self.problems += begun.problems
            return
        self.launches.append(
            Launch(
                _where(program, file, self.part),
                begun.format,
                begun.config,
                own,
                next((options for _, options in program.launchers), None),
                begun.files | ({"launcher": file} if begun.config.path != file.path else {}),
                () if missing and self._away else begun.problems,
                dict(self.known),
                decided=allocator(variables, file)
                | sampler(begun.format, variables, file)
                | spread(begun.format, own, variables, launches=starts_its_ranks(program))
                | dict(begun.decided),
                file=begun.file,
                program=named(program),
                own_build=begun.foreign or (bool(program.image) and not upstream(program.image)),
                alone=_alone(program, variables),
                unread=begun.unread,
                declared=begun.declared,
                loads=begun.loads,
                ignores=begun.ignores,
            )
        )

    def _count(self, one: _One, begun: Begun, own: Resources, tasks: Tasks | None, project: Project) -> None:
        """How many processes run, on which GPUs, and what else runs beside them."""
        command, program, variables = one.command, one.program, one.inner.environment
        own.told["program"] = (named(program), Origin("derived", "the command line"))
        if command.stretch is not None:
            alone = command.words[0].text == "srun" or command.stretch in self._over
            own.beside = None if alone else command.stretch
            self._over += [] if command.background else [command.stretch]
        _processes(own, program, self.file, project)
        if not program.launchers and not find(begun.format).serves:
            ranks_of(own, tasks)
        if own.processes is None and not _spans_nodes(begun.config):
            _visible(own, variables, counts=starts_its_ranks(program))
        if program.name.text.endswith("llamafactory-cli") and not program.launchers:
            torchrun(own, variables, self.file)


def _where(program: Unwrapped, file: Document, part: str) -> str:
    line = place(places_of(file.text), program.name.at).line
    return f"{part}, line {line}" if part else f"line {line}"


def _bare(program: Unwrapped, resources: Resources, file: Document, part: str) -> Launch:
    """A start of which only the launcher is known: what it starts is a script of no known kind."""
    launcher = next((options for _, options in program.launchers), None)
    return Launch(_where(program, file, part), "", file, resources, launcher, {}, program=named(program))


def _below(launch: Launch, file: Document, part: str) -> Launch:
    """A launch of a script that `file` starts."""
    where = f"{part}, {launch.part}" if part else launch.part
    return launch._replace(part=where, files={f"script {file.path}": file, **launch.files, "launcher": file})


def _leaves(program: Unwrapped, file: Document, project: Project) -> bool:
    """Whether `cd` leaves the project: what is named from there on stands in the container, on the node, or in a clone
    of a tool's repository."""
    if program.head != "cd" or not program.words or program.words[0].text == "-":
        return False
    path, known = program.words[0].text, program.words[0].known
    beside = os.path.dirname(file.path)
    folders = [os.path.join(start, path) for start in (beside, project.root)]
    return not known or path.startswith("/") or not any(map(os.path.isdir, folders))


def pinned(script: Script, file: Document) -> dict[str, str]:
    """Versions of packages that a script installs."""
    found: dict[str, str] = {}
    for command in commands(script):
        for _, program in unwrap(command, file):
            found |= _pinned(program)
    return found


def _pinned(program: Unwrapped) -> dict[str, str]:
    """Versions that `pip install name==1.2.3` or `uv pip install` pins."""
    words = [program.head, *(word.text for word in program.words)]
    if words[:2] != ["pip", "install"] and words[:3] != ["uv", "pip", "install"]:
        return {}
    found = (requirement(word, 1) for word in words[2:])
    return {item.package: item.exact for item in found if item is not None and item.exact}


_ENOUGH = frozenset({"model", "model_name_or_path", "model-path", "model_path", "base_model", "model_id"})


def _says_enough(config: Document) -> bool:
    return not _ENOUGH.isdisjoint(config.root.keys())


_SPREAD = frozenset({"srun", "mpirun", "mpiexec", "ray job submit", "oumi distributed accelerate"})
"""Wrappers that may start a process a GPU, or run it elsewhere."""

_RANKS = frozenset({"RANK", "LOCAL_RANK", "WORLD_SIZE", "FORCE_TORCHRUN", "NPROC_PER_NODE"})
"""Variables that say that other processes are started."""


def _alone(program: Unwrapped, variables: Mapping[str, object]) -> bool:
    """Whether a command starts a Python script as one process, on GPUs that are all there are or are listed."""
    if not program.head.endswith(".py") or program.module or program.launchers:
        return False
    if any(len(_listed(variables.get(name))) == 1 for name in _VISIBLE):
        return False
    return _SPREAD.isdisjoint(name for name, _ in program.options) and _RANKS.isdisjoint(variables)


_DEVICE = re.compile(r"\d+|(?:GPU|MIG)-[0-9a-fA-F-]+")
"""A GPU by its number or its UUID (CUDA programming guide, CUDA_VISIBLE_DEVICES)."""

_VISIBLE = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


def _listed(word: object) -> list[str]:
    """The devices that a variable names; one where another program fills it in."""
    return [part for part in getattr(word, "text", "").split(",") if part.strip()]


def _visible(resources: Resources, variables: Mapping[str, object], *, counts: bool) -> None:
    """`CUDA_VISIBLE_DEVICES=0,1` is a count of GPUs where nothing else says one; `NPROC_PER_NODE` is how ms-swift,
    LLaMA-Factory and torchrun's wrappers are told how many processes to start (`counts`).
    """
    processes = getattr(variables.get("NPROC_PER_NODE"), "text", "")
    if counts and processes.isdigit() and 0 < int(processes) <= MAX_PROCESSES:
        nodes = getattr(variables.get("NNODES"), "text", "")
        count = int(nodes) if nodes.isdigit() and 0 < int(nodes) <= MAX_PROCESSES else 1
        resources.processes = int(processes) * count
        if count > 1 and resources.nodes is None:
            resources.nodes = count
    named = next((variables[name] for name in _VISIBLE if name in variables), None)
    listed = _listed(named)
    if resources.gpus_per_node is None and listed and all(_DEVICE.fullmatch(part.strip()) for part in listed):
        resources.gpus_per_node = len(listed)


def _spans_nodes(config: Document) -> bool:
    """Whether the config itself states several nodes, so that the devices of the one it is started on are not all."""
    nodes = config.root.find("trainer.nnodes")
    return nodes is not None and (as_integer(nodes.value.value) or 1) > 1


_PER_NODE = ("nproc_per_node", "nproc-per-node", "num_gpus")
_NODES = ("nnodes", "num_nodes", "num_machines", "num-machines")


def _processes(resources: Resources, program: Unwrapped, file: Document, project: Project) -> None:
    """The processes that `torchrun`, `deepspeed` or `accelerate launch` start, over all nodes."""
    for name, options in program.launchers:
        root = options.root
        nodes = next((entry for key in _NODES if (entry := root.entry(key))), None)
        count = as_integer(nodes.value.value) if nodes else None
        if nodes and count and resources.nodes is None:
            resources.state("nodes", count, file.path, str(nodes.key.value), nodes.value.span)
        if name == "accelerate":
            total = root.entry("num_processes") or root.entry("num-processes")
            number = as_integer(total.value.value) if total else None
            if total and number:
                resources.state("processes", number, file.path, str(total.key.value), total.value.span)
            state_processes(resources, root, file, project)
            continue
        each = next((entry for key in _PER_NODE if (entry := root.entry(key))), None)
        if each is None and (include := root.entry("include")) is not None:
            devices = str(include.value.value).rpartition(":")[2].split(",")
            if all(device.strip().isdigit() for device in devices):
                resources.state("processes", len(devices), file.path, "include", include.value.span)
            continue
        per_node = as_integer(each.value.value) if each else None
        if per_node is None and (each is None or str(each.value.value) in ("gpu", "auto")):
            per_node = resources.gpus_per_node
        if per_node:
            whole = per_node * (count or resources.nodes or 1)
            at = each or nodes
            if at is not None:
                resources.state("processes", whole, file.path, str(at.key.value), at.value.span, "processes x nodes")
            else:
                resources.processes = whole
