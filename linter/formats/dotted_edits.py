"""Job changes as dotted keys, for formats in which one key says one field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from .format import Reading
    from .key_changes import Keys


class Vocabulary(NamedTuple):
    """How a format says changes.

    keys  Job field -> the dotted key that holds its value as it is
    says  Job field -> a function that gives the keys, None where the format cannot say the value
    """

    keys: dict[str, str]
    says: dict[str, Callable[[Reading, Any], Keys | None]]


def wanted_keys(vocabulary: Vocabulary, reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """The keys to write for a change; None when a part of it is not the format's to say."""
    wanted: Keys = {}
    for path, value in changes.items():
        if path in vocabulary.says:
            said = vocabulary.says[path](reading, value)
            if said is None:
                return None
            wanted |= said
        elif path in vocabulary.keys:
            wanted[vocabulary.keys[path]] = value
        else:
            return None
    root = reading.config.root
    return {key: value for key, value in wanted.items() if value is not None or root.find(key) is not None}
