"""TOML 1.0 scalars: strings, numbers, booleans, dates.

Dates and times are checked and stay strings; an integer of more than 20 digits stays its text.
Source: https://toml.io/en/v1.0.0.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .limits import MAX_INTEGER_DIGITS

if TYPE_CHECKING:
    from .node import Scalar

_CONTROL = r"\x00-\x08\x0a-\x1f\x7f"
_MULTILINE_CONTROL = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f"
_ESCAPED = r'\\(?:[btnfr"\\]|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})'

COMMENT = re.compile(rf"#([^{_CONTROL}]*)")
BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")

BASIC = re.compile(rf'"([^"\\{_CONTROL}]*(?:{_ESCAPED}[^"\\{_CONTROL}]*)*)"')
LITERAL = re.compile(rf"'([^'{_CONTROL}]*)'")
_LONG_TEXT = rf"[^\"\\\r{_MULTILINE_CONTROL}]*"
_LONG_LITERAL_TEXT = rf"[^'\r{_MULTILINE_CONTROL}]*"
_MULTILINE_BASIC = re.compile(
    rf'"""({_LONG_TEXT}(?:(?:\r\n|{_ESCAPED}|\\[ \t]*\r?\n|"{{1,2}}(?!")){_LONG_TEXT})*"{{0,2}})"""'
)
_MULTILINE_LITERAL = re.compile(rf"'''({_LONG_LITERAL_TEXT}(?:(?:\r\n|'{{1,2}}(?!')){_LONG_LITERAL_TEXT})*'{{0,2}})'''")

_ESCAPE = re.compile(r'\\(?:([btnfr"\\])|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|[ \t]*\r?\n[ \t\r\n]*)')
_SHORT = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "\\": "\\"}

_DATE = r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?"
_DATETIME = re.compile(rf"(?P<date>{_DATE})(?:[Tt ]{_TIME}(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])?)?|{_TIME}")

_DIGITS = "[0-9](?:_?[0-9])*"
_NUMBER = re.compile(
    r"(?P<base>0x[0-9A-Fa-f](?:_?[0-9A-Fa-f])*|0o[0-7](?:_?[0-7])*|0b[01](?:_?[01])*)"
    rf"|(?P<integer>[+-]?(?:0|[1-9](?:_?[0-9])*))(?P<float>(?:\.{_DIGITS})?(?:[eE][+-]?{_DIGITS})?)"
)
_WORD = re.compile(r"true|false|[+-]?(?:inf|nan)")


def scalar(text: str, at: int) -> tuple[Scalar, int] | None:
    """The value of the scalar at an offset and where it ends; None where there is none."""
    if text[at : at + 1] in ('"', "'"):
        return _string(text, at)
    if match := _WORD.match(text, at):
        word = match[0]
        return {"true": True, "false": False}[word] if word[0] in "tf" else float(word), match.end()
    if (match := _DATETIME.match(text, at)) and _is_date(match["date"]):
        return match[0], match.end()
    if match := _NUMBER.match(text, at):
        return _number(match), match.end()
    return None


def key(text: str, at: int) -> tuple[str, int] | None:
    """The key at an offset, bare or quoted, and where it ends."""
    if match := BARE_KEY.match(text, at):
        return match[0], match.end()
    match = BASIC.match(text, at) or LITERAL.match(text, at)
    return _closed(match, match.re is BASIC) if match else None


def _string(text: str, at: int) -> tuple[str, int] | None:
    for pattern, opening in ((_MULTILINE_BASIC, '"""'), (_MULTILINE_LITERAL, "'''")):
        if text.startswith(opening, at):
            match = pattern.match(text, at)
            if match is None:
                return None
            body = match[1].replace("\r\n", "\n").removeprefix("\n")
            return _checked(body, match.end(), opening == '"""')
    match = BASIC.match(text, at) or LITERAL.match(text, at)
    return _closed(match, match.re is BASIC) if match else None


def _closed(match: re.Match[str], escapes: bool) -> tuple[str, int] | None:
    return _checked(match[1], match.end(), escapes)


def _checked(body: str, end: int, escapes: bool) -> tuple[str, int] | None:
    """The string with its escapes replaced; None where one is no Unicode scalar value."""
    if not escapes or "\\" not in body:
        return body, end
    try:
        return _ESCAPE.sub(_replacement, body), end
    except ValueError:
        return None


def _replacement(match: re.Match[str]) -> str:
    short, four, eight = match.groups()
    if short:
        return _SHORT[short]
    code = four or eight
    if not code:
        return ""
    point = int(code, 16)
    if 0xD800 <= point <= 0xDFFF or point > 0x10FFFF:
        raise ValueError
    return chr(point)


def _is_date(date: str | None) -> bool:
    if not date:
        return True
    year, month, day = (int(part) for part in date.split("-"))
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    days = (31, 28 + leap, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
    return year > 0 and day <= days[month - 1]


def _number(match: re.Match[str]) -> int | float | str:
    digits = match[0].replace("_", "")
    if match["base"]:
        return int(digits, 0) if len(digits) - 2 <= MAX_INTEGER_DIGITS else match[0]
    if match["float"]:
        return float(digits)
    return int(digits) if len(digits.lstrip("+-")) <= MAX_INTEGER_DIGITS else match[0]
