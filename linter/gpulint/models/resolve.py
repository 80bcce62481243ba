"""Finding the model that a config names.

In this order: an inline mapping; a path; the project's `models` folder and those that its settings name; the Hugging
Face cache on disk; the catalogue, there also the model whose name a path or another owner's repository bears. Nothing
is fetched. A path that a config names is followed only inside the project's root.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

from .build import build
from .model import Model, UnknownModel
from .names import cached_id

if TYPE_CHECKING:
    from .catalogue import CatalogueRow

MAX_CONFIG_BYTES = 8 << 20
"""Largest `config.json` that is read."""

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")

_folders: dict[str, tuple[str, ...]] = {}
"""Folders with models of a project's own, by its root."""

_known: dict[tuple[str, str | None, str | None], Model | str] = {}


def resolve(reference: str | dict[str, Any], directory: str | None = None, root: str | None = None) -> Model:
    """The model that `reference` names: a mapping of `config.json` fields, a path, or a hub id.

    `directory` is where the config that names it stands, `root` the project's root; with neither, paths are taken
    as given. The second call with the same arguments is free.
    Raises UnknownModel, whose one-line message says what was tried and what comes near.
    """
    shown = reference if isinstance(reference, str) else json.dumps(reference, sort_keys=True, default=str)
    key = (shown, directory, root)
    found = _known.get(key)
    if found is None:
        try:
            found = _resolve(reference, directory, root)
        except UnknownModel as error:
            found = str(error)
        _known[key] = found
    if isinstance(found, str):
        raise UnknownModel(found)
    return found


def is_known(reference: str, root: str | None = None) -> bool:
    """Whether `resolve` finds a model for it."""
    try:
        return bool(resolve(reference, root, root))
    except UnknownModel:
        return False


def may_be_on_hub(reference: str) -> bool:
    """Whether it has the form of a hub id: `NAME`, or `ORG/NAME`."""
    return _HUB_ID.fullmatch(reference) is not None and ".." not in reference


def forget() -> None:
    """Drop what is remembered, for programs that live longer than the files they read."""
    _known.clear()


def declare(root: str, folders: tuple[str, ...]) -> None:
    """Look for the models of the project at `root` in these folders, too, as its settings say."""
    if _folders.get(root, ()) != folders:
        _folders[root] = folders
        forget()


def _resolve(reference: str | dict[str, Any], directory: str | None, root: str | None) -> Model:
    if isinstance(reference, dict):
        name = reference.get("_name_or_path") or reference.get("name_or_path")
        return build(reference, name if isinstance(name, str) and name else "inline config", "inline config")
    if not reference or not reference.strip() or "\0" in reference:
        raise UnknownModel("no model is set")
    reference = reference.strip()
    path = _local(reference, directory, root)
    if path is not None:
        return build(_read(path, reference), reference, f"config.json at {path}")
    reference = cached_id(reference) or reference
    if reference.lower().endswith(".gguf"):
        raise UnknownModel(f"{reference}: a GGUF file has no config.json; use the model that it was converted from")
    if not may_be_on_hub(reference):
        alike = _by_name(reference, "no config.json there")
        if alike is not None:
            return alike
        raise UnknownModel(f"{reference}: no config.json there{_outside(reference, directory, root)}")
    for found in (*_project_configs(reference, root or directory), _cached(reference)):
        if found is not None:
            return _named(build(_read(found, reference), reference, f"config.json at {found}"))
    return _from_catalogue(reference)


def _from_catalogue(reference: str) -> Model:
    from .catalogue import config_of, find, nearest

    row = find(reference)
    if row is None:
        alike = _by_name(reference, "not in the catalogue")
        if alike is not None:
            return alike
        near = nearest(reference)
        advice = f"; did you mean {' or '.join(near)}?" if near else ""
        raise UnknownModel(
            f"{reference} is unknown: not a path, and not in the project's models directory, the Hugging Face cache or "
            f"the catalogue{advice}"
        )
    packed = _packed_copy(row)
    if packed is not None:
        source = f"catalogue: dimensions of {packed.id}, of which it is a quantized copy"
        return _named(build(config_of(packed), reference, source, packed.auto_class, packed.id), listed=True)
    base = f", dimensions of {row.base}" if row.base else ""
    source = f"catalogue, confidence {row.confidence}{base}"
    return _named(build(config_of(row), reference, source, row.auto_class), listed=True)


def _by_name(reference: str, reason: str) -> Model | None:
    """The model of the catalogue whose name `reference` bears, or of which its name says that it is a copy."""
    from .catalogue import config_of
    from .names import namesake, stored_copy

    row = namesake(reference)
    if row is not None:
        config = config_of(row)
    else:
        row = stored_copy(reference)
        if row is None:
            return None
        config = {key: value for key, value in config_of(row).items() if key != "quantization_config"}
    model = build(config, reference, f"catalogue: dimensions of {row.id}, by its name", row.auto_class, row.id)
    return _named(model._replace(namesake=f"{reason}: taken as {row.id} by its name"))


