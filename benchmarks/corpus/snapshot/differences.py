"""Two snapshots told apart: the same change at the same place of many items is one difference."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from .files import parsed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .files import Snapshot

Tree = dict[str, Any]
SECTIONS = ("facts", "words")

_OWN = re.compile(r" ?@.*|#\d+$", re.DOTALL)
"""What a step of a path has of one item alone: the place of a finding, the number of a term."""

_NUMBER = re.compile(r"\d[\d,.]*")


class Change(NamedTuple):
    """One change of one place: the first values that were met, and the items that it was met in."""

    old: Any
    new: Any
    keys: list[str]


@dataclass
class Differences:
    """What two snapshots do not have in common; `changes` by section, by place, by what changed."""

    compared: int = 0
    missing: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    changes: dict[str, dict[str, dict[tuple[str, str], Change]]] = field(
        default_factory=lambda: {section: defaultdict(dict) for section in SECTIONS}
    )

    def __bool__(self) -> bool:
        return bool(self.missing or self.added or any(self.changes.values()))

    def items(self, section: str) -> int:
        """How many items differ in a section."""
        places = self.changes[section].values()
        return len({key for place in places for change in place.values() for key in change.keys})

    def add(self, section: str, key: str, path: tuple[str, ...], old: Any, new: Any) -> None:
        """Count one change. Words that differ in their numbers alone are one."""
        place = ".".join(_OWN.sub("", step) for step in path)
        pair = shown(old), shown(new)
        same = pair if section == "facts" else (_NUMBER.sub("0", pair[0]), _NUMBER.sub("0", pair[1]))
        change = self.changes[section][place].setdefault(same, Change(old, new, []))
        if change.keys[-1:] != [key]:
            change.keys.append(key)


class Renames:
    """Old names for new ones: in the steps of paths, in the keys of items, as whole values."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names
        longest = sorted(names, key=lambda name: (-len(name), name))
        self.pattern = re.compile(rf"(?<![^.: ])(?:{'|'.join(map(re.escape, longest))})(?![^.#: ])") if names else None

    def text(self, text: str) -> str:
        """A dotted path, or the key of an item."""
        return self.pattern.sub(lambda found: self.names[found[0]], text) if self.pattern else text

    def value(self, value: Any) -> Any:
        """A value, or the values of a list."""
        if isinstance(value, list):
            return [self.value(item) for item in value]
        return self.names.get(value, value) if isinstance(value, str) else value

    def tree(self, tree: Tree | None, section: str) -> Tree:
        """A section of an item, each dotted step of a path as several."""
        made: Tree = {}
        for path, value in _leaves(tree or {}):
            steps = self.text(".".join(step.replace(".", _DOT) if "@" in step else step for step in path)).split(".")
            into = made
            for step in steps[:-1]:
                into = into.setdefault(step.replace(_DOT, "."), {})
            into[steps[-1].replace(_DOT, ".")] = self.value(value) if section == "facts" else value
        return made


_DOT = "\0"
"""A dot that stands in a step."""


def compare(old: Snapshot, new: Snapshot, names: Mapping[str, str]) -> Differences:
    """What differs between the items that both snapshots are to have."""
    renames = Renames(names)
    before = {renames.text(key): line for key, line in old.lines.items()}
    before = old._replace(lines=before).of(new.kinds, new.part)
    after = new.of(old.kinds, old.part)
    found = Differences(len(before.keys() & after.keys()), sorted(before.keys() - after), sorted(after.keys() - before))
    for key in sorted(before.keys() & after.keys()):
        if before[key] == after[key] and not names:
            continue
        was, now = parsed(before[key]), parsed(after[key])
        for section in SECTIONS:
            pair = (renames.tree(getattr(was, section), section), Renames({}).tree(getattr(now, section), section))
            for path, one, other in _differing(*pair):
                found.add(section, key, path, one, other)
    return found


def report(found: Differences, section: str | None, under: str, changes: int, items: int) -> Iterator[str]:
    """The differences as lines: how many items, then place by place what changed and where."""
    count = f"facts differ: {found.items('facts')} items; words differ: {found.items('words')} items"
    yield f"{count}; missing: {len(found.missing)}; new: {len(found.added)}; compared: {found.compared}"
    for name, keys in (("missing", found.missing), ("new", found.added)):
        if keys:
            yield f"{name}: {_some(keys, 4 * items)}"
    for title, places in found.changes.items():
        if section in (None, title) and places:
            yield f"\n{title}"
            for place in sorted(name for name in places if name.startswith(under)):
                yield from _place(place, [*places[place].values()], changes, items)


def shown(value: Any) -> str:
    """A value in one line."""
    if value is None:
        return "(absent)"
    return "{...}" if isinstance(value, dict) else json.dumps(value, ensure_ascii=False)


def _place(place: str, found: list[Change], changes: int, items: int) -> Iterator[str]:
    found.sort(key=lambda change: (-len(change.keys), change.keys[0]))
    keys = {key for change in found for key in change.keys}
    ratios = [change.new / change.old for change in found if _number(change.old) and _number(change.new) and change.old]
    bounds = f", {min(ratios) - 1:+.3%} to {max(ratios) - 1:+.3%}" if ratios else ""
    yield f"  {place or '(all)'}: {len(keys)} items, {len(found)} changes{bounds}"
    for change in found[:changes]:
        old, new = (text if len(text) <= LONGEST else f"{text[:LONGEST]}..." for text in map(shown, change[:2]))
        yield f"    {len(change.keys):>5} x  {old} -> {new}"
        yield f"             {_some(change.keys, items)}"
    if len(found) > changes:
        yield f"    and {len(found) - changes} changes more"


LONGEST = 240
"""Characters of a value that are printed."""


def _some(keys: list[str], count: int) -> str:
    return ", ".join(keys[:count]) + (f" and {len(keys) - count} more" if len(keys) > count else "")


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _leaves(tree: Tree, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*path, name))
        elif value is not None:
            yield (*path, name), value


def _differing(old: Any, new: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Path and both values of each difference; what one side lacks as a whole is one, of several items one each."""
    if (old is None and _several(new)) or (new is None and _several(old)):
        old, new = old or {}, new or {}
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted(old.keys() | new):
            yield from _differing(old.get(name), new.get(name), (*path, name))
    elif old != new or type(old) is not type(new):
        yield path, old, new


def _several(value: Any) -> bool:
    """Whether it is a mapping of numbered items."""
    return isinstance(value, dict) and all(re.search(r"#\d+$", name) for name in value)
