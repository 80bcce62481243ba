"""Untrusted text made safe for a terminal and a CI log, once, where it leaves the program."""

from __future__ import annotations

import json
import re

from .masking import masked

_UNSAFE = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
"""C0, C1 and DEL but the tab; bidirectional controls, invisible characters, line separators, lone surrogates."""


def printable(text: str) -> str:
    """`text` with control, bidi and invisible characters as visible escapes and tabs as one blank, without tokens and
    passwords of addresses.

    GitHub's runner executes `##[command]` anywhere in a line and Azure's `##vso[command]`: those marks are broken up.
    """
    text = _UNSAFE.sub(
        lambda match: f"\\x{ord(match[0]):02x}" if ord(match[0]) < 256 else f"\\u{ord(match[0]):04x}", masked(text)
    )
    return text.replace("\t", " ").replace("##[", "#\u2009#[").replace("##vso[", "#\u2009#vso[")


def json_text(value: object, *, indent: int | None = 2) -> str:
    """`value` as JSON in whose text no runner finds a command, `##[` or `##vso[`: one of the signs is escaped."""
    text = json.dumps(value, indent=indent)
    return text.replace("##[", "#\\u0023[").replace("##vso[", "#\\u0023vso[")
