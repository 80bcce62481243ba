"""Job changes in the words of a server's options, spelled as its file spells them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.key_changes import Keys, edits_of, spoken
from ..core.keys import load
from .server import options_of

if TYPE_CHECKING:
    from ...source.edit.replacement import Edit
    from ..core.format import Reading
    from .server import Engine


class Words(NamedTuple):
    """Job field -> option; quantisation methods that the engine applies while it loads -> value of their option."""

    options: dict[str, str]
    quantizations: dict[str, str] = {}  # noqa: RUF012  (never changed)
    quantization: str = ""
    values: dict[str, dict[Any, Any]] = {}  # noqa: RUF012  (never changed)

    def keys(self, reading: Reading, changes: dict[str, Any], engine: Engine) -> Keys | None:
        """The options to write; None when a part is not this engine's to say."""
        wanted: Keys = {}
        for path, value in changes.items():
            if path == "weights.quantization.method" and value in self.quantizations:
                wanted[_spelled(reading, self.quantization, engine)] = self.quantizations[value]
            elif path in self.options:
                option = self.options[path]
                wanted[_spelled(reading, option, engine)] = self.values.get(path, {}).get(value, value)
            else:
                return None
        return wanted

    def describe(self, reading: Reading, changes: dict[str, Any], engine: Engine) -> str | None:
        """The change as options: `context-length: 8192`."""
        return spoken(self.keys(reading, changes, engine))

    def edits(self, reading: Reading, changes: dict[str, Any], engine: Engine) -> list[Edit] | None:
        """The edits that make the change; None when the engine cannot say it or the file cannot be edited safely."""
        return edits_of(reading.config, self.keys(reading, changes, engine))


def _spelled(reading: Reading, option: str, engine: Engine) -> str:
    """The option as the file spells it already, else with the dashes or underscores of the engine."""
    first = load(engine.name)["properties"].get(option, {}).get("x-option", option)
    found = [written for written, meant in options_of(reading.config, engine).items() if meant == first]
    return found[-1] if found else option
