"""Which Python files of a folder start a job: told from their text, so that a walk stays quick.

A file counts where it is run as it is: it makes its calls when it starts, takes no options from a command line, and
names the model. What a file that is named does not need.
"""

from __future__ import annotations

import ast
import os
import re
from typing import TYPE_CHECKING

from ...source.document import SourceError
from ...source.read import read
from .module import Module
from .source_jobs import jobs_in

if TYPE_CHECKING:
    from ...source.document import Document
    from ..launch import Launch

MAX_SIZE = 256 << 10
"""Bytes of a file; longer ones are written by programs."""

_IMPORTS = re.compile(
    rb"^[ \t]*(?:from|import)[ \t]+(?:vllm|sglang|lmdeploy|mii|unsloth|transformers|modelscope|trl|auto_gptq|awq|"
    rb"liger_kernel)\b",
    re.MULTILINE,
)
_CALLS = re.compile(rb"\.from_(?:pretrained|quantized)\(|\b(?:LLM|Engine|pipeline|serve)\(|(?:EngineArgs|Trainer)\(")
_OPTIONS = re.compile(rb"add_argument\(|HfArgumentParser|TrlParser|click\.option|\btyro\b|\bfire\.Fire\b|hydra\.main")
_TESTS = re.compile(r"(?:^|[/\\])(?:tests?[/\\]|test_[^/\\]*\.py$|conftest\.py$|[^/\\]*_test\.py$)")

_MODELS = ("model_name_or_path", "model", "model_path")


def starts_job(path: str) -> bool:
    """Whether a file of a walked folder starts a job with a model that it names."""
    if _TESTS.search(path):
        return False
    try:
        if os.stat(path).st_size > MAX_SIZE:
            return False
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        return False
    if not _CALLS.search(data) or not _IMPORTS.search(data) or _OPTIONS.search(data):
        return False
    try:
        document = read(path)
        tree = ast.parse(document.text)
    except (SourceError, SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return _runs(tree, document)


def _runs(tree: ast.Module, document: Document) -> bool:
    module = Module(tree, document)
    main = any("__name__" in ast.dump(node.test) for node in tree.body if isinstance(node, ast.If))
    lines = [(node.lineno, node.end_lineno or node.lineno) for node in tree.body if not isinstance(node, _DEFINES)]
    for launch in jobs_in(module, "").launches:
        line = launch.config.root.span.line
        if (main or any(first <= line <= last for first, last in lines)) and _names_model(launch):
            return True
    return False


_DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _names_model(launch: Launch) -> bool:
    values = (launch.config.root.get(key) for key in _MODELS)
    return any(isinstance(node.value, str) and "${" not in node.value for node in values if node is not None)
