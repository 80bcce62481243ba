"""Which functions each test enters: a plugin of pytest for the copy in which every function says so.

`-p benchmarks.mutation.seen --seen FILE` writes JSON: `functions`, and of the tests that pass `tests`: seconds and the
numbers of the functions entered.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

SEEN: set[str] = set()
"""The functions entered since the test began, each as `path:qualified.name`."""

_tests: dict[str, tuple[float, list[str]]] = {}


def probed(path: str, text: str) -> str:
    """A module's text in which each function first adds itself to SEEN."""
    lines = text.splitlines(keepends=True)
    tree = ast.parse(text)
    imports = [node.end_lineno or 0 for node in tree.body if isinstance(node, ast.ImportFrom)]
    if not imports:
        return text
    added = [(statement.lineno, statement.col_offset, name) for statement, name in _firsts(tree, ())]
    for line, column, name in sorted(added, reverse=True):
        lines.insert(line - 1, f"{' ' * column}_seen_({f'{path}:{name}'!r})\n")
    lines.insert(imports[0], "from benchmarks.mutation.seen import SEEN; _seen_ = SEEN.add\n")
    return "".join(lines)


def _firsts(node: ast.AST, names: tuple[str, ...]) -> list[tuple[ast.stmt, str]]:
    """The first statement of each function after its docstring, where it has a line of its own."""
    found = []
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.FunctionDef, ast.ClassDef)):
            found += _firsts(child, names)
            continue
        inner = (*names, child.name)
        if isinstance(child, ast.FunctionDef):
            told = ast.get_docstring(child, clean=False) is not None
            first = child.body[1] if told and len(child.body) > 1 else child.body[0]
            if first.lineno > child.lineno and not (told and len(child.body) == 1):
                found.append((_decorated(first), ".".join(inner)))
        found += _firsts(child, inner)
    return found


def _decorated(statement: ast.stmt) -> ast.stmt:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    if decorators:
        statement.lineno = decorators[0].lineno
    return statement


def pytest_addoption(parser: pytest.Parser) -> None:
    """The file that is written."""
    parser.addoption("--seen", type=Path)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol() -> Generator[None, None, None]:
    """What a test and its fixtures enter counts as the test's."""
    SEEN.clear()
    yield


def pytest_runtest_logreport(report: Any) -> None:
    """Keep what was seen of a test that passed."""
    if report.when == "call" and report.passed:
        _tests[report.nodeid] = (round(report.duration, 3), sorted(SEEN))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the map."""
    path = session.config.getoption("--seen")
    if path is not None:
        names = sorted({name for _, entered in _tests.values() for name in entered})
        numbers = {name: number for number, name in enumerate(names)}
        tests = {test: (seconds, [numbers[name] for name in entered]) for test, (seconds, entered) in _tests.items()}
        path.write_text(json.dumps({"functions": names, "tests": tests}), encoding="utf-8")
