"""What becomes of the keys that a tool's release does not know, beyond the release: whose keys they may be."""

from __future__ import annotations

import contextlib
import os
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from ...repository.key_readers import reads
from ...source.read import SUFFIXES
from ...source.referenced import upward

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ...source.document import Document
    from .format import Problem

SOURCES: dict[str, tuple[str, ...]] = {
    "accelerate": ("src/accelerate",),
    "axolotl": ("src/axolotl",),
    "DeepSpeed": ("deepspeed/runtime",),
    "litgpt": ("litgpt/finetune",),
    "llamafactory": ("src/llamafactory", "src/llmtuner"),
    "Megatron-Bridge": ("src/megatron/bridge",),
    "Megatron-LM": ("megatron/core", "megatron/training"),
    "ms-swift": ("swift/llm", "swift/trainers"),
    "nanotron": ("src/nanotron",),
    "nemo_rl": ("nemo_rl/algorithms",),
    "openrlhf": ("openrlhf/trainer", "openrlhf/cli"),
    "oumi": ("src/oumi",),
    "torchtitan": ("torchtitan/models",),
    "torchtune": ("torchtune/modules",),
    "trl": ("trl/trainer",),
    "verl": ("verl/trainer",),
    "vllm": ("vllm/engine",),
}
"""Folders of each tool's repository that hold its source."""

SEVERAL = 3
"""Keys of one file that a tool does not know, and that are no slips, from which on the file is another release's."""

MAX_SOURCE = 16 << 20
"""Characters of a tool's source that are read; of a larger one nothing is said."""

_WORD = re.compile(r"[A-Za-z_]\w+")

_KEY = re.compile(r"^[ \t-]*([A-Za-z_]\w*):(?=\s)", re.MULTILINE)

_OF_A_RELEASE = frozenset({"unknown-key", "wrong-value"})


def settled(problems: Sequence[Problem], document: Document, root: str) -> list[Problem]:
    """The problems without those that the file or the project answers, and the many of one file in one.

    A project that holds the tool's source runs that one, whatever its release: what is left are slips, and keys that
    neither the source nor its own configs name; those configs know what looks like a slip, too. A key that another
    value of the file refers to (`${policy.lr}`) is a variable.
    """
    kept = []
    for item in problems:
        if item.kind in _OF_A_RELEASE and not _meant(item) and _of_the_source(item, document, root):
            continue
        if item.kind == "unknown-key" and item.values["treatment"] == "ignored" and _referred(item, document):
            continue
        if item.kind == "unknown-key" and _of_another_program(item, document, root):
            continue
        kept.append(item)
    return _gathered(kept)


def _of_the_source(problem: Problem, document: Document, root: str) -> bool:
    """Whether the tool's source in the project may know the key; of a slip, whether its own configs have it."""
    source = own_source(problem.values.get("upstream", ""), document.path, root)
    if source is None:
        return False
    name = problem.key.rpartition(".")[2]
    own = own_keys(source).get(name.replace("-", "_"), frozenset()) - {os.path.realpath(problem.path or document.path)}
    return bool(own) or (problem.values.get("slip") != "yes" and may_name(source, name))


def own_source(upstream: str, path: str, root: str) -> str | None:
    """The folder of the tool's package in the project of a file, in a folder above the file or in the project's."""
    folders = SOURCES.get(upstream.partition(" ")[0])
    if not folders:
        return None
    levels = (*upward(os.path.dirname(os.path.abspath(path)), root), os.path.abspath(root))
    return next(
        (found for level in (*levels, os.path.abspath(root)) if (found := _package(level, folders)) is not None), None
    )


def may_name(package: str, key: str) -> bool:
    """Whether a source may know a key: its modules hold the word, or there are none to read."""
    words = _words(package)
    return not words or key.replace("-", "_") in words


