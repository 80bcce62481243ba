"""A rule file's tree to a Rule: shape, expressions, fact names, units, templates, all checked here.

Imported for user rule files and by the build of `rules/index.json`, never for the bundled rules of a run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .expression import facts_of
from .message import parts_of
from .quantity import UnitError, unit_of
from .rule import Advice, Place, Rule, RuleError
from .shape import check_shape, rule_schema
from .syntax import ExpressionError, parse
from .vocabulary import is_known, job_paths, nearest, unit_of_fact

if TYPE_CHECKING:
    from ..source.document import Document
    from ..source.node import Node
    from .expression import Tree
    from .message import Template

_LOCAL_FACTS = {"factor"}


def compile_rule(document: Document) -> Rule:
    """The Rule of one rule file; raises RuleError with the line of the first thing that is wrong."""
    return _Compiler(document.path).rule(document.root)


def compile_recipes(document: Document) -> dict[str, Advice]:
    """The recipes of `rules/recipes.yaml`: a mapping of name to advice."""
    compiler = _Compiler(document.path)
    schema = rule_schema()["properties"]["suggest"]["items"]["anyOf"][1]
    recipes: dict[str, Advice] = {}
    for entry in document.root.entries():
        check_shape(entry.value, schema, document.path, str(entry.key.value))
        recipes[str(entry.key.value)] = compiler.advice(entry.value)
    return recipes


class _Compiler:
    def __init__(self, path: str) -> None:
        self.path = path

    def rule(self, root: Node) -> Rule:
        check_shape(root, rule_schema(), self.path)
        get = root.get
        applies = get("applies")
        each = get("each")
        return Rule(
            id=_value(get("id")),
            name=_value(get("name")),
            since=_value(get("since")),
            status=_value(get("status")),
            severity=_value(get("severity")),
            confidence=_value(get("confidence")),
            kinds=_strings(applies.get("kind") if applies else None),
            formats=_strings(applies.get("formats") if applies else None),
            each=_value(each).partition(".")[2] if each else "",
            group=_value(get("group")) or "",
            priority=_value(get("priority")) or 0,
            when=self.condition(get("when")),
            at=tuple(self.place(item) for item in _items(get("at"))),
            message=self.template(get("message")),
            notes=tuple(self.template(item) for item in _items(get("notes"))),
            suggest=tuple(self.advice(item) for item in _items(get("suggest"))),
            file=self.path,
        )

    def condition(self, node: Node | None) -> Tree:
        if node is None or isinstance(node.value, bool):
            return ["const", True if node is None else node.value]
        if node.is_sequence:
            return ["and", *(self.expression(item) for item in node.items())]
        return self.expression(node)

    def expression(self, node: Node) -> Tree:
        tree = self.parse(node, node.value)
        try:
            unit_of(tree, unit_of_fact)
        except UnitError as error:
            raise self.error(node, str(error)) from None
        return tree

    def parse(self, node: Node, text: str) -> Tree:
        try:
            tree = parse(text)
        except ExpressionError as error:
            plain = node.span.line == node.span.end_line and node.raw == text == node.value
            column = node.span.column + (error.column if plain else 0)
            raise RuleError(self.path, error.reason, node.span.line, column) from None
        for fact in sorted(facts_of(tree)):
            if fact not in _LOCAL_FACTS and not is_known(fact):
                hint = nearest(fact)
                raise self.error(node, f"unknown fact {fact}" + (f"; did you mean {hint}?" if hint else ""))
        return tree

    def template(self, node: Node | None) -> Template:
        if node is None:
            return []

        def unit(tree: Tree) -> str:
            try:
                return unit_of(tree, unit_of_fact)
            except UnitError as error:
                raise self.error(node, str(error)) from None

        try:
            return parts_of(node.value, lambda text: self.parse(node, text), unit)
        except ValueError as error:
            raise self.error(node, str(error)) from None

    def place(self, node: Node) -> Place:
        if node.is_scalar:
            return Place(self.known_place(node, node.value), [])
        entry = node.entries()[0]
        return Place(self.known_place(entry.key, entry.key.value), self.template(entry.value))

    def known_place(self, node: Node, path: str) -> str:
        families = ("config.", "deepspeed.", "launch.")
        if path == "item" or path.startswith(families) or path in job_paths() or path.startswith("versions."):
            return path
        raise self.error(
            node, f"{path} is not a place: name a Job field, config.<key>, deepspeed.<key>, launch.<name> or item"
        )

    def advice(self, node: Node) -> Advice:
        if node.is_scalar:
            return Advice(recipe=node.value)
        get = node.get
        needs, factors, rank, text = get("needs"), get("factors"), get("rank"), get("text")
        changes = self.mapping(get("set"))
        for path in changes or {}:
            if path not in job_paths():
                raise self.error(get("set"), f"set changes Job fields, and {path} is none")
        return Advice(
            set=changes,
            config=self.mapping(get("config")),
            rename=get("rename").plain() if get("rename") else None,  # type: ignore[union-attr]
            needs=self.expression(needs) if needs else None,
            factors=tuple(factors.plain()) if factors else (),
            fix=_value(get("fix")) or "unsafe",
            rank=rank.value if rank else 0,
            family=_value(get("family")) or "",
            excludes=_strings(get("excludes")),
            text=self.template(text) if text else None,
            kind=_value(get("kind")) or "",
            room=bool(_value(get("room"))),
            cost=_value(get("cost")) or "",
            otherwise=_value(get("otherwise")) or "",
        )

    def mapping(self, node: Node | None) -> dict[str, Any] | None:
        """Plain values; text that begins with `= ` becomes `{"=": tree}`."""
        if node is None:
            return None
        values: dict[str, Any] = {}
        for entry in node.entries():
            value = entry.value.plain()
            if isinstance(value, str) and value.startswith("= "):
                value = {"=": self.parse(entry.value, value[2:])}
            values[entry.key.value] = value
        return values

    def error(self, node: Node | None, reason: str) -> RuleError:
        return RuleError(self.path, reason, *((node.span.line, node.span.column) if node else ()))


def _value(node: Node | None) -> Any:
    return node.value if node else None


def _items(node: Node | None) -> list[Node]:
    return node.items() if node else []


def _strings(node: Node | None) -> tuple[str, ...]:
    if node is None:
        return ()
    return tuple(node.plain()) if node.is_sequence else (node.value,)
