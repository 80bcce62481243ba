"""What the options of a script decide: the arguments of the Trainer, PEFT and bitsandbytes that their values reach.

`script_sinks.json` says where. A value is followed through names that are assigned in the same module and through plain
arithmetic and conditions; what only running the script would tell is UNKNOWN.
"""

from __future__ import annotations

import ast
import operator
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from .script_options import SINKS, UNSAID, constant, dotted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from .script_options import Script

UNKNOWN: Any = UNSAID
"""A value that only running the script tells."""

MADE: Any = object()
"""An object that the script makes: true, and equal to nothing."""

MAX_STEPS = 12
"""Names and operators on the way from a call back to options."""

_ARGUMENTS = re.compile(SINKS["arguments"])
_ASIDE = re.compile(SINKS["aside"], re.IGNORECASE)
_CALLS = [(re.compile(rf"(?:.*\.)?(?:{row['call']})"), row) for row in SINKS["calls"]]
_ATTRIBUTES = [(re.compile(rf"(?:.*\.)?(?:{row['name']})"), row["says"]) for row in SINKS["attributes"]]
_CASTS: dict[str, Callable[[Any], Any]] = {"int": int, "float": float, "bool": bool, "str": str, "max": max, "min": min}
_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
}  # fmt: skip
_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Lt: operator.lt,
    ast.LtE: operator.le, ast.Is: operator.eq, ast.IsNot: operator.ne, ast.In: lambda item, items: item in items,
    ast.NotIn: lambda item, items: item not in items,
}  # fmt: skip


class Fed(NamedTuple):
    """An argument of the Trainer and what the script gives it.

    value   what it is; UNKNOWN where only running the script tells
    option  the option whose value it is as it stands; None where it is computed or written there
    line    where it is given, in the script's module
    text    the expression, in one line
    """

    argument: str
    value: Any
    option: str | None
    line: int
    text: str


class _Place(NamedTuple):
    """A call or an assignment, and the conditions under which it is reached, each with what it must be."""

    node: ast.Call | ast.Assign
    target: str
    conditions: tuple[tuple[ast.expr, bool], ...]


def feeds(script: Script, values: Mapping[str, Any]) -> dict[str, Fed]:
    """By argument of the Trainer what the script gives it, with these values of its options.

    An argument that two places give different values is UNKNOWN.
    """
    reader = _Reader(script, values)
    found: dict[str, list[Fed]] = {}
    for fed in reader.all():
        found.setdefault(fed.argument, []).append(fed)
    return {argument: _one(given) for argument, given in found.items()}


def trains(script: Script) -> bool:
    """Whether the script makes a Trainer and has it train."""
    calls = [node.func for node in ast.walk(script.tree) if isinstance(node, ast.Call)]
    made = any(dotted(function).endswith("Trainer") for function in calls)
    trained = [function.value for function in calls if isinstance(function, ast.Attribute) and function.attr == "train"]
    return made and any("trainer" in ast.unparse(who).lower() for who in trained)


def _one(given: list[Fed]) -> Fed:
    """What holds of an argument that several places give: a switch that one turns on is on."""
    first = given[0]
    values = [fed.value for fed in given]
    if all(value is True or value is False for value in values):
        return next((fed for fed in given if fed.value), first)
    if all(type(value) is type(first.value) and value == first.value for value in values):
        return first
    return first._replace(value=UNKNOWN, option=None)


