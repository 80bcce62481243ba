"""Makes the schemas of tools that are run from their repositories, with `ast`.

    python -m scripts.checkout_tables LINGUA MISTRAL_FINETUNE TRLX PRIME_RL

Each argument is a checkout. lingua's and mistral-finetune's dataclasses refuse unknown keys, trlx takes what it knows.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from scripts.schema_source import Classes
from scripts.trainer_tables import Definitions, write

_APPS = {
    "apps/mamba/core_mamba.py": "BaseMambaArgs",
    "apps/mamba/mamba.py": "LMMambaArgs",
    "apps/fastRNN/hawk/core_hawk.py": "BaseHawkArgs",
    "apps/fastRNN/minGRU/core_gru.py": "BaseMinGRUArgs",
    "apps/fastRNN/minLSTM/core_lstm.py": "BaseMinLSTMArgs",
}
"""Arguments of models that other apps than the main one train: they go into one section."""


def sources(checkout: Path, *folders: str) -> dict[str, str]:
    """The Python files of folders and single files of a checkout."""
    found: dict[str, str] = {}
    for folder in folders:
        place = checkout / folder
        for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
            found[str(path.relative_to(checkout))] = path.read_text()
    return found


def lingua(checkout: Path) -> tuple[dict[str, Any], Definitions]:
    """`TrainArgs` of the main app; its model's section has the keys of every app's model."""
    classes = Classes(sources(checkout, "apps/main/train.py", "apps/main/transformer.py", "lingua"), "refused")
    schema, definitions = classes.object("TrainArgs"), classes.definitions
    model = definitions["LMTransformerArgs"]["properties"]
    for file, name in _APPS.items():
        app = Classes(sources(checkout, file), "refused")
        model |= {key: {} for key in app.object(name)["properties"] if key not in model}
    schema["properties"] |= {"model_type": {"type": "string"}, "config": {"type": "string"}}
    return schema, definitions


def mistral_finetune(checkout: Path) -> tuple[dict[str, Any], Definitions]:
    """`TrainArgs`, with the arguments of its data, its adapter and its loggers."""
    classes = Classes(sources(checkout, "finetune", "model/args.py"), "refused")
    return classes.object("TrainArgs"), classes.definitions


def trlx(checkout: Path) -> tuple[dict[str, Any], Definitions]:
    """`TRLConfig`; the section `method` has the keys of whichever method its `name` says."""
    classes = Classes(sources(checkout, "trlx/data/configs.py"), "refused")
    schema, definitions = classes.object("TRLConfig"), classes.definitions
    schema["properties"]["method"] = {"type": "object"}
    return schema, definitions


def main() -> None:
    """Write the files."""
    first, second, third = (Path(argument) for argument in sys.argv[1:4])
    write("lingua", "lingua 437d680", *lingua(first))
    write("mistral_finetune", "mistral-finetune 1943535", *mistral_finetune(second))
    write("trlx", "trlx 0.7.0", *trlx(third))


if __name__ == "__main__":
    main()
