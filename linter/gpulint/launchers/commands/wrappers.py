"""Commands that start another command: `srun`, `torchrun`, `accelerate launch`, `docker run`, `bash -c` ...

`wrappers.json` says how the options of each end and whether they tell how many processes start.
"""

from __future__ import annotations

import os
import re
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from ...source.tables import read_table
from ..shell.script import Script
from ..shell.shell import MAX_NESTING, Command, Word, commands
from .flags import Manner, read_flags
from .images import names_model, program_of

if TYPE_CHECKING:
    from ...source.document import Document

_SHELLS = frozenset({"bash", "sh", "zsh", "dash"})
_PYTHON_VALUES = frozenset({"-W", "-X", "--check-hash-based-pycs"})


class Wrapper(NamedTuple):
    """A row of `wrappers.json`: the words that it begins with, and how its options end."""

    heads: tuple[tuple[str, ...], ...]
    switches: frozenset[str]
    module: frozenset[str]
    skip: int = 0
    processes: bool = False
    image: bool = False
    pairs: frozenset[str] = frozenset()
    attached: bool = False
    text: str = ""


class Unwrapped(NamedTuple):
    """A program without what wraps it.

    head      the name of the command, the Python module or the script: `vllm`, `axolotl.cli.train`, `train.py`
    module    whether it is a module
    name      the word that names it
    words     the words behind that
    launchers the wrappers that start processes, outermost first, with their options as flags
    options   options of the other wrappers as flags, by the wrapper's name
    image     the container image that it runs in; "" where no wrapper names one
    script    whether it is a script that a shell is given
    """

    head: str
    module: bool
    name: Word
    words: tuple[Word, ...]
    launchers: tuple[tuple[str, Document], ...] = ()
    options: tuple[tuple[str, Document], ...] = ()
    image: str = ""
    script: bool = False


def unwrap(command: Command, file: Document) -> list[tuple[Command, Unwrapped]]:
    """The programs that a command ends up running, each with the command whose words it is; several for `bash -c`."""
    return _unwrap(command, file, 0)


def _unwrap(command: Command, file: Document, depth: int) -> list[tuple[Command, Unwrapped]]:
    words = command.words
    launchers: list[tuple[str, Document]] = []
    options: list[tuple[str, Document]] = []
    module, image = False, ""
    for _ in range(MAX_NESTING):
        while words and "=" in words[0].text and not words[0].text.startswith("-"):
            words = words[1:]
        if not words:
            return []
        name = os.path.basename(words[0].text)
        if module:
            name = words[0].text
        if not module and name in _SHELLS:
            around = Unwrapped(name, False, words[0], (), tuple(launchers), tuple(options), image)
            return _of_shell(command, words, around, file, depth)
        if not module and _is_python(name):
            words, module = _python(words)
            continue
        wrapper, size = _find(words, module=module)
        if wrapper is None and (behind := _submitted(words)) is not None:
            words, module = behind, False
            continue
        if wrapper is None:
            program = Unwrapped(name, module, words[0], words[1:], tuple(launchers), tuple(options), image)
            return [(command, program)]
        own, skipped, words, module = _options(words[size:], wrapper)
        if wrapper.image and skipped:
            image = skipped[0].text
            set_ = _container_variables(own)
            seen = None if command.exported is None else command.exported.union(set_)
            command = command._replace(variables={**command.variables, **set_}, exported=seen)
            words = _in_image(own, skipped[0], words)
        manner = Manner(switches=wrapper.switches.__contains__)
        document = read_flags(own, file, manner).document
        (launchers if wrapper.processes else options).append((wrapper.heads[0][0], document))
        if wrapper.text and (held := _held(own, wrapper.text)) is not None and depth < MAX_NESTING:
            return [
                (inner, program._replace(options=(*options, *program.options)))
                for each in commands(Script(held.text, held.at), _known(command))
                for inner, program in _unwrap(each, file, depth + 1)
            ]
    return []


def _in_image(own: list[Word], image: Word, words: tuple[Word, ...]) -> tuple[Word, ...]:
    """The command in a container: `--entrypoint` or the image's own program in front of the words behind the image."""
    given = _held(own, "entrypoint")
    if given is not None:
        return (given, *words) if given.text else words
    front = program_of(image.text, words)
    if words and not words[0].text.startswith("-") and not names_model(words[0].text) and front != ("vllm",):
        return words  # a program of its own
    return (*(Word(text, image.at[:1] * len(text)) for text in front), *words)


def _of_shell(
    command: Command, words: tuple[Word, ...], around: Unwrapped, file: Document, depth: int
) -> list[tuple[Command, Unwrapped]]:
    """What a shell runs, with what stands `around` it: the commands of `-c`, or the script that it is given."""
    script = next((here for here, word in enumerate(words) if here and not word.text.startswith("-")), None)
    if script is None or any(_is_command(word.text) for word in words[1:script]):
        return [
            (each, found._replace(
                launchers=(*around.launchers, *found.launchers), options=(*around.options, *found.options),
                image=found.image or around.image,
            ))
            for each, found in _shell(command, words, file, depth)
        ]  # fmt: skip
    head, rest = os.path.basename(words[script].text), words[script + 1 :]
    return [(command, around._replace(head=head, name=words[script], words=rest, script=True))]


def _known(command: Command) -> dict[str, Word]:
    return {name: value for name, value in command.environment.items() if value.known}


