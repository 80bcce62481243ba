"""The keys of a config held against `schemas/<name>.json`: unknown, mistyped, deprecated ones.

The schemas are plain JSON Schema; four annotations carry what it has no word for:

`x-upstream`      (top) the tool and version whose keys these are
`x-unknown-keys`  (any object) `ignored` when upstream drops an unknown key without a word, `refused` when it
                  stops; without it any key is allowed
`x-coercion`      (top) `pydantic`: a value is wrong where pydantic's lax mode refuses it;
                  `yaml`: no validation, wrong only where the kind (scalar, list, mapping) cannot work;
                  `json`: a value has the very type of JSON
`x-placeholder`   (top) a string that stands for any value (`auto` in DeepSpeed)
`x-replacement`   (property, with `deprecated`) the key that takes the same value now, of the same section unless dotted
`x-instead`       (the same) what says it now, in words, where that takes another value
`x-removed`       (property) upstream refuses it, and why; `taken before TOOL RELEASE` where that one dropped it;
                  `x-harmless` lists the values with which it does nothing (null, unless given)
`x-dropped`       (property) upstream drops it without a word, and until when it was read
`x-plugin`        (property) the plugin without which upstream does not know the key
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from .coercion import accepts, found_text, type_text
from .format import Problem
from .placeholders import is_blank
from .releases import begins_another, is_former, is_taken, may_take, of_stated, standing_of, value_of_another_release
from .typos import begun, beside, nearest, old_key, same_degree, unknown_key
from .values import former_value, out_of_bounds, wrong_value

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from ...source.document import Document
    from ...source.node import Entry, Node
    from ...upstream.key_releases.table import Standing

JsonObject = dict[str, Any]

MAX_SUGGESTIONS = 20
"""Unknown keys of one file that get a did-you-mean; difflib is quadratic, and files are untrusted."""

_NOTHING = object()


class Held(NamedTuple):
    """A mapping that was held against a schema: the file and dotted place where it stands, and what tells its keys.

    `syntax` is that of its document; `part` is the object of `schema` that describes the mapping.
    """

    path: str
    syntax: str
    node: Node
    schema: JsonObject
    part: JsonObject
    prefix: str
    upstream: str


_watching: list[Held] | None = None


@contextmanager
def watched() -> Iterator[list[Held]]:
    """Gather the mappings that readings hold against schemas while it lasts. Not for use by several threads."""
    global _watching
    before, _watching = _watching, []
    try:
        yield _watching
    finally:
        _watching = before


@cache
def load(name: str) -> JsonObject:
    """The schema of a format, read once. Raises FileNotFoundError for a name without one."""
    folder: str = import_module("...schemas", __package__).__path__[0]
    with open(os.path.join(folder, f"{name}.json"), encoding="utf-8") as file:
        schema: JsonObject = json.load(file)
    return schema


def upstream(name: str) -> str:
    """The tool and version a schema was made from: `axolotl 0.19.0`."""
    text: str = load(name)["x-upstream"]
    return text


def default(name: str, key: str) -> Any:
    """Upstream's default of a dotted key; None where it has none. Raises KeyError for an unknown key."""
    schema = load(name)
    part = schema
    for step in key.split("."):
        for branch in branches(schema, part):
            if step in branch.get("properties", {}):
                part = branch["properties"][step]
                break
        else:
            raise KeyError(key)
    return part.get("default")


