"""The job of a script that a command starts and whose arguments stand in its source."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...repository.script_options import source_of
from ...source.document import SourceError
from ...source.read import read
from ...source.referenced import on_disk, shown_path
from ..python.keyword_problems import keyword_problems
from ..python.module import Module
from ..python.source_jobs import jobs_in

if TYPE_CHECKING:
    from ...formats.core.format import Problem, Project
    from ...source.document import Document
    from ..launch import Launch
    from .wrappers import Unwrapped


def written_in_source(
    program: Unwrapped, file: Document, project: Project
) -> tuple[Launch, Document, tuple[Problem, ...]] | None:
    """The first job that the script makes of its own arguments, the script, and keywords that are refused; None where
    the script is not here or makes none."""
    document = _source(program, file, project) if program.name.known else None
    if document is None or document.syntax != "python":
        return None
    try:
        tree = ast.parse(document.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    module = Module(tree, document, project.gpu)
    made = jobs_in(module, program.name.text)
    if not made.launches:
        return None
    return made.launches[0], document, keyword_problems(module, made.found, project)


def _source(program: Unwrapped, file: Document, project: Project) -> Document | None:
    try:
        if not on_disk():
            return project.open(program.name.text, file.path)
        path = source_of(program.name.text, program.module, file.path, project.root)
        return read(shown_path(path)) if path is not None else None
    except SourceError:
        return None
