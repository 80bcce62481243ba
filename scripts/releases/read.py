"""Reads keys out of the files of one release with `ast`, whatever its year; nothing is imported.

A layout that a reader does not know gives no keys, or an error: such a release counts as unread (`table.py`).
"""

from __future__ import annotations

import ast
import warnings
from typing import TYPE_CHECKING

from ..upstream.classes import Classes
from ..upstream.source import Source, Upstream

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..upstream.schema import Json


class Files(Source):
    """The texts of a release by path from `root` on, with which the generators of schemas work, too."""

    def __init__(self, name: str, version: str, texts: dict[str, str], root: str = "") -> None:
        self.upstream = Upstream(name, version, root=root)
        self.version = version
        self._trees = {}
        self.own = {path[len(root) :]: text for path, text in texts.items() if path.startswith(root)}

    @property
    def paths(self) -> list[str]:
        """Every path, sorted."""
        return sorted(self.own)

    def text(self, path: str) -> str | None:
        """The text of a file; None where there is none."""
        return self.own.get(path)

    def among(self, *places: str) -> dict[str, list[ast.ClassDef]]:
        """The classes of modules whose paths start so, by name; one name may stand for several."""
        found: dict[str, list[ast.ClassDef]] = {}
        for path in self.paths:
            if path.startswith(places) and path.endswith(".py") and parses(self.need(path)):
                for node in ast.walk(self.tree(path) or ast.Module([], [])):
                    if isinstance(node, ast.ClassDef):
                        found.setdefault(node.name, []).append(node)
        return found

    def named(self, *places: str) -> dict[str, str]:
        """The texts of the modules whose paths start so and that parse."""
        own = {path: text for path, text in self.own.items() if path.startswith(places) and path.endswith(".py")}
        return {path: text for path, text in own.items() if parses(text)}


def options(tree: ast.AST | None) -> Iterator[str]:
    """The long options of `add_argument` calls, without their dashes."""
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            for argument in node.args:
                if isinstance(argument, ast.Constant) and str(argument.value).startswith("--"):
                    yield str(argument.value)[2:]


def fields(cls: ast.ClassDef) -> dict[str, ast.AnnAssign]:
    """The annotated fields of a class that a parser fills (`init=False` and private ones are none)."""
    found = {}
    for node in cls.body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        if node.target.id.startswith("_") or "ClassVar" in ast.unparse(node.annotation):
            continue
        words = {word.arg: word.value for word in node.value.keywords} if isinstance(node.value, ast.Call) else {}
        if "init" not in words or ast.unparse(words["init"]) != "False":
            found[node.target.id] = node
    return found


def all_fields(classes: dict[str, list[ast.ClassDef]], name: str, seen: frozenset[str] = frozenset()) -> set[str]:
    """The fields of the classes of a name and of their bases."""
    found: set[str] = set()
    for cls in classes.get(name, ()) if name not in seen else ():
        found |= set(fields(cls))
        for base in cls.bases:
            # a class that moved is imported as `_Name` where it was
            called = ast.unparse(base).rpartition(".")[2]
            found |= all_fields(classes, called if called in classes else called.lstrip("_"), seen | {name})
    return found


def dotted(part: Json, definitions: Json, prefix: str = "", inside: tuple[str, ...] = ()) -> Iterator[str]:
    """The dotted keys of an object schema, `$ref`s followed; a list's items stand at the place of the list."""
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        if name not in inside:
            yield from dotted(definitions.get(name, {}), definitions, prefix, (*inside, name))
    for branch in part.get("anyOf", ()):
        yield from dotted(branch, definitions, prefix, inside)
    if isinstance(part.get("items"), dict):
        yield from dotted(part["items"], definitions, prefix, inside)
    for key, child in part.get("properties", {}).items():
        place = f"{prefix}.{key}" if prefix else key
        yield place
        yield from dotted(child, definitions, place, inside)


def of_schema(made: Json) -> set[str]:
    """The dotted keys of a whole schema, without those that it has as removed."""
    kept = {key: part for key, part in made["properties"].items() if "x-removed" not in part}
    return set(dotted({"properties": kept}, made.get("$defs", {})))


def nested(texts: dict[str, str], *roots: str) -> set[str]:
    """The dotted keys of classes and of those that their fields name."""
    classes = Classes(texts)
    found: set[str] = set()
    for root in roots:
        found |= set(dotted(classes.object(root), classes.definitions))
    return found


def strings(node: ast.AST | None) -> Iterable[str]:
    """The strings below a node."""
    return [str(item.value) for item in ast.walk(node) if isinstance(item, ast.Constant)] if node is not None else []


def parses(text: str) -> bool:
    """Whether a module is Python that this interpreter reads."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except SyntaxError:
        return False
    return True
