"""Regenerate the data files of `linter/gpulint/models/`.

    python -m scripts.models architectures ARCHITECTURES.json [MODEL_TYPE ...]
                                                                 architectures.jsonl, or only these tables of it
                                                                 (torch, timm, transformers 5.23.0)
    python -m scripts.models catalogue MODELS.json               catalogue.tsv, catalogue.jsonl, with the rows of
                                                                 model_additions.json, model_encoders.json,
                                                                 model_vision.json and model_corrections.json
    python -m scripts.models peft                                lora_targets.json    (peft)
    python -m scripts.models draft MODEL_TYPE [AUTO_CLASS]       print a traced table
    python -m scripts.models verify [MODEL_TYPE ...]             compare tables with the models Transformers builds

ARCHITECTURES.json maps model types to generated tables, MODELS.json hub ids to `{model_type, config, ...}`. A new
architecture is a recipe in `model_recipes.json`; `draft` shows what the trace gives for it. `left_out` there are
generated tables that disagree with the built model, `approximate` those that do when a rare field is changed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).resolve().parent
DATA = HERE.parent / "linter" / "gpulint" / "models"
Table = dict[str, Any]


def architectures(source: str, *only: str) -> None:
    """Write `architectures.jsonl`: the generated tables of `source`, annotated, and the composed ones.

    With `only`, those tables; the other lines stay as they are.
    """
    from . import architecture_defaults, architecture_tables

    recipes, probes, changes = (_read(name) for name in ("model_recipes", "model_probes", "model_changes"))
    generated = json.loads(Path(source).read_text())
    if only:
        generated = {name: table for name, table in generated.items() if name in only}
        recipes["tables"] = {name: recipe for name, recipe in recipes["tables"].items() if name in only}
        recipes["extracts"] = {name: recipe for name, recipe in recipes["extracts"].items() if name in only}
        recipes["extends"] = {}
    tables = _generated(generated, recipes, probes)
    _composed(tables, generated, recipes, probes)
    for name, change in changes.items():
        if name in tables:
            architecture_tables.change(tables[name], change)
    for name in recipes["approximate"]:
        if name in tables:
            tables[name]["approximate"] = True
    for name, table in tables.items():
        if not table.get("parts"):
            architecture_defaults.describe(table, probes["base"].get(name, {}), recipes["tables"].get(name, {}))
    path = DATA / "architectures.jsonl"
    lines = {json.loads(line)["model_type"]: line for line in path.read_text().splitlines()} if only else {}
    for name in tables:
        if ":whole" not in name:
            lines[name] = json.dumps(_ordered(tables[name]), separators=(",", ":"))
    path.write_text("\n".join(lines[name] for name in sorted(lines)) + "\n")
    print(len(tables), "tables written of", len(lines))


def _read(name: str) -> Table:
    found: Table = json.loads((HERE / f"{name}.json").read_text())
    return found


def _generated(generated: Table, recipes: Table, probes: Table) -> dict[str, Table]:
    from . import architecture_tables

    tables = {}
    for model_type in sorted(generated):
        name = model_type
        recipe = recipes["tables"].get(model_type, {})
        if recipe.get("variants", {}).get("CausalLM", {}).get("table") == f"{model_type}:CausalLM":
            name = f"{model_type}:CausalLM"
        elif recipe or model_type in recipes["left_out"]:
            continue
        print(name)
        tables[name] = architecture_tables.convert(name, generated[model_type])
        unseen = architecture_tables.annotate(tables[name], _probe_configs(model_type, tables[name], probes))
        if unseen:
            print("   never built:", ", ".join(unseen))
    return tables


def _composed(tables: dict[str, Table], generated: Table, recipes: Table, probes: Table) -> None:
    from . import architecture_parts, architecture_tables

    for name, recipe in recipes["tables"].items():
        print(name)
        tables[name] = architecture_parts.compose(name, recipe)
    for name, base in recipes["extends"].items():
        tables[name] = architecture_parts.extend(name, tables[base])
    for name, recipe in recipes["extracts"].items():
        whole = tables.get(recipe["from"], {})
        if recipe["from"] in generated:
            whole = architecture_tables.convert(name, generated[recipe["from"]])
            architecture_tables.annotate(whole, _probe_configs(recipe["from"], whole, probes))
        tables[name] = architecture_parts.extract(name, whole, recipe)


def _probe_configs(model_type: str, table: Table, probes: Table) -> list[tuple[Table, str]]:
    from . import architecture_parts

    base = {**probes["base"].get(model_type, {}), "model_type": model_type}
    configs = [(base, "CausalLM")]
    configs += [({**base, **probe}, "CausalLM") for probe in probes["probes"].get(model_type, ())]
    for field, value in table.get("defaults", {}).items():
        if isinstance(value, bool):
            configs.append((architecture_parts.changed(base, field, not value), "CausalLM"))
    return configs


def _ordered(table: Table) -> Table:
    keys = ("model_type", "extends", "class", "auto_class", "approximate", "norm", "variants", "alias", "defaults",
            "derive", "let", "stacks", "parts", "tensors")  # fmt: skip
    return {key: table[key] for key in keys if table.get(key)}


def draft(model_type: str, auto_class: str = "CausalLM") -> None:
    """Print the rows that the class default of `model_type` makes."""
    from . import architecture_trace

    for row in architecture_trace.draft({"model_type": model_type}, auto_class):
        layers = row.pop("layers", None)
        print(json.dumps(row), f"layers {layers[0]}..{layers[-1]} ({len(layers)})" if layers else "")


def verify(*model_types: str) -> None:
    """Check tables against Transformers on changed configs; all tables without arguments."""
    from gpulint.models import tables

    from . import architecture_check

    probes = json.loads((HERE / "model_probes.json").read_text())
    failed = 0
    for model_type in model_types or tables.model_types():
        table = tables.find_table(model_type)
        if table is None or ":" in model_type:
            continue
        base = {**probes["base"].get(model_type, {}), "model_type": model_type}
        good = built = 0
        problems: list[str] = []
        for probe in ({}, *probes["probes"].get(model_type, ())):
            try:
                counts = architecture_check.check(model_type, {**base, **probe}, table.get("auto_class", "CausalLM"))
            except Exception as error:
                problems.append(f"{probe} cannot be built, {type(error).__name__}: {str(error)[:100]}")
                continue
            good, built, problems = good + counts[0], built + counts[1], problems + counts[2]
        print(f"{model_type}: {good} of {built}", flush=True)
        for problem in problems[:12]:
            print("   ", problem[:200])
        failed += good < built
    print(failed, "model types disagree somewhere")


def catalogue(source: str) -> None:
    """Write the catalogue of hub ids from `source`."""
    from . import model_catalogue

    additions, corrections = _read("model_additions"), _read("model_corrections")
    for kind in ("model_encoders", "model_vision"):
        additions["models"] |= _read(kind)["models"]
    model_catalogue.write(json.loads(Path(source).read_text()), DATA, additions, corrections)


def peft() -> None:
    """Write the tables of PEFT's targets from the installed packages."""
    from . import model_lora

    model_lora.write(DATA)


COMMANDS: dict[str, Callable[..., None]] = {
    "architectures": architectures,
    "catalogue": catalogue,
    "peft": peft,
    "draft": draft,
    "verify": verify,
}

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        sys.exit(__doc__)
    COMMANDS[sys.argv[1]](*sys.argv[2:])
