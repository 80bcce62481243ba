"""Rule: one entry of the policy, compiled and ready to evaluate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from ..settings.severity import Severity
    from .expression import Tree
    from .message import Template

STATUSES = ("preview", "stable", "deprecated")
CONFIDENCES = ("low", "medium", "high")


class RuleError(Exception):
    """A rule file that cannot be used. `line` and `column` count from 1 and are 0 where there is no place."""

    def __init__(self, path: str, reason: str, line: int = 0, column: int = 0) -> None:
        super().__init__(reason)
        self.path = path
        self.reason = reason
        self.line = line
        self.column = column

    def __reduce__(self) -> tuple[type[RuleError], tuple[str, str, int, int]]:
        return RuleError, (self.path, self.reason, self.line, self.column)

    def __str__(self) -> str:
        place = f":{self.line}:{self.column}" if self.line else ""
        return f"{self.path}{place}: {self.reason}"


class Place(NamedTuple):
    """Where a finding points: a Job field, a `config.` or `deepspeed.` key, or `item`; `label` is for the frame."""

    path: str
    label: Template


class Advice(NamedTuple):
    """One suggestion of a rule, or one recipe.

    recipe   the name of a recipe that stands for it, or "search" for the search over all recipes
    set      Job fields to change; a value may be an expression (`["= expr", tree]` compiled to a tree)
    config   keys of the checked file to write; null removes the key
    rename   keys of the checked file to rename, old to new
    needs    condition under which it is worth trying
    factors  values of the fact `factor` to try in order until one helps
    fix      whether the edit keeps what the job computes (`safe`) or not (`unsafe`)
    rank     how much it changes the run, small first (recipes)
    family   of the recipes of one family only the best is shown
    excludes families that it does not go together with in one combination
    text     what to print; None for the format's own words
    kind     `training` or `inference` where it is for one of them only (recipes)
    between  whether its strongest factor need not help where a weaker one does: too little is as wrong as too much
    room     whether it uses memory that is left over instead of saving some; its last factor that fits counts
    cost     what it costs the run, in words
    otherwise  what it needs, in words, for where it does not apply
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


class Rule(NamedTuple):
    """A rule as the engine runs it. What only people read stays in its file (`load.read_rule_file`).

    kinds, formats   what it applies to; empty means all
    each             the kind of problem it iterates over (`unknown-key`), or ""
    group            rules of one group report one finding a file: the first that fires, by priority
    priority         order of evaluation, small first
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

    @property
    def order(self) -> tuple[int, str]:
        """Rules are evaluated in this order."""
        return self.priority, self.id

    def applies(self, kind: str, format_: str) -> bool:
        """Whether the rule speaks about files of that kind and format."""
        return (not self.kinds or kind in self.kinds) and (not self.formats or format_ in self.formats)


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
