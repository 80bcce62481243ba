"""The options that a Python script declares for its command line: read from its text, which is never run.

argparse (`add_argument`), dataclasses that `HfArgumentParser` or tyro is given, and click. A script that only calls
another module of the repository has that module's options.
"""

from __future__ import annotations

import ast
import os
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ..source.referenced import up_to
from ..source.tables import read_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_SIZE = 512 << 10
"""Bytes of a script; longer ones are written by programs."""

MAX_DEPTH = 3
"""Modules on the way from the script to the one that declares its options."""

MAX_MODULES = 24
"""Modules of the repository that are looked at for one script."""

SINKS: dict[str, Any] = read_table(__file__, "script_sinks.json")

UNSAID: Any = object()
"""Stands for a default that is not said, or only by what runs."""

_DATACLASSES = re.compile(SINKS["dataclasses"])
_ARGUMENTS = re.compile(SINKS["arguments"])


class Option(NamedTuple):
    """An option of a command line.

    name       under which the script has its value, with underscores
    spellings  how it is written, without leading dashes and with underscores
    default    what it is where nobody gives it; UNSAID where only running the script tells
    switch     the value that the bare option gives; None where it takes one
    path, line where it is declared
    """

    name: str
    spellings: tuple[str, ...]
    default: Any
    switch: bool | None
    path: str
    line: int


class Script(NamedTuple):
    """What a script says of its command line.

    path      of the module that declares the options
    tree      its syntax tree
    options   by name
    inherits  whether it has the Trainer's own arguments, too (a dataclass of Transformers or TRL among its own)
    refuses   whether it stops at an option that is not declared: all are read, and its parser checks
    prefixes  whether the beginning of exactly one option stands for it, as argparse has it unless `allow_abbrev` is
              off; click never takes one (parser.py `_match_long_opt`, 2.0 to 8.5)
    """

    path: str
    tree: ast.Module
    options: Mapping[str, Option]
    inherits: bool
    refuses: bool
    prefixes: bool

    def named(self, written: str) -> Option | None:
        """The option that is written so, in full."""
        plain = written.replace("-", "_")
        return next((option for option in self.options.values() if plain in option.spellings), None)


def script_options(path: str, root: str) -> Script | None:
    """The options of the script at `path`; None where it declares none that can be read."""
    return _of(path, root, MAX_DEPTH)


def _of(path: str, root: str, depth: int) -> Script | None:
    tree = syntax(path)
    if tree is None:
        return None
    found = _Declared(path, root, tree).script()
    if found is not None or not depth:
        return found
    for module in list(_imported(tree, path, root))[:MAX_MODULES]:
        below = _of(module, root, depth - 1)
        if below is not None:
            return below
    return None


def syntax(path: str) -> ast.Module | None:
    """The syntax tree of a file; None where it cannot be read."""
    try:
        return _syntax(path, os.stat(path).st_mtime_ns)
    except OSError:
        return None


@lru_cache(maxsize=256)
def _syntax(path: str, _changed: int) -> ast.Module | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(MAX_SIZE + 1)
        return ast.parse(text) if len(text) <= MAX_SIZE else None
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def source_of(name: str, module: bool, beside: str, root: str) -> str | None:
    """The file of a script or module that a command starts, in the folder of the command or in one above it."""
    tails = [name]
    if module:
        inside = name.replace(".", "/")
        tails = [f"{inside}.py", f"{inside}/__main__.py"]
    folders = up_to(os.path.dirname(os.path.abspath(beside)), root or os.path.dirname(os.path.abspath(beside)))
    inside = os.path.join(os.path.realpath(folders[-1]), "")
    for folder in (*folders, *(os.path.join(folder, "src") for folder in folders)):
        for tail in tails:
            found = os.path.join(folder, tail)
            if os.path.isfile(found) and os.path.realpath(found).startswith(inside):
                return os.path.normpath(found)
    return None


