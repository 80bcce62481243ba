"""torchtune's model builders: the decoder that a `_component_` builds, and the LoRA and NF4 it comes with.

`builders.json` is read statically from torchtune's `models/*/_model_builders.py` (`scripts/refresh.py`).
Builders of models with vision towers are not in it.
"""

from __future__ import annotations

import json
import os
from functools import cache
from typing import TYPE_CHECKING, Any

from ..core.bindings.kinds import FLAG, NUMBER, POSITIVE, WHOLE_TEXT, WORDS, Unsaid
from ..core.bindings.rows import LEAVE, Derived, Fixed, Key, only, within
from ..core.coercion import as_integer, as_number
from ..core.decoder_config import decoder, multiple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ...job.job import Job
    from ..core.arguments import Arguments
    from ..core.bindings.reader import Reader

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
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "builders.json")
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


def _set_model(reader: Reader) -> None:
    component = reader.given(WHOLE_TEXT, "model._component_")
    if component is None:
        reader.assumed("model", None, "no key names the model builder")
        return
    call = _call(reader)
    if not call:
        reader.set("model", component)
        return
    note = f"the dimensions that {component.value} builds, as a {_KINDS[call['family']]} of Transformers"
    reader.set("model", component, config_of(component.value, call), note)
    if call["lora"]:
        reader.derived("method", "lora", "a builder with LoRA", "model")
    else:
        reader.derived("method", "full", "a builder without LoRA", "model")


def _call(reader: Reader) -> dict[str, Any]:
    """What the file's builder is called with; nothing for one that is not known."""
    return built(reader.value(WHOLE_TEXT, "model._component_", default=""), reader.keys.mapping("model")) or {}


def targets_of(call: dict[str, Any]) -> list[str]:
    """The modules with LoRA by Transformers' names."""
    named = call.get("lora_attn_modules")
    found = [MODULES[name] for name in (named if isinstance(named, list) else ()) if name in MODULES]
    if call.get("apply_lora_to_mlp") is True:
        found += MLP
    if call.get("apply_lora_to_output") is True:
        found.append("lm_head")
    return found


def _number(name: str, usual: float) -> Callable[[Reader], Any]:
    """What the builder itself passes on as a parameter of LoRA, else LoRA's default."""

    def source(reader: Reader) -> Any:
        stated = (as_integer if name == "lora_rank" else as_number)(_call(reader).get(name))
        return usual if stated is None else stated

    return source


def _type(reader: Reader) -> Derived:
    return Derived("dora" if _call(reader).get("use_dora") is True else "lora", "use_dora", "model")


def _set_targets(reader: Reader) -> None:
    named, targets = reader.given(WORDS, "model.lora_attn_modules"), targets_of(_call(reader))
    if named:
        reader.set("adapter.targets", named, targets)
    else:
        reader.derived("adapter.targets", targets, "apply_lora_to_mlp and apply_lora_to_output", "model")


def _packed(reader: Reader) -> Any:
    return Derived("torchao-nf4", _NF4, "model") if _call(reader).get("quantize_base") is True else LEAVE


def _pack(method: str, job: Job) -> Any:
    """NF4 is made from bf16 weights."""
    return (method in ("bnb-nf4", "torchao-nf4") and job.weights.dtype == "bfloat16") or Unsaid.OTHER


_NF4 = "NF4 of torchao: every linear layer of the decoder, not the output head"

MODEL = (
    _set_model,
    *only(
        lambda job: job.method == "lora",
        *within(
            "model",
            Key("adapter.type", "use_dora", FLAG, _type, {True: "dora", False: "lora"}),
            Key("adapter.r", "lora_rank", POSITIVE, _number("lora_rank", 8)),
            Key("adapter.alpha", "lora_alpha", NUMBER, _number("lora_alpha", 16)),
            Key("adapter.dropout", "lora_dropout", NUMBER, _number("lora_dropout", 0.0)),
            _set_targets,
            Fixed(
                "adapter.dtype",
                lambda reader: Derived(reader.job.weights.dtype, "adapters have the dtype of all weights"),
            ),
            Key(
                "weights.quantization.method", "quantize_base", FLAG, _packed, {True: "torchao-nf4"}, _pack, note=_NF4,
            ),
            Fixed(
                "weights.quantization.bits", Derived(4, _NF4, "model"),
                when=lambda job: job.weights.quantization is not None,
            ),
        ),
    ),
)  # fmt: skip
"""The model; LoRA in the dtype of all weights, DoRA with `use_dora`; torchao's NF4 under it with `quantize_base`."""
