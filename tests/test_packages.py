"""Imports point one way: packages stand in the order of CONTRIBUTING.md, and folders stay such as one can look over."""

from __future__ import annotations

import ast
import re
from collections import Counter
from graphlib import CycleError, TopologicalSorter

import pytest

WIDEST = 24
"""Modules of one folder, beyond which nobody finds anything in it."""

LONGEST = 400
"""Lines of one file."""

LOOSE = 7
"""Modules beside the packages."""


@pytest.fixture(scope="module")
def modules(root):
    """Module -> its file, of the package, the benchmarks and the scripts."""
    folders = ("linter", "benchmarks", "scripts")
    files = [file for folder in folders for file in root.glob(f"{folder}/**/*.py")]
    return {file.relative_to(root).with_suffix("").parts: file for file in files}


@pytest.fixture(scope="module")
def imports(modules):
    """Module -> the modules of its own package that it imports anywhere in it, for types alone or not."""
    return {module: _imported(module, ast.parse(file.read_text()), modules) for module, file in modules.items()}


def test_no_module_imports_one_that_imports_it(imports):
    """Imports for types counted: what two modules both need stands in a third, below them."""
    assert len(tuple(TopologicalSorter(imports).static_order())) == len(imports)


@pytest.mark.parametrize("line", ["from .b import B", "if TYPE_CHECKING:\n    from .b import B"])
def test_a_circle_is_one_with_imports_for_types_too(line):
    modules = {("p", "a"): None, ("p", "b"): None}
    graph = {
        ("p", "a"): _imported(("p", "a"), ast.parse(line), modules),
        ("p", "b"): _imported(("p", "b"), ast.parse("def f():\n    from . import a"), modules),
    }
    with pytest.raises(CycleError):
        tuple(TopologicalSorter(graph).static_order())


def test_packages_import_only_packages_above_them(imports, root):
    text = (root / "CONTRIBUTING.md").read_text()
    lines = [line for line in text.splitlines() if re.match(r"      \w", line)]
    listed = [name.removesuffix("/").removesuffix(".py") for line in lines for name in _names(line)]
    packages = {module[2] for module in imports if module[:2] == ("linter", "gpulint") and len(module) > 3}
    assert set(listed) >= packages
    wrong = [
        f"{'.'.join(module[2:])} imports {'.'.join(other[2:])}"
        for module, found in imports.items()
        for other in found
        if module[:2] == ("linter", "gpulint")
        and {module[2], other[2]} <= {*listed}
        and listed.index(other[2]) > listed.index(module[2])
    ]
    assert wrong == []


def test_folders_can_be_looked_over(modules):
    widths = Counter(module[:-1] for module in modules if module[0] == "linter" and module[-1] != "__init__")
    assert {"/".join(folder): width for folder, width in widths.items() if width > WIDEST} == {}
    assert widths["linter", "gpulint"] <= LOOSE


def test_files_can_be_read_in_one_go(modules):
    long = {file.name: lines for file in modules.values() if (lines := len(file.read_text().splitlines())) > LONGEST}
    assert long == {}


def test_every_folder_is_shown_to_who_contributes(modules, root):
    text = (root / "CONTRIBUTING.md").read_text()
    folders = {module[-2] for module in modules if module[0] == "linter" and module[-1] == "__init__"} - {"gpulint"}
    assert [folder for folder in sorted(folders) if f"{folder}/" not in text] == []


def test_a_file_of_ours_that_the_estimator_names_is_there(modules, root):
    """What `--explain` prints as a source and what comments point to; upstream's own files have other folders."""
    named = re.compile(r"(?<![\w/])estimator/[\w/]+\.(?:py|json)\b")
    package = root / "linter" / "gpulint"
    ours = [file for module, file in modules.items() if module[0] == "linter"]
    found = {(file.name, path) for file in ours for path in named.findall(file.read_text(encoding="utf-8"))}
    assert len(found) > 20
    assert [(file, path) for file, path in sorted(found) if not (package / path).is_file()] == []


def test_releases_are_compared_in_upstream_alone(modules):
    """Neither versions nor the framework of a job is compared elsewhere: rows and `Stack` answer."""
    found = {
        "/".join(module[2:]): asked
        for module, file in modules.items()
        if module[:2] == ("linter", "gpulint")
        and module[2] != "upstream"
        and (asked := [ast.unparse(node) for node in ast.walk(ast.parse(file.read_text())) if _asks(node)])
    }
    assert found == {}


def _asks(node):
    """Whether a node compares releases or frameworks, or asks whether a package's version is stated."""
    if isinstance(node, ast.ImportFrom):
        return any(alias.name in ("older", "numbers") for alias in node.names)
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        inside = any(isinstance(op, (ast.In, ast.NotIn)) for op in node.ops)
        return any(_ends(side, "framework") for side in sides) or (inside and _ends(sides[-1], "versions"))
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.BitAnd) and any(_ends(part, "versions") for part in ast.walk(node))
    return (
        isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith("isdisjoint")
        and any(_ends(part, "versions") for part in node.args)
    )


def _ends(node, attribute):
    return isinstance(node, ast.Attribute) and node.attr == attribute


@pytest.mark.parametrize(
    ("line", "asks"),
    [
        ("from ..upstream.behaviour import older", True),
        ("'unsloth' in job.versions", True),
        ("LOOPS & set(job.versions)", True),
        ("OWN.isdisjoint(job.versions)", True),
        ("job.framework == 'megatron'", True),
        ("job.framework is None", True),
        ("job.versions.get('torch')", False),
        ("{**job.versions, 'torch': '2.4'}", False),
        ("stack.runs(megatron.NAME)", False),
    ],
)
def test_what_asks_for_a_release_or_who_runs(line, asks):
    assert any(map(_asks, ast.walk(ast.parse(line)))) is asks


def _names(line):
    return re.match(r" +((?:[\w.]+/? )*(?:[\w.]+/?))(?: {2}|$)", line).group(1).split()


def _imported(module, tree, modules):
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = (*module[: -node.level], *(node.module.split(".") if node.module else ()))
            found |= {path for path in (base, *((*base, alias.name) for alias in node.names)) if path in modules}
    return found - {module}