class _Declared:
    """The declarations of one module."""

    def __init__(self, path: str, root: str, tree: ast.Module) -> None:
        self.path, self.root, self.tree = path, root, tree
        self.options: dict[str, Option] = {}
        self.inherits = self.whole = False
        nodes = list(ast.walk(tree))
        self.calls = [node for node in nodes if isinstance(node, ast.Call)]
        self.functions = {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}

    def script(self) -> Script | None:
        """The module as a script; None where it declares nothing."""
        for call in self.calls:
            if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
                self._argument(call)
        clicked = self._clicked()
        self.whole = not any(self._adds_more(call) for call in self.calls)
        for call in self.calls:
            called = dotted(call.func)
            if _DATACLASSES.fullmatch(called) or _DATACLASSES.fullmatch(called.rpartition(".")[2]):
                for argument in _classes(call):
                    self._dataclass(argument, self.path, self.tree, set())
        if not self.options:
            return None
        refuses = self.whole and (clicked or self._checks())
        prefixes = not clicked and not any(self._in_full(call) for call in self.calls)
        return Script(self.path, self.tree, self.options, self.inherits, refuses, prefixes)

    @staticmethod
    def _in_full(call: ast.Call) -> bool:
        return any(word.arg == "allow_abbrev" and constant(word.value) is False for word in call.keywords)

    def _argument(self, call: ast.Call) -> None:
        written = [text for value in call.args if isinstance(text := constant(value), str)]
        long = [name for name in written if name.startswith("-")]
        if not long:
            return
        first = max(long, key=lambda name: name.startswith("--"))
        keywords = {word.arg: word.value for word in call.keywords}
        action = keywords.get("action")
        switch = {"store_true": True, "store_false": False}.get(str(constant(action)))
        negated = action is not None and dotted(action).endswith("BooleanOptionalAction")
        default = constant(keywords["default"]) if "default" in keywords else None if switch is None else not switch
        name = constant(keywords.get("dest"))
        name = name if isinstance(name, str) else first.lstrip("-").replace("-", "_")
        self._add(name, long, default, True if negated else switch, call.lineno, self.path)

    def _add(self, name: str, written: list[str], default: Any, switch: bool | None, line: int, path: str) -> None:
        spellings = tuple(word.lstrip("-").replace("-", "_") for word in written)
        self.options[name] = Option(name, spellings, default, switch, path, line)

    def _clicked(self) -> bool:
        """Options of click's decorators; whether its parser checks them."""
        found = False
        for node in self.functions.values():
            for call in node.decorator_list:
                if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
                    continue
                if call.func.attr == "option" and "click" in dotted(call.func):
                    self._click_option(call)
                if call.func.attr == "command":
                    found = "ignore_unknown_options" not in ast.dump(call)
        return found and bool(self.options)

    def _click_option(self, call: ast.Call) -> None:
        written = [text for value in call.args if isinstance(text := constant(value), str)]
        written = [part for text in written for part in text.split("/")]
        long = [text for text in written if text.startswith("-")]
        plain = [text for text in written if not text.startswith("-")]
        if not long:
            return
        keywords = {word.arg: word.value for word in call.keywords}
        flag = constant(keywords.get("is_flag")) is True or any("/" in str(constant(value)) for value in call.args)
        default = constant(keywords["default"]) if "default" in keywords else (False if flag else None)
        first = max(long, key=lambda text: text.startswith("--"))
        name = plain[0] if plain else first.lstrip("-").replace("-", "_")
        self._add(name, long, default, True if flag else None, call.lineno, self.path)

    def _dataclass(self, name: str, path: str, tree: ast.Module, seen: set[tuple[str, str]]) -> None:
        """The fields of a dataclass and of those that it builds on."""
        short = name.rpartition(".")[2]
        where = None if _is_foreign(name, tree) else _class(short, path, tree, self.root)
        if where is None or (where[1], where[0].name) in seen:  # `class TrainingArguments(TrainingArguments)`
            known = _ARGUMENTS.fullmatch(short) or short in ("ModelConfig", "ScriptArguments")
            self.inherits, self.whole = self.inherits or bool(known), self.whole and bool(known)
            return
        found, path, tree = where
        seen.add((path, found.name))
        for base in found.bases:
            self._dataclass(dotted(base), path, tree, seen)
        for node in found.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                name, flag = node.target.id, re.search(r"\bbool\b", ast.unparse(node.annotation))
                self._add(name, [name], _field(node.value), True if flag else None, node.lineno, path)

    def _adds_more(self, call: ast.Call) -> bool:
        """Whether a parser gets options that are not read here: from other parsers, or from a function elsewhere."""
        if any(word.arg == "parents" for word in call.keywords):
            return True
        given = [value.id for value in call.args if isinstance(value, ast.Name)]
        return any("parser" in name.lower() for name in given) and dotted(call.func) not in self.functions

    def _checks(self) -> bool:
        checks = SINKS["checks"]
        found = False
        for call in self.calls:
            name = dotted(call.func)
            name = name if name in checks else name.rpartition(".")[2]
            if name in ("parse_known_args", "parse_known_intermixed_args"):
                return False
            if name in checks:
                keyword = checks[name]
                if keyword and any(word.arg == keyword and constant(word.value) is not False for word in call.keywords):
                    return False
                found = True
        return found


