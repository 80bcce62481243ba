"""The names that rule files may use, checked when a rule is loaded."""

from __future__ import annotations

from functools import cache

from ..job import field_paths
from . import fact_rooms  # noqa: F401  (they register their facts)
from .facts import CONFIG, DEEPSPEED, FACTS, ITEM, LAUNCH, ORIGIN
from .quantity import CONSTANTS

ITEM_VALUES = ("key", "suggestion", "spelling", "instead", "treatment", "upstream", "plugin", "replacement",
               "reason", "expected", "found", "path", "assumption", "other", "value", "line", "message")  # fmt: skip
"""What the items of `each` may carry; which of them is there depends on the kind of problem."""


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
    if path.startswith((CONFIG, DEEPSPEED, LAUNCH)):
        return not path.endswith(".")
    return path.startswith("versions.") or path in FACTS or path in CONSTANTS or path in job_paths()


def unit_of_fact(path: str) -> str:
    """The unit of a fact, "" for plain numbers, text and truth values."""
    known = FACTS.get(path)
    return known.unit if known is not None else _JOB_UNITS.get(path, "")


def nearest(path: str) -> str:
    """The fact that a wrong name probably meant, or ""."""
    from difflib import get_close_matches

    names = [*FACTS, *CONSTANTS, *job_paths()]
    found = get_close_matches(path[:80], names, 1, 0.75)
    return found[0] if found else ""


_JOB_UNITS = {
    "sequence_length": "tokens",
    "inference.max_model_len": "tokens",
    "inference.max_num_batched_tokens": "tokens",
    "inference.kv_cache_memory_bytes": "bytes",
    "hardware.host_memory": "bytes",
    "hardware.shared_memory": "bytes",
    "launch.disk": "bytes",
    "launch.container.ephemeral_storage": "bytes",
}
