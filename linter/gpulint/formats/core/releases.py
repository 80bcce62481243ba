"""Keys and values as the releases that a job states take them."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ...upstream.behaviour import earlier, is_release
from ...upstream.key_releases.table import (
    before,
    completes,
    is_tabled,
    of_bounds,
    standing,
    stated_of,
    takes,
    values_of,
)
from ...upstream.packages import package_of
from .coercion import as_number, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ...repository.pins import Pin
    from ...source.document import Document
    from ...upstream.key_releases.table import Standing
    from .format import Format, Problem, Project, Reading


_versions: Mapping[str, str] = {}
_pins: Mapping[str, Pin] = {}


@contextmanager
def stating(versions: Mapping[str, str], pins: Mapping[str, Pin]) -> Iterator[None]:
    """Hold the keys that are read meanwhile against the stated or pinned releases. Not for use by several threads."""
    global _versions, _pins
    before = _versions, _pins
    _versions, _pins = versions, pins
    try:
        yield
    finally:
        _versions, _pins = before


def read_as_stated(form: Format, document: Document, project: Project) -> Reading:
    """What a format reads, its keys held against the releases of the project."""
    with stating(project.versions, project.pins):
        return form.read(document, project)


_TAKEN_BEFORE = re.compile(r"taken before (\S+(?: core)?) (\d[\w.]*)")


def is_former(part: Mapping[str, Any]) -> bool:
    """Whether a property of a schema is one that a release dropped."""
    return _TAKEN_BEFORE.match(part.get("x-removed", "")) is not None


def last_with(schema: str, key: str, part: Mapping[str, Any]) -> tuple[str, str]:
    """The package that dropped a property and its last release with it; "" twice for one that is still there."""
    match = _TAKEN_BEFORE.match(part.get("x-removed", ""))
    if match is None:
        return "", ""
    found = standing(schema, key, {})
    package = found.package if found is not None else package_of(match[1]) or ""
    return package, before(package, found.until if found is not None and found.until else match[2])


def standing_of(schema: str, key: str, part: Mapping[str, Any] | None = None) -> Standing | None:
    """How the release that runs stands to a key of a schema; None where nothing tells, or it may be on either side.

    Without a stated release only keys that are gone are asked for: `part` is the property of one that the schema has.
    A copy of the package's tree in the repository may take keys that its release did not.
    """
    former = _TAKEN_BEFORE.match(part.get("x-removed", "")) if part is not None else None
    if part is not None and former is None and not stated_of(schema, _versions):
        return None
    if former is not None and not is_tabled(schema, key):
        package = package_of(former[1]) or former[1]
        return _of_all(package, lambda versions: of_bounds(package, former[2], versions))
    found = standing(schema, key, _versions)
    pin = _pins.get(found.package) if found is not None else None
    if found is not None and not found.taken and pin is not None and pin.copy and pin.release == found.release:
        return None
    if found is None or found.taken or not found.release:
        return None if found is not None and part is not None and former is None else found
    return _of_all(found.package, lambda versions: standing(schema, key, versions))


def _of_all(package: str, ask: Callable[[Mapping[str, str]], Standing | None]) -> Standing | None:
    """What holds for every release that may run: a pin may name several."""
    pin = _pins.get(package)
    others = pin.others if pin is not None and pin.release == _versions.get(package) else ()
    found = ask(_versions)
    for release in others:
        other = ask({**_versions, package: release})
        if other is None or other.taken:
            return other
    return found


def may_take(schema: str, key: str, value: object = None) -> bool:
    """Whether the release that runs may take a key, or a value of it."""
    return takes(schema, key, _versions, value)


def is_taken(schema: str, key: str, value: object) -> bool:
    """Whether a release is stated that surely takes a value of a key, whatever the newest does."""
    found = standing(schema, key, _versions, value)
    return found is not None and found.taken and bool(found.release)


def value_of_another_release(schema: str, key: str, value: str, upstream: str) -> dict[str, str] | None:
    """What a problem says of a value that the stated release does not take, yet or any more; None for all others."""
    if not stated_of(schema, _versions):
        return None
    found = standing(schema, key, _versions, value)
    if found is None or found.taken or not found.release:
        return None
    found = _of_all(found.package, lambda versions: standing(schema, key, versions, value))
    if found is None or found.taken:
        return None
    expected = listed(values_of(schema, key, _versions))
    return {
        "expected": expected,
        "found": value,
        "suggestion": "",
        "treatment": "refused",
        **of_stated(found, upstream),
    }


def begins_another(schema: str, option: str) -> bool:
    """Whether an option is the beginning of one that the stated release takes: argparse completes it."""
    return completes(schema, option, _versions)


def of_stated(found: Standing, upstream: str) -> dict[str, str]:
    """What a problem of a key says of the release that does not take it: its name, and whether somebody states it."""
    named = (part.rpartition(" ")[0] for part in upstream.split(", "))
    tool = next((name for name in named if package_of(name) == found.package), found.package)
    pin = _pins.get(found.package)
    certain = found.release and (pin is None or pin.release != found.release or pin.exact)
    return {
        "upstream": f"{tool} {found.release}" if found.release else f"{tool} from {found.until} on",
        "stated": "yes" if certain else "no",
        "since": f"{tool} {found.since}" if found.since and not found.until else "",
        "until": f"{tool} {found.until}" if found.until else "",
        "reason": f"taken before {tool} {found.until}" if found.until and found.release else "",
    }


def of_release(problems: Iterable[Problem], versions: Mapping[str, str], pins: Mapping[str, Pin]) -> list[Problem]:
    """The problems as the stated or pinned releases have them.

    A number of another kind than the newest release wants, or null for one, is none where an earlier release is stated.
    Values that are refused say whether the release that refuses them is `stated`.
    """
    kept = []
    for item in problems:
        if item.kind == "wrong-type" and _of_another_release(item, versions):
            continue
        own = item.kind in ("wrong-value", "deprecated-key") and item.values.get("stated") != "yes"
        said = {"stated": _stated(item, versions, pins)} if own else {}
        kept.append(item._replace(values={**item.values, **said}))
    return kept


_NUMBER = "number"
_NULL = "null"


def _stated(problem: Problem, versions: Mapping[str, str], pins: Mapping[str, Pin]) -> str:
    """`yes` where the release that runs is stated, and is the described one or a later one."""
    for part in problem.values["upstream"].split(", "):
        name, _, release = part.rpartition(" ")
        package = package_of(name) or ""
        stated, pin = versions.get(package), pins.get(package)
        if is_release(stated) and is_release(release) and earlier(stated or "", release) == release:
            return "yes" if pin is None or pin.release != stated or pin.exact else "no"
    return "no"


def _of_another_release(problem: Problem, versions: Mapping[str, str]) -> bool:
    """Whether a number, or none where one is wanted, is what the newest release refuses, and an earlier one runs."""
    found = problem.values["found"]
    number = (found == _NULL or as_number(found) is not None) and _NUMBER in problem.values["expected"]
    return number and _behind(problem.values["upstream"], versions)


def _behind(described: str, versions: Mapping[str, str]) -> bool:
    """Whether one of the described releases (`transformers 5.23.0, trl 1.16.0`) is not the one that runs."""
    for part in described.split(", "):
        name, _, release = part.rpartition(" ")
        stated = versions.get(package_of(name) or "")
        if stated and is_release(stated) and earlier(stated, release) != release:
            return True
    return False
