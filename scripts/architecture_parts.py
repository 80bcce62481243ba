"""Tables of multimodal models: a text table, a vision table where its class may vary, and the rows in between.

`compose` traces the class default, replaces the text decoder (and a vision tower that is looked up by its own model
type) by a part, names the length of each stack, and finds what each boolean setting switches by flipping it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import re
from typing import TYPE_CHECKING, Any

from . import architecture_tables, architecture_trace

if TYPE_CHECKING:
    from collections.abc import Sequence

Table = dict[str, Any]
_LAYERS = re.compile(r"(layers?|n_layer|blocks?|depth|resblocks|_list)$")
_STACKED = re.compile(r"\.(layers|layer|blocks|block|h|resblocks|\w+_list)\.\{0\}\.")
_NAME = re.compile(r"[A-Za-z_][\w.]*")


def config_class(model_type: str) -> Any:
    """The Transformers config class of a model type."""
    return importlib.import_module("transformers.models.auto.configuration_auto").CONFIG_MAPPING[model_type]


def flat(config: Any, prefix: str = "") -> dict[str, Any]:
    """A config's fields, nested ones dotted."""
    found: dict[str, Any] = {}
    for name, value in vars(config).items():
        if name.startswith("_"):
            continue
        if hasattr(value, "model_type"):
            found.update(flat(value, f"{prefix}{name}."))
        elif isinstance(value, tuple):
            found[prefix + name] = list(value)
        else:
            found[prefix + name] = value
    return found


def compose(model_type: str, recipe: Table) -> Table:
    """The table of `model_type`.

    Recipe keys: `auto_class`; `config` (what to build instead of the class default); `text` ({field, table, by_type,
    names, flat, given}); `vision` (the same, for a tower looked up by model type); `dims` (expression for a dimension
    that the trace lost); `defaults`, `let`, `derive`, `alias`, `variants`, `when` (by regular expression over names).
    """
    auto_class = recipe.get("auto_class", "ImageTextToText")
    built_type = model_type.partition(":")[0]
    base = {**recipe.get("config", {}), "model_type": built_type}
    made = config_class(built_type).from_dict({k: v for k, v in base.items() if k != "model_type"})
    fields = flat(made)
    factory = getattr(importlib.import_module("transformers"), architecture_trace.AUTO_CLASSES[auto_class])
    made_class = factory._model_mapping[type(made)]  # noqa: SLF001
    table: Table = {"model_type": model_type, "class": made_class.__name__, "auto_class": auto_class}
    table["alias"] = {**_aliases(made), **recipe.get("alias", {})}
    for key in ("variants", "let", "derive"):
        if key in recipe:
            table[key] = recipe[key]
    parts = [dict(recipe[key]) for key in ("text", "vision") if key in recipe]
    for part in parts:
        spec = type(made).sub_configs_defaults[part["field"]]
        if spec.init_kwargs:
            part["absent"] = spec.init_kwargs
        if spec.optional:
            part["optional"] = True
    own = _own_rows(architecture_trace.draft(base, auto_class), parts)
    own = [row for row in own if not any(recipe.get("drop") in dim for dim in row["shape"] if "drop" in recipe)]
    conditions = _conditions(base, auto_class, own, fields, (*parts, *({"field": f} for f in recipe.get("skip", ()))))
    for probe in recipe.get("probes", ()):
        _probe({**base, **probe["config"]}, probe["when"], auto_class, own, conditions)
    for pattern, when in recipe.get("when", {}).items():
        for row in own:
            if re.search(pattern, row["name"]):
                other = conditions.get(row["name"])
                conditions[row["name"]] = when if other is None else f"({other}) and ({when})"
    stacks = _stacks(own, fields, recipe.get("literal", "^$"), base, auto_class)
    rows = []
    for row in own:
        rows.extend(_row(row, recipe.get("dims", {}), conditions, stacks))
    table["defaults"] = _defaults(rows, stacks, table, fields, parts)
    table["defaults"].update(recipe.get("defaults", {}))
    table["stacks"] = stacks
    if parts:
        table["parts"] = parts
    table["tensors"] = rows
    return table


def _aliases(config: Any, prefix: str = "") -> dict[str, str]:
    found = {prefix + other: prefix + name for other, name in (config.attribute_map or {}).items()}
    for name, value in vars(config).items():
        if hasattr(value, "model_type"):
            found.update(_aliases(value, f"{prefix}{name}."))
    return {other: name for other, name in found.items() if not name.endswith(("_token_id", "_token_index"))}


