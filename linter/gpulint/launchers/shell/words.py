"""The words of a shell text: quotes, escapes, and variables filled in as far as the script itself sets them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from .arithmetic import whole_number
from .script import Script
from .substitutions import output

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_WORD = 1 << 16
"""Characters of one word after its variables are filled in; a longer one is cut and not known."""

MAX_FILLED = 1 << 20
"""Characters that variables of one script are filled in with; after them, variables stay as written."""

MAX_NESTING = 20
"""`bash -c` within `bash -c`, defaults within defaults."""

END = " \t\r\n;&|()<>"
"""Characters that end an unquoted word."""

_TO_FILL = re.compile(r"<[A-Za-z](?:[^<>\n;&|()\"'`$\\]*[A-Za-z0-9._/\]-])?>(?=[\s/:,.\"']|$)")
"""`<path to the data>`, which is to be replaced; a redirection has a blank behind its `<` or before the next `>`."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[1-9@*]")

_FIELD = re.compile(
    r"(?:\$\((?:[^()]|\((?:[^()]|\([^()]{0,300}\)){0,300}\)){0,300}\)|\$\{[^}]{0,300}\}|`[^`]{0,300}`|\S)+"
)
"""A word of a value: what holds no blank outside of an expansion that was left as written."""

_EXPANSION = re.compile(r"[$`]")

_PLAIN = re.compile(r"(?:[^$`]|\$\w+|\$\{[^{}]*\}|\$\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|`[^`]*`)*")
"""A value whose expansions end where `_FIELD` ends them; what is nested deeper may hold blanks that part no words."""

_OWN_FOLDER = re.compile(
    r"\$\(\s*(?P<cd>cd\s+(?:-P\s+)?(?:--\s+)?\$\(\s*)?dirname\s+(?:--\s+)?(?P<link>\$\(\s*(?:realpath|readlink\s+-f)\s+)?"
    r"\$(?:0|BASH_SOURCE|\{BASH_SOURCE(?:\[0\])?(?::-\$0)?\}|\{0\})\s*(?(link)\)\s*)"
    r"(?(cd)\)(?P<up>(?:/\.\.)*)/?\s*(?:>\s*/dev/null\s*(?:2>&1\s*)?)?&&\s*pwd(?:\s+-P)?\s*)\)"
)
"""`$(dirname "$0")` and `$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)` without their quotes."""


_PRINTS = re.compile(r"\s*(?:basename|dirname|which|command|cd)\s")

_ENTERS = re.compile(r"(\s*cd\s[^;&|<>]+?)\s*(?:&?>\s*/dev/null\s*(?:2>&1\s*)?)?&&\s*pwd(?:\s+-P)?\s*")
"""`cd FOLDER && pwd`, which prints the folder."""


class Word(NamedTuple):
    """One word of a command, quotes removed and variables filled in; `at` is where each character stands.

    `known` is False where a part is only known when the script runs; that part is as written (`$SLURM_NNODES`).
    `may_be` are the texts one of which the whole word then is, where the script states them all.
    """

    text: str
    at: tuple[int, ...]
    known: bool = True
    may_be: tuple[str, ...] = ()


class Builder:
    """A word being read."""

    __slots__ = ("at", "known", "may_be", "started", "text")

    def __init__(self) -> None:
        self.may_be: tuple[str, ...] = ()
        self.text: list[str] = []
        self.at: list[int] = []
        self.known = True
        self.started = False

    def add(self, text: str, at: Iterator[int] | tuple[int, ...] | list[int]) -> None:
        """Append characters with their places."""
        self.may_be = ()
        self.text.append(text)
        self.at.extend(at)
        self.started = True

    def word(self) -> Word:
        """What was read, cut where it is too long."""
        text = "".join(self.text)
        if len(text) > MAX_WORD:
            return Word(text[:MAX_WORD], tuple(self.at[:MAX_WORD]), known=False)
        return Word(text, tuple(self.at), self.known, self.may_be)