def constant(node: ast.expr | None) -> Any:
    """The value of a literal, a negative number and `torch.float16` among them; UNSAID of all else."""
    if node is None:
        return UNSAID
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch":
        return node.attr
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return UNSAID


def dotted(node: ast.expr) -> str:
    """A name with dots: `args.lr`, `model.base.enable`; what is called or subscripted on the way is left out."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}".lstrip(".")
    return ""


def _classes(call: ast.Call) -> list[str]:
    """The dataclasses that a parser is given, by name."""
    first = call.args[0] if call.args else next((word.value for word in call.keywords), None)
    items = first.elts if isinstance(first, (ast.Tuple, ast.List)) else [first] if first is not None else []
    return [name for item in items if (name := dotted(item))]


def _is_foreign(name: str, tree: ast.Module) -> bool:
    """Whether a class is named through a module of a package: `transformers.TrainingArguments`."""
    head = name.partition(".")[0]
    modules = (item.asname or item.name for node in tree.body if isinstance(node, ast.Import) for item in node.names)
    return "." in name and head in modules


def _field(value: ast.expr | None) -> Any:
    """The default of a dataclass's field."""
    if not isinstance(value, ast.Call) or not dotted(value.func).endswith("field"):
        return constant(value)
    return next((constant(word.value) for word in value.keywords if word.arg == "default"), UNSAID)


def _class(
    name: str, path: str, tree: ast.Module, root: str, depth: int = MAX_DEPTH
) -> tuple[ast.ClassDef, str, ast.Module] | None:
    """A class of a module, or of one of the repository that it imports the class from."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node, path, tree
    for below in ast.walk(tree) if depth else ():
        if isinstance(below, ast.ImportFrom) and any(item.name in (name, "*") for item in below.names):
            module = _file(below.module or "", below.level, path, root)
            other = syntax(module) if module is not None and module != path else None
            found = _class(name, module, other, root, depth - 1) if module is not None and other is not None else None
            if found is not None:
                return found
    return None


def _imported(tree: ast.Module, path: str, root: str) -> Iterator[str]:
    """The files of the modules of the repository that a module imports names of, or itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names = [(node.module or "", node.level)]
            names += [(f"{node.module or ''}.{item.name}".strip("."), node.level) for item in node.names]
        elif isinstance(node, ast.Import):
            names = [(item.name, 0) for item in node.names]
        else:
            continue
        for name, level in names:
            found = _file(name, level, path, root)
            if found is not None and found != path:
                yield found


def _file(module: str, level: int, path: str, root: str) -> str | None:
    """The file of a module, seen from a file that imports it: beside it, or from a folder above up to the root."""
    folder = os.path.dirname(path)
    if level:
        folders = [os.path.normpath(os.path.join(folder, *[os.pardir] * (level - 1)))]
    else:
        folders = [part for above in up_to(folder, root) for part in (above, os.path.join(above, "src"))]
    tail = module.replace(".", os.sep)
    for start in folders:
        for found in (os.path.join(start, f"{tail}.py"), os.path.join(start, tail, "__init__.py")):
            if tail and os.path.isfile(found):
                return os.path.normpath(found)
    return None
