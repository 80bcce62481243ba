"""Python values as YAML text that PyYAML reads back as the same values.

ruamel.yaml writes them, as YAML 1.1 and in the indentation of the file that they are put into. It is imported with the
first value that is more than a word or a whole number, which most fixes write.

It does not write the rest of the file: a round trip through it keeps comments, but not every byte (quotes of keys,
blanks before comments, line breaks of folded text, a byte order mark). The modules beside this one replace spans of the
text and put these lines there, so what an edit does not name stays as it is.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ..yaml.scalar import is_string

if TYPE_CHECKING:
    from ruamel.yaml import YAML

    from ..node import Node

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")


class Style(NamedTuple):
    """How a file indents: `step` blanks a mapping level, `sequence` blanks before the dash of a list."""

    step: int = 2
    sequence: int = 2


DEFAULT_STYLE = Style()


def style_of(root: Node) -> Style:
    """The indentation of the first nested mapping and of the first list of a file, 2 where there is none."""
    found: dict[str, int] = {}
    waiting = [root]
    seen: set[int] = set()
    while waiting and len(found) < 2:
        node = waiting.pop(0)
        if id(node) in seen:
            continue
        seen.add(id(node))
        waiting.extend(node.items())
        for key, value in node.entries()[node.merged :]:
            waiting.append(value)
            if value.kind != "scalar" and value.span.line > key.span.line:
                found.setdefault(value.kind, value.span.column - key.span.column)
    step = found.get("mapping", 0) or found.get("sequence", 0)
    return Style(step if step > 0 else 2, max(found.get("sequence", step or 2), 0))


def scalar(value: Any) -> str:
    """A scalar, or an empty collection, on one line of a block. Raises TypeError for anything else."""
    if value and isinstance(value, list | dict):
        raise TypeError(f"{type(value).__name__} is not a YAML scalar")
    return _word(value) or _written({"k": value}).removeprefix("k: ")


def key(name: Any, flow: bool = False) -> str:
    """A mapping key."""
    return _word(name) or _written({name: 1}, flow=flow).strip("{}").removesuffix(": 1")


def flow(value: Any) -> str:
    """A value on one line, collections in brackets."""
    return _word(value) or _written([value], flow=True)[1:-1]


def block(value: Any, indent: int, style: Style) -> list[str]:
    """The lines of a mapping or list in block style, from column `indent` (0-based); none of an empty one."""
    lines = _written(value, style).split("\n") if value else []
    moved = indent - (style.sequence if isinstance(value, list) else 0)  # ruamel.yaml indents a list that is the root
    return [" " * moved + line if moved >= 0 else line[-moved:] for line in lines]


def _word(value: Any) -> str:
    """A value that is sure to be one plain word, "" for any other."""
    if value is None:
        return "null"
    if isinstance(value, bool | int):
        return str(value).lower()
    return value if isinstance(value, str) and _WORD.fullmatch(value) and is_string(value) else ""


def _written(value: Any, style: Style = DEFAULT_STYLE, *, flow: bool = False) -> str:
    from io import StringIO

    yaml = _yaml()
    yaml.default_flow_style = flow
    yaml.indent(mapping=style.step, sequence=style.sequence + 2, offset=style.sequence)
    out = StringIO()
    yaml.dump(value, out)
    return out.getvalue().partition("---")[2][1:].removesuffix("\n")  # behind `%YAML 1.1`, which 1.1 comes with


def _yaml() -> YAML:
    from ruamel.yaml import YAML

    yaml = YAML(plug_ins=[])
    yaml.Emitter, yaml.Representer, yaml.Resolver = _parts()
    yaml.version = (1, 1)
    yaml.width = 1 << 20
    yaml.brace_single_entry_mapping_in_flow_sequence = True
    return yaml


@cache
def _parts() -> tuple[Any, Any, Any]:
    """ruamel.yaml's emitter, representer and resolver, with what the readers of configs need otherwise."""
    from ruamel.yaml.emitter import Emitter
    from ruamel.yaml.nodes import ScalarNode
    from ruamel.yaml.representer import RoundTripRepresenter
    from ruamel.yaml.resolver import VersionedResolver

    class OneLine(Emitter):
        """Scalars on one line; what needs quotes gets double ones, unless it holds what those would escape."""

        MAX_SIMPLE_KEY_LENGTH = 1024

        def choose_scalar_style(self) -> Any:
            style = super().choose_scalar_style()
            return '"' if style == "'" and not re.search(r'["\\]', self.event.value) else style

    class Plain(RoundTripRepresenter):
        """`null` is written out, and nothing is an alias."""

        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
            return True

        def represent_none(self, data: Any) -> Any:  # noqa: ARG002
            return self.represent_scalar("tag:yaml.org,2002:null", "null")

    class AsPyYaml(VersionedResolver):
        """`2e-4` and `y` are text to PyYAML, and need no quotes."""

        def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
            if kind is ScalarNode and implicit[0] and is_string(value):
                return "tag:yaml.org,2002:str"
            return super().resolve(kind, value, implicit)

    Plain.add_representer(type(None), Plain.represent_none)
    return OneLine, Plain, AsPyYaml