def _own_rows(drafted: list[Table], parts: list[Table]) -> list[Table]:
    prefixes = tuple(new for part in parts for new in part["names"].values())
    return [row for row in drafted if not row["name"].startswith(prefixes)]


def _row(row: Table, dims: Table, conditions: dict[str, str], stacks: Table) -> list[Table]:
    shape = [_dim(dim, row, dims) for dim in row["shape"]]
    made: Table = {"name": row["name"], "role": architecture_tables.role(row["name"])}
    if row["kind"] in ("Linear", "Conv1D") and row["name"].endswith(".weight"):
        made["linear"] = True
    if row.get("buffer"):
        made["buffer"] = True
    if row["name"] in conditions:
        made["when"] = conditions[row["name"]]
    made["shape"] = shape
    if "layers" not in row:
        return [made]
    prefix = row["name"][: row["name"].index("{0}")]
    if prefix not in stacks:
        return [{**made, "name": row["name"].replace("{0}", str(index))} for index in row["layers"]]
    if "when" in made and "{0}" not in made["name"]:
        return [made]
    if row["layers"] == [0] and stacks[prefix] != "1":
        made["when"] = "i==0" + (f" and ({made['when']})" if "when" in made else "")
    elif row["layers"] != list(range(len(row["layers"]))):
        print(f"   {row['name']} exists in layers {row['layers']}")
    return [made]


def _dim(dim: str, row: Table, dims: Table) -> str:
    """A traced dimension as the table says it: `dims` maps `name=dim` to another expression, `~text` replaces text."""
    for pattern, replacement in dims.items():
        name, _, value = pattern.rpartition("=")
        if pattern.startswith("~"):
            dim = dim.replace(pattern[1:], replacement)
        elif value == dim and re.search(name, row["name"]):
            return str(replacement)
    dim = re.sub(r"//1(?!\d)", "", dim)
    if any(int(number) >= 16 for number in re.findall(r"(?<![\w.])\d+(?![\w.])", dim)):
        print(f"   constant {dim} in {row['name']}")
    return dim


def _stacks(own: list[Table], fields: dict[str, Any], literal: str, base: Table, auto_class: str) -> dict[str, str]:
    """The length of each stack of layers, as an expression."""
    found: dict[str, tuple[int, list[str]]] = {}
    for row in own:
        if "layers" in row and _STACKED.search(row["name"]) and not re.search(literal, row["name"]):
            prefix = row["name"][: row["name"].index("{0}")]
            length, texts = found.get(prefix, (0, []))
            found[prefix] = (max(length, max(row["layers"]) + 1), [*texts, *row["shape"]])
    grown: dict[str, dict[str, int]] = {}
    stacks = {}
    for prefix, (length, texts) in found.items():
        part = next((name.rpartition(".")[0] for name in _NAME.findall(" ".join(texts)) if "." in name), "")
        candidates = [name for name, value in fields.items() if _may_count(name, value, length, part)]
        for name in candidates if len(candidates) > 1 else ():
            if name not in grown:
                grown[name] = _lengths(changed(base, name, length + 1), auto_class)
        matching = [name for name in candidates if len(candidates) == 1 or grown[name].get(prefix) == length + 1]
        if matching:  # the field that lengthens this stack and as few others as possible
            others = {name: list(grown.get(name, {}).values()).count(length + 1) for name in matching}
            stacks[prefix] = min(matching, key=others.__getitem__)
            continue
        lists = [
            name
            for name, value in fields.items()
            if name.rpartition(".")[0] == part and isinstance(value, list) and len(value) == length
        ]
        stacks[prefix] = f"len({lists[0]})" if lists else str(length)
        if not lists:
            print(f"   stack {prefix} of {length} layers has no field")
    return stacks


def _may_count(name: str, value: Any, length: int, part: str) -> bool:
    parent, _, leaf = name.rpartition(".")
    return parent == part and type(value) is int and value == length and _LAYERS.search(leaf) is not None


def _lengths(config: Table, auto_class: str) -> dict[str, int]:
    lengths: dict[str, int] = {}
    with contextlib.suppress(Exception):
        for row in architecture_trace.draft(config, auto_class):
            if "layers" in row:
                prefix = row["name"][: row["name"].index("{0}")]
                lengths[prefix] = max(lengths.get(prefix, 0), max(row["layers"]) + 1)
    return lengths


