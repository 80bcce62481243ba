"""What of the package's shape can be counted: facts that stand in many places, circles, folders, dependencies.

python -m benchmarks.corpus.counts linter              # the package's folder, or one that holds it
python -m benchmarks.corpus.counts linter --files      # and in which files the most are
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import tomllib

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PACKAGE = "gpulint"
"""The name that it is imported by."""

SETTERS = frozenset({"put", "fill", "default", "derived", "assumed", "count", "from_entry"})
"""Methods that set a field of a Job."""

TOOLS = frozenset({
    "accelerate", "axolotl", "bitsandbytes", "deepspeed", "liger-kernel", "litgpt", "llamafactory", "megatron",
    "ms-swift", "nemo-automodel", "openrlhf", "oumi", "peft", "prime-rl", "sglang", "torch", "torchtitan", "torchtune",
    "transformers", "trl", "unsloth", "verl", "vllm",
})  # fmt: skip
"""Tools and packages whose names a room that knows none of them has no need of."""

DTYPE_SPELLINGS = frozenset({("bf16", "bfloat16"), ("half", "float16"), ("fp16", "float16")})
"""A mapping with one of these is a table of spellings."""

FIELDS = ("weights.dtype", "optimizer.name", "attention", "activation_checkpointing", "parallelism.fsdp")
"""Job fields that many formats set."""

IMPORTED_AS = {"pyyaml": "yaml", "ruamel.yaml": "ruamel", "huggingface-hub": "huggingface_hub"}
"""Distributions that are imported by another name."""

_VERSION = re.compile(r"\d+\.\d+(\.\d+)*(\.?(dev|rc|post)\d*)?")


class Module(NamedTuple):
    """A file of the package: its name below it (a package by its folder and `__init__`), what it says, its lines."""

    name: tuple[str, ...]
    tree: ast.Module
    lines: int

    @property
    def room(self) -> str:
        """The folder below the package that it lies in, at whatever depth; "" for a loose one."""
        return self.name[0] if len(self.name) > 1 else ""


def package_folder(folder: Path) -> Path:
    """The package at or in a folder. Raises ValueError where there is none."""
    for found in (folder, folder / PACKAGE):
        if (found / "__init__.py").exists():
            return found
    raise ValueError(f"{folder}: no package here, nor {PACKAGE} in it")


def modules(package: Path) -> list[Module]:
    """Every file of the package, sorted."""
    found = []
    for path in sorted(package.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        found.append(Module(path.relative_to(package).with_suffix("").parts, ast.parse(text), text.count("\n")))
    return found


def _called(node: ast.AST) -> str:
    """The last name of what a call calls; "" for what is no call."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _text(node: ast.AST | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _sets(node: ast.AST, module: Module) -> bool:
    """Whether it is a method call of a format that sets a field."""
    return module.room == "formats" and isinstance(node, ast.Call) and _is_setter(node)


