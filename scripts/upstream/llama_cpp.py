"""Every option of `llama-server`: the tables of its README, which llama.cpp writes from its own parser.

llama.cpp is no package of the index; the sources of llama-cpp-python carry it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .schema import whole

if TYPE_CHECKING:
    from .schema import Json
    from .source import Source

_README = "tools/server/README.md"
_ROW = re.compile(r"^\| `(-[^`]*)` \| (.*)$", re.MULTILINE)
_NAME = re.compile(r"(--?[A-Za-z][\w.-]*)(?:, |$| )")
_DEFAULT = re.compile(r"\(default: (-?\d+(?:\.\d+)?)\b")
_VARIABLE = re.compile(r"\(env: (\w+)\)")
_REMOVED = re.compile(r"the argument has been removed\.? ?([^<|]*)")


def llama_cpp(source: Source, older: Source) -> Json:
    """The options by their names, `x-option` the one that stands for a row's; short ones and what they stand for.

    Options of the older release stay without a word: images of any age serve, and their tags rarely say which.
    """
    properties, short, opposites = options(source.need(_README))
    former, former_short, more = options(older.need(_README))
    for name, schema in former.items():
        properties.setdefault(name, {key: value for key, value in schema.items() if key in ("type", "x-option")})
    for name in [*opposites, *more]:
        properties.setdefault(name, {})
    return whole("llama-server", properties, "refused", x_short=former_short | short)


def options(readme: str) -> tuple[dict[str, Json], dict[str, str], list[str]]:
    """The options of a README, the short names with what they stand for, and what only a `--no-` turns off."""
    properties: dict[str, Json] = {}
    short: dict[str, str] = {}
    opposites: list[str] = []
    for written, told in _ROW.findall(readme):
        names, valued = names_of(written.replace("\\|", "|"))
        long = [name[2:] for name in names if name.startswith("--")]
        positive = [name for name in long if not name.startswith("no-")]
        opposites += [name[3:] for name in long if name not in positive]
        first = positive[-1] if positive else long[-1]
        for place, name in enumerate(names):
            if not name.startswith("--"):
                meant = next((other[2:] for other in names[place:] if other.startswith("--")), first)
                short[name[1:]] = meant if meant.startswith("no-") else first
        for name in positive:
            properties[name] = option(told, first, valued=valued)
        variable = _VARIABLE.search(told)
        if variable and positive:
            properties[first]["x-variable"] = variable[1]
    return properties, short, opposites


def names_of(written: str) -> tuple[list[str], bool]:
    """The names of a row, and whether a value follows them."""
    names: list[str] = []
    while match := _NAME.match(written):
        names.append(match[1])
        written = written[match.end() :]
        if not match[0].endswith(", "):
            break
    return names, bool(written)


def option(told: str, first: str, *, valued: bool) -> Json:
    """An option of the row that `first` stands for, by what is told of it."""
    schema: Json = {} if valued else {"type": "boolean"}
    default = _DEFAULT.search(told)
    if default and valued:
        schema["default"] = float(default[1]) if "." in default[1] else int(default[1])
    removed = _REMOVED.search(told)
    if removed:
        schema |= {"deprecated": True, "x-removed": "; ".join(filter(None, ("removed", removed[1].strip())))}
    return {**schema, "x-option": first}
