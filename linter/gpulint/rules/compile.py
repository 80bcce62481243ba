"""A rule file's tree to a Rule: shape, expressions, fact names, units, templates, all checked here.

Imported for user rule files and by the build of `rules/index.json`, never for the bundled rules of a run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..source.places import places_of
from ..source.schema import did_you_mean, first_fault, load_schema
from ..source.within import offsets
from .facts.job_types import accepts, job_types, type_text
from .facts.vocabulary import (
    PROBLEM_KINDS,
    format_names,
    is_known,
    is_place,
    job_paths,
    nearest,
    unit_of_fact,
)
from .message import TemplateError, parts_of
from .quantity import UnitError, unit_of
from .rule import Advice, Case, Place, Rule, RuleError
from .syntax import ExpressionError, flattened, parse, walk

if TYPE_CHECKING:
    from ..source.document import Document
    from ..source.node import Entry, Node
    from .expression import Tree
    from .message import Template

MAX_FACTOR = 1024


def compile_rule(document: Document) -> Rule:
    """The Rule of one rule file; raises RuleError with the line of the first thing that is wrong."""
    return _Compiler(document).rule(document.root)


def compile_recipes(document: Document) -> dict[str, Advice]:
    """The recipes of `rules/recipes.yaml`: a mapping of name to advice."""
    compiler = _Compiler(document)
    schema = load_schema("rule")["properties"]["suggest"]["items"]["anyOf"][1]
    recipes: dict[str, Advice] = {}
    for entry in document.root.entries():
        compiler.held(entry.value, schema, str(entry.key.value))
        recipes[str(entry.key.value)] = compiler.advice(entry.value)
    return recipes


class _Compiler:
    def __init__(self, document: Document) -> None:
        self.path = document.path
        self.text = document.text

    def rule(self, root: Node) -> Rule:
        self.held(root, load_schema("rule"), "a rule")
        get = root.get
        applies = get("applies")
        each = get("each")
        if each is not None and each.value.partition(".")[2] not in PROBLEM_KINDS:
            raise self.error(each, f"{each.value} is not a kind of problem; known kinds: {', '.join(PROBLEM_KINDS)}")
        if not get("cases") and not (get("at") and get("message")):
            raise self.error(root, "a rule needs `at` and `message`, or `cases` that have them")
        return Rule(
            id=_value(get("id")),
            name=_value(get("name")),
            since=_value(get("since")),
            status=_value(get("status")),
            severity=_value(get("severity")),
            confidence=_value(get("confidence")),
            kinds=_strings(applies.get("kind") if applies else None),
            formats=self.formats(applies.get("formats") if applies else None),
            each=_value(each).partition(".")[2] if each else "",
            group=_value(get("group")) or "",
            priority=_value(get("priority")) or 0,
            when=self.condition(get("when")),
            at=tuple(self.place(item) for item in _items(get("at"))),
            message=self.template(get("message")),
            notes=tuple(self.template(item) for item in _items(get("notes"))),
            suggest=tuple(self.advice(item) for item in _items(get("suggest"))),
            file=self.path,
            cases=tuple(self.case(item) for item in _items(get("cases"))),
        )

    def case(self, node: Node) -> Case:
        get = node.get
        return Case(
            when=self.condition(get("when")),
            at=tuple(self.place(item) for item in _items(get("at"))),
            message=self.template(get("message")),
            formats=self.formats(get("formats")),
            suggest=tuple(self.advice(item) for item in _items(get("suggest"))),
            since=_value(get("since")) or "",
            until=_value(get("until")) or "",
        )

    def formats(self, node: Node | None) -> tuple[str, ...]:
        for name in _items(node):
            if name.value not in format_names():
                raise self.error(name, f"no format is called {name.value}{did_you_mean(name.value, format_names())}")
        return _strings(node)

    def held(self, node: Node, schema: dict[str, Any], whole: str) -> None:
        """Refuse what the schema does not allow."""
        fault = first_fault(node, schema, whole)
        if fault is not None:
            raise self.error(fault.node, fault.reason)

    def condition(self, node: Node | None) -> Tree:
        if node is None or isinstance(node.value, bool):
            return ["const", True if node is None else node.value]
        if node.is_sequence:
            return ["and", *(self.expression(item) for item in node.items())]
        return self.expression(node)

    def expression(self, node: Node, local: bool = False) -> Tree:
        """The condition that a scalar holds; `local` allows the fact `factor`."""
        tree = self.parse(node, 0, node.value, local=local)
        self.unit(node, 0, tree)
        return tree

    def parse(self, node: Node, start: int, text: str, *, local: bool = False) -> Tree:
        """The tree of an expression that stands at `start` in the value of a scalar."""
        try:
            tree = parse(text)
        except ExpressionError as error:
            raise self.error_in(node, start, error.column, error.reason) from None
        for part in walk(tree):
            reason = _fault(part, local=local)
            if reason:
                raise self.error_in(node, start, part.column, reason)
        return tree

    def unit(self, node: Node, start: int, tree: Tree) -> str:
        """The unit of an expression's result."""
        try:
            return unit_of(tree, unit_of_fact)
        except UnitError as error:
            raise self.error_in(node, start, getattr(error.tree, "column", 0), str(error)) from None

    def template(self, node: Node | None, *, local: bool = False) -> Template:
        if node is None:
            return []
        try:
            return parts_of(
                node.value,
                lambda start, text: self.parse(node, start, text, local=local),
                lambda start, tree: self.unit(node, start, tree),
            )
        except TemplateError as error:
            raise self.error_at(node, error.place, error.reason) from None

    def place(self, node: Node) -> Place:
        if node.is_scalar:
            return Place(self.known_place(node, node.value), [])
        entry = node.entries()[0]
        return Place(self.known_place(entry.key, entry.key.value), self.template(entry.value))

    def known_place(self, node: Node, path: str) -> str:
        if path == "item" or is_place(path):
            return path
        hint = nearest(path)
        raise self.error(
            node,
            f"{path} is not a location: use a Job field, config.<key>, deepspeed.<key>, launch.<name> or item"
            + (f"; did you mean {hint}?" if hint in job_paths() else ""),
        )

    def advice(self, node: Node) -> Advice:
        if node.is_scalar:
            return Advice(recipe=node.value)
        get = node.get
        needs, factors, rank, text = get("needs"), get("factors"), get("rank"), get("text")
        changes = self.mapping(get("set"))
        for entry in get("set").entries() if changes else ():  # type: ignore[union-attr]
            self.check_change(entry)
        for factor in factors.items() if factors else ():
            if not 2 <= factor.value <= MAX_FACTOR:
                raise self.error(factor, f"a factor must be a number from 2 to {MAX_FACTOR}")
        return Advice(
            set=changes,
            config=self.mapping(get("config")),
            rename=get("rename").plain() if get("rename") else None,  # type: ignore[union-attr]
            needs=self.expression(needs, local=True) if needs else None,
            factors=tuple(factors.plain()) if factors else (),
            fix=_value(get("fix")) or "unsafe",
            rank=rank.value if rank else 0,
            family=_value(get("family")) or "",
            excludes=_strings(get("excludes")),
            text=self.template(text) if text else None,
            kind=_value(get("kind")) or "",
            between=bool(_value(get("between"))),
            room=bool(_value(get("room"))),
            cost=_value(get("cost")) or "",
            otherwise=_value(get("otherwise")) or "",
        )

    def check_change(self, entry: Entry) -> None:
        """Refuse what no Job field takes."""
        path, value = str(entry.key.value), entry.value
        kind = job_types().get(path)
        if kind is None:
            hint = nearest(path)
            near = f"; did you mean {hint}?" if hint in job_paths() else ""
            raise self.error(entry.key, f"set needs a Job field, and {path} is not one{near}")
        computed = isinstance(value.value, str) and value.value.startswith("= ")
        if not computed and not accepts(kind, value.plain()):
            raise self.error(value, f"{path} must be {type_text(kind).replace('`', '')}")

    def mapping(self, node: Node | None) -> dict[str, Any] | None:
        """Plain values; text that begins with `= ` becomes `{"=": tree}`."""
        if node is None:
            return None
        values: dict[str, Any] = {}
        for entry in node.entries():
            value = entry.value.plain()
            if isinstance(value, str) and value.startswith("= "):
                value = {"=": self.parse(entry.value, 2, value[2:], local=True)}
            values[entry.key.value] = value
        return values

    def error(self, node: Node | None, reason: str) -> RuleError:
        return RuleError(self.path, reason, *((node.span.line, node.span.column) if node else ()))

    def error_in(self, node: Node, start: int, column: int, reason: str) -> RuleError:
        """An error at a column of an expression, which begins at `start` in the value of a scalar."""
        value = str(node.value)
        ahead = sum(not char.isspace() for char in flattened(value[start:])[:column])
        for place in range(start, len(value)):
            if not value[place].isspace():
                if not ahead:
                    return self.error_at(node, place, reason)
                ahead -= 1
        return self.error_at(node, max(start, len(value) - 1), reason)

    def error_at(self, node: Node, place: int, reason: str) -> RuleError:
        """An error at a character of a scalar's value."""
        at = offsets(self.text, node)
        if place >= len(at):
            return self.error(node, reason)
        return RuleError(self.path, reason, *places_of(self.text).at(at[place]))


def _fault(part: Tree, *, local: bool) -> str:
    """What is wrong with the names of one part of an expression, "" for nothing."""
    if part[0] == "peak_if":
        unknown = next((path for path in part[1::2] if path not in job_types()), None)
        if unknown is not None:
            return f"peak_if needs Job fields, and {unknown} is not one"
        wrong = next((i for i in range(1, len(part), 2) if not accepts(job_types()[part[i]], part[i + 1])), None)
        return "" if wrong is None else f"{part[wrong]} must be {type_text(job_types()[part[wrong]]).replace('`', '')}"
    if part[0] not in ("fact", "has"):
        return ""
    name = part[1]
    if is_known(name) or (name == "factor" and local):
        return ""
    if name == "factor":
        return "factor can be used only in `set` and `needs` of a suggestion with `factors`"
    hint = nearest(name)
    return f"unknown fact {name}" + (f"; did you mean {hint}?" if hint else "")


def _value(node: Node | None) -> Any:
    return node.value if node else None


def _items(node: Node | None) -> list[Node]:
    return node.items() if node else []


def _strings(node: Node | None) -> tuple[str, ...]:
    if node is None:
        return ()
    return tuple(node.plain()) if node.is_sequence else (node.value,)
