"""Values of a nested config at dotted keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .arguments import Arguments, Given

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...source.node import Node


class Sections(Arguments):
    """Typed values at dotted keys (`policy.generation.max_new_tokens`), the last of equal keys counting.

    `skip` are strings that the tool reads as no value (`none`).
    """

    __slots__ = ("root", "skip")

    def __init__(self, root: Node, prefix: str = "", skip: frozenset[str] = frozenset()) -> None:
        super().__init__(root, prefix)
        self.root = root
        self.skip = skip

    def __contains__(self, name: str) -> bool:
        return self.root.find(name) is not None

    def raw(self, *names: str) -> Given | None:
        """The first of the dotted `names` that the file has, whatever its value (null included)."""
        for name in names:
            entry = self.root.find(name)
            if entry is not None:
                self.asked.add(name)
                value = entry.value.plain()
                if isinstance(value, str) and value.lower() in self.skip:
                    value = None
                return Given(value, entry, f"{self.prefix}.{name}" if self.prefix else name)
        return None

    def is_mapping(self, name: str) -> bool:
        """Whether a mapping stands at a dotted key."""
        entry = self.root.find(name)
        return entry is not None and entry.value.is_mapping


class Renamed(Sections):
    """The same under other names: what one tool passes on to another is asked for by the other's names.

    `names` says which dotted keys of the file stand for an argument of the other tool, best first; what it does not
    name is not there.
    """

    __slots__ = ("names",)

    def __init__(self, root: Node, names: Mapping[str, tuple[str, ...]]) -> None:
        super().__init__(root)
        self.names = names

    def __contains__(self, name: str) -> bool:
        return any(self.root.find(key) is not None for key in self.names.get(name, ()))

    def raw(self, *names: str) -> Given | None:
        """The first of the other tool's `names` that the file says something for."""
        for name in names:
            given = super().raw(*self.names.get(name, ())) or self._inside(name)
            if given is not None:
                return given
        return None


class Also(Sections):
    """The same where a tool has names of its own for some: `names` says which, by the usual one."""

    __slots__ = ("names",)

    def __init__(self, root: Node, names: Mapping[str, str]) -> None:
        super().__init__(root)
        self.names = names

    def __contains__(self, name: str) -> bool:
        return super().__contains__(name) or (name in self.names and super().__contains__(self.names[name]))

    def raw(self, *names: str) -> Given | None:
        """The first of the names that the file has, as it is or as the tool's own."""
        for name in names:
            given = super().raw(name, *((self.names[name],) if name in self.names else ()))
            if given is not None:
                return given
        return None


class Moved(Sections):
    """The same where keys or sections stand elsewhere: what begins with a section's name is looked up at its place."""

    __slots__ = ("places",)

    def __init__(self, root: Node, places: Mapping[str, str]) -> None:
        super().__init__(root)
        self.places = places

    def __contains__(self, name: str) -> bool:
        return super().__contains__(moved(name, self.places))

    def raw(self, *names: str) -> Given | None:
        """The first of the names that the file has, whatever its value."""
        return super().raw(*(moved(name, self.places) for name in names))


def moved(name: str, places: Mapping[str, str]) -> str:
    """The dotted key in a file whose keys and sections stand at these places, "" for the top."""
    if name in places:
        return places[name]
    head, _, rest = name.partition(".")
    return ".".join(part for part in (places.get(head, head), rest) if part)
