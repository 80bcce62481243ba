"""torchtitan's models: `[model] name` and `flavor` as an architecture of Transformers with the same shapes.

`torchtitan_models.json` is read statically from torchtitan/models/*/__init__.py (`scripts/refresh.py`).
"""

from __future__ import annotations

import json
import os
from functools import cache
from typing import Any

from ..core.decoder_config import decoder, multiple

_VOCABULARY = {"llama2": 32000, "llama3": 128256}
"""Where the flavour leaves it to the tokenizer."""


@cache
def _table() -> dict[str, dict[str, dict[str, Any]]]:
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torchtitan_models.json")
    with open(path, encoding="utf-8") as file:
        table: dict[str, dict[str, dict[str, Any]]] = json.load(file)["models"]
    return table


def families() -> tuple[str, ...]:
    """The model names of the table."""
    return tuple(_table())


def config_of(family: str, flavour: str) -> dict[str, Any] | None:
    """A config.json of the flavour; None for one that the table lacks."""
    given = _table().get(family, {}).get(flavour)
    if given is None:
        return None
    name = f"{family} {flavour}"
    vocabulary = given["vocab_size"] if given["vocab_size"] > 0 else _VOCABULARY.get(family, 128256)
    sizes: dict[str, Any] = {
        "hidden": given["dim"],
        "layers": given["n_layers"],
        "heads": given["n_heads"],
        "kv_heads": given.get("n_kv_heads"),
        "vocabulary": vocabulary,
    }
    if family in ("llama2", "llama3"):
        return decoder(name, "llama", intermediate=_feed_forward(given), tie_word_embeddings=False, **sizes)
    experts = given.get("moe_args") or {}
    if family == "qwen3":
        return _qwen3(name, given, experts, sizes)
    if family == "deepseek_v3":
        return _deepseek(name, given, experts, sizes)
    if family == "gpt_oss":
        kind = {"head_dim": given["head_dim"], "num_local_experts": experts["num_experts"]}
        kind["num_experts_per_tok"] = experts["top_k"]
        return decoder(name, "gpt_oss", intermediate=given["moe_inter_dim"], tie_word_embeddings=False, **sizes, **kind)
    return _llama4(name, given, experts, sizes)


def _feed_forward(given: dict[str, Any], parts: int = 1) -> int:
    """models/llama3/model/model.py FeedForward: 2/3 of 4 x dim, times the multiplier, over the experts that run."""
    hidden = int(2 * 4 * given["dim"] / 3)
    hidden = int((given.get("ffn_dim_multiplier") or 1) * hidden)
    return multiple(int(hidden / parts), given["multiple_of"])


def _qwen3(name: str, given: dict[str, Any], experts: dict[str, Any], sizes: dict[str, Any]) -> dict[str, Any]:
    more: dict[str, Any] = {"head_dim": given["head_dim"]}
    more["tie_word_embeddings"] = bool(given.get("enable_weight_tying"))
    if not given.get("moe_enabled"):
        return decoder(name, "qwen3", intermediate=given["hidden_dim"], **sizes, **more)
    more |= {"num_experts": experts["num_experts"], "num_experts_per_tok": experts["top_k"]}
    more["moe_intermediate_size"] = given["moe_inter_dim"]
    return decoder(name, "qwen3_moe", intermediate=given["hidden_dim"], **sizes, **more)


def _deepseek(name: str, given: dict[str, Any], experts: dict[str, Any], sizes: dict[str, Any]) -> dict[str, Any]:
    names = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    more = {key: given[key] for key in names if key in given}
    more |= {"qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, **more}
    return decoder(
        name, "deepseek_v3", intermediate=given["inter_dim"], moe_intermediate_size=given["moe_inter_dim"],
        n_routed_experts=experts["num_experts"], n_shared_experts=experts["num_shared_experts"],
        num_experts_per_tok=experts["top_k"], first_k_dense_replace=given["n_dense_layers"],
        q_lora_rank=given.get("q_lora_rank") or None, tie_word_embeddings=False, **sizes, **more,
    )  # fmt: skip


def _llama4(name: str, given: dict[str, Any], experts: dict[str, Any], sizes: dict[str, Any]) -> dict[str, Any]:
    running = experts["top_k"] + experts["num_shared_experts"] if given.get("auto_scale_hidden_dim") else 1
    return decoder(
        name, "llama4_text", intermediate=_feed_forward(given, running), intermediate_size_mlp=_feed_forward(given),
        num_local_experts=experts["num_experts"], num_experts_per_tok=experts["top_k"],
        interleave_moe_layer_step=given["interleave_moe_layer_step"], head_dim=given["dim"] // given["n_heads"],
        tie_word_embeddings=False, **sizes,
    )  # fmt: skip
