"""The programs that a command line may start, and the format that their flags or their config file are of."""

from __future__ import annotations

import os
import re
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ...formats.core.format import Problem
from ...formats.core.inheritance import shipped_file
from ...formats.core.registry import is_of, recognise
from ...source.document import SourceError
from ...source.node import Entry, Node, Span
from ...source.places import places_of
from ...source.read import parse
from ..shell.script import place
from .flags import Manner, inside, overlaid, read_flags, scalar
from .generated_files import CONFIG_SUFFIXES, MadeError
from .own_options import sourced_options
from .program_table import MODULES, PROGRAMS
from .written_sources import written_in_source

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ...formats.core.format import Project
    from ...source.document import Document
    from ..launch import Decided
    from ..shell.shell import Word
    from .program_table import Program
    from .wrappers import Unwrapped


class Begun(NamedTuple):
    """What a program was given: the format and document of its config, the file it came from, and what was odd.

    `foreign` where a script that no table names takes options of its own beside the format's. `unread` is the config
    file that it is given besides its flags, and that is not here. `declared` are the options that the script's source
    declares, `files` the sources in which arguments stand, and `loads` says whether they say how the model is loaded.
    `ignores`: the program passes over options that it does not know. `decided` are Job fields that its source decides.
    """

    format: str
    config: Document
    file: Document | None = None
    problems: tuple[Problem, ...] = ()
    foreign: bool = False
    unread: str = ""
    declared: frozenset[str] = frozenset()
    files: dict[str, Document] = {}  # noqa: RUF012  (never changed)
    loads: bool = False
    ignores: bool = False
    decided: Mapping[str, Decided] = {}


_CONFIG_FLAGS = ("config", "config_file", "cfg", "config_path", "c", "yaml", "Y")
"""Flags that scripts of their own name a config file by; `-Y` is that of H2O LLM Studio's train.py."""

_PLACEHOLDER = re.compile(r"[$<{]")


def begin(
    program: Unwrapped, file: Document, project: Project, variables: Mapping[str, Word] | None = None
) -> Begun | None:
    """The config that a program runs with; None where gpulint knows neither the program nor its flags.

    `variables` are those of its environment.
    """
    found = known(program) or _by_flag(program, file)
    if found is None:
        return _unknown(program, file, project)
    row, words = found
    flags = read_flags(words, file, _with_options(row))
    if row.variables and variables:
        flags = flags._replace(document=_with_variables(row.format, flags.document, variables))
    if row.more:
        flags = flags._replace(document=_own_options(row.format, flags.document))
    reference = _reference(row, flags.document, flags.rest)
    if reference is None:
        if row.file:
            return None
        return Begun(row.format, flags.document, ignores=row.ignores)
    begun = _with_file(row.format, reference, flags.document, file, project, under=row.under)
    return begun._replace(ignores=row.ignores) if begun is not None else None


def _own_options(format_: str, flags: Document) -> Document:
    """The flags that the format knows."""
    known = _schema(format_)["properties"]
    return _kept(flags, lambda entry: str(entry.key.value).replace("_", "-") in known)


def _values(format_: str, flags: Document) -> Document:
    """The flags without those that are a section of the format, which a script of its own means something else by."""
    known = _schema(format_).get("properties", {})
    return _kept(flags, lambda entry: known.get(str(entry.key.value), {}).keys().isdisjoint(("$ref", "properties")))


def _kept(flags: Document, wanted: Callable[[Entry], bool]) -> Document:
    """The flags that are wanted."""
    return inside(flags, filter(wanted, flags.root.entries()), flags.root)


def flags_of(format_: str, words: list[Word], file: Document) -> Document:
    """The flags of the program that `format_` is of, as its command line is read."""
    row = next(row for row in PROGRAMS if row.format == format_)
    return read_flags(words, file, _with_options(row)).document


def _with_variables(format_: str, flags: Document, variables: Mapping[str, Word]) -> Document:
    """The flags over the options that variables set; the keys of those belong to no file, so nothing edits them."""
    places = places_of(flags.text)
    set_: list[Entry] = []
    for option, schema in _schema(format_)["properties"].items():
        word = variables.get(str(schema.get("x-variable", "")))
        if word is not None and word.text and flags.root.entry(option) is None:
            value = scalar(word, places, flags.path)
            set_.append(Entry(Node("scalar", option, value.span, option), value))
    return inside(flags, [*set_, *flags.root.entries()], flags.root)


def known(program: Unwrapped) -> tuple[Program, tuple[Word, ...]] | None:
    """The row of a program, and the words behind its name; None for one that is in no table."""
    called = ("-m " if program.module else "") + program.head
    first, *given = MODULES[program.head].split() if program.module and program.head in MODULES else [called]
    at = program.name.at[:1]
    words = (*(program.name._replace(text=text, at=at * len(text)) for text in given), *program.words)
    for row, more in _heads().get(first, ()):
        size = len(more)
        if [word.text for word in words[:size]] == more:
            return row, words[size:]
    found = _of_module_file(program)
    if found is not None:
        return found
    path = "/" + program.name.text.replace("\\", "/")
    for row, more in _heads().get(path.rpartition("/")[2], ()) if path.endswith(".py") else ():
        if more and path.endswith("/" + more[0]):
            return row, program.words
    return None


