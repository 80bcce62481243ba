"""torchtune's model builders: the decoder that a `_component_` builds, and the LoRA and NF4 it comes with.

`torchtune_models.json` is read statically from torchtune's `models/*/_model_builders.py` (`scripts/refresh.py`).
Builders of models with vision towers are not in it.
"""

from __future__ import annotations

import json
import os
from functools import cache
from typing import TYPE_CHECKING, Any

from ..core.coercion import as_integer, as_number
from ..core.native import decoder, multiple
from ..core.placeholders import is_blank

if TYPE_CHECKING:
    from collections.abc import Collection

    from ..core.arguments import Arguments
    from ..core.native import NativeConfig

MODULES = {
    "q_proj": "q_proj",
    "k_proj": "k_proj",
    "v_proj": "v_proj",
    "output_proj": "o_proj",
}
"""`lora_attn_modules` by Transformers' names."""

MLP = ("gate_proj", "up_proj", "down_proj")

_KINDS = {
    "llama2": "llama", "llama3": "llama", "llama3_1": "llama", "llama3_2": "llama", "phi3": "llama",
    "mistral": "mistral", "gemma": "gemma", "gemma2": "gemma2", "qwen2": "qwen2", "qwen3": "qwen3",
}  # fmt: skip
"""Component builder -> the architecture of Transformers with the same layers. torchtune's phi3 has q, k, v, gate
and up projections apart (models/phi3/_component_builders.py): Llama's layer."""

_SCALED = frozenset({"llama3_1", "llama3_2"})
_TIED = frozenset({"gemma", "gemma2"})
_GELU = frozenset({"gemma", "gemma2"})


@cache
def _table() -> dict[str, dict[str, Any]]:
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torchtune_models.json")
    with open(path, encoding="utf-8") as file:
        table: dict[str, dict[str, Any]] = json.load(file)["models"]
    return table


def builders() -> Collection[str]:
    """The names of the model builders that torchtune has."""
    return _table().keys()


def built(component: str, arguments: Arguments) -> dict[str, Any] | None:
    """What a builder is called with in the end: the table's constants under the file's; None for an unknown builder."""
    row = _table().get(component)
    if row is None:
        return None
    given = {name: entry.value.plain() for name, entry in arguments.entries.items() if name != "_component_"}
    return {**row["arguments"], **given, "family": row["family"], "lora": row["lora"]}


def config_of(component: str, call: dict[str, Any]) -> dict[str, Any] | None:
    """A config.json of the model; None where a dimension is not a number."""
    sizes = {name: call.get(name) for name in ("embed_dim", "num_heads", "num_layers", "vocab_size")}
    numbers = {name: value for name, value in sizes.items() if isinstance(value, int) and value > 0}
    if len(numbers) < len(sizes):
        return None
    hidden = numbers["embed_dim"]
    family = call["family"]
    # models/llama2/_model_utils.py: scale_hidden_dim_for_mlp, 2/3 of 4 x dim in multiples of 256
    intermediate = call.get("intermediate_dim") or multiple(int(8 * hidden / 3), 256)
    more: dict[str, Any] = {
        "max_position_embeddings": call.get("max_seq_len") or 4096,
        "tie_word_embeddings": family in _TIED or bool(call.get("tie_word_embeddings")),
        "hidden_act": "gelu_pytorch_tanh" if family in _GELU else "silu",
    }
    if family in _SCALED:
        more["rope_scaling"] = {"rope_type": "llama3"}
    if call.get("head_dim"):
        more["head_dim"] = call["head_dim"]
    if family == "gemma2":
        more["sliding_window"] = call.get("sliding_window_size")
        more["final_logit_softcapping"] = call.get("final_capping_value")
        more["attn_logit_softcapping"] = call.get("hidden_capping_value")
    return decoder(
        component.rpartition(".")[2],
        _KINDS[family],
        hidden=hidden,
        layers=numbers["num_layers"],
        heads=numbers["num_heads"],
        kv_heads=call.get("num_kv_heads"),
        intermediate=intermediate,
        vocabulary=numbers["vocab_size"],
        **more,
    )


def set_model(config: NativeConfig, arguments: Arguments) -> bool:
    """Fill the model, the adapter and the quantisation; whether the model has LoRA."""
    builder = config.builder
    component = arguments.text("_component_")
    if component is None or is_blank(component.value):
        builder.assumed("model", None, "no key names the model builder")
        return False
    call = built(component.value, arguments)
    if call is None:
        config.put("model", component)
        return False
    model = config_of(component.value, call)
    note = f"the dimensions that {component.value} builds, as a {_KINDS[call['family']]} of Transformers"
    config.put("model", component, model, note)
    if not call["lora"]:
        builder.derived("method", "full", "a builder without LoRA", "model")
        return False
    set_adapter(config, arguments, call)
    return True


def targets_of(call: dict[str, Any]) -> list[str]:
    """The modules with LoRA by Transformers' names."""
    named = call.get("lora_attn_modules")
    found = [MODULES[name] for name in (named if isinstance(named, list) else ()) if name in MODULES]
    if call.get("apply_lora_to_mlp") is True:
        found += MLP
    if call.get("apply_lora_to_output") is True:
        found.append("lm_head")
    return found


def set_adapter(config: NativeConfig, arguments: Arguments, call: dict[str, Any]) -> None:
    """LoRA in the dtype of all weights, DoRA with `use_dora`; torchao's NF4 under it with `quantize_base`."""
    builder = config.builder
    builder.derived("method", "lora", "a builder with LoRA", "model")
    dora = arguments.flag("use_dora")
    builder.derived("adapter.type", "dora" if call.get("use_dora") is True else "lora", "use_dora", "model")
    if dora:
        config.put("adapter.type", dora, "dora" if dora.value else "lora")
    for part, default in (("rank", 8), ("alpha", 16), ("dropout", 0.0)):
        field, name = ("adapter.r" if part == "rank" else f"adapter.{part}"), f"lora_{part}"
        given = arguments.number(name)
        if given:
            config.put(field, given, int(given.value) if name == "lora_rank" else given.value)
        else:
            stated = as_integer(call.get(name)) if part == "rank" else as_number(call.get(name))
            builder.default(field, default if stated is None else stated)
    named = arguments.words("lora_attn_modules")
    if named:
        config.put("adapter.targets", named, targets_of(call))
    else:
        builder.derived("adapter.targets", targets_of(call), "apply_lora_to_mlp and apply_lora_to_output", "model")
    builder.derived("adapter.dtype", config.builder.job.weights.dtype, "adapters have the dtype of all weights")
    quantize = arguments.flag("quantize_base")
    if call.get("quantize_base") is True:
        note = "NF4 of torchao: every linear layer of the decoder, not the output head"
        if quantize:
            config.put("weights.quantization.method", quantize, "torchao-nf4", note)
        else:
            builder.derived("weights.quantization.method", "torchao-nf4", note, "model")
        builder.derived("weights.quantization.bits", 4, note, "model")
