"""The keys of NeMo 1.x configs: the trainer's, the experiment manager's, and the model's as NeMo reads them."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

import yaml

from .arguments import fields
from .schema import section, whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .schema import Json
    from .source import Source

CONFIGS = {
    "NeMo": ("examples/nlp/language_modeling/",),
    "NeMo-Aligner": ("examples/nlp/gpt/conf/",),
    "NeMo Launcher": tuple(f"launcher_scripts/conf/{name}/" for name in ("training", "fine_tuning", "peft")),
}
"""Where each keeps the configs of its trainings."""

EARLIER = {"sync_batch_comm"}
"""Keys of the model that all shipped configs still have and no release since 1.18 reads; nothing is lost with them."""

LANGUAGE = (
    "nemo/collections/nlp/", "nemo/collections/multimodal/", "nemo/collections/common/", "nemo/collections/vision/",
    "nemo/core/", "nemo/utils/", "examples/nlp/",
)  # fmt: skip
"""The parts of NeMo that read a language model's config; those of speech, and NeMo 2, have configs of their own."""

_OWNER = re.compile(r"(?:^|[._])(?:cfg|config|conf|hparams)(?:\.model)?$")


def nemo(release: Source, last: Source, megatron: Source, lightning: Source, aligner: Source, launcher: Source) -> Json:
    """Lightning refuses unknown arguments and OmegaConf those of `exp_manager`; nothing checks the keys of the model.

    Those are known which code reads from a config, which are fields of Megatron's own config classes (NeMo copies
    these), or which a shipped config has and code names somewhere. NeMo 2 kept the scripts of NeMo 1 for a while, so
    the keys of its last release with them are known too.
    """
    own = [(source, folder) for source in (release, last) for folder in LANGUAGE]
    read = (*own, (aligner, "nemo_aligner/"), (aligner, "examples/nlp/gpt/"))
    trees = [ast.parse(source.need(path)) for source, folder in read for path in source.below(folder)]
    known = read_names(trees)
    for path in ("transformer/transformer_config.py", "model_parallel_config.py"):
        for cls in megatron.classes(f"megatron/core/{path}").values():
            known |= set(fields(cls, {}))
    words = {word for tree in trees for word in names(tree)}
    model, trainer = shipped(release, aligner, launcher)
    known |= {key for key in model if key in words} | EARLIER
    experiment: set[str] = {"model_parallel_size"}
    for source in (release, last):
        experiment |= set(fields(source.classes("nemo/utils/exp_manager.py")["ExpManagerConfig"], {}))
    properties = {
        "trainer": section({name: {} for name in sorted(arguments(lightning) | trainer)}, "refused"),
        "exp_manager": section({name: {} for name in sorted(experiment)}, "refused"),
        "model": section({name: {} for name in sorted(known) if name.isidentifier()}, "ignored"),
    }
    return whole("NeMo 1.x config", properties, "")


def read_names(trees: Iterable[ast.Module]) -> set[str]:
    """The names that code reads from a config: `cfg.name`, `cfg.get("name")`, `cfg["name"]`."""
    found: set[str] = set()
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and _OWNER.search(ast.unparse(node.value)):
                found.add(node.attr)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                first = node.args[0]
                if node.func.attr in ("get", "pop") and _OWNER.search(ast.unparse(node.func.value)):
                    found |= (
                        {first.value} if isinstance(first, ast.Constant) and isinstance(first.value, str) else set()
                    )
            elif isinstance(node, ast.Subscript) and _OWNER.search(ast.unparse(node.value)):
                key = node.slice
                found |= {key.value} if isinstance(key, ast.Constant) and isinstance(key.value, str) else set()
    return found


def names(tree: ast.Module) -> Iterator[str]:
    """Every name that a module holds: strings, attributes, arguments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.arg):
            yield node.arg


def arguments(lightning: Source) -> set[str]:
    """The arguments of Lightning's `Trainer`."""
    cls = lightning.classes("trainer/trainer.py")["Trainer"]
    start = next(node for node in cls.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    return {arg.arg for arg in start.args.args + start.args.kwonlyargs} - {"self"}


def shipped(*sources: Source) -> tuple[set[str], set[str]]:
    """The keys below `model` and below `trainer` in the configs that the projects ship."""
    model: set[str] = set()
    trainer: set[str] = set()
    for source in sources:
        for folder in CONFIGS[source.upstream.name]:
            for path in source.below(folder, ".yaml"):
                content: Any = yaml.safe_load(source.need(path))
                for place, keys in (("model", model), ("trainer", trainer)):
                    part = content.get(place) if isinstance(content, dict) else None
                    keys |= {str(key) for key in part} if isinstance(part, dict) else set()
    return model, {key for key in trainer if key not in _MISTAKES}


_MISTAKES = frozenset({"checkpoint_callback"})
"""An argument of the trainer that some shipped configs have and Lightning 2 refuses."""
