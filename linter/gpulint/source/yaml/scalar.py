"""What a YAML scalar means to PyYAML's safe loader: the implicit types of YAML 1.1.

Source: PyYAML 6.0.3, `resolver.py` and `constructor.py` (`SafeLoader`), and https://yaml.org/type/.

Three readings differ on purpose. Timestamps stay strings, as no config key holds one. So does `!!binary`. An
integer of more than 20 digits stays its text. A matching text that PyYAML crashes on (`0x_`) stays its text too.
"""

from __future__ import annotations

import re

from ..limits import MAX_INTEGER_DIGITS
from ..node import Scalar

PREFIX = "tag:yaml.org,2002:"

_WORDS: dict[str, Scalar] = {
    spelling: value
    for word, value in (("yes", True), ("no", False), ("true", True), ("false", False), ("on", True))
    for spelling in (word, word.capitalize(), word.upper())
} | dict.fromkeys(("off", "Off", "OFF"), False) | dict.fromkeys(("", "~", "null", "Null", "NULL"))  # fmt: skip

_NUMBER_START = frozenset("+-.0123456789")

_FLOAT = re.compile(
    r"[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?"  # a point, and a sign in the exponent: 2e-4 is no float
    r"|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?"
    r"|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*"
    r"|[-+]?\.(?:inf|Inf|INF)"
    r"|\.(?:nan|NaN|NAN)"
)

_INTEGER = re.compile(
    r"[-+]?(?:0b[01_]+|0[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*(?::[0-5]?[0-9])*)"  # base 2, 8, 16, 10 or 60
)

_TIMESTAMP = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt]|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]*)?"
    r"(?:[ \t]*(?:Z|[-+][0-9]{1,2}(?::[0-9]{2})?))?"
)

_KINDS = {
    "scalar": frozenset(PREFIX + name for name in ("null", "bool", "int", "float", "binary", "timestamp", "str")),
    "sequence": frozenset(PREFIX + name for name in ("seq", "omap", "pairs")),
    "mapping": frozenset(PREFIX + name for name in ("map", "set")),
}


def known_tag(kind: str, tag: str) -> bool:
    """Whether PyYAML's safe loader constructs this tag on a node of this kind."""
    return tag in _KINDS[kind]


def resolve(text: str) -> Scalar:
    """The value of a plain scalar."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_START:
        return text
    try:
        if _FLOAT.fullmatch(text):
            return _float(text)
        if _INTEGER.fullmatch(text):
            return _integer(text)
    except (ValueError, OverflowError):
        return text
    return text


def is_string(text: str) -> bool:
    """Whether PyYAML takes a plain scalar for a string: no other type claims it, not even one it then refuses."""
    if text in _WORDS or text in ("=", "<<"):
        return False
    return not any(pattern.fullmatch(text) for pattern in (_FLOAT, _INTEGER, _TIMESTAMP))


def construct(tag: str, text: str) -> Scalar:
    """The value of a scalar with an explicit core tag, such as `!!float 3`. Raises ValueError, OverflowError."""
    name = tag.removeprefix(PREFIX)
    if name == "null":
        return None
    if name == "bool":
        value = _WORDS.get(text.lower())
        if not isinstance(value, bool):
            raise ValueError
        return value
    if name == "float":
        return _float(text)
    if name == "int":
        return _integer(text)
    return text


def _unsigned(text: str) -> tuple[int, str]:
    plain = text.replace("_", "").lower()
    if plain[:1] in ("-", "+"):
        return (-1 if plain[0] == "-" else 1), plain[1:]
    return 1, plain


def _float(text: str) -> float:
    sign, digits = _unsigned(text)
    if digits in (".inf", ".nan"):
        return sign * float(digits[1:])
    if ":" not in digits:
        return sign * float(digits)
    # PyYAML adds the parts from the last to the first, as floats, so rounding is the same here.
    value, base = 0.0, 1
    for part in reversed(digits.split(":")):
        value += float(part) * base
        base *= 60
    return sign * value


def _integer(text: str) -> int | str:
    sign, digits = _unsigned(text)
    base = {"0b": 2, "0x": 16}.get(digits[:2], 8 if digits[:1] == "0" else 10)
    if base in (2, 16):
        digits = digits[2:]
    if len(digits) > MAX_INTEGER_DIGITS:
        return text
    if ":" not in digits:
        return sign * int(digits, base)
    value = 0
    for part in digits.split(":"):
        value = value * 60 + int(part)
    return sign * value