class _Reader:
    """Evaluates the expressions of a module with the values that options have."""

    def __init__(self, script: Script, values: Mapping[str, Any]) -> None:
        self.script, self.values = script, values
        self.assigned: dict[str, list[tuple[ast.expr, tuple[tuple[ast.expr, bool], ...]]]] = {}
        self.variables: dict[str, Any] = {}
        self.modules: set[str] = set()
        self.bare: set[str] = set()
        self.places = list(self._walk(script.tree.body, ()))
        for node in ast.walk(script.tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self.modules.update((item.asname or item.name).partition(".")[0] for item in node.names)
            elif isinstance(node, ast.FunctionDef) and any("option" in ast.dump(item) for item in node.decorator_list):
                self.bare.update(item.arg for item in (*node.args.args, *node.args.kwonlyargs))

    def all(self) -> Iterator[Fed]:
        """Everything that a call or an assignment gives the Trainer."""
        for place in self.places:
            reached = self._holds(place.conditions)
            if isinstance(place.node, ast.Call):
                if not self._aside(place):
                    yield from self._call(place, place.node, reached)
                continue
            for pattern, argument in _ATTRIBUTES:
                if pattern.fullmatch(place.target) and reached is not False and not _ASIDE.search(place.target):
                    yield self._fed(argument, place.node.value, place.node)

    def _call(self, place: _Place, call: ast.Call, reached: Any) -> Iterator[Fed]:
        name = dotted(call.func)
        given = {str(number): value for number, value in enumerate(call.args)}
        given |= {word.arg: word.value for word in call.keywords if word.arg is not None}
        if _ARGUMENTS.fullmatch(name.rpartition(".")[2]) and reached is not False:
            for argument, value in given.items():
                if not argument.isdigit():
                    yield self._fed(argument, value, call)
        for pattern, row in _CALLS:
            if not pattern.fullmatch(name):
                continue
            if "called" in row:
                option = self._switch(place.conditions)
                yield Fed(row["called"], reached, option, call.lineno, _text(call))
            for argument, said in row.get("says", {}).items() if reached is not False else ():
                if argument in given:
                    yield self._fed(said, given[argument], call)
            for argument, said in row.get("given", {}).items() if reached is not False else ():
                made = self.value(given[argument]) if argument in given else UNKNOWN
                if made is None or made is MADE:
                    yield Fed(said, made is MADE, None, call.lineno, _text(given[argument]))

    def _fed(self, argument: str, node: ast.expr, at: ast.AST) -> Fed:
        value = self.value(node)
        value = UNKNOWN if value is MADE else value
        return Fed(argument, value, self._option(node), getattr(node, "lineno", getattr(at, "lineno", 1)), _text(node))

    def _switch(self, conditions: tuple[tuple[ast.expr, bool], ...]) -> str | None:
        """The option that alone switches a call on."""
        return self._option(conditions[0][0]) if len(conditions) == 1 and conditions[0][1] else None

    def _aside(self, place: _Place) -> bool:
        """Whether a call makes something for another model, or for the evaluation."""
        call = place.node
        first = dotted(call.args[0]) if isinstance(call, ast.Call) and call.args else ""
        return any(_ASIDE.search(name.replace(".", "_")) for name in (place.target, first) if name)

    def _option(self, node: ast.expr, steps: int = MAX_STEPS) -> str | None:
        """The option whose value an expression is, as it stands."""
        if not steps:
            return None
        name = self._named(node)
        if name is not None:
            return name
        if isinstance(node, ast.Call) and dotted(node.func) in ("int", "float", "bool", "str") and len(node.args) == 1:
            return self._option(node.args[0], steps - 1)
        if isinstance(node, ast.Name) and len(self.assigned.get(node.id, ())) == 1:
            return self._option(self.assigned[node.id][0][0], steps - 1)
        return None

    def _named(self, node: ast.expr) -> str | None:
        """The option that a name stands for: `args.bs`, `args["bs"]`, a parameter of a command of click."""
        name: Any = None
        if isinstance(node, ast.Attribute) and isinstance(node.value, (ast.Name, ast.Attribute)):
            base = dotted(node.value)
            name = node.attr if base not in self.modules and base != "self" else None
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            name = constant(node.slice)
        elif isinstance(node, ast.Name) and node.id in self.bare:
            name = node.id
        return name if isinstance(name, str) and name in self.script.options else None

    def value(self, node: ast.expr, steps: int = MAX_STEPS) -> Any:
        """What an expression is with these options."""
        if not steps:
            return UNKNOWN
        said = constant(node)
        if said is not UNSAID:
            return said
        name = self._named(node)
        if name is not None:
            return self.values.get(name, UNKNOWN)
        try:
            return self._compound(node, steps - 1)
        except (TypeError, ValueError, ZeroDivisionError, OverflowError):
            return UNKNOWN

    def _compound(self, node: ast.expr, steps: int) -> Any:
        if isinstance(node, ast.Name):
            return "__main__" if node.id == "__name__" else self._variable(node.id, steps)
        if isinstance(node, ast.BoolOp):
            return _either([self.value(item, steps) for item in node.values], isinstance(node.op, ast.Or))
        if isinstance(node, ast.IfExp):
            test = self.value(node.test, steps)
            return UNKNOWN if test is UNKNOWN else self.value(node.body if test else node.orelse, steps)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            test = self.value(node.operand, steps)
            return UNKNOWN if test is UNKNOWN else not test
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            return _applied(_BINARY[type(node.op)], self.value(node.left, steps), self.value(node.right, steps))
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            found = self.value(node.left, steps), self.value(node.comparators[0], steps)
            return _applied(_COMPARE[type(node.ops[0])], *found)
        return self._called(node, steps) if isinstance(node, ast.Call) else UNKNOWN

    def _called(self, node: ast.Call, steps: int) -> Any:
        name, given = dotted(node.func), [self.value(item, steps) for item in node.args]
        if name in _CASTS and given and UNKNOWN not in given and MADE not in given:
            return _CASTS[name](*given)
        if name == "getattr" and len(given) > 1 and dotted(node.args[0]) == "torch":
            return given[1]
        return MADE if name.rpartition(".")[2][:1].isupper() else UNKNOWN

    def _variable(self, name: str, steps: int) -> Any:
        """The last assignment that is reached; UNKNOWN where that is not sure."""
        if name in self.variables:
            return self.variables[name]
        self.variables[name] = value = UNKNOWN  # while it is worked out, for one that builds on itself
        for node, conditions in self.assigned.get(name, ()):
            reached = self._holds(conditions, steps)
            if reached is not False:
                value = self.value(node, steps) if reached is True else UNKNOWN
        self.variables[name] = value
        return value

    def _holds(self, conditions: tuple[tuple[ast.expr, bool], ...], steps: int = MAX_STEPS) -> Any:
        """Whether a place is reached: True, False or UNKNOWN."""
        met = []
        for test, wanted in conditions:
            value = self.value(test, steps)
            met.append(UNKNOWN if value is UNKNOWN else bool(value) is wanted)
        return False if False in met else UNKNOWN if UNKNOWN in met else True

    def _walk(self, body: list[ast.stmt], conditions: tuple[tuple[ast.expr, bool], ...]) -> Iterator[_Place]:
        for node in body:
            target = ""
            if isinstance(node, (ast.Assign, ast.AnnAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                target = dotted(targets[0])
                if node.value is not None and isinstance(targets[0], ast.Name):
                    self.assigned.setdefault(target, []).append((node.value, conditions))
                if isinstance(node, ast.Assign) and isinstance(targets[0], ast.Attribute):
                    yield _Place(node, target, conditions)
            if isinstance(node, ast.If):
                yield from self._walk(node.body, (*conditions, (node.test, True)))
                yield from self._walk(node.orelse, (*conditions, (node.test, False)))
                continue
            inner = [getattr(node, name, []) for name in ("body", "orelse", "finalbody")]
            for part in inner:
                yield from self._walk(part, conditions)
            for handler in getattr(node, "handlers", []):
                yield from self._walk(handler.body, (*conditions, (ast.Name("_", ast.Load()), True)))
            if not any(inner):
                for call in ast.walk(node):
                    if isinstance(call, ast.Call):
                        yield _Place(call, target, conditions)


def _either(values: list[Any], wanted: bool) -> Any:
    """`or` (`wanted`) and `and` of Python, over values of which some are unknown."""
    for number, value in enumerate(values):
        if value is UNKNOWN:
            return wanted if any(other is wanted for other in values[number:]) else UNKNOWN
        if bool(value) is wanted:
            return value
    return values[-1]


def _applied(function: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    if UNKNOWN in (left, right):
        return UNKNOWN
    if MADE in (left, right) and function not in (operator.eq, operator.ne):
        return UNKNOWN
    return function(left, right)


def _text(node: ast.AST) -> str:
    """An expression as one short line."""
    return " ".join(ast.unparse(node).split())[:80].replace("}", ")").replace("{", "(")