def _held(options: list[Word], name: str) -> Word | None:
    """The command that an option holds as one string: `sbatch --wrap "vllm serve ..."`."""
    for number, word in enumerate(options):
        flag, equals, _ = word.text.partition("=")
        if flag == f"--{name}":
            return _tail(word, len(flag) + 1) if equals else next(iter(options[number + 1 :]), None)
    return None


def manner_of(head: str) -> Manner:
    """How the options of a wrapper are read. Raises KeyError for one that is in no row."""
    words = tuple(head.split(" "))
    for wrapper in _wrappers():
        if words in wrapper.heads:
            return Manner(switches=wrapper.switches.__contains__)
    raise KeyError(head)


def _is_python(name: str) -> bool:
    return (name.startswith("python") and name[6:].replace(".", "").isdigit()) or name in ("python", "pypy")


def _submitted(words: tuple[Word, ...]) -> tuple[Word, ...] | None:
    """The launcher behind `--` in the arguments of a program that submits it: `submit.py --gpus 8 -- torchrun ...`."""
    here = next((number for number, word in enumerate(words) if word.text == "--"), None)
    behind = words[here + 1 :] if here is not None else ()
    while behind and "=" in behind[0].text and not behind[0].text.startswith("-"):
        behind = behind[1:]
    if not behind:
        return None
    wrapper, _ = _find(behind, module=False)
    return behind if wrapper is not None and wrapper.processes else None


def _python(words: tuple[Word, ...]) -> tuple[tuple[Word, ...], bool]:
    """What follows the interpreter's options, and whether it is a module."""
    here = 1
    while here < len(words):
        text = words[here].text
        if text == "-m":
            return words[here + 1 :], True
        if text == "-c":
            return (), False
        if not text.startswith("-"):
            break
        here += 2 if text in _PYTHON_VALUES else 1
    return words[here:], False


def _shell(command: Command, words: tuple[Word, ...], file: Document, depth: int) -> list[tuple[Command, Unwrapped]]:
    """The commands of `bash -c "..."`."""
    for number, word in enumerate(words[1:], 1):
        if _is_command(word.text):
            if number + 1 >= len(words) or depth >= MAX_NESTING:
                return []
            text = words[number + 1]
            inner = commands(Script(text.text, text.at), _known(command))
            return [found for each in inner for found in _unwrap(each, file, depth + 1)]
        if not word.text.startswith("-"):
            return []
    return []


def _is_command(text: str) -> bool:
    """Whether an option of a shell is `-c`, alone or with others (`-lc`)."""
    return text.startswith("-") and text.endswith("c") and not text.startswith("--")


def _find(words: tuple[Word, ...], *, module: bool) -> tuple[Wrapper | None, int]:
    called = ("-m", *(word.text for word in words[:3])) if module else (
        os.path.basename(words[0].text), *(word.text for word in words[1:3])
    )  # fmt: skip
    for wrapper in _wrappers():
        for head in wrapper.heads:
            if called[: len(head)] == head:
                return wrapper, len(head) - (1 if module else 0)
    return None, 0


def _options(words: tuple[Word, ...], wrapper: Wrapper) -> tuple[list[Word], tuple[Word, ...], tuple[Word, ...], bool]:
    """The wrapper's own options, the words to skip, the wrapped command, and whether that is a Python module."""
    own: list[Word] = []
    module = False
    here = 0
    while here < len(words):
        text = words[here].text
        if text == "--":
            here += 1
            break
        if not text.startswith("-") or text == "-":
            break
        if wrapper.attached and _ATTACHED.fullmatch(text):
            own += [words[here]._replace(text=text[:2], at=words[here].at[:2]), _tail(words[here], 2)]
            here += 1
            continue
        flag = text.lstrip("-").partition("=")[0].replace("-", "_")
        module = module or flag in wrapper.module
        own.append(words[here])
        here += 1
        if "=" not in text and flag not in wrapper.switches and here < len(words):
            own.append(words[here])
            here += 1
            if flag in wrapper.pairs and here < len(words):
                here += 1
    return own, words[here : here + wrapper.skip], words[here + wrapper.skip :], module


_ATTACHED = re.compile(r"-[A-Za-z][^-=A-Za-z].*|-[A-Za-z]\$.*")
"""A short option with its value: `-N2`, `-n$TASKS`."""


def _tail(word: Word, size: int) -> Word:
    return word._replace(text=word.text[size:], at=word.at[size:])


def _container_variables(options: list[Word]) -> dict[str, Word]:
    """The variables that `docker run -e NAME=value` sets."""
    found: dict[str, Word] = {}
    for number, option in enumerate(options):
        flag, equals, rest = option.text.partition("=")
        if flag not in ("-e", "--env"):
            continue
        start = len(flag) + 1
        word = option._replace(text=rest, at=option.at[start:]) if equals else next(iter(options[number + 1 :]), None)
        name, assigned, value = word.text.partition("=") if word is not None else ("", "", "")
        if word is not None and assigned:
            found[name] = word._replace(text=value, at=word.at[len(name) + 1 :])
    return found


@cache
def _wrappers() -> tuple[Wrapper, ...]:
    rows = read_table(__file__, "wrappers.json")["wrappers"]
    return tuple(
        Wrapper(
            tuple(tuple(head.split(" ")) for head in row["heads"]),
            frozenset(row.get("switches", ())),
            frozenset(row.get("module", ())),
            row.get("skip", 0),
            row.get("processes", False),
            row.get("image", False),
            frozenset(row.get("pairs", ())),
            row.get("attached", False),
            row.get("text", ""),
        )
        for row in rows
    )