def key_problems(
    document: Document,
    schema_name: str,
    *,
    node: Node | None = None,
    section: str = "",
    definition: str = "",
    prefix: str = "",
    known: Collection[str] = (),
    plugins: Collection[str] | None = None,
    path: str | None = None,
) -> list[Problem]:
    """Every unknown, mistyped and deprecated key of `document`, in file order.

    node      the mapping to look at; the first root when None. `section` is the dotted place of that mapping in the
              schema and `prefix` its dotted place in the file, for a config that is held inside another one;
              `definition` is its name in `$defs`, which may carry an `x-upstream` of its own
    known     further keys that are fine at the top
    plugins   the plugins the file loads; None when the tool has none. A key with `x-plugin` outside them is unknown
              with `plugin` in its values.
    path      the file for the problems, where it is not the checked one
    """
    schema = load(schema_name)
    part = schema["$defs"][definition] if definition else schema
    for step in section.split(".") if section else ():
        part = next(b["properties"][step] for b in branches(schema, part) if step in b.get("properties", {}))
    walk = _Walk(schema, frozenset(known), plugins, path)
    walk.name = schema_name
    walk.prefix, walk.section = prefix, section
    walk.flags = document.syntax == "flags"
    walk.extended = "x-plugins" in schema and plugins is None
    walk.upstream = str(part.get("x-upstream", walk.upstream))
    root = node if node is not None else document.root
    if root.is_mapping:
        if _watching is not None:
            where = path or root.path or document.path
            _watching.append(Held(where, document.syntax, root, schema, part, prefix, walk.upstream))
        walk.mapping(root, part, prefix, top=True)
    return walk.problems


def unknown_keys(document: Document, schema_name: str, **options: Any) -> list[Problem]:
    """The `unknown-key` problems of `key_problems`."""
    return [item for item in key_problems(document, schema_name, **options) if item.kind == "unknown-key"]


