"""Writes `schemas/axolotl.json`, `schemas/deepspeed.json` and `schemas/accelerate.json` from upstream packages.

    python -m scripts.schemas FOLDER [axolotl|deepspeed|accelerate ...]

FOLDER holds what `pip download --no-deps --no-binary :all: axolotl deepspeed` (sdists) and
`pip download --no-deps accelerate` (wheel) leave there. The packages are read with `ast` and never imported, so torch
is not needed. What no class declares (keys read by `dict.get`) is listed in the module of the package, with the place
that reads it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from .schema_source import JsonObject
from .schemas_accelerate import accelerate
from .schemas_axolotl import axolotl
from .schemas_deepspeed import deepspeed

SCHEMAS = Path(__file__).resolve().parent.parent / "schemas"


def written(schema: JsonObject) -> str:
    """JSON with one property a line, so that a new upstream version shows as a short diff."""
    lines: list[str] = []
    for key, value in schema.items():
        if key in ("properties", "$defs"):
            rows = ",\n".join(f"    {json.dumps(name)}: {json.dumps(item)}" for name, item in value.items())
            lines.append(f'  "{key}": {{\n{rows}\n  }}')
        else:
            lines.append(f"  {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


MAKERS = {"axolotl": axolotl, "deepspeed": deepspeed, "accelerate": accelerate}


def main() -> None:
    """Write the schemas that are named, or all."""
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    for name in sys.argv[2:] or MAKERS:
        schema = MAKERS[name](Path(sys.argv[1]))
        (SCHEMAS / f"{name}.json").write_text(written(schema))
        print(f"{name}: {len(schema['properties'])} keys, {schema['x-upstream']}")


if __name__ == "__main__":
    main()
