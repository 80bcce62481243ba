"""Files that describe a model or a part of a run and start nothing: what they are, in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..launch import Launcher, Started
from ..values import text

if TYPE_CHECKING:
    from ...formats.core.format import Project
    from ...source.document import Document

NAME = "model_files"
_SHAPE = frozenset(
    {"hidden_size", "num_hidden_layers", "num_attention_heads", "n_embd", "d_model", "vocab_size", "text_config"}
)
_ADAPTER = frozenset({"peft_type", "base_model_name_or_path"})
_FSDP = (
    "transformer_layer_cls_to_wrap", "cpu_ram_efficient_loading", "xla_fsdp_v2", "backward_prefetch",
    "reshard_after_forward", "min_num_params", "activation_checkpointing", "xla_fsdp_grad_ckpt", "xla",
)  # fmt: skip


def recognise(document: Document) -> bool:
    """A JSON file: a model's `config.json`, a PEFT `adapter_config.json`, or what `fsdp_config` of a Trainer names."""
    keys = set(document.root.keys()) if document.root.is_mapping else set()
    if document.syntax != "json":
        return False
    return _is_model(keys) or keys >= _ADAPTER or _is_fsdp(keys)


def launches(document: Document, project: Project) -> Started:  # noqa: ARG001
    """Nothing: what the file is."""
    root = document.root
    keys = set(root.keys())
    if keys >= _ADAPTER:
        kind = text(root, "peft_type") or "PEFT"
        reason = f"describes a {kind} adapter of {text(root, 'base_model_name_or_path') or 'a model'}, starts no job"
        return Started([], [], reason)
    if not _is_model(keys):
        return Started([], [], "holds FSDP settings of a Trainer (`fsdp_config`), starts no job")
    architectures = root.get("architectures")
    first = next((str(item.value) for item in architectures.items()), "") if architectures is not None else ""
    name = first or text(root, "model_type") or "a model"
    method = text(root, "quantization_config.quant_method")
    return Started([], [], f"describes a model ({name}{f', stored as {method}' if method else ''}), starts no job")


def _is_model(keys: set[str]) -> bool:
    return bool(keys & {"architectures", "model_type"}) and bool(keys & _SHAPE)


def _is_fsdp(keys: set[str]) -> bool:
    known = {f"fsdp_{name}" for name in _FSDP} | set(_FSDP)
    return bool(keys) and keys <= known and bool(keys - {"xla", "activation_checkpointing"})


LAUNCHER = Launcher(NAME, "Model, adapter or FSDP description", "transformers 5.23, peft 0.21", recognise, launches)
