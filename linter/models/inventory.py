"""The tensors that a config makes, from its architecture table.

A table's `tensors` are rows of state-dict name, shape and role; a row with `{0}` in its name exists once a layer of
its stack, where its `when` holds. `cases` gives the shape by condition. `parts` are other tables on a nested config:
the text decoder and the vision tower of a multimodal model.
"""

from __future__ import annotations

from typing import Any

from .expression import ExpressionError, compile_expression
from .fields import MAX_LAYERS, Fields
from .model import Tensor
from .tables import find_table

MAX_PARTS = 4
"""Nesting of tables in tables; configs are untrusted."""


class UnknownArchitecture(Exception):
    """A model type without a table."""


class _Stack:
    """One stack of layers: which layers satisfy a condition, each worked out once."""

    def __init__(self, fields: Fields, length: int) -> None:
        self.fields = fields
        self.length = length
        self.every = tuple(range(length))
        self._known: dict[str, tuple[int, ...]] = {}

    def where(self, when: str | None, among: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """The layers in which the condition holds."""
        if when is None:
            return self.every if among is None else among
        layers = self._known.get(when)
        if layers is None:
            expression = compile_expression(when)
            get, length = self.fields.get, self.length
            if expression.indexed:
                layers = tuple(i for i in self.every if expression(get, i, length))
            else:
                layers = self.every if expression(get) else ()
            self._known[when] = layers
        if among is None or len(among) == self.length:
            return layers
        chosen = set(layers)
        return tuple(i for i in among if i in chosen)


class Part:
    """One table applied to one config: its fields and its tensors, names not yet moved into a parent."""

    def __init__(self, table: dict[str, Any], config: dict[str, Any], given: dict[str, Any] | None = None) -> None:
        """Raises ExpressionError where the config does not allow the table's expressions."""
        self.table = table
        self.fields = Fields(config, table, given)
        self._stacks: dict[str, _Stack] = {}

    def tensors(self) -> list[Tensor]:
        """The tensors of the table's own rows."""
        found: list[Tensor] = []
        for row in self.table.get("tensors", ()):
            name: str = row["name"]
            at = name.find("{0}")
            if at >= 0:
                self._stacked(row, name[:at], found)
            elif row.get("when") is None or self.fields.evaluate(row["when"]):
                shape = self._shape(row)
                if shape is not None:
                    found.append(_tensor(row, shape, None, ""))
        return found

    def _stack(self, prefix: str) -> _Stack:
        stack = self._stacks.get(prefix)
        if stack is None:
            length = self.fields.evaluate(str(self.table["stacks"][prefix]))
            if not isinstance(length, int) or not 0 <= length <= MAX_LAYERS:
                raise ExpressionError(f"{length!r} layers in {prefix.rstrip('.')}")
            stack = self._stacks[prefix] = _Stack(self.fields, length)
        return stack

    def _stacked(self, row: dict[str, Any], prefix: str, found: list[Tensor]) -> None:
        stack = self._stack(prefix)
        layers = stack.where(row.get("when"))
        for when, dims in row["cases"] if "cases" in row else ((None, row["shape"]),):
            here = stack.where(when, layers)
            if not here:
                continue
            layers = tuple(i for i in layers if i not in set(here)) if len(here) < len(layers) else ()
            for shape, group in self._shapes(dims, here, stack):
                found.append(_tensor(row, shape, group, prefix))

    def _shapes(
        self, dims: list[str], layers: tuple[int, ...], stack: _Stack
    ) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        expressions = [compile_expression(dim) for dim in dims]
        get, length = self.fields.get, stack.length
        if not any(expression.indexed for expression in expressions):
            return [(_dims(expression(get) for expression in expressions), layers)]
        groups: dict[tuple[int, ...], list[int]] = {}
        for i in layers:
            groups.setdefault(_dims(expression(get, i, length) for expression in expressions), []).append(i)
        return [(shape, tuple(group)) for shape, group in groups.items()]

    def _shape(self, row: dict[str, Any]) -> tuple[int, ...] | None:
        for when, dims in row["cases"] if "cases" in row else ((None, row["shape"]),):
            if when is None or self.fields.evaluate(when):
                return _dims(self.fields.evaluate(dim) for dim in dims)
        return None


def _dims(values: Any) -> tuple[int, ...]:  # noqa: ANN401
    shape = []
    for value in values:
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < 1 << 48:
            raise ExpressionError(f"a dimension of {value!r}")
        shape.append(int(value))
    return tuple(shape)


def _tensor(row: dict[str, Any], shape: tuple[int, ...], layers: tuple[int, ...] | None, stack: str) -> Tensor:
    return Tensor(
        row["name"], shape, layers, stack, row.get("role", "other"), row.get("linear", False), row.get("buffer", False)
    )
