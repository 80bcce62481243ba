"""What a package does in some of its releases, as rows that say so in a sentence and name their source.

A release that nobody states, or one without numbers (`main`), is the newest. No other module compares releases.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

AnyRow = TypeVar("AnyRow", bound="Mapping[str, Any]")


class Span(NamedTuple):
    """Releases from `since`, the first one, to before `until`, the first one after them; "" is no bound."""

    since: str = ""
    until: str = ""

    def at(self, version: str | None) -> bool:
        """Whether a release is one of them; an unstated one is the newest."""
        return not (self.since and older(version, self.since)) and not (self.until and not older(version, self.until))


class Behaviour(NamedTuple):
    """What a package does.

    package  its name in `versions` of a job
    says     what it does from `since` to before `until`, in one sentence whose subject is the package
    source   upstream's file and function, with the releases in which it was read
    """

    package: str
    says: str
    source: str
    since: str = ""
    until: str = ""

    def at(self, version: str | None) -> bool:
        """Whether a release does it; an unstated one is the newest."""
        return Span(self.since, self.until).at(version)


class BehaviourByType(NamedTuple):
    """What a package does with some types of model, objective or mixer, each from and until a release of its own.

    `types` names them; the `others` do it in releases of theirs. None is never.
    """

    package: str
    says: str
    source: str
    types: Mapping[str, Span | None]
    others: Span | None = None

    def at(self, version: str | None, type_: str) -> bool:
        """Whether a release does it with a type."""
        span = self.types.get(type_, self.others)
        return span is not None and span.at(version)


def since(releases: Mapping[str, str]) -> dict[str, Span | None]:
    """Types, several in a text, by the first release that does it with them; "" is every release."""
    return {name: Span(since=release) for release, names in releases.items() for name in names.split()}


def until(releases: Mapping[str, str]) -> dict[str, Span | None]:
    """Types, several in a text, by the first release that no longer does it with them."""
    return {name: Span(until=release) for release, names in releases.items() for name in names.split()}


def never(names: str) -> dict[str, Span | None]:
    """Types with which no release does it, whatever the others do."""
    return dict.fromkeys(names.split())


class Default(NamedTuple):
    """What a name stands for in some releases where a config is silent; of one name, one row holds at a time."""

    package: str
    name: str
    value: Any
    source: str
    since: str = ""
    until: str = ""

    def at(self, version: str | None) -> bool:
        """Whether a release has it; an unstated one is the newest."""
        return Span(self.since, self.until).at(version)


def default_of(rows: Iterable[Default], version: str | None, name: str, newest: Any) -> Any:
    """The default of a name in a release; `newest` where no row of older releases holds."""
    return next((row.value for row in rows if row.name == name and row.at(version)), newest)


def former_defaults(rows: Iterable[Default], version: str | None) -> dict[str, Any]:
    """All defaults of a release that are no longer the newest's."""
    return {row.name: row.value for row in rows if row.at(version)}


def at_release(rows: Iterable[AnyRow], version: str | None) -> list[AnyRow]:
    """The rows of a table that hold at a release, in its order; `since` and `until` bound them as those of `Span`."""
    return [row for row in rows if Span(row.get("since", ""), row.get("until", "")).at(version)]


def as_of(rows: Iterable[AnyRow], version: str | None) -> dict[str, Any]:
    """What the rows that hold at a release say together: a later row replaces what it names of earlier ones."""
    found: dict[str, Any] = {}
    for row in at_release(rows, version):
        found.update(row)
    return {name: value for name, value in found.items() if name not in Span._fields}


def earlier(version: str, other: str) -> str:
    """The earlier of two releases."""
    return version if older(version, other) else other


def still_in(version: str | None, last: str) -> bool:
    """Whether a release has what `last` was the last one to have; the newest has not."""
    return bool(version) and not older(last, version or "")


def is_release(version: str | None) -> bool:
    """Whether a version has numbers, so that it can be told from the newest."""
    return bool(numbers(version or ""))


def older(version: str | None, than: str) -> bool:
    """Whether a stated version comes before `than`; an unstated one, or one without numbers, is current.

    Suffixes (`+cu124`, `rc1`) are cut, and `5` is `5.0`.
    """
    found = numbers(version or "")
    return bool(found) and _significant(found) < _significant(numbers(than))


def _significant(found: tuple[int, ...]) -> tuple[int, ...]:
    while found and not found[-1]:
        found = found[:-1]
    return found


@lru_cache(1024)
def numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: '2.4.1+cu121' -> (2, 4, 1), 'v0.11' -> (0, 11), '0.4.9.post3' (0, 4, 9, 3)."""
    found: list[int] = []
    for part in version.strip().lstrip("v=<>~^ ").split("+")[0].split("."):
        digits, part = "", part.removeprefix("post")
        for character in part:
            if not character.isdigit():
                break
            digits += character
        if not digits:
            break
        found.append(int(digits))
        if len(digits) < len(part):
            break
    return tuple(found)


def runs_within(versions: Mapping[str, str], since: str, until: str) -> bool:
    """Whether the releases that run are from `since` on and before `until` (`trl 0.20.0`), "" for no bound.

    A package of which no release is known is within.
    """
    (package, first), (other, gone) = since.split() or ("", ""), until.split() or ("", "")
    ours, theirs = versions.get(package), versions.get(other)
    early = is_release(ours) and older(ours, first) if first else False
    return not early and not (gone and is_release(theirs) and not older(theirs, gone))
