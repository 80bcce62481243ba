"""Untrusted text made safe for a terminal and a CI log, once, where it leaves the program."""

from __future__ import annotations

import re

_UNSAFE = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
"""C0, C1 and DEL but the tab; bidirectional controls, invisible characters, line separators, lone surrogates."""

_SECRET_KEY = re.compile(
    r"(?i)^(\s*(?:-\s*)?[\"']?[\w.\- ]*"
    r"(?:token|secret|passw(?:or)?d|api_?key|access_?key|credential)"
    r"[\w.\- ]*[\"']?\s*[:=]\s*)(\S.*)$"
)
_NOT_SECRET = re.compile(
    r"(?i)tokens|tokenizer|(?:max|num|batched|pad|bos|eos|unk|sep|cls|mask|special)[-_]?token|token[-_]?(?:id|type|class)"
)
"""Keys that hold the word token and no secret."""

_SECRET_VALUE = re.compile(
    r"\b(?:hf_|api_org_)(?=[A-Za-z]*[A-Z0-9])[A-Za-z0-9]{8,}"
    r"|\b(?:sk-|gh[pousr]_|github_pat_|glpat-|xox[abprs]-|AKIA|AIza|nvapi-)[A-Za-z0-9_\-]{8,}"
    r"|(?i:(?<=wandb login )\S{8,})"
)


def printable(text: str) -> str:
    """`text` with control, bidi and invisible characters as visible escapes and tabs as one blank.

    GitHub's runner executes `##[command]` anywhere in a line and Azure's `##vso[command]`: those marks are broken up.
    """
    text = _UNSAFE.sub(
        lambda match: f"\\x{ord(match[0]):02x}" if ord(match[0]) < 256 else f"\\u{ord(match[0]):04x}", text
    )
    return text.replace("\t", " ").replace("##[", "#\u2009#[").replace("##vso[", "#\u2009#vso[")


def without_secrets(line: str) -> str:
    """A config line with the value of a secret-looking key, or a known token form, replaced by `***`.

    The replacement keeps the length, so that carets under the line stay right.
    """
    match = _SECRET_KEY.match(line)
    if match and not _NOT_SECRET.search(match[1]):
        return match[1] + "*" * len(match[2])
    return _SECRET_VALUE.sub(lambda found: "*" * len(found[0]), line)