def _of_another_program(problem: Problem, document: Document, root: str) -> bool:
    """Whether a program of the project reads the key of the config, as one that starts the tool with it may.

    What only resembles a known key counts where the very file that opens configs reads it; what the tool stops at,
    where the program takes it out.
    """
    syntax = document.syntax if problem.path in (None, document.path) else SUFFIXES.get(_suffix(problem.path), "")
    resembles = problem.values["slip"] == "yes" or bool(problem.values.get("suggestion"))
    refused = problem.values["treatment"] == "refused"
    return reads(problem.key, syntax, root or os.path.dirname(document.path), itself=resembles, takes=refused)


def _suffix(path: str | None) -> str:
    return os.path.splitext(path or "")[1].lower()


def _meant(problem: Problem) -> bool:
    """Whether a refused word is probably another one misspelt."""
    return problem.kind == "wrong-value" and bool(problem.values.get("suggestion"))


@lru_cache(maxsize=4096)
def _package(level: str, folders: tuple[str, ...]) -> str | None:
    for folder in folders:
        if os.path.isdir(os.path.join(level, folder)):
            return os.path.join(level, folder if folder.startswith("src/") else folder.partition("/")[0])
    return None


@lru_cache(maxsize=64)
def _words(package: str) -> frozenset[str]:
    """Every word of the modules of a package; none where they are more than is read."""
    found: set[str] = set()
    left = MAX_SOURCE
    for _, text in _texts(package, (".py",)):
        left -= len(text)
        if left < 0:
            return frozenset()
        found.update(_WORD.findall(text))
    return frozenset(found)


@lru_cache(maxsize=64)
def own_keys(package: str) -> Mapping[str, frozenset[str]]:
    """The keys of the YAML files that a package ships, with the files that hold each."""
    found: dict[str, set[str]] = {}
    left = MAX_SOURCE
    for path, text in _texts(package, (".yaml", ".yml")):
        left -= len(text)
        if left < 0:
            break
        for key in _KEY.findall(text):
            found.setdefault(key, set()).add(os.path.realpath(path))
    return {key: frozenset(paths) for key, paths in found.items()}


def _texts(package: str, ends: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The files of a package by what their names end in. Links are not followed."""
    for folder, _, names in os.walk(package):
        for path in (os.path.join(folder, name) for name in sorted(names) if name.endswith(ends)):
            if not os.path.islink(path):
                with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
                    yield path, file.read(MAX_SOURCE + 1)


def _referred(problem: Problem, document: Document) -> bool:
    """Whether a value refers to the key, by its whole place or from beside it."""
    if "${" not in document.text or problem.path not in (None, document.path):
        return False
    name = re.escape(problem.key.rpartition(".")[2])
    return re.search(r"\$\{\.{0,3}(?:[\w.]+\.)?" + name + r"[.}\[]", document.text) is not None


def _gathered(problems: list[Problem]) -> list[Problem]:
    """One problem, at the first key, for several refused ones of a file; `more` names the others."""
    groups: dict[tuple[str | None, str], list[Problem]] = {}
    for item in problems:
        of_release = item.values.get("since") or item.values.get("until")
        if item.kind != "unknown-key" or item.values["treatment"] != "refused" or of_release:
            continue
        if item.values["slip"] != "yes":
            groups.setdefault((item.path, item.values["upstream"]), []).append(item)
    first: dict[int, Problem] = {}
    dropped: set[int] = set()
    for unordered in groups.values():
        group = sorted(unordered, key=lambda item: item.span.start if item.span is not None else 0)
        if len(group) >= SEVERAL:
            others = list(dict.fromkeys(item.key for item in group[1:] if item.key != group[0].key))
            first[id(group[0])] = group[0]._replace(values={**group[0].values, "more": _named(others)})
            dropped.update(id(item) for item in group[1:])
    return [first.get(id(item), item) for item in problems if id(item) not in dropped]


NAMED = 4
"""Further keys that are named."""


def _named(keys: Sequence[str]) -> str:
    named = ", ".join(f"`{key}`" for key in keys[:NAMED])
    return f"{named} and {len(keys) - NAMED} more" if len(keys) > NAMED else named
