"""Unknown keys of verl's configs, as hydra and verl's forks have it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.keys import key_problems

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.format import Problem

CLOSE = 0.9
"""How alike an unknown key of a YAML file must be to a known one to be reported: forks have keys of their own."""


def verl_problems(document: Document, schema: str) -> list[Problem]:
    """Hydra refuses overrides of keys that the config lacks, unless `+` adds them; files may add what they like."""
    problems = key_problems(document, schema, known=("config-name", "config-path", "config_name", "config_path"))
    if document.syntax == "flags":
        kept = []
        for item in problems:
            if item.kind == "unknown-key":
                start = item.span.start
                while start > 0 and not document.text[start - 1].isspace():
                    start -= 1
                if document.text[start : start + 1] == "+":
                    continue
                item = item._replace(values={**item.values, "treatment": "refused"})
            kept.append(item)
        return kept
    return [item for item in problems if item.kind != "unknown-key" or _is_told(document, item)]


def _is_told(document: Document, item: Problem) -> bool:
    """Whether an unknown key of a YAML file is more than one of its own: one of another release that is stated, one
    whose name grew since (`micro_batch_size`, now `micro_batch_size_per_gpu`), or one that looks misspelt."""
    if not item.values["since"] and not item.values["until"]:
        return _misspelt(document, item)
    grew = item.values["spelling"].startswith(f"{item.key.rpartition('.')[2]}_")
    return item.values["stated"] == "yes" or grew


def _misspelt(document: Document, item: Problem) -> bool:
    from difflib import SequenceMatcher

    suggestion = item.values.get("suggestion", "").rpartition(".")[2]
    written = item.key.rpartition(".")[2]
    section = item.key.rpartition(".")[0]
    taken = document.root.find(f"{section}.{suggestion}" if section else suggestion) is not None
    return bool(suggestion) and not taken and SequenceMatcher(None, written, suggestion).ratio() >= CLOSE
