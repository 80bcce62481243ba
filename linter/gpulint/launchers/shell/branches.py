"""What holds behind `if ... fi` and `case ... esac`: of the branch that runs, or of all where nobody knows which."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .words import Word

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_OPEN = 100
"""Branches within branches."""


class Branches:
    """The open `if` and `case` of a script and what each of their branches left in the variables."""

    def __init__(self) -> None:
        self._open: list[_Choice] = []

    @property
    def chosen(self) -> bool:
        """Whether what stands here runs only in one of several ways through the script."""
        return bool(self._open)

    @property
    def case(self) -> _Choice | None:
        """The `case` whose branches are read."""
        return self._open[-1] if self._open and self._open[-1].word == "case" else None

    @property
    def skipped(self) -> bool:
        """Whether what stands here is known not to run: what it sets counts for nothing."""
        return any(choice.runs is False and not choice.options for choice in self._open)

    def test(self, verdict: bool | None, closing: str) -> None:
        """Step over a command; the one between `if` and `then` decides, where it stands there alone."""
        if self._open and self._open[-1].testing:
            self._open[-1].verdicts.append(verdict if closing in (";", "\n") else None)

    def keyword(self, word: str, variables: dict[str, Word]) -> None:
        """Step over `if`, `then`, `elif`, `else`, `fi`, `case`, the pattern `*`, `;;` or `esac`; `variables` become
        what holds from there on."""
        if word in ("if", "case"):
            if len(self._open) < MAX_OPEN:
                self._open.append(_Choice(word, variables))
            return
        if not self._open:
            return
        choice = self._open[-1]
        if word == "*":
            choice.complete = choice.complete or choice.word == "case"
        elif choice.testing and word in ("then", "!"):
            choice.testing = word != "then"
            if word == "!":
                choice.verdicts += [None, None]
            elif not choice.settled:
                choice.runs = choice.verdicts[0] if len(choice.verdicts) == 1 else None
        elif (word in ("elif", "else") and choice.word == "if") or (word == ";;" and choice.word == "case"):
            choice.end(variables)
            choice.complete = choice.complete or word == "else"
            choice.testing = word == "elif"
            variables.clear()
            variables.update(choice.before)
        elif (word, choice.word) in (("fi", "if"), ("esac", "case")):
            self._open.pop()
            if word == "fi" or variables != choice.before:
                choice.end(variables)
            variables.clear()
            variables.update(choice.before)
            variables.update(_merged(choice.before, choice.ends, complete=choice.complete))


class _Choice:
    """One `if` or `case`: the variables in front of it and behind each branch; `complete` with an `else`.

    `runs` says whether the branch that is read runs, None where nobody knows; `settled` that one in front of it does.
    `options` where it reads the script's options: every branch that was asked for runs, one behind the other.
    """

    __slots__ = ("before", "complete", "ends", "options", "runs", "settled", "subject", "testing", "verdicts", "word")

    def __init__(self, word: str, variables: Mapping[str, Word]) -> None:
        self.word = word
        self.before = dict(variables)
        self.ends: list[dict[str, Word]] = []
        self.complete = False
        self.options = False
        self.runs: bool | None = None
        self.settled = False
        self.subject: str | None = None
        self.testing = word == "if"
        self.verdicts: list[bool | None] = []

    def end(self, variables: Mapping[str, Word]) -> None:
        """Take what the branch that ends here left in the variables."""
        if self.runs and self.options:
            self.before = {name: word for name, word in variables.items() if name not in ("1", "2")}
        elif self.runs and not self.ends:
            self.before, self.settled = dict(variables), True
        elif self.runs or self.runs is None:
            self.ends.append(dict(variables))
            if self.runs:
                self.settled = self.complete = True
        self.runs = False if self.settled else None
        self.verdicts = []


def _merged(before: Mapping[str, Word], ends: list[dict[str, Word]], *, complete: bool) -> dict[str, Word]:
    """The variables that a branch set: its value where all that the script states are the same, else an unknown word.

    A value that only the run knows gives way to a stated one, as an argument does to its default. An option that a
    branch alone sets may be absent.
    """
    found: dict[str, Word] = {}
    for name in dict.fromkeys(name for end in ends for name in end):
        values = [end[name] for end in ends if name in end and end[name] is not before.get(name)]
        if not values:
            continue
        if name in before and not (complete and len(values) == len(ends)):
            values.append(before[name])
        elif name not in before and not complete and any(_is_option(word) for word in values):
            values.append(Word("", ()))
        stated = [word for word in values if word.known]
        texts = tuple(dict.fromkeys(word.text for word in stated))
        if len(texts) > 1:
            text = f"${name}"
            found[name] = Word(text, (-1,) * len(text), known=False, may_be=texts if len(stated) == len(values) else ())
        else:
            found[name] = stated[0] if stated else values[-1]
    return found


def _is_option(word: Word) -> bool:
    """Whether a value is an argument that is there or not, and no default of something else."""
    return word.known and word.text.startswith("-")
