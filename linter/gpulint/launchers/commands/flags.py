"""The flags of a command line as a document, so that every format reads them as it reads a file.

`--micro-batch-size 4` is the entry `micro-batch-size: 4`; values are read as the number, boolean or string that their
text says. The entry's places are those of the words in the script.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ...source.document import Document
from ...source.node import Entry, Node, Span
from ...source.places import Places, places_of
from ..shell.script import place
from ..shell.words import Word

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence


_INTEGER = re.compile(r"[+-]?\d{1,18}")
_NUMBER = re.compile(r"[+-]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][+-]?\d+)?")
_FLAG = re.compile(r"--?[A-Za-z][\w.-]*")
_OVERRIDE = re.compile(r"(\+{0,2}|~)([A-Za-z_][\w./@-]*)=")
_ARGUMENTS = re.compile(r"\$(?:[@*]|\{[@*]\}|\{\w+\[[@*]\]\}|\{?\w*(?:ARG|OPT|FLAG|EXTRA|PARAM)\w*\}?)", re.IGNORECASE)
"""An expansion that stands for further arguments, not for a value: `"$@"`, `${EXTRA[@]}`, `$EXTRA_ARGS`."""

_OWN = re.compile(r"\$\{?[@*]\}?")
"""The arguments of the script itself."""

_BOOLEANS = {"true": True, "false": False}
_WORDS = frozenset({"true", "false", "0", "1", "yes", "no"})


class Manner(NamedTuple):
    """How a program reads its command line.

    switches    whether a flag (its name with underscores) takes no value of its own; None: it has one where a word
                that is no flag follows
    short       the long name of each flag with one dash, and of one with two that another stands for (`--model-path`);
                one that ends in a dot is one where a dot follows it
    underscored whether `--micro-batch-size` is another way to write `--micro_batch_size` (transformers
                `HfArgumentParser._parse_dataclass_field`)
    nested      a dot in a flag's name leads into a mapping (`--train.micro_batch_size`), and so does a key=value
    overrides   words of the form key=value are read as flags (hydra, OmegaConf)
    positionals names for the words that are no flags, in their order
    options     the names of the options, with underscores: the beginning of exactly one stands for it, as in argparse
    former      options that older versions had, for a beginning that none of today's has
    """

    switches: Callable[[str], bool] | None = None
    short: Mapping[str, str] = {}
    underscored: bool = False
    nested: bool = False
    overrides: bool = False
    positionals: Sequence[str] = ()
    options: Collection[str] = ()
    former: Collection[str] = ()


class Flags(NamedTuple):
    """The flags as a document, and the words that are none."""

    document: Document
    rest: list[Word]


def read_flags(words: Sequence[Word], file: Document, manner: Manner | None = None) -> Flags:
    """Read the words behind a program's name. `file` is where they stand.

    A flag without a value is true, and `--no-x` is `x: false`; several values become a list; of equal flags the last
    counts. A value that is not known stays as written (`$BATCH`), which formats take for a blank. A further word that
    only the run knows (`--enforce-eager $EXTRA_ARGS`) may be anything, mostly flags: it is no value and no positional.
    Where the script states what it may be, its flags are there with the word as their value.
    """
    manner = manner or Manner()
    places = places_of(file.text)
    root = _mapping(places, words)
    rest: list[Word] = []
    here = 0
    while here < len(words):
        word = words[here]
        here += 1
        override = _OVERRIDE.match(word.text) if manner.overrides else None
        if override is not None and override[1] != "~":
            size = override.end()
            value = word._replace(text=word.text[size:], at=word.at[size:])
            key = word._replace(text=override[2], at=word.at[len(override[1]) : size - 1])
            _put(root, key, scalar(value, places, file.path), places, file.path, nested=True)
            continue
        match = _FLAG.match(word.text)
        if match is None or (match.end() < len(word.text) and word.text[match.end()] != "="):
            if _anything(word) and (root.value or word.may_be or _ARGUMENTS.fullmatch(word.text)):
                _opens(root, [word])
                _put_perhaps(root, word, manner, places, file.path)
                continue
            _positional(root, word, rest, manner, places, file.path)
            continue
        name = _name(word, match.end(), manner)
        if match.end() < len(word.text):
            size = match.end() + 1
            node = scalar(word._replace(text=word.text[size:], at=word.at[size:]), places, file.path)
        else:
            begun = here
            values, here = _values(words, here, name.text, manner)
            _opens(root, [word for word in words[begun:here] if word not in values])
            if values:
                node = _list(values, places, file.path)
            else:
                negative = re.match(r"no[-_]", name.text)
                name = name._replace(text=name.text[3:], at=name.at[3:]) if negative else name
                node = Node("scalar", not negative, place(places, word.at), "false" if negative else "true")
                node.path = file.path
        _put(root, name, node, places, file.path, nested=manner.nested)
    return Flags(Document(file.path, "flags", file.text, [root], [], []), rest)


def inside(document: Document, entries: Iterable[Entry], like: Node) -> Document:
    """A config whose keys stand somewhere inside a file; `like` is the mapping that holds most of them."""
    root = Node("mapping", list(entries), like.span, like.raw)
    root.open = like.open
    return document._replace(roots=[root])


def overlaid(base: Document, flags: Document) -> Document:
    """A config file with the flags that win over it; they keep the places and the file where they stand."""
    root = Node("mapping", list(base.root.entries()), base.root.span, base.root.raw)
    root.merged, root.open = base.root.merged, base.root.open or flags.root.open
    _lay(root, flags.root)
    return base._replace(roots=[root, *base.roots[1:]])


def _lay(root: Node, over: Node) -> None:
    """Flags over a mapping; `optimizer=torch.optim.AdamW` names another component and leaves its arguments.

    Source: torchtune config/_utils.py `_merge_yaml_and_cli_args`.
    """
    for entry in over.entries():
        below = root.get(entry.key.value)
        component = below.entry("_component_") if below is not None and below.is_mapping else None
        if below is not None and below.is_mapping and (entry.value.is_mapping or component is not None):
            inner = Node("mapping", list(below.entries()), below.span, below.raw)
            inner.merged = below.merged
            if component is None or entry.value.is_mapping:
                _lay(inner, entry.value)
            else:
                inner.value.append(Entry(component.key, entry.value))
            root.value.append(Entry(root.entry(entry.key.value).key, inner))  # type: ignore[union-attr]
        else:
            root.value.append(entry)


def _mapping(places: Places, words: Sequence[Word]) -> Node:
    first = place(places, words[0].at) if words else Span(1, 1, 1, 1, 0, 0)
    last = place(places, words[-1].at) if words else first
    return Node("mapping", [], _from_to(first, last))


def _from_to(first: Span, last: Span) -> Span:
    return Span(first.line, first.column, last.end_line, last.end_column, first.start, max(first.end, last.end))


def _name(word: Word, end: int, manner: Manner) -> Word:
    start = 2 if word.text.startswith("--") else 1
    written = word.text[start:end]
    head, dot, rest = written.partition(".")
    dashed = "--" + head if start == 2 else head
    long = manner.short.get(dashed) or manner.short.get(dashed + dot)
    name = f"{long}{dot}{rest}" if long else written
    if start == 2 and name == written:
        name = _whole(written.replace("-", "_") if manner.underscored else written, manner)
    at = word.at[start:end]
    return word._replace(text=name, at=at if len(at) == len(name) else (at + at[-1:] * len(name))[: len(name)])


def _whole(written: str, manner: Manner) -> str:
    """The option that a name begins, in the spelling of the file; the name itself where none or several do."""
    plain = written.replace("-", "_")
    if not manner.options or plain in manner.options or plain in manner.former or len(plain) < 3:
        return written
    found = [option for option in manner.options if option.startswith(plain)]
    found = found or [option for option in manner.former if option.startswith(plain)]
    if len(found) != 1:
        return written
    return written + (found[0] if "_" in written else found[0].replace("_", "-"))[len(written) :]


def _values(words: Sequence[Word], here: int, name: str, manner: Manner) -> tuple[list[Word], int]:
    """The values of a flag: the words up to the next flag, for a switch only one that says true or false."""
    if manner.switches is not None and manner.switches(name.replace("-", "_")):
        if here < len(words) and words[here].text.lower() in _WORDS:
            return [words[here]], here + 1
        return [], here
    values: list[Word] = []
    while here < len(words):
        text = words[here].text
        if text == "--" or (_FLAG.fullmatch(text.partition("=")[0]) and not _NUMBER.fullmatch(text)):
            break
        if manner.overrides and _OVERRIDE.match(text):
            break
        if not values and words[here].text in ("$@", "$*"):
            break
        if any(_FLAG.match(text) for text in words[here].may_be):
            break
        if not values or not _anything(words[here]):
            values.append(words[here])
        here += 1
    return values, here


def _put_perhaps(root: Node, word: Word, manner: Manner, places: Places, path: str) -> None:
    """The flags of a word that is one of several: each has the word for a value, which only the run knows."""
    for text in dict.fromkeys(part for choice in word.may_be for part in choice.split()):
        match = _FLAG.match(text)
        if match is not None:
            name = _name(Word(match[0], word.at[:1] * match.end()), match.end(), manner)
            _put(root, name, scalar(word, places, path), places, path, nested=manner.nested)


def _opens(root: Node, words: Sequence[Word]) -> None:
    """Say which word may add flags of any kind when the command runs.

    A script's own arguments (`"$@"`) add nothing where it is started as it stands; a variable of the environment is
    there because somebody sets it.
    """
    for word in words:
        if not word.may_be and not _OWN.fullmatch(word.text):
            root.open = root.open or word.text


def _anything(word: Word) -> bool:
    """Whether a word is nothing but what a variable or a command says when the job starts."""
    return not word.known and word.text.startswith(("$", "`"))


def _positional(root: Node, word: Word, rest: list[Word], manner: Manner, places: Places, path: str) -> None:
    if len(rest) < len(manner.positionals) and word.text != "--":
        key = _key(manner.positionals[len(rest)], word.at, places, path)
        root.value.append(Entry(key, scalar(word, places, path)))
    if word.text != "--":
        rest.append(word)


def _list(values: list[Word], places: Places, path: str) -> Node:
    if len(values) == 1:
        return scalar(values[0], places, path)
    items = [scalar(value, places, path) for value in values]
    node = Node("sequence", items, _from_to(items[0].span, items[-1].span))
    node.path = path
    return node


def scalar(word: Word, places: Places, path: str) -> Node:
    """A word as the value that its text says."""
    node = Node("scalar", _typed(word), place(places, word.at), word.text)
    node.path = path
    node.may_be = tuple(_typed(word._replace(text=text, known=True)) for text in word.may_be)
    return node


def _typed(word: Word) -> Any:
    text = word.text
    if not word.known:
        return text
    if _INTEGER.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text):
        return float(text)
    return _BOOLEANS.get(text.lower(), text)


def _put(root: Node, name: Word, value: Node, places: Places, path: str, *, nested: bool) -> None:
    """Append an entry, below the mappings that the dots of its name lead through."""
    node = root
    rest, at = name.text, name.at
    while nested and "." in rest:
        head, _, rest = rest.partition(".")
        key = _key(head, at[: len(head)], places, path)
        at = at[len(head) + 1 :]
        below = node.get(head)
        if below is None or not below.is_mapping:
            below = Node("mapping", [], key.span)
            below.path = path
            node.value.append(Entry(key, below))
        node = below
    node.value.append(Entry(_key(rest, at, places, path), value))


def _key(text: str, at: Sequence[int], places: Places, path: str) -> Node:
    key = Node("scalar", text, place(places, at), text)
    key.path = path
    return key
