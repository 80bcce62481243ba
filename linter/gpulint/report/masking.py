"""Secrets of configs and scripts as stars, wherever text of theirs leaves the program."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..finding import FileResult, Finding, Report

_NAME = (
    r"[\w.\-]{0,80}(?:token|secret|passw(?:or)?d|passphrase|credential|(?:api|access|private|wandb)[_-]?key)"
    r"[\w.\-]{0,80}"
)
"""A key, variable or flag whose value is a secret, unless `_NOT_SECRET` knows better."""

_NOT_SECRET = re.compile(
    r"(?i)tokens|tokeni[sz]|(?:max|num|batched|pad|bos|eos|unk|sep|cls|mask|special|image|per|new|stop|end|start)[-_]?token"
    r"|(?:token|secret|key|credential|passw(?:or)?d)s?[-_]?(?:ids?|type|class|file|path|name|url|dir|env|(?:key)?ref|"
    r"budget|len|length|limit|count|size|rate|level|idx|index)\b"
    r"|^-{0,2}use[-_]"
)
"""Names with such a word that hold no secret."""

_QUOTED = r"""\\?"[^"\\]*\\?"|'[^']*'"""
_WORD = r"""(?:(?!,[\w.\-]+=)[^\s"'`;&|()<>\\])+"""
_FLOW_WORD = r"""[^\s"',\]}]+"""
_BARE = r"""[^\s"'\[{|>].*?(?=\s+\#|\s*$)"""

_NAMED = re.compile(
    rf"""(?ix)
    ^(?P<owner>\s*(?:-\s+)*["']?{_NAME}["']?\s*(?::\s+|\s=\s+))(?P<whole>{_QUOTED}|{_BARE})   # a line of YAML, TOML
    | (?P<flag>(?<![\w\-])--?{_NAME}(?:\s+|["']\s*,\s*(?=["'])))(?P<given>{_QUOTED}|(?!-){_WORD})   # --api-key VALUE
    | (?P<key>(?<![\w.\-]){_NAME}\\?["']?\s*:\s*)(?P<flow>{_QUOTED}|{_FLOW_WORD})   # {{api_key: VALUE}}
    | (?P<variable>(?<![\w.\-]){_NAME}\\?["']?\s*=\s*)(?P<set>{_QUOTED}|{_WORD})   # HF_TOKEN=VALUE
    | (?P<pair>\bname["']?\s*:\s*["']?{_NAME}["']?\s*,\s*["']?value["']?\s*:\s*)(?P<paired>{_QUOTED}|{_FLOW_WORD})
    """
)
_ASIDE = re.compile(
    rf"""(?ix)^\s*(?:-\s+)?(?:
    (?:["']?(?P<flag>--?{_NAME})|["']?name["']?\s*:\s*["']?(?P<name>{_NAME}))["',\s\\]*
    | ["']?(?P<block>{_NAME})["']?\s*:\s*[|>][-+\d]*\s*)$"""
)
"""A line whose value stands on the next: a flag of a list or of a continued command, the name of a pod's variable, a
key before a block of text."""
_NEXT = re.compile(rf"""(?i)^(\s*(?:-\s+)?(?:["']?value["']?\s*:\s*)?)({_QUOTED}|(?!-){_WORD})""")

_REFERENCE = re.compile(
    r"(?i)\$\{\{.*|\$\{?[\w.!]+(?:\[\w+\])?(?::?[?+-])?\}?|\$\{?\w+:\?.*|\$(?:\(.*)?|\{\{.*|<.*|\[.*|\{.*|\*+|true|false|null|none|~|yes|no|\\|`"
)
"""What stands for a value that is elsewhere, or is none."""
_DEFAULT = re.compile(r"\$\{\w+:?-")

_SECRET_VALUE = re.compile(
    r"\b(?:hf_|api_org_)(?=[A-Za-z]*[A-Z0-9])[A-Za-z0-9]{8,}"
    r"|\b(?:sk-|gh[pousr]_|github_pat_|glpat-|xox[abprs]-|AKIA|AIza|nvapi-)[A-Za-z0-9_\-]{8,}"
    r"|(?i:(?<=wandb login )[^\s$\-]\S{7,})"
    r"|(?i:(?:(?<=bearer )|(?<=authorization: basic ))[^\s$<{\"']{8,})"
)
_ADDRESS = re.compile(r"""(://[^\s/:@'"]*:)([^\s/'"]+)(?=@)""")
"""The password of `https://user:password@host`."""


def masked(text: str) -> str:
    """Any text with the known forms of tokens and the passwords of addresses as stars, its length kept."""
    if "://" in text:
        text = _ADDRESS.sub(lambda found: found[1] + _starred(found[2]), text)
    return _SECRET_VALUE.sub(lambda found: "*" * len(found[0]), text)


def without_secrets(line: str, before: str = "") -> str:
    """A config or shell line with every secret in it as stars: values of keys, variables and flags with a secret's
    name, known forms of tokens, passwords of addresses. `before` is the line above, whose flag or name it may answer.

    References such as `$HF_TOKEN` stay, and so does what stands behind a value. The length is kept, so that carets
    under the line stay right.
    """
    aside = _ASIDE.match(before)
    if aside and not _NOT_SECRET.search(aside["flag"] or aside["name"] or aside["block"]):
        told = re.compile(r"(\s*)(.*\S)") if aside["block"] else _NEXT
        line = told.sub(lambda found: found[1] + _starred(found[2]), line, count=1)
    return masked(_NAMED.sub(_hidden, line))


def _hidden(found: re.Match[str]) -> str:
    head, value = (part for part in found.groups() if part is not None)
    return found[0] if _NOT_SECRET.search(head.strip(" \t-'\"=:,")) else head + _starred(value)


def _starred(value: str) -> str:
    """A value as stars within its quotes; as it is where it refers to another."""
    quote = re.match(r"""\\?["']""", value)
    if quote and len(value) >= 2 * len(quote[0]) and value.endswith(quote[0]):
        size = len(quote[0])
        return quote[0] + _starred(value[size:-size]) + quote[0] if len(value) > 2 * size else value
    default = _DEFAULT.match(value)
    if default:
        inner = value[default.end() :].removesuffix("}")
        return default[0] + "*" * len(inner) + value[default.end() + len(inner) :]
    return value if _REFERENCE.fullmatch(value) else "*" * len(value)


def masked_report(report: Report) -> Report:
    """The report as any output may show it; the texts of the files, of which frames are made, stay."""
    return replace(
        report,
        files=[_masked_file(file) for file in report.files],
        findings=[_masked(item) for item in report.findings],
    )


def _masked(finding: Finding) -> Finding:
    return replace(
        finding,
        message=masked(finding.message),
        notes=tuple(map(masked, finding.notes)),
        related=tuple(replace(place, label=masked(place.label)) for place in finding.related),
        suggestions=tuple(replace(item, text=masked(item.text)) for item in finding.suggestions),
    )


def _masked_file(file: FileResult) -> FileResult:
    jobs = tuple(replace(job, why=masked(job.why), settles=masked(job.settles)) for job in file.jobs)
    return replace(file, reason=masked(file.reason), jobs=jobs)