def _is_setter(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in SETTERS


def _set_or_default(node: ast.AST, module: Module) -> bool:
    """Whether it is `if given: set a field`, `else: set another`, and nothing more."""
    return (
        module.room == "formats"
        and isinstance(node, ast.If)
        and all(len(body) == 1 and isinstance(body[0], ast.Expr) for body in (node.body, node.orelse))
        and all(_called(statement.value) in SETTERS for statement in (*node.body, *node.orelse))  # type: ignore[attr-defined]
    )


def _in_versions(node: ast.AST, _: Module) -> bool:
    return isinstance(node, ast.Compare) and bool(_text(node.left)) and "versions" in ast.unparse(node.comparators[0])


def _of_framework(node: ast.AST, _: Module) -> bool:
    return isinstance(node, ast.Compare) and re.search(r"\.framework\b", ast.unparse(node)) is not None


def _job_of_setting(node: ast.AST, module: Module) -> bool:
    """`s.job`, also of an object that holds its `s`."""
    if module.room != "estimator" or not isinstance(node, ast.Attribute) or node.attr != "job":
        return False
    return "s" in (getattr(node.value, "id", ""), getattr(node.value, "attr", ""))


def _dtype_table(node: ast.AST, _: Module) -> bool:
    return isinstance(node, ast.Dict) and not DTYPE_SPELLINGS.isdisjoint(
        (_text(key), _text(value)) for key, value in zip(node.keys, node.values, strict=True)
    )


COUNTED: dict[str, Callable[[ast.AST, Module], bool]] = {
    "older() calls": lambda node, _: _called(node) == "older",
    "version literals": lambda node, _: _VERSION.fullmatch(_text(node)) is not None,
    "'tool' in versions": _in_versions,
    "comparisons of framework": _of_framework,
    "tool names in estimator and models": lambda node, module: (
        module.room in ("estimator", "models") and _text(node) in TOOLS
    ),
    "s.job": _job_of_setting,
    "dtype spelling tables": _dtype_table,
    "calls that set Job fields": _sets,
    "if given: set, else: default": _set_or_default,
    **{
        f"  of {name}": lambda node, module, name=name: (  # type: ignore[misc]
            _sets(node, module) and bool(node.args) and _text(node.args[0]) == name
        )
        for name in FIELDS
    },
}
"""What is counted node by node."""

LOOKED_AT = (ast.Attribute, ast.Call, ast.Compare, ast.Constant, ast.Dict, ast.If)
"""The kinds of nodes that can count."""


def counts(found: list[Module]) -> dict[str, Counter[str]]:
    """How often each thing occurs in each file."""
    occurring: dict[str, Counter[str]] = {what: Counter() for what in COUNTED}
    for module in found:
        for node in ast.walk(module.tree):
            if not isinstance(node, LOOKED_AT):
                continue
            for what, holds in COUNTED.items():
                if holds(node, module):
                    occurring[what]["/".join(module.name)] += 1
    return occurring


def imports(found: list[Module]) -> dict[tuple[str, ...], set[tuple[str, ...]]]:
    """Which modules each imports, those for typing alone among them; not the `__init__` of a package."""
    known = {module.name for module in found}
    return {module.name: {*_imported(module)} & known - {module.name} for module in found}


def _imported(module: Module) -> Iterator[tuple[str, ...]]:
    """The names below the package of what a module imports, and of what it takes from there."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            names = [tuple(alias.name.split(".")) for alias in node.names]
            yield from (name[1:] for name in names if name[0] == PACKAGE and len(name) > 1)
        elif isinstance(node, ast.ImportFrom):
            base = tuple((node.module or "").split(".")) if node.module else ()
            if node.level:
                base = (*module.name[: -node.level], *base)
            elif base[:1] == (PACKAGE,):
                base = base[1:]
            else:
                continue
            yield base
            yield from ((*base, alias.name) for alias in node.names)


def circles(graph: dict[tuple[str, ...], set[tuple[str, ...]]]) -> list[list[tuple[str, ...]]]:
    """The groups of modules of which each reaches each other, largest first."""
    far = {name: _reached(name, graph) for name in graph}
    groups = {frozenset(other for other in far[name] if name in far[other]) for name in graph if name in far[name]}
    return sorted((sorted(group) for group in groups), key=lambda group: (-len(group), group))


def _reached(start: tuple[str, ...], graph: dict[tuple[str, ...], set[tuple[str, ...]]]) -> set[tuple[str, ...]]:
    found: set[tuple[str, ...]] = set()
    waiting = [start]
    while waiting:
        new = graph[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def unused_dependencies(package: Path, found: list[Module]) -> list[str]:
    """Distributions that the project declares for its users and that no module imports."""
    above = next(folder for folder in package.resolve().parents if (folder / "pyproject.toml").exists())
    project = tomllib.loads((above / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project.get("optional-dependencies", {})
    declared = [*project["dependencies"], *(item for name in ("lsp", "hub") for item in extras.get(name, ()))]
    names = {re.split(r"[<>=!~;\[ ]", item)[0].lower() for item in declared}
    used = set()
    for module in found:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Import):
                used |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                used.add(node.module.partition(".")[0])
    return sorted(name for name in names if IMPORTED_AS.get(name, name.replace("-", "_")) not in used)


def report(package: Path, *, files: bool = False) -> Iterator[str]:
    """All counts as lines; `files` lists where the most are."""
    found = modules(package)
    for what, where in counts(found).items():
        yield f"{what:<36} {sum(where.values()):>6} in {len(where)} files"
        if files:
            yield from (f"{'':<36} {count:>6}    {name}" for name, count in where.most_common(5))
    groups = circles(imports(found))
    sizes = ", ".join(str(len(group)) for group in groups)
    yield f"{'import circles, typing counted':<36} {len(groups):>6}    of {sizes}"
    if files:
        yield from (f"{'':<43}    {' '.join('/'.join(name) for name in group[:8])}" for group in groups)
    yield f"{'*_edits modules':<36} {sum(module.name[-1].endswith('_edits') for module in found):>6}"
    wide, count = Counter("/".join(module.name[:-1]) or "(root)" for module in found).most_common(1)[0]
    yield f"{'modules in the widest folder':<36} {count:>6}    {wide}"
    yield f"{'loose modules at the root':<36} {sum(not module.room for module in found):>6}"
    for room in ("formats", "launchers", "estimator"):
        own = [module.lines for module in found if module.room == room]
        yield f"{f'lines of {room}':<36} {sum(own):>6} in {len(own)} files"
    yield f"{'lines of the package':<36} {sum(module.lines for module in found):>6} in {len(found)} files"
    unused = unused_dependencies(package, found)
    yield f"{'declared and not imported':<36} {len(unused):>6}    {', '.join(unused)}".rstrip()


def main() -> int:
    """Count and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="the package, or the folder that holds it")
    parser.add_argument("--files", action="store_true", help="where the most are")
    options = parser.parse_args()
    print("\n".join(line.rstrip() for line in report(package_folder(options.folder), files=options.files)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
