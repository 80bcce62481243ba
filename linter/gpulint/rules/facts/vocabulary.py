"""The names that rule files may use, checked when a rule is loaded."""

from __future__ import annotations

from functools import cache

from ...declared import unit_of
from ...job.job import field_paths, job_fields
from ..quantity import CONSTANTS
from . import fact_modules  # noqa: F401  (they register their facts)
from .facts import FACTS, ITEM, KEYS, ORIGIN

PROBLEM_KINDS = {
    "unknown-key": "a key that the tool does not know",
    "deprecated-key": "a key that the tool has renamed or removed",
    "wrong-type": "a value of the wrong type for its key",
    "out-of-bounds": "a number that upstream does not take for its key",
    "wrong-value": "a value that is not one of the allowed values of its key",
    "duplicate-key": "a key that occurs twice in one mapping",
    "unresolved-reference": "a file that the config refers to and that cannot be read",
    "unreadable": "a config that cannot be parsed, by its keys of a known format",
    "contradiction": "two settings that must agree and do not",
    "auto-unfilled": "an `auto` that nothing resolves",
    "overruled": "a setting of the launcher that the config overrides",
    "joined-words": "two options of a command that a backslash without a space glues together",
    "cut-command": "options on a line that the command above does not continue to",
    "unexported-variable": "a variable that is set and does not reach the program",
    "misspelt-variable": "a variable that nobody reads and whose name is nearly that of one which is read",
    "own-address": "an address of the rendezvous at which each of several nodes finds itself",
    "hosts-file-address": "an address that the node's own hosts file may give as 127.0.1.1",
    "local-interface": "a network interface that reaches no other node",
    "no-address": "several nodes and no address at which they meet",
    "same-rank": "a node's rank, written as a number into what several nodes run",
    "missing-nodes": "a launcher that waits for more nodes than run it",
    "lone-nodes": "nodes that each run a job of their own, or use a part of their GPUs",
    "no-hostfile": "several nodes that DeepSpeed is to start without a hostfile that names them",
    "same-port": "two programs that listen on one port at the same time",
    "broken-devices": "a list of visible devices that hides some or all of them",
    "one-card-a-task": "tasks that see one GPU each and take that of their local rank",
    "unread-sbatch": "an option of a batch script that sbatch does not read",
    "refused-launch": "what the launcher, the container's engine or the API server refuses",
    "behind-image": "an option of `docker run` behind the image",
    "no-compiler": "a CUDA extension that is compiled in an image without nvcc",
    "no-torch": "an extension that is built where pip has no torch",
    "other-cuda": "an extension that is built with another CUDA than torch",
    "dropped-arguments": "arguments that a shell is given and its command never gets",
    "expanded-too-early": "a variable of a Slurm task that the batch script's shell fills in",
    "one-string": "a command of a container that is one string",
    "option-and-value": "an option and its value in one word of a command",
    "probe-port": "a probe of a port on which the server does not listen",
    "service-port": "a Service, or a published port, that leads to none on which the server listens",
    "service-variable": "a variable that a Service sets and that the engine reads as something else",
    "renders-nothing": "a value of a chart that its templates do not use here",
    "secret": "a text that looks like a key, a token or a password",
    "unused-suppression": "a suppression that matches no finding",
    "suppression-without-reason": "a suppression without a reason",
}
"""What a rule with `each: problems.<kind>` runs once for."""

ITEM_VALUES = {
    "key": "the dotted key that the problem is about",
    "suggestion": "the known key or value that was probably meant",
    "slip": "`yes` if the key is a likely typo of a known key, else `no`",
    "spelling": "the new name of the key, if it stays at the same place",
    "instead": "what to write instead of a removed key",
    "remedy": "what to do about a removed argument of a call, in full",
    "treatment": "how the tool treats it: `ignored`, `refused`, `accepted`, or `misspelt` unless a plugin defines it",
    "since": "the first release that takes the key, of one that is newer than the stated release",
    "until": "the first release without the key, of one that is gone",
    "stated": "`yes` where the release that a removed key is judged by is stated or pinned",
    "upstream": "the tool and version that reads the key",
    "more": "further unknown keys of the file",
    "plugin": "the plugin that defines the key",
    "replacement": "the key's new dotted name",
    "reason": "the reason",
    "expected": "the type or values that the tool accepts",
    "found": "what the file has instead",
    "path": "the file that the key names",
    "assumption": "what is assumed instead",
    "other": "the other setting, as `key: value`",
    "value": "the value at the key",
    "basis": "how the other side is known: `stated`, `default` of a known program, or `assumed`",
    "line": "the line that is used instead",
    "message": "the tool's own message",
}
"""The values of `item` in rules with `each`; which are present depends on the kind of problem."""


@cache
def format_names() -> tuple[str, ...]:
    """The names of config formats, and of the kinds of launchers, whose own problems rules can be about."""
    from ...formats.core.registry import FORMAT_NAMES
    from ...launchers.registry import LAUNCHER_NAMES, find

    return (*FORMAT_NAMES, *(find(name).name for name in LAUNCHER_NAMES))


@cache
def job_paths() -> frozenset[str]:
    """Every dotted Job field."""
    return frozenset(field_paths())


def is_known(path: str) -> bool:
    """Whether a fact of that name exists."""
    if path.startswith(ITEM):
        return path[len(ITEM) :] in ITEM_VALUES
    if path.startswith(ORIGIN):
        return path[len(ORIGIN) :] in job_paths()
    if path.startswith(KEYS):
        return not path.endswith(".")
    return _is_version(path) or path in FACTS or path in CONSTANTS or path in job_paths()


def is_place(path: str) -> bool:
    """Whether a finding may point at it: a Job field or a key."""
    return path.startswith(KEYS) or path in job_paths() or _is_version(path)


def _is_version(path: str) -> bool:
    head, _, package = path.partition(".")
    return head == "versions" and package.replace("-", "_").isidentifier() and not package.startswith("_")


def unit_of_fact(path: str) -> str:
    """The unit of a fact, "" for plain numbers, text and truth values."""
    known = FACTS.get(path)
    return known.unit if known is not None else _LAUNCHER_UNITS.get(path) or _job_units().get(path, "")


def nearest(path: str) -> str:
    """The fact that a wrong name probably meant, or ""."""
    from difflib import get_close_matches

    names = [*FACTS, *CONSTANTS, *job_paths()]
    found = get_close_matches(path[:80], names, 1, 0.75)
    return found[0] if found else ""


@cache
def _job_units() -> dict[str, str]:
    return {path: unit_of(item.metadata) for path, item in job_fields()}


_LAUNCHER_UNITS = dict.fromkeys(
    ("launch.disk", "launch.container.ephemeral_storage", "launch.container.memory_limit"), "bytes"
)
