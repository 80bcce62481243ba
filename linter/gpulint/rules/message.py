"""Message templates: text with `{expression}` placeholders, compiled once.

`{estimate.optimizer}` prints by its unit (`59.8 GiB`); `{gpus}` and any expression of the rule language work.
`{{` and `}}` are braces. Values of keys that look like secrets are never printed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .expression import UNKNOWN, evaluate
from .quantity import text_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from .expression import FactSource, Tree

Template = list[Any]
"""Plain strings, and `[tree, unit]` for what is filled in."""

HIDDEN = "***"
_SECRET_WORDS = ("token", "secret", "password", "passwd", "api_key", "apikey", "credential", "access_key", "private")
_SECRET_PREFIXES = ("hf_", "sk-", "ghp_", "gho_", "github_pat_", "xoxb-", "AKIA", "glpat-")
_NOT_SECRET = ("tokens", "tokenizer", "token_id", "tokenized")


class TemplateError(Exception):
    """A lone brace, at a character of the text counted from 0."""

    def __init__(self, reason: str, place: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.place = place


def parts_of(text: str, parse: Callable[[int, str], Tree], unit: Callable[[int, Tree], str]) -> Template:
    """The template of a message. `parse` and `unit` are given where in the text their expression begins, and may raise.

    Raises TemplateError for a lone brace.
    """
    parts: Template = []
    literal = ""
    place = 0
    while place < len(text):
        char = text[place]
        if text[place : place + 2] in ("{{", "}}"):
            literal += char
            place += 2
        elif char == "{":
            end = text.find("}", place)
            if end < 0:
                raise TemplateError("a { without its }", place)
            if literal:
                parts.append(literal)
                literal = ""
            tree = parse(place + 1, text[place + 1 : end])
            parts.append([tree, unit(place + 1, tree)])
            place = end + 1
        elif char == "}":
            raise TemplateError("a } without its {", place)
        else:
            literal += char
            place += 1
    if literal:
        parts.append(literal)
    return parts


def filled(template: Template, facts: FactSource) -> str | None:
    """The message with its values; None where one of them is not known."""
    texts: list[str] = []
    for part in template:
        if isinstance(part, str):
            texts.append(part)
            continue
        tree, unit = part
        value = evaluate(tree, facts)
        if value is UNKNOWN:
            return None
        hidden = is_secret(tree[1] if tree[0] == "fact" else "", value)
        texts.append(HIDDEN if hidden else text_of(value, unit))
    return "".join(texts)


def is_secret(key: str, value: Any = None) -> bool:
    """Whether a key, or the look of a value, says that the value must not be printed."""
    name = key.rpartition(".")[2].lower().replace("-", "_")
    if isinstance(value, str) and value.startswith(_SECRET_PREFIXES):
        return True
    return any(word in name for word in _SECRET_WORDS) and not any(word in name for word in _NOT_SECRET)
