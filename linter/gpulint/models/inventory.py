"""The tensors that a config makes, from its architecture table.

A table (one line of `architectures.jsonl`, its keys are described in docs) says:

    class      the Transformers class it was taken from;  auto_class  how that class is loaded
    approximate   disagrees with the built model for some values of a field: the count is an estimate; an expression
               says of which configs
    extends    another table that this one changes: `defaults`, `alias`, `let`, `derive` entries are added
    variants   other tables for other ways of loading: {"CausalLM": {"table": ..., "field": "text_config"}}
    stacks     the number of layers of each stack, by the prefix of its tensors' names
    tensors    rows of state-dict name, shape and role; a row with `{0}` in its name exists once a layer of its stack,
               where its `when` holds; `cases` gives the shape by condition, the first that holds
    parts      other tables on a nested config: the text decoder and the vision tower of a multimodal model. `absent`
               is what stands in for a config that is left out; with `merged`, also for the fields that it leaves out
"""

from __future__ import annotations

from typing import Any

from .expression import ExpressionError, compile_expression
from .fields import MAX_LAYERS, Fields
from .model import Tensor
from .tables import find_table, table_name

TEXT_FIELDS = ("text_config", "llm_config", "language_config")
"""Nested configs that describe a text decoder."""

MAX_PARTS = 4
"""Nesting of tables in tables; configs are untrusted."""


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
    """One table applied to one config.

    `fields` are the config's values, `text` those of the text decoder, `parts` the tables on nested configs with
    what the table says of them, `tensors()` what it all makes.
    """

    def __init__(
        self,
        table: dict[str, Any],
        config: dict[str, Any],
        given: dict[str, Any] | None = None,
        depth: int = 0,
    ) -> None:
        """Raises ExpressionError where the config does not allow the table's expressions."""
        if depth > MAX_PARTS:
            raise ExpressionError("configs nested too deep")
        self.table = table
        self.fields = Fields(config, table, given)
        self.parts: list[tuple[dict[str, Any], Part]] = []
        self._stacks: dict[str, _Stack] = {}
        for spec in table.get("parts", ()):
            part = self._part(spec, config, depth)
            if part is not None:
                self.parts.append((spec, part))

    def _part(self, spec: dict[str, Any], config: dict[str, Any], depth: int) -> Part | None:
        field: str = spec["field"]
        nested = config.get(field)
        if not isinstance(nested, dict):
            if spec.get("optional"):
                return None
            nested = config if spec.get("flat") and field not in config else spec.get("absent", {})
        elif spec.get("merged"):
            nested = {**spec["absent"], **nested}
        model_type = spec["table"]
        if spec.get("by_type") and isinstance(nested.get("model_type"), str):
            model_type = nested["model_type"]
        table = find_table(table_name(model_type))
        if table is None:
            raise ExpressionError(f"{field} of the unknown model type {model_type!r}")
        part = Part(table, nested, depth=depth + 1)
        self.fields.parts[field] = part.fields
        part.fields.give({name: self.fields.evaluate(text) for name, text in spec.get("given", {}).items()})
        return part

    @property
    def text_part(self) -> Part:
        """The part that describes the text decoder: the one on `text_config`, or this one."""
        for spec, part in self.parts:
            if spec["field"] in TEXT_FIELDS:
                return part.text_part
        return self

    @property
    def text(self) -> Fields:
        """The fields of the text decoder."""
        return self.text_part.fields

    def tensors(self) -> list[Tensor]:
        """The tensors of the table's own rows and of its parts, parts first."""
        found: list[Tensor] = []
        for spec, part in self.parts:
            for tensor in part.tensors():
                moved = _moved(tensor, spec["names"], spec.get("role"))
                if moved is not None:
                    found.append(moved)
        for row in self.table.get("tensors", ()):
            name: str = row["name"]
            at = name.find("{0}")
            if at >= 0:
                self._stacked(row, name[:at], found)
            elif row.get("when") is None or self.fields.evaluate(row["when"]):
                shape = self._shape(row)
                if shape is not None and 0 not in shape:
                    found.append(_tensor(row, shape, None, ""))
        return found

    def _stack(self, prefix: str) -> _Stack:
        stack = self._stacks.get(prefix)
        if stack is None:
            length = self.fields.evaluate(self.table["stacks"][prefix])
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
            taken = set(here)
            layers = tuple(i for i in layers if i not in taken)
            for shape, group in self._shapes(dims, here, stack):
                if 0 not in shape:
                    found.append(_tensor(row, shape, group, prefix))

    def _shapes(
        self, dims: list[str], layers: tuple[int, ...], stack: _Stack
    ) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        expressions = [compile_expression(dim) for dim in dims]
        get, length = self.fields.get, stack.length
        if not any(expression.indexed for expression in expressions):
            return [(_dims([expression(get) for expression in expressions]), layers)]
        groups: dict[tuple[int, ...], list[int]] = {}
        for i in layers:
            groups.setdefault(_dims([expression(get, i, length) for expression in expressions]), []).append(i)
        return [(shape, tuple(group)) for shape, group in groups.items()]

    def _shape(self, row: dict[str, Any]) -> tuple[int, ...] | None:
        for when, dims in row["cases"] if "cases" in row else ((None, row["shape"]),):
            if when is None or self.fields.evaluate(when):
                return _dims([self.fields.evaluate(dim) for dim in dims])
        return None


def _dims(values: list[Any]) -> tuple[int, ...]:
    for value in values:
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < 1 << 48:
            raise ExpressionError(f"a dimension of {value!r}")
    return tuple(int(value) for value in values)


def _tensor(row: dict[str, Any], shape: tuple[int, ...], layers: tuple[int, ...] | None, stack: str) -> Tensor:
    role, linear, buffer = row.get("role", "other"), row.get("linear", False), row.get("buffer", False)
    return Tensor(row["name"], shape, layers, stack, role, linear, buffer, row.get("frozen", False))


def _moved(tensor: Tensor, names: dict[str, str], role: str | None) -> Tensor | None:
    """The tensor under its name in the enclosing model; None where no prefix of `names` fits."""
    for old, new in names.items():
        if tensor.name.startswith(old):
            moved = tensor._replace(name=new + tensor.name[len(old) :])
            if tensor.stack:
                moved = moved._replace(stack=new + tensor.stack[len(old) :])
            return moved if role is None else moved._replace(role=role)
    return None
