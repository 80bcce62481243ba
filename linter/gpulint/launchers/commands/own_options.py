"""The command line of a script whose source is in the repository, under the names that the Trainer's arguments have.

An option that reaches an argument of the Trainer (`--bs` in `TrainingArguments(per_device_train_batch_size=args.bs)`)
is that argument; what the script sets without an option, or by an option's default, is one that stands in the script.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ...formats.core.format import Problem
from ...formats.core.keys import load
from ...formats.core.placeholders import is_blank
from ...formats.core.typos import nearest, slip
from ...repository.script_feeds import UNKNOWN, feeds, trains
from ...repository.script_options import UNSAID, script_options, source_of
from ...source.document import Document
from ...source.node import Entry, Node, Span
from ...source.referenced import on_disk, shown_path
from .flags import Manner, read_flags

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from ...formats.core.format import Project
    from ...repository.script_feeds import Fed
    from ...repository.script_options import Option, Script
    from .wrappers import Unwrapped

FORMAT = "hf_trainer"
"""The format whose arguments the sinks name."""


MODEL = "model_name_or_path"


class Sourced(NamedTuple):
    """A command line as its script has it.

    config    the arguments of the Trainer that it says
    trains    whether the script has a Trainer train
    loads     whether it loads the model where it can be read
    declared  the options that the script declares, as they may be written
    problems  options that it stops at
    files     the script, by what names it
    """

    config: Document
    trains: bool
    loads: bool
    declared: frozenset[str]
    problems: tuple[Problem, ...]
    files: dict[str, Document]


def sourced_options(program: Unwrapped, file: Document, project: Project) -> Sourced | None:
    """The command line of a script of the repository; None where its source is not here or declares no option."""
    if not on_disk() or not program.name.known:
        return None
    path = source_of(program.name.text, program.module, file.path, project.root)
    script = script_options(path, project.root) if path is not None else None
    if script is None:
        return None
    flags = read_flags(program.words, file, _manner(script)).document
    written = [_Written(entry, _option(script, entry)) for entry in flags.root.entries()]
    given = {one.option.name: one for one in written if one.option is not None}
    fed = feeds(script, {name: _value(option, given.get(name)) for name, option in script.options.items()})
    kept, problems = _kept(written, script, fed, flags.path)
    sources = _Sources()
    said = list(_of_the_script(script, fed, given, {str(entry.key.value) for entry in kept}, sources))
    config = flags._replace(roots=[Node("mapping", [*said, *kept], flags.root.span)])
    declared = frozenset(name for option in script.options.values() for name in option.spellings)
    return Sourced(config, trains(script), MODEL in fed, declared, problems, sources.files)


class _Written(NamedTuple):
    """A flag of the command, and the option that it is; None for none that the script declares."""

    entry: Entry
    option: Option | None


def _option(script: Script, entry: Entry) -> Option | None:
    """The option that a flag is; `--no_x` was read as x, which is false."""
    name = str(entry.key.value)
    negated = script.named(f"no_{name}") if entry.value.value is False else None
    return negated or script.named(name)


def _manner(script: Script) -> Manner:
    switches = {name for option in script.options.values() if option.switch is not None for name in option.spellings}
    short = {
        name: option.spellings[0] if len(option.spellings[0]) > 1 else option.name
        for option in script.options.values()
        for name in option.spellings
        if len(name) == 1
    }
    names = {name for option in script.options.values() for name in option.spellings if len(name) > 1}
    options = names.union(_inherited(script)) if script.prefixes else ()
    return Manner(switches.__contains__, short, underscored=True, options=options)


def _inherited(script: Script) -> Collection[str]:
    """The Trainer's own arguments, where the script has them, too."""
    return load(FORMAT)["properties"].keys() if script.inherits else ()


def _value(option: Option, given: _Written | None) -> Any:
    """What an option is: what the command gives it, else its default."""
    if given is None:
        return option.default
    value = given.entry.value.plain()
    if is_blank(value):
        return UNKNOWN
    bare = value is True or str(given.entry.key.value).replace("-", "_") not in option.spellings
    return option.switch if bare and option.switch is not None else value


