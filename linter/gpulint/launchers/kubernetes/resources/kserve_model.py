"""The model of a KServe service: what its storage URI puts at /mnt/models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....formats.core.placeholders import is_blank
from ....models.names import bears_a_name
from ...commands.flags import overlaid, read_flags
from ...shell.shell import Word
from ..container import written

if TYPE_CHECKING:
    from ....source.document import Document
    from ....source.node import Node
    from ...launch import Launch, Started

MOUNT = "/mnt/models"
_KEYS = ("model", "model-path", "model_path", "model-id", "model_id")


def stored(file: Document, uri: Node | None, named: Node | None = None) -> Word | None:
    """The hub id of `hf://org/name:revision`; of other storage the name of the model where that looks like a hub id, or
    the folder whose name a known model bears (`s3://models/Qwen2.5-7B-Instruct`).

    A word that is not known stands for files that only the cluster has; None where nothing is stored.
    """
    if uri is None or not isinstance(uri.value, str):
        return None
    word = written(file, uri, {})
    if word.text.startswith("hf://"):
        end = word.text.find(":", 5)
        end = end if end >= 0 else len(word.text)
        return word._replace(text=word.text[5:end], at=word.at[5:end])
    if named is not None and isinstance(named.value, str) and named.value.count("/") == 1 and not is_blank(named.value):
        return written(file, named, {})
    start = word.text.find("/", word.text.find("://") + 3)
    if "://" in word.text and start > 0 and word.known and bears_a_name(word.text[start:]):
        return word._replace(text=word.text[start:], at=word.at[start:])
    text = "$STORED"
    return Word(text, word.at[:1] * len(text), known=False)


def with_model(started: Started, model: Word | None, file: Document) -> Started:
    """The jobs with the stored model in the place of its mount; not known where nobody says what is stored."""
    return started._replace(launches=[_with_model(launch, model, file) for launch in started.launches])


def _with_model(launch: Launch, model: Word | None, file: Document) -> Launch:
    entry = next((found for key in _KEYS if (found := launch.config.root.entry(key)) is not None), None)
    if entry is None or str(entry.value.value).rstrip("/") != MOUNT:
        return launch
    at = model.at if model is not None and model.at else (entry.value.span.start,)
    word = model or Word("$STORED", at[:1] * 7, known=False)
    flags = read_flags([Word(f"--{entry.key.value}", at[:1] * (len(str(entry.key.value)) + 2)), word], file)
    return launch._replace(config=overlaid(launch.config, flags.document))
