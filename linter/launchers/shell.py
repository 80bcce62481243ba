"""A shell script as the commands it would run, with the variables that it sets itself filled in.

The grammar is POSIX sh with the parts of bash that launch scripts use: quotes, line continuations, comments, `;` `&&`
`||` `|` `&`, redirections, here-documents, assignments, arrays, `${NAME:-default}`, whole-number arithmetic. Branches
and loops are read straight through: each command is listed once, with what is known when the reader passes it. What the
script does not set (the environment, command substitutions, positional parameters) stays as written, and the word that
holds it is not `known`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from .arithmetic import whole_number
from .script import Script

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_WORD = 1 << 16
"""Characters of one word after its variables are filled in; a longer one is cut and not known."""

MAX_FILLED = 1 << 20
"""Characters that variables of one script are filled in with; after them, variables stay as written."""

MAX_NESTING = 20
"""`bash -c` within `bash -c`, defaults within defaults."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=")
_DESCRIPTOR = re.compile(r"\d*(?:>>|>&|<&|<>|>\||>|<|&>>|&>)")
_HERE = re.compile(r"<<(-?)[ \t]*(['\"\\]?)([A-Za-z_][\w.-]*)['\"]?")
_KEYWORDS = frozenset(
    {"then", "do", "else", "elif", "if", "while", "until", "!", "{", "}", "time", "fi", "done", "esac"}
)
_DECLARATIONS = frozenset({"export", "declare", "typeset", "local", "readonly"})
_BLANK = " \t\r"
_END = " \t\r\n;&|()<>"


class Word(NamedTuple):
    """One word of a command, quotes removed and variables filled in; `at` is where each character stands.

    `known` is False where a part is only known when the script runs; that part is as written (`$SLURM_NNODES`).
    """

    text: str
    at: tuple[int, ...]
    known: bool = True


class Command(NamedTuple):
    """A simple command: its words, the variables set so far and before it, and what is written to it or by it."""

    words: tuple[Word, ...]
    variables: Mapping[str, Word]
    input: Word | None = None
    output: str = ""


def commands(script: Script, variables: Mapping[str, str | Word] | None = None) -> list[Command]:
    """The simple commands of a script in their order; `variables` are those that the launcher itself would set."""
    start = {
        name: value if isinstance(value, Word) else Word(value, (-1,) * len(value))
        for name, value in (variables or {}).items()
    }
    return list(_Reader(script, start).commands())


class _Builder:
    """A word being read."""

    __slots__ = ("at", "known", "started", "text")

    def __init__(self) -> None:
        self.text: list[str] = []
        self.at: list[int] = []
        self.known = True
        self.started = False

    def add(self, text: str, at: Iterator[int] | tuple[int, ...] | list[int]) -> None:
        self.text.append(text)
        self.at.extend(at)
        self.started = True

    def word(self) -> Word:
        text = "".join(self.text)
        if len(text) > MAX_WORD:
            return Word(text[:MAX_WORD], tuple(self.at[:MAX_WORD]), known=False)
        return Word(text, tuple(self.at), self.known)


