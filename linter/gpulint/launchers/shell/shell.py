"""A shell script as the commands it would run, with the variables that it sets itself filled in.

The grammar is POSIX sh with the parts of bash that launch scripts use: quotes, line continuations, comments, `;` `&&`
`||` `|` `&`, redirections, here-documents, assignments, arrays, `${NAME:-default}`, whole-number arithmetic. Branches
and loops are read straight through: each command is listed once, with what is known when the reader passes it; what a
branch sets that is known not to run counts for nothing. What the script does not set (the environment, most command
substitutions, positional parameters) stays as written, and the word that holds it is not `known`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from .branches import Branches
from .conditions import matches, verdict
from .loops import over
from .options import given, reads_options
from .script import Script
from .uncertain_values import Doubts
from .word_ranges import Stretches
from .words import MAX_FILLED, MAX_NESTING, MAX_WORD, Builder, Word, Words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["MAX_FILLED", "MAX_NESTING", "MAX_WORD", "Command", "Word", "commands"]

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=")
_DESCRIPTOR = re.compile(r"\d*(?:>>|>&|<&|<>|>\||>|<|&>>|&>)")
_HERE = re.compile(r"<<(-?)[ \t]*(['\"\\]?)([A-Za-z_][\w.-]*)['\"]?")
_KEYWORDS = frozenset(
    {"then", "do", "else", "elif", "if", "while", "until", "!", "{", "}", "time", "fi", "done", "esac"}
)
_DECLARATIONS = frozenset({"export", "declare", "typeset", "local", "readonly"})
_BLANK = " \t\r"


class Command(NamedTuple):
    """A simple command: its words, the variables set so far and before it, and what is written to it or by it.

    `exported` names the variables that a program which the command starts would see, None is all. `background` is `&`
    behind it; commands of one `stretch` run in one go (`Stretches`); `reads` is the file that is its standard input,
    and `appends` says that `output` keeps what it held.
    """

    words: tuple[Word, ...]
    variables: Mapping[str, Word]
    input: Word | None = None
    output: str = ""
    exported: frozenset[str] | None = None
    background: bool = False
    stretch: object | None = None
    reads: str = ""
    appends: bool = False

    @property
    def environment(self) -> Mapping[str, Word]:
        """The variables that a program which the command starts would see."""
        if self.exported is None:
            return self.variables
        return {name: word for name, word in self.variables.items() if name in self.exported}


def commands(
    script: Script,
    variables: Mapping[str, str | Word] | None = None,
    arguments: list[Word] | None = None,
    source: Callable[[str], Script | None] | None = None,
) -> list[Command]:
    """The simple commands of a script in their order; `variables` are those that the launcher itself would set.

    `arguments` are what the script is started with, where that is known; `source` finds the script that a `source`
    command reads.
    """
    start = {
        name: value if isinstance(value, Word) else Word(value, (-1,) * len(value))
        for name, value in (variables or {}).items()
    }
    reader = _Reader(script, start, source)
    if arguments is not None:
        reader.arrays["@"] = arguments
    return list(reader.commands())


class _Reader(Words):
    def __init__(
        self, script: Script, variables: dict[str, Word], source: Callable[[str], Script | None] | None = None
    ) -> None:
        super().__init__(script, variables)
        self.source = source
        self.exported = set(variables)
        self.exports = False
        self.branches = Branches()
        self.doubts = Doubts(self.text)
        self.stretches = Stretches()
        self.bodies: list[dict[str, Word]] | None = None
        self.ended = False
        self.patterns: list[Word] | None = None
        self.waiting: list[tuple[str, bool, bool]] = []
        self.input: Word | None = None
        self.reads = ""
        self.appends = False

    def commands(self) -> Iterator[Command]:
        while self.here < len(self.text):
            if self.ended:
                self.branches.keyword(";;", self.variables)
                self.stretches.keyword(";;")
                self.patterns = []
            start = self.here
            words, output, own = self.simple()
            has_input = bool(self.waiting)
            background = self.text.startswith("&", self.here) and not self.text.startswith("&&", self.here)
            closing = self.text[self.here : self.here + 1]
            written = self.text[start : self.here]
            self.separator()
            if not words:
                self.variables.update(own)
                self.exported.update(own if self.exports else ())
                self.doubts.set(own)
                continue
            if self.option(words, closing):
                continue
            self.branches.test(None if self.doubts.over(written, start) else verdict(words), closing)
            self.stretches.command([word.text for word in words])
            if words[0].text == "for" and len(words) > 1:
                self.loop(words)
                continue
            if self.pattern(words, written, closing, start):
                continue
            if self.branches.skipped:
                continue
            scope = {**self.variables, **own} if own else dict(self.variables)
            visible = frozenset(self.exported.union(own))
            read = self.input if has_input else None
            stretch = self.stretches.current
            yield Command(tuple(words), scope, read, output, visible, background, stretch, self.reads, self.appends)
            sources = words[0].text in ("source", ".") and len(words) > 1
            self.doubts.command(words, self.variables, unread=sources and not self.take_over(words[1].text))
            if words[0].text == "read" and has_input and self.input is not None:
                self.variables[words[-1].text] = self.input
                self.doubts.set([words[-1].text])
            elif words[0].text == "set":
                told = [word.text for word in words[1:]]
                self.exports = (self.exports or "-a" in told or told == ["-o", "allexport"]) and told[:1] != ["+a"]
            elif words[0].text == "export" or [word.text for word in words[:2]] == ["declare", "-x"]:
                self.exported.update(word.text for word in words[1:])

    def pattern(self, words: list[Word], written: str, closing: str, start: int) -> bool:
        """Step over `case ... in` with the pattern behind it, or over the pattern `*`; whether it was the former."""
        opens = words[0].text == "case" and [word.text for word in words[2:3]] == ["in"]
        behind = words[3:] if opens else words
        if opens:
            self.branches.keyword("case", self.variables)
            if self.branches.case is not None:
                self.branches.case.options = reads_options(written)
                if words[1].known and not self.branches.case.options and not self.doubts.over(written, start):
                    self.branches.case.subject = words[1].text
            self.patterns = []
            if self.option(behind, closing):
                return True
        if [word.text for word in behind] == ["*"]:
            self.branches.keyword("*", self.variables)
        return opens

    def option(self, words: list[Word], closing: str) -> bool:
        """Whether the words name a branch whose subject is known, or of the script's own options: `-n|--nodes)`.

        In one of the latter `$2` is what was given.
        """
        case = self.branches.case
        if case is None or self.patterns is None or len(words) != 1 or closing not in ("|", ")"):
            return False
        if not case.options and case.subject is None:
            return False
        self.patterns.append(words[0])
        if closing == ")":
            patterns, self.patterns = self.patterns, None
            names = [pattern.text for pattern in patterns]
            if case.subject is not None:
                found = [matches(case.subject, pattern) for pattern in patterns]
                if not case.settled:
                    case.runs = True if True in found else None if None in found else False
                if "*" in names:
                    self.branches.keyword("*", self.variables)
            elif "@" in self.arrays and "*" not in names:
                asked = given(names, self.arrays["@"])
                case.runs = asked is not None
                if asked is not None:
                    self.variables["1"] = asked.name
                    self.variables["2"] = asked.value or Word("", ())
            elif "*" in names:
                return False
        return True

    def take_over(self, path: str) -> bool:
        """What a sourced script sets; its commands are nobody's here. Whether it could be read."""
        script = self.source(path) if self.source is not None else None
        if script is None:
            return False
        inner = _Reader(script, self.variables, self.source)
        inner.arrays, inner.exported, inner.bodies, inner.exports = self.arrays, self.exported, [], self.exports
        for _ in inner.commands():
            pass
        return True

    def function(self, word: str) -> None:
        """What the functions of a sourced script set counts for nothing: nobody knows which of them are called."""
        if self.bodies is None:
            return
        if word == "{":
            self.bodies.append(dict(self.variables))
        elif word == "}" and self.bodies:
            before = self.bodies.pop()
            self.variables.clear()
            self.variables.update(before)

    def loop(self, words: list[Word]) -> None:
        """`for NAME in a b`: the variable is one of the words."""
        name = words[1].text
        self.variables.pop(name, None)
        value = over(name, words[3:])
        if value is not None:
            self.variables[name] = value

    def simple(self) -> tuple[list[Word], str, dict[str, Word]]:
        """The words up to a separator, the file that output goes to, and assignments in front."""
        words: list[Word] = []
        own: dict[str, Word] = {}
        output = self.reads = ""
        self.appends = False
        while self.here < len(self.text):
            char = self.text[self.here]
            if char in _BLANK:
                self.here += 1
            elif self.text.startswith(("\\\n", "\\\r\n"), self.here):
                self.here += 2 if self.text[self.here + 1] == "\n" else 3
            elif char == "#":
                self.comment()
            elif self.text.startswith("<<", self.here) and not self.text.startswith("<<<", self.here):
                self.here_document()
            elif self.to_fill() == 0 and (redirection := _DESCRIPTOR.match(self.text, self.here)) is not None:
                self.here = redirection.end()
                output = self.redirect(redirection[0]) or output
            elif char in "\n;&|()":
                break
            elif self.assignment(words, own):
                pass
            else:
                found = self.fields()
                if not words and len(found) == 1 and found[0].text in _KEYWORDS:
                    self.branches.keyword(found[0].text, self.variables)
                    self.stretches.keyword(found[0].text)
                    self.function(found[0].text)
                    continue
                words += found
        return words, output, own

    def separator(self) -> None:
        """Step over one separator; here-documents begin behind the end of their line."""
        if self.here >= len(self.text):
            return
        char = self.text[self.here]
        self.ended = self.text.startswith(";;", self.here)
        self.here += 1
        if char == "\n" and self.waiting:
            for mark, strip, literal in self.waiting:
                self.body(mark, strip=strip, literal=literal)
            self.waiting = []

    def comment(self) -> None:
        end = self.text.find("\n", self.here)
        self.here = end if end >= 0 else len(self.text)

    def redirect(self, kind: str) -> str:
        while self.here < len(self.text) and self.text[self.here] in _BLANK:
            self.here += 1
        target = self.fields() if self.within_word() else []
        if kind == "<" and target and target[0].known:
            self.reads = target[0].text
        self.appends = self.appends or kind.endswith(">>")
        return target[0].text if target and ">" in kind and "&" not in kind and not kind.startswith("2") else ""

    def here_document(self) -> None:
        match = _HERE.match(self.text, self.here)
        if match is None:
            self.here += 2
            return
        self.here = match.end()
        self.waiting.append((match[3], match[1] == "-", bool(match[2])))

    def body(self, mark: str, *, strip: bool, literal: bool) -> None:
        start = self.here
        while self.here < len(self.text):
            end = self.text.find("\n", self.here)
            end = end if end >= 0 else len(self.text)
            line = self.text[self.here : end].rstrip("\r")
            if (line.lstrip("\t") if strip else line) == mark:
                stop, self.here = self.here, min(end + 1, len(self.text))
                self.input = self.inner(start, stop, literal=literal)
                return
            self.here = end + 1
        self.here = len(self.text)
        self.input = self.inner(start, len(self.text), literal=literal)

    def inner(self, start: int, end: int, *, literal: bool) -> Word:
        if literal or self.depth >= MAX_NESTING:
            return Word(self.text[start:end], tuple(self.script.at[start:end]))
        return self.nested(start, end)

    def assignment(self, words: list[Word], own: dict[str, Word]) -> bool:
        """`NAME=value` in front of a command, or as an argument of `export` and its like."""
        declares = bool(words) and words[0].text in _DECLARATIONS
        if words and not declares:
            return False
        match = _ASSIGNMENT.match(self.text, self.here)
        if match is None:
            return False
        name, plus = match[1], bool(match[2])
        self.here = match.end()
        if self.text.startswith("(", self.here):
            self.here += 1
            items = self.array()
            if self.branches.skipped:
                return True
            self.arrays[name] = [*self.arrays.get(name, []), *items] if plus else items
            return True
        value = Builder()
        while self.within_word():
            self.part(value, split=None)
        word = value.word()
        if plus and name in self.variables:
            old = self.variables[name]
            word = Word(old.text + word.text, old.at + word.at, old.known and word.known)
        if declares:
            self.variables[name] = word
            self.doubts.set([name])
            if words[0].text == "export" or any(option.text == "-x" for option in words[1:]):
                self.exported.add(name)
        else:
            own[name] = word
        return True

    def array(self) -> list[Word]:
        items: list[Word] = []
        while self.here < len(self.text):
            char = self.text[self.here]
            if char == ")":
                self.here += 1
                break
            if char == "#":
                self.comment()
            elif char in "\n;&|(<>" or char in _BLANK:
                self.here += 1
            elif self.text.startswith("\\\n", self.here):
                self.here += 2
            else:
                items += self.fields()
        return items