def _of_module_file(program: Unwrapped) -> tuple[Program, tuple[Word, ...]] | None:
    """The row of a module that is started by its file: `swift/cli/sft.py` for `-m swift.cli.sft`."""
    if program.module or not program.head.endswith(".py"):
        return None
    parts = program.name.text.removesuffix(".py").replace("\\", "/").split("/")
    for start in range(len(parts) - 1):
        for row, more in _heads().get(f"-m {'.'.join(parts[start:])}", ()):
            size = len(more)
            if [word.text for word in program.words[:size]] == more:
                return row, program.words[size:]
    return None


def _by_flag(program: Unwrapped, file: Document) -> tuple[Program, tuple[Word, ...]] | None:
    """The row of a script by the section and name of its flag for a config file, which no other program has.

    torchtitan's launcher ran `train.py --job.config_file` until February 2025 (run_llama_train.sh, run_train.sh).
    """
    if not program.head.endswith(".py"):
        return None
    given = read_flags(program.words, file).document.root
    rows = (row for row in PROGRAMS if any("." in flag and given.entry(flag) is not None for flag in row.config))
    row = next(rows, None)
    return None if row is None else (row, program.words)


@cache
def _heads() -> dict[str, list[tuple[Program, list[str]]]]:
    """The rows of the table by the first word that calls them, with the words that must follow; those that a script is
    of by its file name, with the end of its path."""
    found: dict[str, list[tuple[Program, list[str]]]] = {}
    for row in PROGRAMS:
        for head in row.heads:
            first, *more = head.split(" ")
            if head.endswith(".py"):
                first, more = head.rpartition("/")[2], [head]
            elif first == "-m":
                first, more = f"-m {more[0]}", more[1:]
            found.setdefault(first, []).append((row, more))
    return found


def named(program: Unwrapped) -> str:
    """What a program is called: a command with its subcommand, the path of a script, or a module."""
    if program.module or program.head.endswith(".py"):
        return program.name.text
    return " ".join((program.head, *(word.text for word in program.words[:1] if not word.text.startswith("-"))))


def _with_options(row: Program) -> Manner:
    """The manner, with what the format's schema says of its options where the table says nothing."""
    whole = _schema(row.format)
    properties: Mapping[str, dict[str, object]] = whole.get("properties", {})
    manner = row.manner._replace(short={**whole.get("x-short", {}), **row.manner.short})
    if manner.switches is None:
        names = {_plain(key) for key, schema in properties.items() if schema.get("type") == "boolean"}
        manner = manner._replace(switches=names.__contains__)
    if not manner.options and not row.file and not row.exact:
        former = frozenset(_plain(key) for key, schema in properties.items() if "x-removed" in schema)
        current = frozenset(map(_plain, properties)) - former
        manner = manner._replace(options=current.union(map(_plain, row.config)), former=former)
    return manner


def _schema(format_: str) -> dict[str, Any]:
    from ...formats.core.keys import load

    try:
        return load(format_)
    except FileNotFoundError:
        return {}


def _plain(key: str) -> str:
    return key.replace("-", "_")


def _reference(row: Program, flags: Document, rest: list[Word]) -> tuple[str, object] | None:
    """The config file that the command names, and the node or word that does."""
    for name in row.config:
        entry = flags.root.find(name) or flags.root.find(name.replace("_", "-"))
        if entry is not None and isinstance(entry.value.value, str):
            return entry.value.value, entry.value.span
    if rest and (row.file or rest[0].text.lower().endswith(CONFIG_SUFFIXES)):
        return rest[0].text, rest[0]
    return None


def _with_file(
    format_: str,
    reference: tuple[str, object],
    flags: Document,
    file: Document,
    project: Project,
    *,
    under: bool = False,
) -> Begun | None:
    path, where = reference
    span = where if isinstance(where, Span) else place(places_of(file.text), where.at)  # type: ignore[attr-defined]
    if _PLACEHOLDER.search(path):
        base = _based(format_, path, flags, span)
        return Begun(format_, base) if base is not None and path.startswith("$") else None
    reason = "not found"
    try:
        document = project.open(path.removeprefix(_OUMI), file.path)
    except MadeError:
        return None
    except SourceError as error:
        document, reason = None, str(error)
    if document is None and reason == "not found" and (base := _based(format_, path, flags, span)) is not None:
        return Begun(format_, base, None)
    if document is None and (os.path.isabs(path) or _shipped(path, format_)):
        return None
    if document is None:
        values = {"reference": path, "path": path, "reason": reason, "assumption": "empty"}
        problem = Problem("unresolved-reference", "config", span, values, file.path)
        return Begun(format_, flags, None, (problem,), unread=path)
    # the flag that names the config is no key of it
    flags = _kept(flags, lambda entry: entry.value.span != span)
    laid = _unsaid(format_, flags, document) if under else flags
    config = overlaid(document, laid)._replace(reread=_again(document, format_, flags, under=under))
    return Begun(format_, config, document)