def _packed_copy(row: CatalogueRow) -> CatalogueRow | None:
    """The model of the same owner that a row's name says is stored packed, where it tells more than the row.

    That is where the row only borrows from a third id (its base model's, of other positions), and where its total
    counts a tied head a second time, as the files of AutoAWQ hold it. A row with its own `quantization_config` stands.
    """
    from .catalogue import config_of
    from .names import stored_copy

    known = stored_copy(row.id)
    if known is None or known.id.partition("/")[0].lower() != row.id.partition("/")[0].lower():
        return None
    own, plain = config_of(row), config_of(known)
    if "quantization_config" in own or own["model_type"] != plain["model_type"]:
        return None
    if row.base and row.base != known.id and row.parameters == known.parameters:
        return known
    head = plain.get("vocab_size", 0) * plain.get("hidden_size", 0)
    return known if head and (row.parameters or 0) - (known.parameters or 0) == head else None


def _named(model: Model, *, listed: bool = False) -> Model:
    """With the quantisation that the repository's name states, where its config states none."""
    from .names import named_quantization, published_quantization

    text = model.config.get("text_config")
    if "quantization_config" in model.config or (isinstance(text, dict) and "quantization_config" in text):
        return model
    published = published_quantization(model.id)
    if published is not None:
        return model._replace(config={**model.config, "quantization_config": published}, listed=listed)
    return model._replace(named_quantization=named_quantization(model.id), listed=listed)


def _local(reference: str, directory: str | None, root: str | None) -> str | None:
    """The config.json that a path names; None where there is no such path, or it leads outside the root."""
    free = directory is None and root is None
    inside = None if free else os.path.realpath(root or directory or ".")
    for base in dict.fromkeys((directory, root) if not free else (os.getcwd(),)):
        if base is None:
            continue
        target = os.path.realpath(os.path.join(base, os.path.expanduser(reference) if free else reference))
        if inside is not None and os.path.commonpath((inside, target)) != inside:
            continue
        found = _config_in(target, reference)
        if found is not None:
            return found
    return None


def _config_in(target: str, reference: str) -> str | None:
    if os.path.isfile(target):
        return target if target.endswith(".json") else None
    if not os.path.isdir(target):
        return None
    config = os.path.join(target, "config.json")
    if os.path.isfile(config) and os.path.realpath(config).startswith(target + os.sep):
        return config
    adapter = os.path.join(target, "adapter_config.json")
    if os.path.isfile(adapter):
        base = _read(adapter, reference).get("base_model_name_or_path")
        raise UnknownModel(f"{reference} is a PEFT adapter of {base or 'an unnamed model'}; use that model")
    if any(name.lower().endswith(".gguf") for name in os.listdir(target)[:1000]):
        raise UnknownModel(f"{reference} has GGUF files and no config.json; use the model they were converted from")
    return None


def _outside(reference: str, directory: str | None, root: str | None) -> str:
    if directory is None and root is None:
        return ""
    inside = os.path.realpath(root or directory or ".")
    target = os.path.realpath(os.path.join(directory or inside, reference))
    return "" if os.path.commonpath((inside, target)) == inside else ", and paths outside the project are not read"


def _project_configs(reference: str, root: str | None) -> list[str | None]:
    if root is None:
        return []
    found: list[str | None] = []
    for named in (os.path.join(root, "models"), *_folders.get(root, ())):
        folder = os.path.realpath(named)
        for path in (
            os.path.join(folder, *reference.split("/"), "config.json"),
            os.path.join(folder, reference.replace("/", "--") + ".json"),
        ):
            real = os.path.realpath(path)
            if os.path.isfile(real) and os.path.commonpath((folder, real)) == folder:
                found.append(real)
    return found


def _cached(reference: str) -> str | None:
    """The newest snapshot's config.json in the Hugging Face cache."""
    home = os.environ.get("HF_HOME") or os.path.join(os.path.expanduser("~"), ".cache", "huggingface")
    hub = os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub")
    folder = os.path.join(hub, "models--" + reference.replace("/", "--"))
    if not os.path.isdir(folder):
        return None
    snapshots = os.path.join(folder, "snapshots")
    names: list[str] = []
    try:
        with open(os.path.join(folder, "refs", "main"), encoding="utf-8") as file:
            names.append(os.path.basename(file.read(100).strip()))
    except (OSError, UnicodeDecodeError):
        pass
    try:
        names += sorted(os.listdir(snapshots), key=lambda name: -os.path.getmtime(os.path.join(snapshots, name)))
    except OSError:
        return None
    real_folder = os.path.realpath(folder)
    for name in names:
        real = os.path.realpath(os.path.join(snapshots, name, "config.json"))
        if name and os.path.isfile(real) and os.path.commonpath((real_folder, real)) == real_folder:
            return real
    return None


def _read(path: str, reference: str) -> dict[str, Any]:
    try:
        if os.path.getsize(path) > MAX_CONFIG_BYTES:
            raise UnknownModel(f"{reference}: {path} is too large for a config.json")
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        raise UnknownModel(f"{reference}: {path} cannot be read as JSON ({error})") from None
    if not isinstance(config, dict):
        raise UnknownModel(f"{reference}: {path} is not a mapping")
    return config
