"""An axolotl file being read: its keys, the Job they fill, and the plugins it loads.

Every default and rule of the `axolotl*` modules is from the axolotl 0.19.0 sdist, read statically.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.format import JobBuilder, Problem, Reading
from ..core.keys import default, load
from ..core.placeholders import is_blank

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.arguments import Given
    from ..core.format import Project

from ..core.arguments import Arguments

NAME = "axolotl"
UPSTREAM = "axolotl 0.19.0"


class AxolotlConfig:
    """What the parts of the axolotl format read from and write to."""

    __slots__ = ("builder", "document", "keys", "plugins", "project", "reading")

    def __init__(self, document: Document, project: Project) -> None:
        self.document = document
        self.project = project
        self.builder = JobBuilder(document, UPSTREAM)
        self.reading = Reading(NAME, UPSTREAM, document, self.builder.job)
        self.keys = Arguments(document.root)
        plugins = self.keys.words("plugins")
        self.plugins: list[str] = list(plugins.value) if plugins else []

    def put(self, field: str, given: Given, value: Any, note: str = "") -> None:
        """Set a Job field from a key of the file."""
        self.builder.from_entry(field, value, given.entry, given.key, note)

    def default(self, field: str, key: str) -> None:
        """Set a Job field to the schema's default of an axolotl key."""
        self.builder.default(field, default(NAME, key))

    def has_plugin(self, name: str) -> bool:
        """Whether a plugin class of axolotl is loaded, by whatever module path."""
        return any(plugin.startswith("axolotl.") and plugin.endswith(f".{name}") for plugin in self.plugins)

    def own_plugins(self) -> list[str] | None:
        """The loaded plugins under the names of the schema; None when one is not axolotl's, whose keys are unknown."""
        if any(not plugin.startswith("axolotl.integrations.") for plugin in self.plugins):
            return None
        shipped: list[str] = load(NAME)["x-plugins"]
        return [name for name in shipped if self.has_plugin(name.rpartition(".")[2])]

    def contradiction(self, given: Given, other: str, message: str) -> None:
        """Report a key that contradicts another; `message` says what follows."""
        values = {"value": given.entry.value.raw, "other": other, "message": message, "upstream": UPSTREAM}
        self.reading.problems.append(Problem("contradiction", given.key, given.entry.value.span, values))

    @property
    def is_fsdp(self) -> bool:
        """Whether FSDP is configured: `fsdp_config`, or the old `fsdp` list."""
        return self._is_set("fsdp_config") or self._is_set("fsdp")

    @property
    def is_deepspeed(self) -> bool:
        """Whether a DeepSpeed config is named or held."""
        return self._is_set("deepspeed")

    def _is_set(self, key: str) -> bool:
        given = self.keys.raw(key)
        return given is not None and bool(given.value) and not is_blank(given.value)
