"""One requirement of a package, in the spellings of pip, Poetry and conda, and which releases it allows."""

from __future__ import annotations

import re
from typing import NamedTuple

from ..upstream.packages import Bound, package_of


class Requirement(NamedTuple):
    """What one line asks of a package; no bounds: any release. `line` is 1-based."""

    package: str
    bounds: tuple[Bound, ...]
    line: int

    @property
    def exact(self) -> str:
        """The one release that it allows; "" for a range."""
        return next((bound.release for bound in self.bounds if bound.operator == "=="), "")

    def allows(self, release: str) -> bool:
        """Whether a release passes every bound."""
        return all(bound.allows(release) for bound in self.bounds)

    def __str__(self) -> str:
        return self.package + ",".join(f"{bound.operator}{bound.release}" for bound in self.bounds)


MAX_LENGTH = 1024
"""Characters of a requirement."""

_REPOSITORY = re.compile(
    r"\s*(?:-e\s+)?git\+\w+://[^\s@]*?/([\w.-]+?)(?:\.git)?(?:@[^\s#]*)?(?:#(?:.*&)?egg=([\w.-]+))?\s*$"
)
_NAME = r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)"
_SPECIFIED = re.compile(
    rf"^\s*{_NAME}\s*(?:\[[^\]]*\])?\s*(?:@\s*(?P<url>\S+)|\(?\s*(?P<spec>[=<>!~][^;#)]*)\)?)?\s*(?:;(?P<marker>[^#]*))?"
    r"(?:\s+--.*|\s+#.*)?\s*$"
)
_PART = re.compile(r"(===|==|~=|!=|>=|<=|>|<)\s*v?([0-9][\w.!+*-]*)")
_ELSEWHERE = re.compile(
    r"(sys_platform|platform_system)\s*(==\s*['\"](darwin|win32|cygwin|Darwin|Windows)|!=\s*['\"][lL]inux)"
    r"|platform_machine\s*==\s*['\"](arm64|ARM64)|python_version\s*<=?|python_full_version\s*<=?"
)
"""Markers of machines that train nothing, and of Pythons older than the newest."""

_RELEASE_OF_URL = re.compile(
    r"@(?:refs/tags/)?(?:release[-/])?v?(\d+\.\d+[\w.]*?)(?:[#/&]|$)|-(\d+\.\d+[\w.]*)(?:\+[\w.]+)?-(?:cp|py)\d"
)
"""A tag of git, or the name of a wheel."""


def requirement(text: str, line: int) -> Requirement | None:
    """A line as pip reads it (PEP 508): `vllm[audio]==0.8.5; sys_platform == "linux"`, a tag of git, a wheel.

    None for packages that decide nothing, and for what is installed on other machines only.
    """
    if len(text) > MAX_LENGTH:
        return None
    if repository := _REPOSITORY.match(text):
        text = f"{repository[2] or repository[1]} @ {text.strip().removeprefix('-e').strip()}"
    match = _SPECIFIED.match(text)
    package = package_of(match["name"]) if match else None
    if match is None or package is None or _ELSEWHERE.search(match["marker"] or ""):
        return None
    if match["url"]:
        found = _RELEASE_OF_URL.search(match["url"])
        bounds: tuple[Bound, ...] = (Bound("==", found[1] or found[2]),) if found else ()
    else:
        bounds = tuple(item for part in _PART.findall(match["spec"] or "") for item in _bounds(*part))
    return Requirement(package, bounds, line)


def poetry(name: str, spec: str, line: int) -> Requirement | None:
    """A package as Poetry reads it: `4.40.0` is that release, `^4.40` is below 5, `~4.40` below 4.41."""
    spec = spec.strip()
    if match := re.fullmatch(r"([\^~])\s*v?(\d[\w.]*)", spec):
        package = package_of(name)
        end = _after(match[2], _caret(match[2]) if match[1] == "^" else min(2, match[2].count(".") + 1))
        return Requirement(package, (Bound(">=", match[2]), Bound("<", end)), line) if package else None
    return requirement(name + ("==" + spec if spec[:1].isdigit() else "" if spec == "*" else spec), line)


def conda(text: str, line: int) -> Requirement | None:
    """A package as conda reads it: `pytorch::pytorch=2.1.0=py3.10_cuda12`, where `=2.1` is any 2.1."""
    match = re.fullmatch(r"(?:[\w./-]+::)?([\w.-]+)\s*(?:(=)\s*(\d[\w.*]*)(?:=[\w.*]+)?|([=<>!~].*))?", text.strip())
    if match is None:
        return None
    if match[2]:
        whole = match[3].count(".") >= 2 and "*" not in match[3]
        return requirement(f"{match[1]}=={match[3]}{'' if whole or match[3].endswith('*') else '.*'}", line)
    return requirement(match[1] + (match[4] or ""), line)


def _bounds(operator: str, release: str) -> tuple[Bound, ...]:
    """A comparison of PEP 440; `==4.40.*` and `~=4.40.1` are ranges."""
    release = release.partition("+")[0]
    if operator == "==" and release.endswith("*"):
        start = release.rstrip("*").rstrip(".")
        return Bound(">=", start), Bound("<", _after(start, start.count(".") + 1))
    if operator == "~=":
        return Bound(">=", release), Bound("<", _after(release, max(1, release.count("."))))
    return () if "*" in release else (Bound("==" if operator == "===" else operator, release),)


def _caret(release: str) -> int:
    """How many numbers of a release a caret holds: up to the first that is not 0."""
    parts = release.split(".")
    return next((index for index, part in enumerate(parts, 1) if part != "0"), len(parts))


def _after(release: str, count: int) -> str:
    """The first release whose first `count` numbers are greater."""
    parts = [re.match(r"\d*", part)[0] or "0" for part in release.split(".")[:count]]  # type: ignore[index]
    return ".".join([*parts[:-1], str(int(parts[-1]) + 1)])
