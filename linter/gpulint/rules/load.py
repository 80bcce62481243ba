"""Rules by where they come from: the bundled index, and folders of the user's own rule files."""

from __future__ import annotations

import json
import os
import re
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from .rule import Advice, Case, Place, Rule, RuleError, Selection

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ..source.document import Document

DOCS_URL = ""
"""Where the pages of `docs/rules/` are published, `{id}` for the rule; empty until they are."""

RESERVED_PREFIX = "GPU"
MAX_RULE_FILES = 500


class RuleSettings(Protocol):
    """What settings say about rules."""

    @property
    def select(self) -> tuple[str, ...]:
        """Ids, names or id prefixes to run; empty for all stable rules."""

    @property
    def extend_select(self) -> tuple[str, ...]:
        """Ids, names or id prefixes to run besides, also of preview."""

    @property
    def severity(self) -> tuple[tuple[str, str], ...]:
        """Ids or names, and the severity that they are to have."""

    @property
    def ignore(self) -> tuple[str, ...]:
        """Ids, names or id prefixes not to report."""

    @property
    def safe_fixes(self) -> tuple[str, ...]:
        """Ids, names or id prefixes whose fixes are all safe."""

    @property
    def unsafe_fixes(self) -> tuple[str, ...]:
        """Ids, names or id prefixes none of whose fixes is safe; they win."""

    @property
    def rules(self) -> tuple[str, ...]:
        """Folders with rule files."""

    @property
    def preview(self) -> bool:
        """Whether preview rules run without being selected."""


class Named(Protocol):
    """A Rule or a RuleFile."""

    @property
    def id(self) -> str:
        """The rule's id."""

    @property
    def name(self) -> str:
        """The name people read and suppress by."""


NamedRule = TypeVar("NamedRule", bound=Named)


class RuleText(NamedTuple):
    """What a report says about a rule that fired."""

    id: str
    name: str
    severity: str
    summary: str
    why: str
    url: str


class RuleFile(NamedTuple):
    """A rule with all that its file says (`source`)."""

    rule: Rule
    source: dict[str, Any]
    document: Document

    @property
    def id(self) -> str:
        """The rule's id."""
        return self.rule.id

    @property
    def name(self) -> str:
        """The name people read and suppress by."""
        return self.rule.name

    @property
    def severity(self) -> str:
        """error, warning or info."""
        return self.rule.severity

    @property
    def status(self) -> str:
        """preview, stable or deprecated."""
        return self.rule.status

    @property
    def applies_text(self) -> str:
        """What it applies to, in words: `training: axolotl, llamafactory`."""
        kinds = ", ".join(self.rule.kinds) or "all"
        return f"{kinds}: {', '.join(self.rule.formats)}" if self.rule.formats else kinds

    @property
    def subject(self) -> str:
        """The folder that the rule lies in."""
        return os.path.basename(os.path.dirname(os.path.abspath(self.rule.file)))

    @property
    def fix(self) -> str:
        """The best kind of fix that its suggestions may have: safe, unsafe or -; formats may not be able to say it."""
        kinds = {item.fix for item in self.advice if item.recipe or item.set or item.config or item.rename}
        return "safe" if "safe" in kinds else "unsafe" if kinds else "-"

    @property
    def advice(self) -> tuple[Advice, ...]:
        """What it and its cases suggest."""
        return (*self.rule.suggest, *(item for case in self.rule.cases for item in case.suggest))

    @property
    def summary(self) -> str:
        """One sentence on what it finds."""
        text = " ".join(str(self.source.get("what") or self.rule.name.replace("-", " ")).split())
        return text.split(". ")[0].rstrip(".")

    def text(self) -> RuleText:
        """What reports say about the rule."""
        why = " ".join(str(self.source["why"]).split())
        return RuleText(self.id, self.name, self.severity, self.summary, why, DOCS_URL.format(id=self.id))


def load_rules(settings: RuleSettings | None = None) -> Selection:
    """The rules of a run; raises RuleError for an unusable rule file or a selection that names no rule."""
    rules, recipes = bundled()
    if settings is None:
        return select(rules, recipes)
    for folder in settings.rules:
        rules = (*rules, *(file.rule for file in _own_rules(folder, rules, recipes)))
    rules = _weighed(rules, settings.severity)
    chosen = select(rules, recipes, settings.select, settings.ignore, settings.extend_select, preview=settings.preview)
    return chosen._replace(
        safe=_named("extend-safe-fixes", settings.safe_fixes, rules),
        unsafe=_named("extend-unsafe-fixes", settings.unsafe_fixes, rules),
    )


