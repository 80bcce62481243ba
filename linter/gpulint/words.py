"""Values of settings and Job fields as people read them."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any


def word(value: Any) -> str:
    """`true` for True, `-` for nothing, a list by commas, a mapping or a part of a Job as `name value` pairs."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if is_dataclass(value):
        value = {item.name: getattr(value, item.name) for item in fields(value)}
        value = {name: part for name, part in value.items() if part not in (None, (), [], {})}
    if isinstance(value, dict):
        return ", ".join(f"{name} {word(part)}" for name, part in value.items()) or "-"
    if isinstance(value, list | tuple):
        return ", ".join(map(word, value)) or "-"
    return "-" if value in (None, "") else str(value)