class Words:
    """Reads words from `here` on; `variables` and `arrays` are what the script has set so far."""

    def __init__(self, script: Script, variables: dict[str, Word], depth: int = 0) -> None:
        self.script = script
        self.text = script.text
        self.here = 0
        self.depth = depth
        self.variables = variables
        self.arrays: dict[str, list[Word]] = {}
        self.filled = 0

    def nested(self, start: int, end: int) -> Word:
        """A piece of the text as within double quotes."""
        part = Script(self.text[start:end], self.script.at[start:end])
        reader = Words(part, self.variables, self.depth + 1)
        reader.arrays = self.arrays
        builder = Builder()
        while reader.here < len(part.text):
            reader.quoted_part(builder)
        return builder.word()

    def fields(self) -> list[Word]:
        """One written word as the words it becomes: an unquoted variable may hold several, or none."""
        done: list[Word] = []
        builder = Builder()
        start = self.here
        while self.within_word():
            builder = self.part(builder, split=done)
        if self.here == start:
            self.here += 1
        if builder.started:
            done.append(builder.word())
        return done

    def within_word(self) -> bool:
        """Whether what comes next belongs to an unquoted word."""
        return self.here < len(self.text) and (self.text[self.here] not in END or self.to_fill() > 0)

    def to_fill(self) -> int:
        """Characters of the blank to fill in that comes next; 0 for none."""
        match = _TO_FILL.match(self.text, self.here) if self.text.startswith("<", self.here) else None
        return len(match[0]) if match is not None else 0

    def part(self, builder: Builder, split: list[Word] | None) -> Builder:
        """The next quoted, escaped, variable or plain piece of a word."""
        char = self.text[self.here]
        if char == "\\":
            if self.text.startswith("\n", self.here + 1) or self.here + 1 == len(self.text):
                self.here += 2
                return builder
            self.take(builder, self.here + 1, self.here + 2)
            self.here += 2
        elif char == "'":
            end = self.text.find("'", self.here + 1)
            end = end if end >= 0 else len(self.text)
            self.take(builder, self.here + 1, end)
            self.here = end + 1
        elif char == '"':
            self.here += 1
            builder.started = True
            builder = self.double_quoted(builder, split)
        elif char in "$`":
            return self.variable(builder, split, quoted=False)
        elif (size := self.to_fill()) > 0:
            self.take(builder, self.here, self.here + size)
            builder.known = False
            self.here += size
        else:
            end = self.here + 1
            while end < len(self.text) and self.text[end] not in END and self.text[end] not in "\\'\"$`":
                end += 1
            self.take(builder, self.here, end)
            self.here = end
        return builder

    def double_quoted(self, builder: Builder, split: list[Word] | None) -> Builder:
        """The rest of a double-quoted piece; an array in it may begin new words."""
        while self.here < len(self.text) and self.text[self.here] != '"':
            if self.text[self.here] in "$`":
                builder = self.variable(builder, split, quoted=True)
            else:
                self.quoted_part(builder)
        self.here += 1
        return builder

    def quoted_part(self, builder: Builder) -> None:
        """The next variable, escape or plain run within double quotes."""
        char = self.text[self.here]
        if char in "$`":
            self.variable(builder, None, quoted=True)
        elif char == "\\" and self.text[self.here + 1 : self.here + 2] in ('"', "\\", "$", "`", "\n"):
            if self.text[self.here + 1] != "\n":
                self.take(builder, self.here + 1, self.here + 2)
            self.here += 2
        else:
            end = self.here + 1
            while end < len(self.text) and self.text[end] not in '"\\$`':
                end += 1
            self.take(builder, self.here, end)
            self.here = end

    def take(self, builder: Builder, start: int, end: int) -> None:
        """Append a piece of the text as it is written."""
        end = min(end, len(self.text))
        builder.add(self.text[start:end], list(self.script.at[start:end]))

    def variable(self, builder: Builder, split: list[Word] | None, *, quoted: bool) -> Builder:
        """What `$...` or a backtick expression stands for, appended; several words where it is not quoted."""
        start = self.here
        values = self.expansion()
        if values is None:
            builder.known = False
            self.take(builder, start, self.here)
            return builder
        offset = self.script.at[start]
        size = sum(len(value.text) for value in values)
        self.filled += size
        if self.filled > MAX_FILLED:
            builder.known = False
            self.take(builder, start, self.here)
            return builder
        for number, value in enumerate(values):
            if number and split is not None:
                split.append(builder.word())
                builder = Builder()
            at = [place if place >= 0 else offset for place in value.at]
            if not value.text and not quoted:
                builder.known = builder.known and value.known
                continue
            whole = not value.known and (_TO_FILL.fullmatch(value.text) or not _PLAIN.fullmatch(value.text))
            if quoted or split is None or whole or not re.search(r"\s", value.text):
                builder.known = builder.known and value.known
                alone = not builder.text
                builder.add(value.text, at)
                builder.may_be = value.may_be if alone else ()
            else:
                builder = self.split_value(builder, value, at, split)
        return builder

    def split_value(self, builder: Builder, value: Word, at: list[int], split: list[Word]) -> Builder:
        """The value of an unquoted variable as the words between its blanks; those with an expansion are not known."""
        text, end = value.text, 0
        for match in _FIELD.finditer(text):
            if match.start() > end or (end == 0 and match.start()):
                if builder.started:
                    split.append(builder.word())
                builder = Builder()
            builder.known = builder.known and (value.known or not _EXPANSION.search(match[0]))
            builder.add(match[0], at[match.start() : match.end()])
            end = match.end()
        if end < len(text) and builder.started:
            split.append(builder.word())
            builder = Builder()
        return builder

    def expansion(self) -> list[Word] | None:
        """Step over an expansion; its value, or None where only the running script knows it."""
        text, here = self.text, self.here
        if text[here] == "`":
            end = text.find("`", here + 1)
            self.here = end + 1 if end >= 0 else len(text)
            return None
        if text.startswith("$((", here):
            self.here = _closing(text, here + 1, "(", ")")
            return self.arithmetic(here + 3, self.here - 2) if text.endswith("))", 0, self.here) else None
        if text.startswith("$[", here):
            self.here = _closing(text, here + 1, "[", "]")
            return self.arithmetic(here + 2, self.here - 1)
        if text.startswith("$(", here):
            self.here = _closing(text, here + 1, "(", ")")
            own = _OWN_FOLDER.fullmatch(text[here : min(self.here, here + 200)].replace('"', ""))
            if own:
                return [Word(f".{own['up'] or ''}", (-1,) * (1 + len(own["up"] or "")))]
            return self.substitution(here + 2, self.here - 1)
        if text.startswith("${", here):
            self.here = _closing(text, here + 1, "{", "}")
            return self.braces(here + 2, self.here - 1)
        match = _NAME.match(text, here + 1)
        if match is None:
            self.here = min(len(text), here + 2)
            return None
        self.here = match.end()
        if match[0] in "@*":
            return list(self.arrays["@"]) if "@" in self.arrays else None
        return self.value(match[0])

    def value(self, name: str) -> list[Word] | None:
        """What a variable holds; of an array the first item."""
        if name in self.variables:
            return [self.variables[name]]
        return self.arrays[name][:1] if self.arrays.get(name) else None

    def arithmetic(self, start: int, end: int) -> list[Word] | None:
        """`$((...))`, or `$[...]` as it was once written, over whole numbers and known variables."""
        known = {name: word.text for name, word in self.variables.items() if word.known}
        number = whole_number(self.text[start:end], known)
        if number is None:
            return None
        text = str(number)
        return [Word(text, (-1,) * len(text))]

    def braces(self, start: int, end: int) -> list[Word] | None:
        """`${NAME}`, `${NAME[@]}`, `${NAME:-default}`, and `${NAME:=default}`, which sets the variable, too."""
        match = _NAME.match(self.text, start, end)
        if match is None:
            return None
        name, rest = match[0], self.text[match.end() : end]
        if not rest:
            return self.value(name)
        if rest in ("[@]", "[*]"):
            return list(self.arrays[name]) if name in self.arrays else None
        for mark in (":-", ":=", "-", "="):
            if rest.startswith(mark):
                own = self.value(name)
                if own is not None and (own[0].text or mark in ("-", "=")):
                    return own
                if self.depth >= MAX_NESTING:
                    return None
                value = self.default(match.end() + len(mark), end)
                if "=" in mark:
                    self.variables[name] = value
                return [value]
        return None

    def substitution(self, start: int, end: int) -> list[Word] | None:
        """`$(basename "$MODEL")` and its like, where every word is known."""
        if self.depth >= MAX_NESTING or not _PRINTS.match(self.text, start, end):
            return None
        entered = _ENTERS.fullmatch(self.text, start, end)
        end = entered.end(1) if entered else end
        part = Script(self.text[start:end], self.script.at[start:end])
        reader = Words(part, self.variables, self.depth + 1)
        reader.arrays = self.arrays
        words: list[Word] = []
        while reader.here < len(part.text):
            if part.text[reader.here] in " \t":
                reader.here += 1
            elif part.text[reader.here] in END:
                return None
            else:
                words += reader.fields()
        printed = output([word.text for word in words]) if all(word.known for word in words) else None
        return [Word(printed, (-1,) * len(printed))] if printed is not None else None

    def default(self, start: int, end: int) -> Word:
        """The text behind `:-`, with its own variables filled in."""
        part = Script(self.text[start:end], self.script.at[start:end])
        reader = Words(part, self.variables, self.depth + 1)
        reader.arrays = self.arrays
        builder = Builder()
        while reader.here < len(part.text):
            if part.text[reader.here] in END:
                reader.take(builder, reader.here, reader.here + 1)
                reader.here += 1
            else:
                reader.part(builder, None)
        return builder.word()


def _closing(text: str, start: int, opening: str, closing: str) -> int:
    """The offset behind the bracket that closes the one at `start`; quotes hide brackets."""
    depth, here = 0, start
    while here < len(text):
        char = text[here]
        if char == "\\":
            here += 1
        elif char == "'":
            end = text.find("'", here + 1)
            here = end if end >= 0 else len(text)
        elif char == opening:
            depth += 1
        elif char == closing:
            depth -= 1
            if depth == 0:
                return here + 1
        here += 1
    return len(text)
