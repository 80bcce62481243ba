"""Imports point one way: none comes back to its module at run time, and rooms stand in the order of CONTRIBUTING.md."""

from __future__ import annotations

import ast
import re
from graphlib import TopologicalSorter

import pytest


@pytest.fixture(scope="module")
def imports(root):
    """Module -> the modules of its own package that it imports at run time, anywhere in it."""
    files = [file for package in ("linter", "benchmarks", "scripts") for file in root.glob(f"{package}/**/*.py")]
    modules = {file.relative_to(root).with_suffix("").parts: file for file in files}
    return {module: _imported(module, ast.parse(file.read_text()), modules) for module, file in modules.items()}


def test_no_module_imports_one_that_imports_it(imports):
    assert len(tuple(TopologicalSorter(imports).static_order())) == len(imports)


def test_rooms_import_only_rooms_above_them(imports, root):
    text = (root / "CONTRIBUTING.md").read_text()
    listed = re.findall(r"^      (\w+)(?:\.py|/) ", text, re.MULTILINE)
    assert set(listed) >= {module[1] for module in imports if module[0] == "linter" and len(module) > 2}
    inner = {file.parent.name for file in (root / "linter" / "estimator").glob("*/__init__.py")}
    assert all(f"{room}/ " in text for room in inner)
    wrong = [
        f"{'.'.join(module)} imports {'.'.join(other)}"
        for module, others in imports.items()
        for other in others
        if module[0] == "linter"
        and module[1] in listed
        and other[1] in listed
        and listed.index(other[1]) > listed.index(module[1])
    ]
    assert wrong == []


def _imported(module, tree, modules):
    typing = {node for block in ast.walk(tree) if _for_types(block) for node in ast.walk(block)}
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level and node not in typing:
            base = (*module[: -node.level], *(node.module.split(".") if node.module else ()))
            found |= {path for path in (base, *((*base, alias.name) for alias in node.names)) if path in modules}
    return found - {module}


def _for_types(node):
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
