"""What a derivation calls a tensor, stated by the code that makes it and read by `recording.py` alone.

A function says what its own tensors are, and of which part of the model; a module says the latter for all of its
functions by a constant, `PART`. A function that says nothing is known by its name, its part by who called it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import CodeType

Function = TypeVar("Function", bound="Callable[..., Any]")


class Stated(NamedTuple):
    """The words of one function.

    what      what its tensors are; `{width}` stands for that of their elements
    part      the part of the model they belong to
    by        a local variable, or an attribute of one, whose value decides the part, and the words for its values
    backward  what the tensors are that a backward function makes, where the forward function's name does not say
    """

    what: str = ""
    part: str = ""
    by: tuple[str, Mapping[str, str]] | None = None
    backward: str = ""


STATED: dict[CodeType, Stated] = {}
NOTHING = Stated()


def labelled(
    what: str = "", *, part: str = "", by: tuple[str, Mapping[str, str]] | None = None, backward: str = ""
) -> Callable[[Function], Function]:
    """State the words of a function, which is left as it is."""

    def stated(function: Function) -> Function:
        STATED[function.__code__] = Stated(what, part, by, backward)
        return function

    return stated
