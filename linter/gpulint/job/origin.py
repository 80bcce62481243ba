"""Where a value comes from. Every field of a Job has one."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..source.node import Span


class Origin(NamedTuple):
    """The source of one Job field.

    kind      `file` (a key in a config), `command line`, `comment`, `default` (of a named upstream
              version), `derived` (from other fields), `assumed` (nothing states it)
    note      for people: "default of axolotl 0.19.0", "2 GPUs from accelerate's num_processes"
    file      the path of the file that set it, for `file` and `comment`
    key       the dotted key in that file
    span      where the value stands; `key_span` where its key does
    values    what the field may be, where nothing settles it and more is known than what `unstated` facts may be at all
    """

    kind: str
    note: str = ""
    file: str | None = None
    key: str | None = None
    span: Span | None = None
    key_span: Span | None = None
    values: tuple[Any, ...] = ()

    def __str__(self) -> str:
        if self.file and self.span:
            return f"{self.file}:{self.span.line} {self.key}" + (f" ({self.note})" if self.note else "")
        return self.note or self.kind