def _based(format_: str, path: str, flags: Document, span: Span) -> Document | None:
    """The flags over a config that the tool ships, where its configs say what they build on; None where it has none."""
    key = _INHERITS.get(format_)
    if key is None or shipped_file(format_, path) is None:
        return None
    own = _kept(flags, lambda entry: entry.value.span != span)
    base = Entry(Node("scalar", key, span, key), Node("scalar", path, span, path))
    root = Node("mapping", [base, *own.root.entries()], own.root.span, own.root.raw)
    return own._replace(roots=[root, *own.roots[1:]])


_INHERITS = {"nemo_rl": "defaults"}
"""The key under which a config of a format names the one that it builds on."""


def _again(file: Document, format_: str, flags: Document, *, under: bool) -> Callable[[str], Document]:
    """Reads a config file from another text, with the same flags."""

    def reread(text: str) -> Document:
        again = parse(text, file.path, file.syntax)
        return overlaid(again, _unsaid(format_, flags, again) if under else flags)

    return reread


def _unsaid(format_: str, flags: Document, file: Document) -> Document:
    """The flags whose option the file does not set, under whatever name."""
    known = _schema(format_).get("properties", {})

    def option(name: str) -> object:
        return known.get(name, {}).get("x-option", name)

    told = {option(str(key)) for key in list(file.root.keys())}
    return _kept(flags, lambda entry: option(str(entry.key.value)) not in told)


_OUMI = "oumi://"
"""What stands for the folder of Oumi's configs (core/configs/base_config.py): in a checkout of it, the repository."""


def _shipped(path: str, format_: str) -> bool:
    """Whether it is the name of a config that the program brings along: `tune run ... --config llama3_2/1B_full`."""
    return path.startswith(_OUMI) or (format_ == "torchtune" and not path.lower().endswith(CONFIG_SUFFIXES))


_GENERATES = re.compile(
    r"generat|infer|server|serve|evaluat|convert|checkpoint|preprocess|analy[sz]e|tokeni[sz]e|merge"
)
"""What the scripts of Megatron-LM that train nothing are called (its `tools` and `examples/inference`)."""


def _unknown(program: Unwrapped, file: Document, project: Project) -> Begun | None:
    """A script that no table names: judged by the config file that it is given, or by its flags."""
    if not (program.module or program.head.endswith(".py")):
        return None
    flags = read_flags(program.words, file)
    candidates = [
        (str(entry.value.value), entry.value.span)
        for name in _CONFIG_FLAGS
        for entry in (flags.document.root.entry(name) or flags.document.root.entry(name.replace("_", "-")),)
        if entry is not None
    ]
    candidates += [(word.text, word) for word in flags.rest]  # type: ignore[misc]
    unread = ""
    for text, where in candidates:
        if not text.lower().endswith(CONFIG_SUFFIXES):
            continue
        try:
            document = None if _PLACEHOLDER.search(text) else project.open(text, file.path)
        except SourceError:
            document = None
        if document is None:
            unread = unread or text
            continue
        form = recognise(document)
        if form is not None and form.name not in ("accelerate", "deepspeed"):
            return _with_file(form.name, (text, where), _values(form.name, flags.document), file, project)
    if is_of(flags.document, "slime"):
        return Begun("slime", flags.document)
    if is_of(flags.document, "megatron") and not _GENERATES.search(program.name.text):
        return Begun("megatron", flags.document, foreign=True)
    arguments = read_flags(program.words, file, Manner(underscored=True)).document
    sourced = sourced_options(program, file, project)
    if sourced is None:
        begun = Begun("hf_trainer", arguments, unread=unread) if _is_trainer(arguments) else None
        return begun or _in_source(program, file, project)
    if not _is_trainer(arguments) and not (sourced.trains and _is_trainer(sourced.config)):
        begun = _in_source(program, file, project)
        return None if begun is None or begun.format == "hf_trainer" else begun
    return Begun(
        "hf_trainer", sourced.config, None, sourced.problems, unread=unread, declared=sourced.declared,
        files=sourced.files, loads=sourced.loads,
    )  # fmt: skip


def _is_trainer(arguments: Document) -> bool:
    form = recognise(arguments)
    return form is not None and form.name == "hf_trainer"


def _in_source(program: Unwrapped, file: Document, project: Project) -> Begun | None:
    """A script whose arguments stand in its source."""
    found = written_in_source(program, file, project)
    if found is None:
        return None
    launch, source, problems = found
    files = {f"script {source.path}": source}
    return Begun(launch.format, launch.config, None, problems, files=files, loads=launch.loads, decided=launch.decided)