class _Walk:
    __slots__ = (
        "coercion",
        "extended",
        "flags",
        "known",
        "name",
        "path",
        "placeholder",
        "places",
        "plugins",
        "prefix",
        "problems",
        "schema",
        "section",
        "suggested",
        "upstream",
    )

    def __init__(
        self, schema: JsonObject, known: frozenset[str], plugins: Collection[str] | None, path: str | None
    ) -> None:
        self.schema = schema
        self.known = known
        self.plugins = plugins
        self.path = path
        self.coercion: str = schema.get("x-coercion", "pydantic")
        self.placeholder = schema.get("x-placeholder", _NOTHING)
        self.problems: list[Problem] = []
        self.suggested = 0
        self.upstream = str(schema.get("x-upstream", ""))
        self.places: dict[str, list[str]] | None = None
        self.name = self.prefix = self.section = ""
        self.extended = self.flags = False

    def mapping(self, node: Node, part: JsonObject, prefix: str, *, top: bool = False) -> None:
        shape = object_shape(self.schema, part)
        for entry in node.entries():
            key = entry.key.value
            if not isinstance(key, str) or key == "<<" or node.entry(key) is not entry:
                continue
            dotted = f"{prefix}.{key}" if prefix else key
            child = shape.properties.get(key)
            if child is None and top and key in self.known:
                child = shape.properties.get(key.replace("_", "-"))
            if child is not None:
                self.known_key(entry, key, dotted, child, shape)
            elif top and key in self.known:
                continue
            elif shape.values is not None:
                self.value(entry.value, shape.values, dotted)
            elif shape.unknown and not _set_aside(entry, key, shape.unknown):
                self.unknown_key(entry, key, dotted, shape)

    def known_key(self, entry: Entry, key: str, dotted: str, child: JsonObject, shape: Shape) -> None:
        plugin = child.get("x-plugin")
        if plugin and self.plugins is not None and plugin not in self.plugins and entry.value.value is not False:
            problem = unknown_key(entry, dotted, "", "ignored", self.upstream, self.path)
            self.problems.append(problem._replace(values={**problem.values, "plugin": plugin}))
            return
        harmless = entry.value.is_scalar and entry.value.value in child.get("x-harmless", (None,))
        found = standing_of(self.name, self.place(dotted), child)
        if found is not None and not found.taken:
            if not (harmless and is_old(child)):
                self.other_release(entry, key, dotted, found, child, shape)
            return
        if is_former(child):
            return
        if is_old(child) and not harmless and self.replaced(child, dotted):
            self.problems.append(old_key(entry, dotted, child, self.upstream, self.path))
            if "x-removed" in child or "x-dropped" in child:
                return
        self.value(entry.value, child, dotted, key)

    def place(self, dotted: str) -> str:
        """The dotted place of a key in the schema."""
        own = dotted.removeprefix(f"{self.prefix}.") if self.prefix else dotted
        return f"{self.section}.{own}" if self.section else own

    def replaced(self, child: JsonObject, dotted: str) -> bool:
        """Whether the release that runs takes what is said to take a key's place, if anything is."""
        successor = child.get("x-replacement", "")
        return not successor or may_take(
            self.name, successor if "." in successor else beside(self.place(dotted), successor)
        )

    def other_release(
        self, entry: Entry, key: str, dotted: str, found: Standing, child: JsonObject, shape: Shape
    ) -> None:
        """The problem of a key that the release does not take: not yet, or no longer."""
        said = of_stated(found, self.upstream)
        if self.flags and begins_another(self.name, key):
            return
        if found.until and "x-removed" in child:
            hint = child.get("x-removed", "").partition("; ")[2]
            part = {**child, "x-removed": "; ".join(text for text in (said.pop("reason"), hint) if text)}
            if not self.replaced(child, dotted):
                part.pop("x-replacement", None)
            problem = old_key(entry, dotted, part, self.upstream, self.path)
            self.problems.append(problem._replace(values={**problem.values, **said}))
        elif shape.unknown:
            renamed = (name for name, part in shape.properties.items() if part.get("x-replacement") == key)
            former = next((name for name in renamed if may_take(self.name, beside(self.place(dotted), name))), "")
            earlier = former if found.since else former or meant(key, shape.properties)
            problem = unknown_key(entry, dotted, beside(dotted, earlier), shape.unknown, self.upstream, self.path)
            self.problems.append(problem._replace(values={**problem.values, "slip": "no", **said}))

    def value(self, node: Node, part: JsonObject, dotted: str, key: str = "") -> None:
        if node.is_scalar and (node.value is None or node.value == self.placeholder or is_blank(node.value)):
            return
        shapes = list(branches(self.schema, part))
        place, text = dotted.removeprefix(f"{self.prefix}."), node.value
        strict, extended = self.coercion == "pydantic", self.extended
        if (former := former_value(self.name, place, node)) is not None:
            self.told("deprecated-key", f"{dotted}: {node.value}", node, former)
        elif isinstance(text, str) and (other := value_of_another_release(self.name, place, text, self.upstream)):
            self.told("wrong-value", dotted or key, node, other)
        elif not is_taken(self.name, place, text) and (
            wrong := wrong_value(self.name, place, shapes, node, extended=extended, strict=strict)
        ):
            self.told("wrong-value", dotted or key, node, wrong)
        elif not any(accepts(branch, node, self.coercion) for branch in shapes):
            self.told("wrong-type", dotted or key, node, {"expected": type_text(shapes), "found": found_text(node)})
        elif node.is_scalar and (beyond := out_of_bounds(self.name, place, node)) is not None:
            self.told("out-of-bounds", dotted or key, node, beyond)
        elif node.is_mapping:
            self.mapping(node, part, dotted)
        elif node.is_sequence:
            items = next((branch["items"] for branch in shapes if isinstance(branch.get("items"), dict)), None)
            for item in node.items() if items else ():
                self.value(item, items or {}, dotted)

    def told(self, kind: str, key: str, node: Node, values: dict[str, str]) -> None:
        self.problems.append(Problem(kind, key, node.span, {"upstream": self.upstream, **values}, self.path))

    def unknown_key(self, entry: Entry, key: str, dotted: str, shape: Shape) -> None:
        found = standing_of(self.name, self.place(dotted))
        if found is not None:
            if not found.taken:
                self.other_release(entry, key, dotted, found, {"deprecated": True}, shape)
            return
        suggestion, short = "", self.shortened(key, shape) if shape.unknown == "refused" else ""
        if short:
            suggestion = beside(dotted, short)
        elif self.suggested < MAX_SUGGESTIONS:
            self.suggested += 1
            suggestion = self.elsewhere(key, dotted) or beside(dotted, meant(key, shape.properties))
        problem = unknown_key(entry, dotted, suggestion, shape.unknown, self.upstream, self.path)
        self.problems.append(problem._replace(values={**problem.values, "slip": "yes"}) if short else problem)

    def shortened(self, key: str, shape: Shape) -> str:
        """The known key that is surely meant by another tool's word for a degree of parallelism, or by a flag that is
        but the beginning of its words, which a parser that completes them would have completed."""
        known = [name for name, part in shape.properties.items() if not is_old(part)]
        same = same_degree(key, known)
        if same or not self.flags:
            return same
        found = begun(key, known)
        options = {shape.properties[name].get("x-option", name) for name in found}
        return min(found, key=len) if len(options) == 1 else ""

    def elsewhere(self, key: str, dotted: str) -> str:
        """The dotted place of a key of exactly this name in another section, if there is only one."""
        if self.places is None:
            self.places = {}
            for place, part in _places(self.schema, self.schema, ""):
                if not is_old(part):
                    self.places.setdefault(place.rpartition(".")[2], []).append(place)
        others = [place for place in self.places.get(key, ()) if place != dotted]
        return others[0] if len(others) == 1 else ""