def _kept(
    written: list[_Written], script: Script, fed: dict[str, Fed], path: str
) -> tuple[list[Entry], tuple[Problem, ...]]:
    """The options of the command under the names that they have for the Trainer, and those that the script refuses."""
    kept: list[Entry] = []
    problems: list[Problem] = []
    inherited = _inherited(script)
    for entry, option in written:
        name = str(entry.key.value)
        if option is None and script.refuses and name.replace("-", "_") not in inherited:
            problems.append(_refused(entry, script, inherited, path))
            continue
        reached = [one for one in fed.values() if option is not None and one.option == option.name]
        kept += [Entry(_called(entry.key, one.argument), _switched(entry.value, one)) for one in reached]
        if not reached:
            kept.append(entry)
    return kept, tuple(problems)


def _called(key: Node, argument: str) -> Node:
    """The key under the name of the argument; `raw` stays as the script's own."""
    node = Node("scalar", argument, key.span, str(key.value))
    node.path = key.path
    return node


def _switched(value: Node, fed: Fed) -> Node:
    """The value of an option; of a switch that the argument sees otherwise (`--no_ckpt`), what it comes to."""
    if type(fed.value) is not bool or value.value is fed.value:
        return value
    node = Node("scalar", fed.value, value.span, value.raw)
    node.path = value.path
    return node


def _refused(entry: Entry, script: Script, inherited: Collection[str], path: str) -> Problem:
    """The problem of an option that the script's parser stops at."""
    written = str(entry.key.value)
    spellings = [*(option.spellings[0] for option in script.options.values()), *inherited]
    values = {
        "suggestion": (near := nearest(written, spellings)),
        "spelling": near,
        "treatment": "refused",
        "slip": "yes" if near and slip(written, near) else "no",
        "upstream": shown_path(script.path),
        "stated": "no" if script.inherits else "yes",  # the Trainer's own are those of the releases that were read
    }
    return Problem("unknown-key", written, entry.key.span, values, path)


def _of_the_script(
    script: Script, fed: dict[str, Fed], given: dict[str, _Written], written: set[str], sources: _Sources
) -> Iterator[Entry]:
    """What the script says of the Trainer's arguments that the command does not: constants and defaults of options."""
    from ...formats.hf_trainer.format import TABLE

    asked = {name for row in TABLE.key_rows() for name in row.names}
    known = asked | load(FORMAT)["properties"].keys()
    for one in fed.values():
        if one.argument in written or one.argument not in known or one.value is None or one.option in given:
            continue
        if one.value is not UNKNOWN:
            yield sources.entry(one.argument, one.value, one.option, script.path, one.line)
        elif one.argument in asked and one.option is None:
            yield sources.entry(one.argument, f"${{{one.text}}}", None, script.path, one.line)
    reached = {one.option for one in fed.values()}
    adapts = "use_peft" in fed and fed["use_peft"].value is not False
    for option in script.options.values():
        name = option.name
        if name in given or name in reached or name not in asked or name in written or option.default in (None, UNSAID):
            continue
        if adapts or not name.startswith(_ADAPTER):
            yield sources.entry(name, option.default, name, option.path, option.line)


_ADAPTER = ("lora_", "target_modules", "peft_")
"""How options of an adapter begin: their defaults say nothing of a script that makes none."""


class _Sources:
    """The files of scripts in which arguments stand."""

    def __init__(self) -> None:
        self.files: dict[str, Document] = {}

    def entry(self, argument: str, value: Any, own: str | None, path: str, line: int) -> Entry:
        """An argument that stands in a line of a script."""
        shown = shown_path(path)
        document = self.files.get(f"script {shown}")
        if document is None:
            document = self.files[f"script {shown}"] = Document(shown, "python", _text(path), [], [], [])
        span = _line(document.text, line)
        key = Node("scalar", argument, span, own or argument)
        items = [Node("scalar", item, span, str(item)) for item in value] if isinstance(value, (list, tuple)) else None
        node = Node("scalar", value, span, str(value)) if items is None else Node("sequence", items, span)
        for part in (key, node, *(items or ())):
            part.path = shown
        return Entry(key, node)


def _line(text: str, line: int) -> Span:
    """What stands in a line, without the blanks before it."""
    lines = text.split("\n")
    written = lines[line - 1].rstrip("\r")
    indent = len(written) - len(written.lstrip())
    start = sum(len(above) + 1 for above in lines[: line - 1]) + indent
    return Span(line, indent + 1, line, len(written) + 1, start, start + len(written) - indent)


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace", newline="") as file:
        return file.read()
