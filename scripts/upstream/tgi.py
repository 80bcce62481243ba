"""Every option of `text-generation-launcher`: fields of clap's `Args`; those with `env` are variables, too."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .schema import whole

if TYPE_CHECKING:
    from .schema import Json
    from .source import Source

_RUST = re.compile(
    r"^    #\[clap\(([^\n]*)\)\]\n(?:    #\[[^\n]*\]\n|    ///[^\n]*\n)*    ([a-z_0-9]+): ([^\n]+),$", re.MULTILINE
)
_RUST_TYPES = {
    "String": "string", "usize": "integer", "u16": "integer", "u32": "integer", "u64": "integer", "f32": "number",
    "bool": "boolean",
}  # fmt: skip


def tgi(source: Source) -> Json:
    """The fields of `Args` in launcher/src/main.rs."""
    text = source.need("main.rs")
    body = text[text.index("struct Args {") :]
    body = body[: body.index("\n}\n")]
    properties: dict[str, Json] = {}
    for clap, name, kind in _RUST.findall(body):
        inner = re.sub(r"^(?:Option|Vec)<(?:Vec<)?|>+$", "", kind)
        found: Json = {"type": _RUST_TYPES.get(inner, "string")}
        if "Vec<" in kind:
            found = {"type": ["array", "string", "integer"]}
        default = re.search(r'default_value = "([^"]*)"', clap)
        if default:
            text_ = default[1]
            found["default"] = {"integer": int, "number": float}.get(str(found["type"]), str)(text_)
        if re.search(r"\benv\b", clap):
            found["x-variable"] = name.upper()
        properties[name.replace("_", "-")] = found
    return whole("text-generation-launcher", properties, "refused")
