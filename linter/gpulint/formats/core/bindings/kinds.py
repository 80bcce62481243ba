"""Kinds of values: how what is written becomes a value, and a value what is written.

A key says a value, or one of the five things that `Unsaid` names; every row and every step is told which.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any

from ..coercion import as_boolean, as_integer, as_number
from ..placeholders import is_blank, is_whole_blank

if TYPE_CHECKING:
    from collections.abc import Callable


class Unsaid(Enum):
    """Why a key says no value.

    ABSENT  the file does not have it
    NULL    it is written and null
    BLANK   another program fills it in when the job starts (`${BATCH}`)
    WRONG   what is written is no value of the kind (a list for a number)
    OTHER   it is of the kind, and none of the values that the row knows
    """

    ABSENT = "absent"
    NULL = "null"
    BLANK = "blank"
    WRONG = "wrong"
    OTHER = "other"


def _as_is(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value.

    name     for people: `a whole number`
    read     a written value, neither null nor a blank -> the value; WRONG or OTHER where it is none
    write    a value -> what to write for it; WRONG or OTHER where the tool has no word for it
    blank    whether a written value is only known when the job starts
    least    of whole numbers: the smallest
    samples  values of the kind that tests write and read back
    """

    name: str
    read: Callable[[Any], Any]
    write: Callable[[Any], Any] = _as_is
    blank: Callable[[Any], bool] = is_blank
    least: int | None = None
    samples: tuple[Any, ...] = ()


def _flag(value: Any) -> Any:
    found = None if isinstance(value, (dict, list)) else as_boolean(value)
    return Unsaid.WRONG if found is None else found


def _number(value: Any) -> Any:
    number = None if isinstance(value, bool) else as_number(value)
    return Unsaid.WRONG if number is None or number != number or abs(number) == float("inf") else float(number)


def _text(value: Any) -> Any:
    return value if isinstance(value, str) and value.strip() else Unsaid.WRONG


def _word(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) and value.strip() else Unsaid.WRONG


def _words(value: Any) -> Any:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list) or not items:
        return Unsaid.WRONG
    if not all(isinstance(item, str) and not is_whole_blank(item) for item in items):
        return Unsaid.WRONG
    return [item.strip() for item in items if item.strip()]


def _section(value: Any) -> Any:
    return value if isinstance(value, dict) and value else Unsaid.WRONG


@cache
def integer(least: int | None = None) -> Kind:
    """Whole numbers, `least` or more."""

    def read(value: Any) -> Any:
        number = as_integer(value)
        return Unsaid.WRONG if number is None or (least is not None and number < least) else number

    name = "a whole number" if least is None else f"a whole number, {least} or more"
    return Kind(name, read, least=least)


INTEGER = integer()
NATURAL = integer(0)
POSITIVE = integer(1)
FLAG = Kind("true or false", _flag, samples=(True, False))
"""A boolean, as a word too."""

NUMBER = Kind("a number", _number, samples=(0.0, 0.83, 1.5, 17.0))
"""A finite number, as a float."""

TEXT = Kind("a string", _text, blank=is_whole_blank, samples=("a", "org/name", "flash_attention_2"))
"""A string that says something, a part of which may be filled in later (`${HOME}/model`)."""

WHOLE_TEXT = Kind("a string", _text, samples=TEXT.samples)
"""A string of which nothing is filled in later."""

WORD = Kind("a word", _word, blank=is_whole_blank, samples=("a", "adamw"))
"""A string that the tool takes in any letters, as small ones."""

WORDS = Kind("a list of strings", _words, blank=is_whole_blank, samples=(["q_proj"], ["q_proj", "v_proj"]))
"""A list of strings, or one string with commas."""

SECTION = Kind("a section", _section, samples=({"r": 7},))
"""A mapping that has keys."""

ANYTHING = Kind("any value", _as_is, samples=(1, "a", True))
