"""LitGPT's models: checkpoint folders and names as hub ids, and what its own model code changes of them.

The head is never tied, the vocabulary is padded to `padded_vocab_size`, and gelu is torch's one kernel
(litgpt/config.py, litgpt/model.py 0.5.13). `litgpt_models.json` is read statically from litgpt/config.py.
"""

from __future__ import annotations

import json
import os
import re
from functools import cache
from typing import TYPE_CHECKING, Any

from ...job.job import Quantization
from ..core.bindings.kinds import WHOLE_TEXT
from ..core.decoder_config import multiple
from ..core.model_facts import find_model

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..core.bindings.reader import Reader

FUSED = {"gpt_neox": ["query_key_value"], "falcon": ["query_key_value"], "phi3": ["qkv_proj"]}
"""Where the checkpoint fuses q, k and v; LitGPT's LoRA on q and v of a fused projection has as many elements."""

TARGETS = {
    "query": ["q_proj"], "key": ["k_proj"], "value": ["v_proj"], "projection": ["o_proj", "dense"],
    "mlp": ["gate_proj", "up_proj", "down_proj", "gate_up_proj", "fc1", "fc2", "dense_h_to_4h", "dense_4h_to_h"],
    "head": ["lm_head", "embed_out"],
}  # fmt: skip
"""`lora_<name>` -> the names of those layers in Transformers; names that a model lacks are passed over."""


@cache
def _rows() -> list[list[Any]]:
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "litgpt_models.json")
    with open(path, encoding="utf-8") as file:
        rows: list[list[Any]] = json.load(file)["models"]
    return rows


def _row(name: str) -> tuple[str, int, int] | None:
    """(hub id, rows of the embedding, padding multiple) of LitGPT's name or of a hub id; `{}` stands for an ending."""
    for known, hub, rows, step in _rows():
        for pattern in (known, hub):
            match = re.fullmatch(re.escape(pattern).replace(r"\{\}", "(.*)"), name)
            if match:
                return hub.replace("{}", match[1] if match.groups() else ""), rows, step
    return None


def hub_id(reference: str) -> str:
    """The hub id of `checkpoints/ORG/NAME`, of ORG/NAME or of a name of LitGPT's; else the reference itself."""
    parts = [part for part in reference.strip("/").split("/") if part not in ("", ".")]
    if "checkpoints" in parts:
        parts = parts[parts.index("checkpoints") + 1 :]
    name = "/".join(parts[-2:])
    found = _row(name) or (_row(parts[-1]) if parts else None)
    return found[0] if found else name


def changed(config: dict[str, Any], name: str) -> dict[str, Any]:
    """A config.json as LitGPT builds the model: untied head, padded vocabulary, gelu in one kernel."""
    changes: dict[str, Any] = {"tie_word_embeddings": False, "_name_or_path": name}
    row = _row(name)
    if row is not None:
        rows, step = row[1], row[2]
        vocabulary = config.get("vocab_size")
        if isinstance(vocabulary, int):
            # Config.__post_init__: the stated rows, or a multiple of 512 where the class says nothing else
            padded = rows or multiple(vocabulary, step or 512)
            changes["vocab_size"] = padded
    if config.get("hidden_act", "gelu_new" if config.get("model_type") == "phi" else "") == "gelu_new":
        changes["hidden_act"] = "gelu_pytorch_tanh"
    return {**config, **changes}


def quantization_of(name: str | None) -> Quantization | None:
    """LitGPT's `--quantize`; None for none, and for a name that it does not have."""
    if name and name.startswith(("bnb.nf4", "bnb.fp4")):
        return Quantization(name.removesuffix("-dq").replace(".", "-"), 4, double_quant=name.endswith("-dq"))
    return Quantization("bnb-int8", 8) if name and name.startswith("bnb.int8") else None


def lora_targets(names: Iterable[str], kind: str | None) -> list[str]:
    """The Transformers' names of `lora_query`, `lora_value` ... for a model type."""
    found = [target for name in names for target in TARGETS.get(name, ())]
    if kind in FUSED and set(names) & {"query", "key", "value"}:
        found += FUSED[kind]
    return found


def set_checkpoint(reader: Reader, *names: str) -> None:
    """`model`: the checkpoint that one of the keys names, with the head as LitGPT builds it."""
    given = reader.given(WHOLE_TEXT, *names)
    if given is None:
        reader.assumed("model", None, "no key names the checkpoint")
        return
    reference = hub_id(given.value)
    model = find_model(reference, reader.document.path, reader.project.root)
    note = f"{reference} as LitGPT builds it: the head is not tied"
    reader.set("model", given, changed(model.config, reference) if model else reference, note if model else "")
