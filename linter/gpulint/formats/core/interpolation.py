"""OmegaConf interpolation: `${output_dir}/logs`, `${..batch}`, `${oc.env:HF_HOME,/tmp}`, `${mul:2,${n}}`.

Sources: OmegaConf 2.3 docs (variable interpolation, resolvers `oc.env`, `oc.select`); resolvers that NeMo Launcher
(`multiply`, `divide_ceil`, `divide_floor`) and NeMo RL (`mul`, `div`, `max`) register. A reference that leads nowhere,
the environment without a default, and other resolvers stay as written: they are blanks.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ...source.node import Entry, Node

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...source.document import Document

MAX_NESTING = 20
"""References that lead to references."""

MAX_LENGTH = 4096
"""Characters of a value that is worked out."""

_INNERMOST = re.compile(r"\$\{([^${}]*)\}")
_CALL = re.compile(r"([A-Za-z_][\w.]*):(.*)", re.DOTALL)
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")


class _UnknownError(Exception):
    """A value that the file does not hold."""


def interpolated(document: Document) -> Document:
    """The document with the interpolations of its first tree worked out; places stay where the values are written."""
    if "${" not in document.text:
        return document
    root = document.root
    return document._replace(roots=[_walk(root, root, (), {}), *document.roots[1:]])


def _walk(node: Node, root: Node, path: tuple[str, ...], seen: dict[int, Node]) -> Node:
    if node.kind == "scalar":
        if not isinstance(node.value, str) or "${" not in node.value:
            return node
        return _filled(node, root, path)
    known = seen.get(id(node))
    if known is not None:
        return known
    copy = Node(node.kind, [], node.span, node.raw)
    copy.merged, copy.path = node.merged, node.path
    seen[id(node)] = copy
    if node.kind == "mapping":
        for entry in node.value:
            copy.value.append(Entry(entry.key, _walk(entry.value, root, (*path, str(entry.key.value)), seen)))
    else:
        copy.value.extend(_walk(item, root, (*path, str(number)), seen) for number, item in enumerate(node.value))
    return copy


def _filled(node: Node, root: Node, path: tuple[str, ...]) -> Node:
    try:
        value = _text(node.value, root, path, 0)
    except _UnknownError:
        return node
    if isinstance(value, Node):
        copy = Node(value.kind, value.value, value.span, value.raw)
        copy.path = node.path
        return copy
    copy = Node("scalar", value, node.span, node.raw)
    copy.path = node.path
    return copy


def _text(text: str, root: Node, path: tuple[str, ...], depth: int) -> Any:
    """The value of a text: of a single interpolation its own kind, of a text around interpolations a string."""
    if depth > MAX_NESTING or len(text) > MAX_LENGTH:
        raise _UnknownError
    while (match := _INNERMOST.search(text)) is not None:
        value = _one(match[1].strip(), root, path, depth)
        if match.start() == 0 and match.end() == len(text):
            return value
        if isinstance(value, Node):
            raise _UnknownError
        text = text[: match.start()] + _shown(value) + text[match.end() :]
        if len(text) > MAX_LENGTH:
            raise _UnknownError
    return text


def _shown(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _one(inner: str, root: Node, path: tuple[str, ...], depth: int) -> Any:
    call = _CALL.fullmatch(inner)
    if call is None:
        return _reference(inner, root, path, depth)
    name, given = call[1], [part.strip() for part in call[2].split(",")]
    if name == "oc.select":
        try:
            return _reference(given[0], root, path, depth)
        except _UnknownError:
            return _plain(given[1]) if len(given) > 1 else None
    if name == "oc.env" and len(given) > 1:
        return _plain(given[1])
    numbers = [float(part) for part in given if _NUMBER.fullmatch(part)]
    if name in _RESOLVERS and len(numbers) == len(given) and numbers:
        try:
            value = _RESOLVERS[name](numbers)
        except (ZeroDivisionError, OverflowError, ValueError):
            raise _UnknownError from None
        return int(value) if float(value).is_integer() else value
    raise _UnknownError


def _plain(text: str) -> Any:
    if _NUMBER.fullmatch(text):
        return float(text) if "." in text else int(text)
    return {"null": None, "true": True, "false": False}.get(text.lower(), text.strip("'\""))


def _product(numbers: list[float]) -> float:
    result = 1.0
    for number in numbers:
        result *= number
    return result


_RESOLVERS: dict[str, Callable[[list[float]], float]] = {
    "multiply": _product,
    "mul": _product,
    "add": sum,
    "sum": sum,
    "sub": lambda n: n[0] - n[1],
    "div": lambda n: n[0] / n[1],
    "divide_ceil": lambda n: -(-n[0] // n[1]),
    "divide_floor": lambda n: n[0] // n[1],
    "max": max,
    "min": min,
}


def _reference(reference: str, root: Node, path: tuple[str, ...], depth: int) -> Any:
    """The value at `a.b`, or at `.b` and `..b` relative to the mapping that holds the reference."""
    dots = len(reference) - len(reference.lstrip("."))
    base = path[:-dots] if dots else ()
    if dots > len(path):
        raise _UnknownError
    names = [*base, *(name for name in re.split(r"[.\[\]]+", reference[dots:]) if name)]
    node: Node | None = root
    for name in names:
        if node is None:
            break
        if node.is_sequence:
            items = node.items()
            node = items[int(name)] if name.isdigit() and int(name) < len(items) else None
        else:
            node = node.get(name)
    if node is None or not names:
        raise _UnknownError
    if node.is_scalar:
        if isinstance(node.value, str) and "${" in node.value:
            return _text(node.value, root, tuple(names), depth + 1)
        return node.value
    return node