def changed(config: Table, field: str, value: Any) -> Table:
    """A copy of `config` with one dotted field set."""
    copy: Table = json.loads(json.dumps(config))
    *parents, leaf = field.split(".")
    target = copy
    for parent in parents:
        target = target.setdefault(parent, {})
    target[leaf] = value
    return copy


def _conditions(
    base: Table, auto_class: str, own: list[Table], fields: dict[str, Any], skipped: Sequence[Table]
) -> dict[str, str]:
    """The `when` of rows that one boolean switches on or off; rows that only a flip makes are added to `own`."""
    conditions: dict[str, str] = {}
    names = {row["name"] for row in own}
    covered = tuple(f"{part['field']}." for part in skipped)
    parts = [part for part in skipped if "names" in part]
    for field, value in fields.items():
        if not isinstance(value, bool) or f"{field}.".startswith(covered):
            continue
        leaf = field.rpartition(".")[2]
        if leaf in ("use_cache", "output_hidden_states", "return_dict", "is_encoder_decoder", "is_decoder"):
            continue
        try:
            drafted = _own_rows(architecture_trace.draft(changed(base, field, not value), auto_class), parts)
        except Exception as error:
            print(f"   {field}={not value}: {type(error).__name__} {str(error)[:80]}")
            continue
        after = {row["name"] for row in drafted}
        for name in names - after:
            conditions[name] = field if value else f"not {field}"
        for row in drafted:
            if row["name"] not in names and row["name"] not in conditions:
                own.append(row)
                conditions[row["name"]] = f"not {field}" if value else field
    return conditions


def extract(model_type: str, whole: Table, recipe: Table) -> Table:
    """The part of a composed table on one nested config, as a table of its own: `field`, `names` to keep and move."""
    field = recipe["field"] + "."

    def bare(value: Any) -> Any:
        if isinstance(value, str):
            return value.replace(field, "")
        if isinstance(value, list):
            return [bare(item) for item in value]
        if isinstance(value, dict):
            return {bare(key): bare(item) for key, item in value.items()}
        return value

    rows = []
    for row in whole["tensors"]:
        for old, new in recipe["names"].items():
            if row["name"].startswith(old):
                rows.append({**bare(row), "name": new + row["name"][len(old) :]})
    table: Table = {"model_type": model_type, "auto_class": "CausalLM"}
    for key in ("defaults", "let", "derive"):
        kept = {name: value for name, value in whole.get(key, {}).items() if name.startswith(field)}
        table[key] = {**bare(kept), **recipe.get(key, {})}
    if "alias" in recipe:
        table["alias"] = recipe["alias"]
    table["stacks"] = {
        new + prefix[len(old) :]: bare(length)
        for prefix, length in whole["stacks"].items()
        for old, new in recipe["names"].items()
        if prefix.startswith(old)
    }
    table["tensors"] = rows
    return table


def _probe(config: Table, when: str, auto_class: str, own: list[Table], conditions: dict[str, str]) -> None:
    """Rows that only `config` makes exist under `when`, rows that it lacks under its opposite."""
    drafted = architecture_trace.draft(config, auto_class)
    before, after = {row["name"] for row in own}, {row["name"] for row in drafted}
    conditions.update(dict.fromkeys(before - after, f"not ({when})"))
    for row in drafted:
        if row["name"] not in before:
            own.append(row)
            conditions[row["name"]] = when


def extend(model_type: str, base: Table) -> Table:
    """A table that differs from `base` in the defaults of its config class."""
    fields = flat(config_class(model_type)())
    defaults = {
        name: fields[name]
        for name, value in base.get("defaults", {}).items()
        if name in fields and fields[name] != value
    }
    return {"model_type": model_type, "extends": base["model_type"], "defaults": defaults}


def _defaults(
    rows: list[Table], stacks: Table, table: Table, fields: dict[str, Any], parts: list[Table]
) -> dict[str, Any]:
    texts = [*stacks.values(), *table.get("let", {}).values()]
    for row in rows:
        texts += [*row["shape"], row.get("when", "")]
    for part in parts:
        texts += part.get("given", {}).values()
    used = {name for text in texts for name in _NAME.findall(re.sub(r"'[^']*'", "", text))}
    covered = tuple(f"{part['field']}." for part in parts)
    return {name: fields[name] for name in sorted(used) if name in fields and not name.startswith(covered)}
