"""Which releases of the packages that read a config take a key of it: the first one that does, the first that does not.

The tables hold every final release since 2023, read by `scripts/release_keys.py`; one is loaded where a release is
stated, or a key is not the newest's.
"""

from __future__ import annotations

import os
import re
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ...source.tables import read_table
from ..behaviour import is_release, older

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TRAINER = ("transformers", "")
SOURCES: dict[str, tuple[tuple[str, str], ...]] = {
    "accelerate": (("accelerate", ""),),
    "autotrain": (("autotrain-advanced", ""),),
    "axolotl": (("axolotl", ""),),
    "deepspeed": (("deepspeed", ""),),
    "hf_trainer": (TRAINER, ("trl", ""), ("accelerate", "launch")),
    "litgpt": (("litgpt", ""),),
    "llamafactory": (("llamafactory", ""), TRAINER, ("transformers", "seq2seq")),
    "llm_foundry": (("llm-foundry", ""),),
    "lmdeploy": (("lmdeploy", ""),),
    "megatron": (("megatron-core", ""),),
    "megatron_swift": (("ms-swift", "megatron"),),
    "ms_swift": (("ms-swift", ""), TRAINER, ("transformers", "seq2seq"), ("trl", "")),
    "nemo_automodel": (("nemo-automodel", ""),),
    "nemo_rl": (("nemo-rl", ""),),
    "olmo": (("ai2-olmo", ""),),
    "openrlhf": (("openrlhf", ""),),
    "oumi": (("oumi", ""),),
    "sglang": (("sglang", ""),),
    "tgi": (("tgi", ""),),
    "torchtune": (("torchtune", ""),),
    "torchtitan": (("torchtitan", ""),),
    "verl": (("verl", ""),),
    "verl_sft": (("verl", "sft"),),
    "vllm": (("vllm", ""),),
}
"""Schema -> the tables and groups in them that know its keys; what one of them takes, the program takes."""

_UNRELEASED = re.compile(r"\d[.-]?(dev|rc|a|b|alpha|beta|nightly)\d*")


class Standing(NamedTuple):
    """How a release stands to a key.

    taken    whether it takes it
    package  the package whose release decides; `release` is the stated one, "" for the newest
    since    the first release that takes the key, of one that comes later than the stated one
    until    the first release without it, of one that is gone
    """

    taken: bool
    package: str
    release: str = ""
    since: str = ""
    until: str = ""


def tables() -> list[str]:
    """The packages that have a table."""
    return sorted(name[: -len(".json")] for name in os.listdir(os.path.dirname(__file__)) if name.endswith(".json"))


def releases(package: str) -> tuple[str, ...]:
    """The final releases of a package that were read, in order; none of one without a table."""
    found = _table(package)
    return tuple(found["releases"].split()) if found else ()


def before(package: str, release: str) -> str:
    """The last release before another; "" where none was read."""
    return next((found for found in reversed(releases(package)) if older(found, release)), "")


def spans(package: str, group: str = "") -> Mapping[str, tuple[str, ...]]:
    """Key -> the releases at which it comes and goes in turn, "-" for the first that was read."""
    return _spans(package, group)


def standing(schema: str, key: str, versions: Mapping[str, str], value: object = None) -> Standing | None:
    """How the stated releases stand to a dotted key of a schema, or to a value of it; None where no table tells.

    A package that nobody states is the newest; where it runs beside an older one that is stated, nothing is said.
    """
    found = [one for one in _standings(schema, key if value is None else f"{key}={value}", versions) if one]
    taking = next((one for one in found if one.taken), None)
    if taking is not None or not found:
        return taking
    stated = next((one for one in found if one.release), None)
    others = {package for package, _ in SOURCES[schema]} & versions.keys()
    unstated = stated is None or any(not one.release for one in found)
    if unstated and any(_behind(package, versions[package]) for package in others):
        return None
    return stated or found[0]


def takes(schema: str, key: str, versions: Mapping[str, str], value: object = None) -> bool:
    """Whether the stated releases, or the newest, may take a key or a value: what no table tells counts as taken."""
    found = standing(schema, key, versions, value)
    return found is None or found.taken


def values_of(schema: str, key: str, versions: Mapping[str, str]) -> list[str]:
    """The values of a key that tables know and the stated releases take, in the order of the tables."""
    start = f"{key.replace('-', '_')}="
    known = dict.fromkeys(name for source in SOURCES.get(schema, ()) for name in _spans(*source))
    found = [name.removeprefix(start) for name in known if name.startswith(start)]
    return [value for value in found if takes(schema, key, versions, value)]


def completes(schema: str, option: str, versions: Mapping[str, str]) -> bool:
    """Whether the stated releases take exactly one longer option that begins with one."""
    start = option.replace("-", "_")
    longer = (key for source in SOURCES.get(schema, ()) for key in _spans(*source) if "=" not in key)
    return len({key for key in longer if key.startswith(start) and key != start and takes(schema, key, versions)}) == 1


def is_tabled(schema: str, key: str) -> bool:
    """Whether a table knows a dotted key of a schema."""
    return any(key.replace("-", "_") in _spans(*source) for source in SOURCES.get(schema, ()))


def of_bounds(package: str, until: str, versions: Mapping[str, str]) -> Standing | None:
    """How the stated release stands to a key that no table knows, and that a release dropped."""
    release = versions.get(package)
    return _at(package, ("-", until), release if release and is_release(release) else "", "")


def stated_of(schema: str, versions: Mapping[str, str]) -> bool:
    """Whether a release of a package that has a part in a schema's keys is stated."""
    return any(is_release(versions.get(package)) for package, _ in SOURCES.get(schema, ()))


def _standings(schema: str, key: str, versions: Mapping[str, str]) -> Iterator[Standing | None]:
    for package, group in SOURCES.get(schema, ()):
        steps = _spans(package, group).get(key.replace("-", "_"))
        if steps is not None:
            release = versions.get(package)
            stated = release if release and is_release(release) else ""
            yield _at(package, steps, stated, _table(package)["first"][group])


def _at(package: str, steps: tuple[str, ...], release: str, first: str) -> Standing | None:
    """The standing of a release, "" for the newest; None where it may be on either side of a step."""
    if not release:
        return Standing(True, package) if len(steps) % 2 or not steps else Standing(False, package, until=steps[-1])
    if steps and older(release, first):
        return None
    passed = 0
    for step in steps:
        if step != "-" and older(release, step):
            break
        if step != "-" and not older(step, release) and _UNRELEASED.search(release):
            return None
        passed += 1
    if passed % 2 or not steps:
        return Standing(True, package, release)
    since = steps[passed] if passed < len(steps) else ""
    return Standing(False, package, release, since, steps[passed - 1] if passed else "")


def _behind(package: str, release: str) -> bool:
    newest = releases(package)[-1:]
    return bool(newest) and is_release(release) and older(release, newest[0])


@cache
def _table(package: str) -> dict[str, Any]:
    try:
        return read_table(__file__, f"{package}.json")
    except FileNotFoundError:
        return {}


@cache
def _spans(package: str, group: str) -> dict[str, tuple[str, ...]]:
    rows = _table(package).get("groups", {}).get(group, {})
    return {key.replace("-", "_"): tuple(span.split()) for span, keys in rows.items() for key in _unfolded(keys)}


def _unfolded(keys: str) -> Iterator[str]:
    """The keys of a row, of which `section.{a,b}` is two."""
    for text in keys.split(" "):
        section, brace, names = text.partition(".{")
        if brace:
            yield from (f"{section}.{name}" for name in names[:-1].split(","))
        else:
            yield text
