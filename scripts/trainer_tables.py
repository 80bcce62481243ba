"""Makes the schemas of LLM Foundry, OLMo and nanotron from their sources, with `ast`.

    python scripts/trainer_tables.py LLM_FOUNDRY_WHEEL OLMO_WHEEL NANOTRON_CHECKOUT NANOTRON_WHEEL

nanotron's configs are those of its newest commit or of its last release: keys of either are known, and the sections
that its examples read with classes of their own (`doremi`, Mamba's `init_method`) are open.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from schema_source import Classes, read_archive, version_of

ROOT = Path(__file__).resolve().parent.parent


Definitions = dict[str, dict[str, Any]]


def read(sources: dict[str, str], top: str) -> tuple[dict[str, Any], Definitions]:
    """The schema of one dataclass and those that it holds; unknown keys stop all three tools."""
    classes = Classes(sources, "refused")
    return classes.object(top), classes.definitions


def write(name: str, upstream: str, schema: dict[str, Any], definitions: Definitions) -> None:
    """One schema file."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "x-upstream": upstream, "x-coercion": "yaml"}
    whole = {**head, **schema, "$defs": dict(sorted(definitions.items()))}
    (ROOT / "schemas" / f"{name}.json").write_text(json.dumps(whole, indent=1) + "\n")


def nanotron(checkout: Path, wheel: Path) -> tuple[dict[str, Any], Definitions]:
    """The newest commit's schema with the keys of the last release."""
    folder = checkout / "src" / "nanotron" / "config"
    schema, definitions = read({path.name: path.read_text() for path in sorted(folder.glob("*.py"))}, "Config")
    old, before = read(read_archive(wheel, "nanotron/config/"), "Config")
    for name, part in {**before, "": old}.items():
        target = definitions.setdefault(name, part) if name else schema
        for key in part.get("properties", {}):
            target["properties"].setdefault(key, {})
    # `Classes` takes a field `model_config` for pydantic's; folders may have weights, whatever the annotation says
    for part in definitions.values():
        if "dataset_folder" in part["properties"]:
            part["properties"]["dataset_folder"] = {}
    definitions["ModelArgs"]["properties"] |= {"model_config": {}, "init_method": {}}
    schema["properties"]["doremi"] = {}
    return schema, definitions


def main() -> None:
    """Write the three files."""
    foundry, olmo, checkout, wheel = (Path(argument) for argument in sys.argv[1:5])
    files = read_archive(foundry, "llmfoundry/utils/config_utils")
    schema, definitions = read(files, "TrainConfig")
    # apply_transforms_to_config takes names of files for both
    schema["properties"] |= {"icl_tasks": {}, "eval_gauntlet": {}}
    write("llm_foundry", f"llm-foundry {version_of(foundry)}", schema, definitions)
    files = {name: text for name, text in read_archive(olmo, "olmo/config").items() if name.endswith("config.py")}
    schema, definitions = read(files, "TrainConfig")
    # update_legacy_settings takes true and false for the first; the second came after the release
    schema["properties"]["activation_checkpointing"] = {}
    definitions["DataConfig"]["properties"]["custom_dataset"] = {}
    write("olmo", f"ai2-olmo {version_of(olmo)}", schema, definitions)
    write("nanotron", f"nanotron {version_of(wheel)}", *nanotron(checkout, wheel))


if __name__ == "__main__":
    main()
