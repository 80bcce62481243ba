"""Task heads: what stands behind a model's layers where the job is not language modelling.

`heads.json` names the modules of each task's class. A decoder gets one linear layer in the place of its head.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from .model import Model, Tensor, UnknownModel
from .tables import read_data

TASKS = ("classification", "token_classification", "question_answering")
"""Objectives with a head of their own. For an encoder every other one means masked language modelling."""

_HEADS = (
    "cls.", "lm_head", "pooler.", "vocab_", "generator_", "classifier", "head.", "score", "qa_outputs",
    "pre_classifier", "decoder.", "predictions.",
)  # fmt: skip
_DIMENSIONS = 2


def encodes(model: Model) -> bool:
    """Whether a model reads whole sequences at once, without a decoder, and its task heads are known."""
    return model.model_type in _table()["types"] and not model.config.get("is_decoder")


def for_task(model: Model, task: str, labels: int | None = None) -> Model:
    """The model as the class of a task builds it; `labels` None takes the config's own.

    Other models than encoders are what they are unless the task is one of TASKS; encoder-decoders always are.
    """
    encoder = encodes(model)
    if model.shape.encoder_layers or not (encoder or task in TASKS):
        return model
    task = task if task in TASKS else "masked_lm"
    rows = _table()["styles"][_table()["types"][model.model_type] if encoder else "decoder"].get(task)
    if rows is None:
        return model
    count = 2 if task == "question_answering" else labels or _labels(model.config)
    body = [tensor for tensor in model.tensors if not is_head(tensor, encoder)]
    return model._replace(tensors=(*body, *_tensors(rows, model, count)))


def is_head(tensor: Tensor, encoder: bool) -> bool:
    """Whether a tensor is of the head; embeddings never are, though tied ones may bear its name (XLM-RoBERTa)."""
    if tensor.layers is not None or (encoder and tensor.role == "embedding"):
        return False
    bare = tensor.name.partition(".")[2]
    named = tensor.name.startswith(_HEADS) or (encoder and bare.startswith("pooler."))
    return named if encoder else tensor.role == "head" or tensor.name.startswith("lm_head")


def _tensors(rows: list[Any], model: Model, labels: int) -> list[Tensor]:
    words = (model.shape.vocabulary, model.config.get("vocab_size"))
    rows_of = (t for t in model.tensors if t.role == "embedding" and t.shape[0] in words)
    embedding = next(rows_of, None)
    if embedding is None:
        raise UnknownModel(f"{model.id}: no vocabulary embedding, so no task head can be added")
    sizes = {"h": model.shape.hidden, "e": embedding.shape[1], "n": labels, "v": embedding.shape[0]}
    tied = model.config.get("tie_word_embeddings", True)
    found: list[Tensor] = []
    for module, dims, bias in rows:
        shape = tuple(sizes[dim] for dim in dims)
        linear = len(shape) == _DIMENSIONS
        role = "norm" if not linear else "transform" if (module, dims, bias) != tuple(rows[-1]) else "head"
        if not (role == "head" and dims[0] == "v" and tied):
            found.append(Tensor(f"{module}.weight", shape, None, "", role, linear))
        if bias:
            found.append(Tensor(f"{module}.bias", shape[:1], None, "", "bias" if linear else "norm", False))
    return found


def _labels(config: dict[str, Any]) -> int:
    """How many classes a config has: `num_labels`, the length of `id2label`, else Transformers' 2."""
    stated = config.get("num_labels") or config.get("_num_labels")
    named = config.get("id2label")
    if isinstance(stated, int):
        return stated
    return len(named) if isinstance(named, dict) and named else 2


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(read_data("heads.json"))
    return table
