"""What completion offers."""

from __future__ import annotations

from typing import NamedTuple


class Item(NamedTuple):
    """Something to write: `text` takes the place of `start` to `end`. `kind` is `key`, `value` or `word`."""

    label: str
    text: str
    start: int
    end: int
    kind: str
    detail: str = ""
    help: str = ""
    old: bool = False


class Completion(NamedTuple):
    """What is offered; not `whole` where more typing leads to more."""

    items: list[Item]
    whole: bool = True
