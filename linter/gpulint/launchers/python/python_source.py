"""Python files whose calls load a model, train it or start an engine, with arguments that stand in the file."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...source.document import SourceError
from ..launch import Launcher, Started
from .keyword_problems import keyword_problems
from .module import Module
from .source_jobs import jobs_in

if TYPE_CHECKING:
    from ...formats.core.format import Project
    from ...source.document import Document

NAME = "python"


def recognise(document: Document) -> bool:
    """A Python file."""
    return document.syntax == "python"


def launches(document: Document, project: Project) -> Started:
    """The jobs of a file. Raises SourceError where it is no Python 3."""
    try:
        tree = ast.parse(document.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", 0) or 0
        raise SourceError(document.path, "not valid Python 3", line, 1 if line else 0) from None
    module = Module(tree, document, project.gpu)
    made = jobs_in(module, document.path.replace("\\", "/").rpartition("/")[2])
    problems = keyword_problems(module, made.found, project)
    started = Started(made.launches, [], "" if made.launches else made.reason)
    if made.launches:
        return started._replace(launches=[made.launches[0]._replace(problems=problems), *made.launches[1:]])
    return started._replace(problems=list(problems))


LAUNCHER = Launcher(
    NAME,
    "Python file",
    "Python 3; the calls of `launchers/python/calls.json`",
    recognise,
    launches,
    'degrees of an engine, `os.environ["CUDA_VISIBLE_DEVICES"]`',
)