class Shape(NamedTuple):
    """What an object schema says of keys: the known ones, the schema of all others, how unknown ones are treated."""

    properties: dict[str, JsonObject]
    values: JsonObject | None
    unknown: str


def branches(schema: JsonObject, part: JsonObject) -> Iterator[JsonObject]:
    """`part` with `$ref` followed and `anyOf` taken apart."""
    if "$ref" in part:
        part = {**schema["$defs"][part["$ref"].rpartition("/")[2]], **part}
        del part["$ref"]
    if "anyOf" in part:
        for branch in part["anyOf"]:
            yield from branches(schema, branch)
    else:
        yield part


def object_shape(schema: JsonObject, part: JsonObject) -> Shape:
    """The union over the object branches of `part`; one open branch makes the whole open."""
    properties: dict[str, JsonObject] = {}
    values: JsonObject | None = None
    unknown: list[str] = []
    for branch in branches(schema, part):
        if branch.get("type", "object") not in ("object", ["object", "null"]):
            continue
        for key, child in branch.get("properties", {}).items():
            properties[key] = child if key not in properties else {"anyOf": [properties[key], child]}
        more = branch.get("additionalProperties")
        if isinstance(more, dict):
            values = more
        unknown.append(branch.get("x-unknown-keys", ""))
    return Shape(properties, values, unknown[0] if unknown and all(unknown) else "")


def _places(schema: JsonObject, part: JsonObject, prefix: str) -> Iterator[tuple[str, JsonObject]]:
    for branch in branches(schema, part):
        for key, child in branch.get("properties", {}).items():
            place = f"{prefix}.{key}" if prefix else key
            yield place, child
            yield from _places(schema, child, place)


def meant(key: str, properties: JsonObject) -> str:
    """The property that an unknown key was probably meant to be, a renamed one by its new name; never a removed one."""
    found = nearest(key, properties)
    part = properties.get(found, {})
    if not is_old(part):
        return found
    if part.get("x-replacement") in properties:
        return str(part["x-replacement"])
    return nearest(key, [name for name in properties if not is_old(properties[name])])


def is_old(child: JsonObject) -> bool:
    """Whether a property is renamed or gone."""
    return bool(child.get("deprecated")) or "x-removed" in child or "x-dropped" in child


def _set_aside(entry: Entry, key: str, treatment: str) -> bool:
    """Keys that people write for themselves (anchors, comments) or fill in, and valueless ones that upstream drops."""
    if treatment == "ignored" and entry.value.is_scalar and entry.value.value is None:
        return True
    return key.startswith(("_", "x-", ".", "//", "#", "$")) or is_blank(key)
