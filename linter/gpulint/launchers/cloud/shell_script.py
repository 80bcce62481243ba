"""Shell scripts, with or without Slurm's `#SBATCH` lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...job.origin import Origin
from ..commands.jobs import jobs_of
from ..launch import Launcher, Resources, Started
from ..mistakes.slurm_lines import slurm_lines
from ..shell.script import whole
from . import slurm

if TYPE_CHECKING:
    from ...formats.core.format import Project
    from ...source.document import Document

NAME = "shell"


def recognise(document: Document) -> bool:
    """A file that a shell reads."""
    return document.syntax == "shell"


def launches(document: Document, project: Project) -> Started:
    """The jobs that the script's commands start, on what its `#SBATCH` lines ask for."""
    resources = Resources()
    variables = slurm.read(document, resources)
    if variables:
        resources.told["batch"] = (True, Origin("derived", "#SBATCH lines"))
    started = jobs_of(whole(document), document, project, resources, variables)
    return started._replace(problems=[*slurm_lines(document), *started.problems])


LAUNCHER = Launcher(
    NAME,
    "shell or Slurm script",
    "POSIX sh, Slurm 25.05",
    recognise,
    launches,
    "`#SBATCH` lines, `torchrun`, `CUDA_VISIBLE_DEVICES`",
)
