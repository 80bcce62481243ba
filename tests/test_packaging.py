"""What pyproject.toml says of the project is what the tree holds: packages, their data, what they import."""

from __future__ import annotations

import ast
import re
import sys

import pytest
import yaml

from gpulint.source.read import read

MODULES = {"pyyaml": "yaml"}
"""Distributions whose module has another name; of the others it is the name, `-` as `_`."""

BOUNDED = re.compile(r"([\w.-]+)(?:\[[\w,-]+\])?\s*>=")


@pytest.fixture(scope="module")
def pyproject(root):
    return read(str(root / "pyproject.toml")).root.plain()


@pytest.fixture(scope="module")
def folders(root, pyproject):
    """Package -> its folder, for each that is listed; `package-dir` maps the longest prefix of a name that it has."""
    tool = pyproject["tool"]["setuptools"]
    found = {}
    for package in tool["packages"]:
        words = package.split(".")
        known = next(n for n in range(len(words), -1, -1) if ".".join(words[:n]) in tool["package-dir"])
        found[package] = root.joinpath(tool["package-dir"][".".join(words[:known])], *words[known:])
    return found


@pytest.fixture(scope="module")
def imported(folders):
    """The dotted modules of others that the package imports at run time, wherever in a file."""
    trees = [ast.parse(file.read_text(encoding="utf-8")) for folder in folders.values() for file in folder.glob("*.py")]
    names = {name for tree in trees for name in _imports(tree)}
    return {name for name in names if name.partition(".")[0] not in {*sys.stdlib_module_names, "gpulint"}}


def _imports(node):
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and not node.level:
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    elif not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
        for child in ast.iter_child_nodes(node):
            yield from _imports(child)


def declared(pyproject, *extras):
    """Distribution -> module, of what a user of the package installs, with these extras."""
    project = pyproject["project"]
    listed = [*project["dependencies"], *(item for extra in extras for item in project["optional-dependencies"][extra])]
    names = [BOUNDED.match(item)[1].lower() for item in listed]
    return {name: MODULES.get(name, name.replace("-", "_")) for name in names}


def within(name, module):
    return f"{name}.".startswith(f"{module}.")


def test_every_declared_dependency_is_imported(pyproject, imported):
    modules = declared(pyproject, "hub", "lsp")
    assert [name for name, module in modules.items() if not any(within(each, module) for each in imported)] == []


def test_everything_imported_is_declared(pyproject, imported):
    modules = declared(pyproject, "hub", "lsp").values()
    assert {name for name in imported if not any(within(name, module) for module in modules)} == set()


def test_every_requirement_says_its_oldest_release(pyproject):
    """Without a lower bound `uv --resolution lowest-direct` takes the first release that there ever was."""
    project = pyproject["project"]
    listed = [
        *project["dependencies"],
        *(item for extra in project["optional-dependencies"].values() for item in extra),
    ]
    assert [item for item in listed if not item.startswith("gpulint[") and not BOUNDED.match(item)] == []


def test_packages_are_the_folders_with_code(root, pyproject, folders):
    found = set()
    for prefix, folder in pyproject["tool"]["setuptools"]["package-dir"].items():
        parents = {file.parent.relative_to(root / folder).parts for file in (root / folder).rglob("*.py")}
        found |= {".".join([*filter(None, [prefix]), *parts]) for parts in parents}
    assert set(folders) == found
    assert [package for package, folder in folders.items() if not (folder / "__init__.py").is_file()] == []


def test_every_file_beside_the_code_is_package_data(pyproject, folders):
    patterns = pyproject["tool"]["setuptools"]["package-data"]
    taken = {
        file
        for package, folder in folders.items()
        for pattern in (*patterns["*"], *patterns.get(package, ()))
        for file in folder.glob(pattern)
    }
    held = {file for folder in folders.values() for file in folder.rglob("*") if file.is_file()}
    assert {file for file in held - taken if file.suffix not in (".py", ".pyc")} == set()


def test_ci_runs_the_oldest_python_with_the_oldest_releases(root, pyproject):
    workflow = yaml.safe_load((root / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    matrix = workflow["jobs"]["test"]["strategy"]["matrix"]
    oldest = pyproject["project"]["requires-python"].removeprefix(">=")
    assert oldest in matrix["python"]
    assert matrix["include"] == [{"python": oldest, "resolution": "lowest-direct"}]
    assert "--resolution lowest-direct" in (root / ".ci/run").read_text(encoding="utf-8")


def test_the_page_of_dependencies_lists_each_of_them(root, pyproject):
    """Rows of two tables: what is always installed, and extra -> what it adds."""
    text = (root / "docs" / "dependencies.md").read_text(encoding="utf-8")
    always, extras = (re.findall(r"^\| (`.*?`) \| (.*?) \|", part, re.MULTILINE) for part in text.split("## Extras"))
    assert [name.strip("`") for name, _ in always] == sorted(declared(pyproject))
    listed = {extra.strip("`"): sorted(re.findall(r"`([\w.-]+)`", names)) for extra, names in extras}
    added = {extra: sorted(declared(pyproject, extra).keys() - declared(pyproject).keys()) for extra in listed}
    assert listed == added
    assert {"hub", "lsp"} == listed.keys()


def test_the_page_of_dependencies_names_modules_that_import_them(root, pyproject, imported):
    text = (root / "docs" / "dependencies.md").read_text(encoding="utf-8").split("## Extras")[0]
    for name, module in declared(pyproject).items():
        (row,) = re.findall(rf"^\| `{re.escape(name)}` .*$", text, re.MULTILINE)
        places = re.findall(r"`([\w/.]+)`", row.split("|")[3])
        files = [file for place in places for file in _files(root, place)]
        assert files, row
        assert any(within(each, module) for file in files for each in _imports(ast.parse(file.read_text("utf-8")))), row


def _files(root, place):
    path = root / place if place.startswith("scripts/") else root / "linter" / "gpulint" / place
    return [path] if path.is_file() else list(path.glob("*.py"))
