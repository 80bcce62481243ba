"""Where the value of a Job field comes from: the file, the upstream's default, what follows from others, a guess."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple


class Rest(Enum):
    """LEAVE: no row says the field where the key is silent. NEVER: a change of the field is not written to the key."""

    LEAVE = "leave"
    NEVER = "never"


LEAVE, NEVER = Rest.LEAVE, Rest.NEVER


class Written(NamedTuple):
    """A value that the file's key says, with a note for people."""

    value: Any
    note: str = ""


class Default(NamedTuple):
    """The upstream's default; without a note "default of <upstream>". `unstated` as of `Assumed`."""

    value: Any
    note: str = ""
    unstated: bool = False


class Derived(NamedTuple):
    """What follows from other fields; `like` names the one whose place in the file it shares."""

    value: Any
    note: str
    like: str | None = None


class Assumed(NamedTuple):
    """What nothing states. `unstated`: the estimate's interval holds what else it may be.

    Of a blank the note may name `{key}` and `{value}`, which is what stands there.
    """

    value: Any
    note: str
    unstated: bool = False


Source = Written | Default | Derived | Assumed
"""A value and where it comes from."""