def _named(setting: str, words: Sequence[str], rules: tuple[Rule, ...]) -> frozenset[str]:
    """The ids that words name. Raises RuleError for a word that fits no rule."""
    for word in words:
        if not any(_fits(rule, word) for rule in rules):
            raise RuleError(setting, f"unknown rule {word}{_nearest(word, rules)}")
    return frozenset(rule.id for rule in rules if any(_fits(rule, word) for word in words))


def _weighed(rules: tuple[Rule, ...], severities: tuple[tuple[str, str], ...]) -> tuple[Rule, ...]:
    """The rules with the severities that the settings give them. Raises RuleError for a word that is no rule."""
    for word, severity in severities:
        found = find_rule(word, rules)
        rules = tuple(rule._replace(severity=severity) if rule is found else rule for rule in rules)  # type: ignore[arg-type]
    return rules


def select(
    rules: tuple[Rule, ...],
    recipes: dict[str, Advice],
    wanted: Iterable[str] = (),
    ignored: Iterable[str] = (),
    extended: Iterable[str] = (),
    *,
    preview: bool = False,
) -> Selection:
    """The rules to run. A word is an id, a name, or the beginning of ids (`GPU1`).

    Without `wanted` all stable rules run, with `preview` also those in preview; a preview rule also runs when
    its id or name is wanted in full, or a word of `extended` fits it, which adds to all others. Deprecated rules run
    only when wanted in full. Raises RuleError for a word of `wanted` or `extended` that fits no rule.
    """
    wanted, ignored, extended = tuple(wanted), tuple(ignored), tuple(extended)
    _named("select", (*wanted, *extended), rules)
    on = [rule for rule in rules if _chosen(rule, wanted, preview=preview) or _added(rule, extended)]
    chosen = sorted(on, key=lambda rule: rule.order)
    muted = frozenset(rule.id for rule in chosen if any(_fits(rule, word) for word in ignored))
    return Selection(tuple(rule for rule in chosen if rule.group or rule.id not in muted), recipes, muted)


def _chosen(rule: Rule, wanted: tuple[str, ...], *, preview: bool) -> bool:
    if rule.id in wanted or rule.name in wanted:
        return True
    on = rule.status == "stable" or (preview and rule.status == "preview")
    return on and (not wanted or any(_fits(rule, word) for word in wanted))


def _added(rule: Rule, extended: tuple[str, ...]) -> bool:
    named = rule.id in extended or rule.name in extended
    return named or (rule.status != "deprecated" and any(_fits(rule, word) for word in extended))


def _fits(rule: Rule, word: str) -> bool:
    return rule.name == word or (bool(word) and rule.id.startswith(word))


def _nearest(word: str, rules: Sequence[Named]) -> str:
    """What to try instead: a number is not like another."""
    from difflib import get_close_matches

    if re.fullmatch(r"[A-Za-z]+\d+", word):
        return "; `gpulint rules` lists them"
    found = get_close_matches(word[:80], [rule.name for rule in rules], 1, 0.6)
    return f"; did you mean {found[0]}?" if found else ""


def find_rule(word: str, rules: Iterable[NamedRule]) -> NamedRule:
    """The rule with that id or name; raises RuleError with the nearest."""
    known = tuple(rules)
    for rule in known:
        if word == rule.name or word.upper() == rule.id:
            return rule
    raise RuleError(word, f"unknown rule {word}{_nearest(word, known)}")


def rule_file(word: str, folders: Iterable[str] = ()) -> RuleFile:
    """The one rule with that id or name, whole; raises RuleError with the nearest."""
    rules, recipes = bundled()
    own = {file.id: file for folder in folders for file in _own_rules(folder, rules, recipes)}
    found = find_rule(word, (*rules, *(file.rule for file in own.values())))
    return own.get(found.id) or read_rule_file(os.path.join(rules_folder(), found.file))


@cache
def bundled() -> tuple[tuple[Rule, ...], dict[str, Advice]]:
    """The rules and recipes of `rules/index.json`, which `scripts/build.py` writes."""
    with open(os.path.join(rules_folder(), "index.json"), encoding="utf-8") as file:
        index = json.load(file)
    rules = tuple(_rule(item) for item in index["rules"])
    return rules, {name: _advice(item) for name, item in index["recipes"].items()}


