"""Rule: one entry of the policy, compiled and ready to evaluate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ..source.document import FileError
from ..upstream.behaviour import runs_within

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..settings.severity import Severity
    from .expression import Tree
    from .message import Template

CONFIDENCES = ("low", "medium", "high")


class RuleError(FileError):
    """A rule file that cannot be used."""


class Place(NamedTuple):
    """Where a finding points: a Job field, a `config.` or `deepspeed.` key, or `item`; `label` is for the frame."""

    path: str
    label: Template


class Advice(NamedTuple):
    """One suggestion of a rule, or one recipe, as `rule_file.AdviceTable` declares it, with its expressions compiled.

    `recipe` is the name of a recipe that stands for it, or "search" for the search over all recipes. A value of `set`
    that is an expression is `["= expr", tree]`.
    """

    recipe: str | None = None
    set: dict[str, Any] | None = None
    config: dict[str, Any] | None = None
    rename: dict[str, str] | None = None
    needs: Tree | None = None
    factors: tuple[int, ...] = ()
    fix: Literal["safe", "unsafe"] = "unsafe"
    rank: int = 0
    family: str = ""
    excludes: tuple[str, ...] = ()
    text: Template | None = None
    kind: str = ""
    between: bool = False
    room: bool = False
    cost: str = ""
    otherwise: str = ""

    @property
    def is_said(self) -> bool:
        """Whether it is words alone, with nothing to change in the file."""
        return self.text is not None and not (self.recipe or self.set or self.config or self.rename)


class Case(NamedTuple):
    """One of several conditions of a rule, with its own place and message; `formats` empty means those of the rule.

    `since` and `until` are releases of a package (`trl 0.20.0`): the first that checks it, and the first that does not
    check it any more.
    """

    when: Tree
    at: tuple[Place, ...]
    message: Template
    formats: tuple[str, ...] = ()
    suggest: tuple[Advice, ...] = ()
    since: str = ""
    until: str = ""

    def speaks(self, format_: str, versions: Mapping[str, str]) -> bool:
        """Whether it is about files of that format, and about the releases that run."""
        if self.formats and format_ not in self.formats:
            return False
        return runs_within(versions, self.since, self.until)


class Rule(NamedTuple):
    """A rule as the engine runs it. What only people read stays in its file (`load.read_rule_file`).

    kinds, formats   what it applies to; empty means all
    each             the kind of problem it iterates over (`unknown-key`), or ""
    group            rules of one group report one finding a file: the first that fires, by priority
    priority         order of evaluation, small first
    cases            the conditions of a rule that has several, each with its place and message
    file             where it was read from
    """

    id: str
    name: str
    since: str
    status: str
    severity: Severity
    confidence: str
    kinds: tuple[str, ...]
    formats: tuple[str, ...]
    each: str
    group: str
    priority: int
    when: Tree
    at: tuple[Place, ...]
    message: Template
    notes: tuple[Template, ...]
    suggest: tuple[Advice, ...]
    file: str
    cases: tuple[Case, ...] = ()

    @property
    def order(self) -> tuple[int, str]:
        """Rules are evaluated in this order."""
        return self.priority, self.id

    def applies(self, kind: str, format_: str) -> bool:
        """Whether the rule speaks about files of that kind and format."""
        return (not self.kinds or kind in self.kinds) and (not self.formats or format_ in self.formats)

    def variants(self, format_: str, releases: Iterable[Mapping[str, str]]) -> tuple[Rule, ...]:
        """The rule once for each case that speaks about that format and all the releases; itself where it has none."""
        if not self.cases:
            return (self,)
        return tuple(
            self._replace(
                when=["and", self.when, case.when],
                at=case.at,
                message=case.message,
                suggest=case.suggest or self.suggest,
                cases=(),
            )
            for case in self.cases
            if all(case.speaks(format_, versions) for versions in releases)
        )


class Selection(NamedTuple):
    """The rules of one run.

    muted         ids that are evaluated for their group but report nothing
    safe, unsafe  ids whose fixes all count as that
    """

    rules: tuple[Rule, ...]
    recipes: dict[str, Advice]
    muted: frozenset[str] = frozenset()
    safe: frozenset[str] = frozenset()
    unsafe: frozenset[str] = frozenset()