class _Reader:
    def __init__(self, script: Script, variables: dict[str, Word], depth: int = 0) -> None:
        self.script = script
        self.text = script.text
        self.here = 0
        self.depth = depth
        self.variables = variables
        self.arrays: dict[str, list[Word]] = {}
        self.filled = 0
        self.waiting: list[tuple[str, bool, bool]] = []
        self.input: Word | None = None

    # --- commands -----------------------------------------------------------------------------------------------

    def commands(self) -> Iterator[Command]:
        while self.here < len(self.text):
            words, output, own = self.simple()
            has_input = bool(self.waiting)
            self.separator()
            if not words:
                self.variables.update(own)
                continue
            if words[0].text == "for" and len(words) > 1:
                self.loop(words)
                continue
            scope = {**self.variables, **own} if own else dict(self.variables)
            yield Command(tuple(words), scope, self.input if has_input else None, output)

    def loop(self, words: list[Word]) -> None:
        """`for NAME in a b`: the variable is known where the list has one word."""
        name, rest = words[1].text, words[3:]
        if len(rest) == 1:
            self.variables[name] = rest[0]
        else:
            self.variables.pop(name, None)

    def simple(self) -> tuple[list[Word], str, dict[str, Word]]:
        """The words up to a separator, the file that output goes to, and assignments in front."""
        words: list[Word] = []
        own: dict[str, Word] = {}
        output = ""
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
            elif (redirection := _DESCRIPTOR.match(self.text, self.here)) is not None:
                self.here = redirection.end()
                output = self.redirect(redirection[0]) or output
            elif char in "\n;&|()":
                break
            elif self.assignment(words, own):
                pass
            else:
                found = self.fields()
                if not words and len(found) == 1 and found[0].text in _KEYWORDS:
                    continue
                words += found
        return words, output, own

    def separator(self) -> None:
        """Step over one separator; here-documents begin behind the end of their line."""
        if self.here >= len(self.text):
            return
        char = self.text[self.here]
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
        target = self.fields() if self.here < len(self.text) and self.text[self.here] not in _END else []
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

    def nested(self, start: int, end: int) -> Word:
        """A piece of the text as within double quotes."""
        part = Script(self.text[start:end], self.script.at[start:end])
        reader = _Reader(part, self.variables, self.depth + 1)
        reader.arrays = self.arrays
        builder = _Builder()
        while reader.here < len(part.text):
            reader.quoted_part(builder)
        return builder.word()

    # --- assignments --------------------------------------------------------------------------------------------

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
            self.arrays[name] = [*self.arrays.get(name, []), *items] if plus else items
            return True
        value = _Builder()
        while self.here < len(self.text) and self.text[self.here] not in _END:
            self.part(value, split=None)
        word = value.word()
        if plus and name in self.variables:
            old = self.variables[name]
            word = Word(old.text + word.text, old.at + word.at, old.known and word.known)
        if declares:
            self.variables[name] = word
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

    # --- words --------------------------------------------------------------------------------------------------

    def fields(self) -> list[Word]:
        """One written word as the words it becomes: an unquoted variable may hold several, or none."""
        done: list[Word] = []
        builder = _Builder()
        start = self.here
        while self.here < len(self.text) and self.text[self.here] not in _END:
            builder = self.part(builder, split=done)
        if self.here == start:
            self.here += 1
        if builder.started:
            done.append(builder.word())
        return done

    def part(self, builder: _Builder, split: list[Word] | None) -> _Builder:
        """The next quoted, escaped, variable or plain piece of a word."""
        char = self.text[self.here]
        if char == "\\":
            if self.text.startswith("\n", self.here + 1):
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
        else:
            end = self.here + 1
            while end < len(self.text) and self.text[end] not in _END and self.text[end] not in "\\'\"$`":
                end += 1
            self.take(builder, self.here, end)
            self.here = end
        return builder

    def double_quoted(self, builder: _Builder, split: list[Word] | None) -> _Builder:
        while self.here < len(self.text) and self.text[self.here] != '"':
            if self.text[self.here] in "$`":
                builder = self.variable(builder, split, quoted=True)
            else:
                self.quoted_part(builder)
        self.here += 1
        return builder

    def quoted_part(self, builder: _Builder) -> None:
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

    def take(self, builder: _Builder, start: int, end: int) -> None:
        end = min(end, len(self.text))
        builder.add(self.text[start:end], list(self.script.at[start:end]))

    # --- variables ----------------------------------------------------------------------------------------------

    def variable(self, builder: _Builder, split: list[Word] | None, *, quoted: bool) -> _Builder:
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
                builder = _Builder()
            at = [place if place >= 0 else offset for place in value.at]
            builder.known = builder.known and value.known
            if not value.text and not quoted:
                continue
            if quoted or split is None or not re.search(r"\s", value.text) or not value.known:
                builder.add(value.text, at)
            else:
                builder = self.split_value(builder, value.text, at, split)
        return builder

    def split_value(self, builder: _Builder, text: str, at: list[int], split: list[Word]) -> _Builder:
        end = 0
        for match in re.finditer(r"\S+", text):
            if match.start() > end or (end == 0 and match.start()):
                if builder.started:
                    split.append(builder.word())
                builder = _Builder()
            builder.add(match[0], at[match.start() : match.end()])
            end = match.end()
        if end < len(text) and builder.started:
            split.append(builder.word())
            builder = _Builder()
        return builder

    def expansion(self) -> list[Word] | None:
        """Step over an expansion; its value, or None where only the running script knows it."""
        text, here = self.text, self.here
        if text[here] == "`":
            end = text.find("`", here + 1)
            self.here = end + 1 if end >= 0 else len(text)
            return None
        if text.startswith("$((", here):
            end = text.find("))", here)
            self.here = end + 2 if end >= 0 else len(text)
            return self.arithmetic(here + 3, end) if end >= 0 else None
        if text.startswith("$(", here):
            self.here = _closing(text, here + 1, "(", ")")
            return None
        if text.startswith("${", here):
            self.here = _closing(text, here + 1, "{", "}")
            return self.braces(here + 2, self.here - 1)
        match = _NAME.match(text, here + 1)
        if match is None:
            self.here = min(len(text), here + 2)
            return None
        self.here = match.end()
        return self.value(match[0])

    def value(self, name: str) -> list[Word] | None:
        if name in self.variables:
            return [self.variables[name]]
        return self.arrays[name][:1] if self.arrays.get(name) else None

    def arithmetic(self, start: int, end: int) -> list[Word] | None:
        known = {name: word.text for name, word in self.variables.items() if word.known}
        number = whole_number(self.text[start:end], known)
        if number is None:
            return None
        text = str(number)
        return [Word(text, (-1,) * len(text))]

    def braces(self, start: int, end: int) -> list[Word] | None:
        """`${NAME}`, `${NAME[@]}`, `${NAME:-default}`, `${NAME:=default}`."""
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
                return [self.default(match.end() + len(mark), end)]
        return None

    def default(self, start: int, end: int) -> Word:
        part = Script(self.text[start:end], self.script.at[start:end])
        reader = _Reader(part, self.variables, self.depth + 1)
        reader.arrays = self.arrays
        builder = _Builder()
        while reader.here < len(part.text):
            if part.text[reader.here] in _END:
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
