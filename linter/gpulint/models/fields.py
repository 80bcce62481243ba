"""The fields of one `config.json` as an architecture table reads them.

A field has, in this order: the config's own value, a `let` or `derive` rule of the table, None where the config says
null, the default of the Transformers class.
"""

from __future__ import annotations

from typing import Any

from .expression import ExpressionError, compile_expression

LAYER_TYPE_SPELLINGS = {
    "attention": "full_attention",
    "mamba": "linear_attention",
    "deepseek_sparse_attention": "indexed_attention",
}
"""Older spellings in `layer_types` and `layers_block_type` (transformers 5.23, configuration_utils)."""

AUTO = "auto"
"""What Mamba configs write for a field to be worked out from the others."""

MAX_LAYERS = 4096
"""Longest list of layers that is derived; configs are untrusted."""

_ABSENT = object()


class Fields:
    """Read access to one config under one table; every value is worked out once."""

    def __init__(self, config: dict[str, Any], table: dict[str, Any], given: dict[str, Any] | None = None) -> None:
        """`given` values stand above the config: what an enclosing config imposes."""
        self.config = config
        self.parts: dict[str, Fields] = {}
        self._alias: dict[str, list[str]] = {}
        for other, name in table.get("alias", {}).items():
            self._alias.setdefault(name, []).append(other)
        self._let: dict[str, str] = table.get("let", {})
        self._derive: dict[str, Any] = table.get("derive", {})
        self._defaults: dict[str, Any] = table.get("defaults", {})
        self._values: dict[str, Any] = dict(given or {})
        self._busy: set[str] = set()

    def get(self, name: str) -> Any:
        """The value of a (dotted) field, None where nothing gives one."""
        value = self._values.get(name, _ABSENT)
        if value is _ABSENT:
            value = self._resolve(name)
            if name not in self._busy:
                self._values[name] = value
        return value

    def give(self, values: dict[str, Any]) -> None:
        """Impose values of the enclosing config."""
        self._values.update(values)

    def first(self, *names: str) -> Any:
        """The first of several fields that has a value."""
        for name in names:
            value = self.get(name)
            if value is not None:
                return value
        return None

    def states(self, *names: str) -> bool:
        """Whether the config itself gives one of several fields a value; class defaults are none."""
        return any(self._stated(name) not in (None, _ABSENT) for name in names)

    def evaluate(self, text: str, i: int | None = None, length: int | None = None) -> Any:
        """The value of an expression over these fields."""
        return compile_expression(text)(self.get, i, length)

    def _resolve(self, name: str) -> Any:
        parent, _, leaf = name.rpartition(".")
        if parent in self.parts:
            return self.parts[parent].get(leaf)
        value = self._stated(name)
        if value == AUTO and name in self._derive:
            value = None
        if value is not None and value is not _ABSENT:
            return _spelled(name, value)
        if name not in self._busy and (name in self._let or name in self._derive):
            self._busy.add(name)
            try:
                derived = self._derived(name)
            finally:
                self._busy.discard(name)
            if derived is not None or name in self._let:
                return derived
        if value is None and name != "tie_word_embeddings":
            return None
        return self._defaults.get(name)

    def _stated(self, name: str) -> Any:
        value = _walk(self.config, name)
        if value is None or value is _ABSENT:
            for other in self._alias.get(name, ()):
                aliased = _walk(self.config, other)
                if aliased is not _ABSENT and aliased is not None:
                    return aliased
        return value

    def _derived(self, name: str) -> Any:
        if name in self._let:
            return _whole(self.evaluate(self._let[name]))
        rules = self._derive[name]
        for rule in rules if isinstance(rules, list) else [rules]:
            if "when" in rule and not self.evaluate(rule["when"]):
                continue
            value = self._list(rule["list"]) if "list" in rule else self._case(rule["cases"])
            if value is not None:
                return value
        return None

    def _case(self, cases: list[list[str]]) -> Any:
        for when, text in cases:
            if self.evaluate(when):
                return _whole(self.evaluate(text))
        return None

    def _list(self, rule: dict[str, Any]) -> list[Any] | None:
        length = self.evaluate(rule["len"]) if isinstance(rule["len"], str) else self._case(rule["len"])
        if not isinstance(length, int):
            return None
        if length > MAX_LAYERS:
            raise ExpressionError(f"{length} layers")
        items: list[Any] = []
        for i in range(length):
            for when, value in rule["items"]:
                if self.evaluate(when, i, length):
                    items.append(self.evaluate(value["expr"], i, length) if isinstance(value, dict) else value)
                    break
        return items


def _walk(config: Any, name: str) -> Any:
    value = config
    for part in name.split("."):
        if not isinstance(value, dict) or part not in value:
            return _ABSENT
        value = value[part]
    return value


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _spelled(name: str, value: Any) -> Any:
    if isinstance(value, list) and name.endswith(("layer_types", "layers_block_type")):
        return [LAYER_TYPE_SPELLINGS.get(item, item) if isinstance(item, str) else item for item in value]
    return value