def rules_folder() -> str:
    """Where the bundled rule files lie."""
    folder: str = import_module("..rules_data", __package__).__path__[0]
    return folder


def rule_paths(folder: str) -> Iterator[str]:
    """The rule files of a folder and of the folders in it (a subject each), sorted; not what begins with a dot."""
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if name.startswith("."):
            continue
        if os.path.isdir(path) and not os.path.islink(path):
            yield from rule_paths(path)
        elif name.endswith((".yaml", ".yml")) and name != "recipes.yaml":
            yield path


def all_rules(folders: Iterable[str] = ()) -> tuple[RuleFile, ...]:
    """Every bundled rule and every rule of the given folders with all that their files say."""
    rules, recipes = bundled()
    own = [file for folder in folders for file in _own_rules(folder, rules, recipes)]
    return (*(read_rule_file(path) for path in rule_paths(rules_folder())), *own)


def rule_texts(settings: RuleSettings) -> tuple[RuleText, ...]:
    """What reports say about the rules of a run."""
    return tuple(file.text() for file in all_rules(settings.rules))


def read_rule_file(path: str) -> RuleFile:
    """One rule file, compiled and whole; raises RuleError with the place of what is wrong."""
    from ..source.document import SourceError
    from ..source.read import read
    from .compile import compile_rule

    try:
        document = read(path)
    except SourceError as error:
        raise RuleError(path, error.reason, error.line, error.column) from None
    if document.duplicates:
        span = document.duplicates[0].lost
        raise RuleError(path, f"duplicate key {document.duplicates[0].key}", span.line, span.column)
    return RuleFile(compile_rule(document), document.root.plain(), document)


def _own_rules(folder: str, rules: tuple[Rule, ...], recipes: dict[str, Advice]) -> Iterator[RuleFile]:
    if not os.path.isdir(folder):
        raise RuleError(folder, "no such directory of rules")
    paths = list(rule_paths(folder))
    if len(paths) > MAX_RULE_FILES:
        raise RuleError(folder, f"more than {MAX_RULE_FILES} rule files")
    taken = {word: rule.file for rule in rules for word in (rule.id, rule.name)}
    for path in paths:
        file = read_rule_file(path)
        refuse_taken(file, taken, recipes)
        yield file


def refuse_taken(file: RuleFile, taken: dict[str, str], recipes: dict[str, Advice]) -> None:
    """Refuse a user's rule whose id or name is another's, and recipes that are none; `taken` gains its words."""
    rule = file.rule
    if rule.id.startswith(RESERVED_PREFIX) and rule.id[len(RESERVED_PREFIX) :].isdigit():
        raise _at(file, "id", f"ids that start with {RESERVED_PREFIX} are reserved for gpulint")
    for key, word in (("id", rule.id), ("name", rule.name)):
        if word in taken:
            raise _at(file, key, f"{word} is already defined in {taken[word]}")
        taken[word] = rule.file
    unknown = [item.recipe for item in rule.suggest if item.recipe and item.recipe not in (*recipes, "search")]
    if unknown:
        raise _at(file, "suggest", f"unknown recipe {unknown[0]}; known recipes: {', '.join(recipes)}")


def _at(file: RuleFile, key: str, reason: str) -> RuleError:
    node = file.document.root.get(key)
    place = (node.span.line, node.span.column) if node else (0, 0)
    return RuleError(file.rule.file, reason, *place)


def _rule(item: dict[str, Any]) -> Rule:
    return Rule(
        **{
            **item,
            "kinds": tuple(item["kinds"]),
            "formats": tuple(item["formats"]),
            "at": tuple(Place(path, label) for path, label in item["at"]),
            "notes": tuple(item["notes"]),
            "suggest": tuple(_advice(advice) for advice in item["suggest"]),
            "cases": tuple(_case(case) for case in item.get("cases", ())),
        }
    )


def _case(item: dict[str, Any]) -> Case:
    return Case(
        item["when"],
        tuple(Place(path, label) for path, label in item["at"]),
        item["message"],
        tuple(item["formats"]),
        tuple(_advice(advice) for advice in item["suggest"]),
        item.get("since", ""),
        item.get("until", ""),
    )


def _advice(item: dict[str, Any]) -> Advice:
    lists = {name: tuple(item.get(name, ())) for name in ("factors", "excludes")}
    return Advice(**{**item, **lists})
