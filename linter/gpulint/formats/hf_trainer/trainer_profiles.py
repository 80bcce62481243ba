"""Which program a Transformers/TRL style config is written for, and that program's own defaults.

`trainer_profiles.json` has one row a program. TRL and a plain Trainer script have no marks of their own: TRL reads a
file with keys of a TRL config class, or a YAML file whose every key `trl <trainer> --config` knows; everything else
is a script around `transformers.Trainer` with arguments of its own.
"""

from __future__ import annotations

import json
import os
from fnmatch import fnmatch
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.keys import load

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ...source.document import Document


class Flavour(NamedTuple):
    """A program that reads such configs.

    trl         whether TRL's trainers run the job
    own_parser  whether the program adds keys of its own, so that an unknown key may well be right
    versions    the package versions whose behaviour the job gets
    defaults    what an absent key means, by name
    scripts     how the paths of its scripts end, as patterns
    options     the program's own options by the argument of the Trainer that they say
    own_loop    whether it trains without `Trainer`, which alone compares the arguments with the DeepSpeed config
    zero_stage  the ZeRO stage with which the program's own documentation launches a full fine-tune, and where it says
                so (`launch`); None for a plain launch
    """

    name: str
    title: str
    trl: bool
    own_parser: bool
    versions: dict[str, str]
    defaults: dict[str, Any]
    marks: tuple[frozenset[str], ...]
    zero_stage: int | None = None
    launch: str = ""
    scripts: tuple[str, ...] = ()
    own_loop: bool = False
    options: Mapping[str, str] = {}

    @property
    def upstream(self) -> str:
        """The tool and version for notes: `trl 1.16.0`, `Firefly (transformers 4.34.0)`."""
        package = "trl" if self.trl else "transformers"
        text = f"{package} {self.versions[package]}"
        return text if self.name in ("trl", "transformers") else f"{self.title} ({text})"


_SHARED = frozenset(
    {
        "ModelConfig", "ScriptArguments", "DatasetMixtureConfig", "accelerate launch", "TrlParser", "trl CLI",
    }
)  # fmt: skip
"""Classes whose keys other programs use too (`dtype`, `dataset_name`), so that they prove nothing."""

_COMMON = frozenset(
    {
        "trust_remote_code", "max_length", "max_seq_length", "tools", "alpha", "exp_name", "learning_rate",
        "temperature", "top_p", "top_k", "pad_to_multiple_of", "use_liger", "loss_type", "label_smoothing",
    }
)  # fmt: skip
"""Keys of TRL trainer classes that programs without TRL have as well."""


@cache
def flavours() -> tuple[Flavour, ...]:
    """The rows of `trainer_profiles.json`, in the order in which they are tried."""
    with open(os.path.join(os.path.dirname(__file__), "trainer_profiles.json"), encoding="utf-8") as file:
        rows = json.load(file)["flavours"]
    return tuple(
        Flavour(
            row["name"], row["title"], row["trl"], row["own_parser"], row["versions"], row["defaults"],
            tuple(frozenset(marks) for marks in row["marks"]), row.get("zero_stage"), row.get("launch", ""),
            tuple(row.get("scripts", ())), row.get("own_loop", False), row.get("options", {}),
        )
        for row in rows
    )  # fmt: skip


def flavour(name: str) -> Flavour:
    """The row of that name. Raises KeyError."""
    for row in flavours():
        if row.name == name:
            return row
    raise KeyError(name)


def flavour_of(document: Document, program: str = "") -> Flavour:
    """The program that `document` is written for: the one that a launcher starts with it, else as its keys tell.

    A script that no row names and that is given TRL's arguments has a parser of its own, loads as it likes, and asks
    for no switch beside its LoRA arguments.
    """
    keys = frozenset(document.root.keys())
    if document.syntax == "python":
        return _of_library(document)
    if program.startswith("trl "):
        return flavour("trl")
    started = program_of(program)
    if started is not None:
        return started
    for row in flavours():
        if any(marks <= keys for marks in row.marks):
            return row
    if not _is_trl(keys, document.syntax):
        return flavour("transformers")
    trl = flavour("trl")
    if not program or program.startswith("examples/scripts/"):
        return trl
    return trl._replace(own_parser=True, defaults={**trl.defaults, "dtype": "checkpoint", "switch": False})


LIBRARY, OBJECTIVE = "trainer_library", "trainer_objective"
"""The keys under which the reader of Python files says whose trainer a file runs, and for what."""

_UNSLOTH = "2026.8.19"


def _of_library(document: Document) -> Flavour:
    """The profile of the library whose trainer a Python file runs: it loads the model itself, and knows what it puts
    on the model. Unsloth takes the width that the card has; TRL casts its adapters."""
    named = document.root.get(LIBRARY)
    library = named.value if named is not None else ""
    found = flavour("transformers" if library == "transformers" else "trl")
    loads = {"dtype": "checkpoint", "lora_r": 8, "lora_alpha": 8, "lora_dropout": 0.0, "quant_type": "fp4"}
    more = {"dtype": "bfloat16", "unsloth": _UNSLOTH, "kbit_adapter_dtype": None} if library == "unsloth" else {}
    return found._replace(own_parser=False, defaults={**found.defaults, **loads, **more, "switch": True})


def program_of(program: str) -> Flavour | None:
    """The row whose script `program` is, a path or a module; None for a script of no row."""
    path = program if program.endswith(".py") else program.replace(".", "/") + ".py"
    for row in flavours():
        if any(fnmatch("/" + path.replace("\\", "/"), f"*/{script}") for script in row.scripts):
            return row
    return None


def _is_trl(keys: Collection[str], syntax: str) -> bool:
    properties = load("hf_trainer")["properties"]
    strong = [key for key in keys if key not in _COMMON and trainer_classes(key)]
    if strong:
        return True
    return syntax == "yaml" and "model_name_or_path" in keys and all(key in properties for key in keys)


def trainer_classes(key: str) -> frozenset[str]:
    """The TRL trainer configs (`GRPOConfig` ...) that alone have `key`; empty for a key of TrainingArguments."""
    schema = load("hf_trainer")["properties"].get(key, {})
    return frozenset(schema.get("x-classes", ())) - _SHARED
