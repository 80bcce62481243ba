"""The tables of cosines and sines that vLLM makes with the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....upstream.serving.vllm import TABLE_A_LAYER
from ...terms import Product, total

if TYPE_CHECKING:
    from ....models.model import Model

SOURCE = "vllm/model_executor/layers/rotary_embedding"

_FLOAT32 = 4
_ALIBI = frozenset({"bloom", "mpt"})
_FRACTIONS = ("partial_rotary_factor", "rotary_pct")


def rotary_products(model: Model, element: float, multimodal: int = 4, copies: int = 1) -> tuple[Product, ...]:
    """On every rank e positions rotary_dim for each distinct set of rope parameters, cosine and sine together.

    Layers with the same parameters share one `cos_sin_cache` (`get_rope`), a buffer in the model's dtype; DeepSeek V4
    has one for layers that compress and one for those that do not, in float32 (models/deepseek_v4/common/rope.py,
    deepseek_scaling_rope.py `DeepseekV4ScalingRotaryEmbedding`). Positions
    are the config's longest, whatever max_model_len is; linear, dynamic and yarn scaling multiply them, longrope
    holds the short table too, and multimodal rope has `multimodal` times as many (vllm's mrope.py: four). None for
    learned positions and ALiBi. `copies` of each table (`tables`).
    """
    shape = model.shape
    config = {**model.config, **(text if isinstance(text := model.config.get("text_config"), dict) else {})}
    learned = any(tensor.role == "position" and tensor.name.count("vision") == 0 for tensor in model.tensors)
    if not shape.max_positions or learned or config.get("alibi") or model.model_type in _ALIBI:
        return ()
    compresses = bool(config.get("compress_rope_theta"))
    each, number = (_FLOAT32, 2 * copies) if compresses else (element, copies)
    return tuple(
        Product(
            "rotary table: cosines and sines",
            each,
            (number, (_positions(shape.max_positions, rope, multimodal), "positions"), _width(model, config, rope)),
            source=SOURCE,
        )
        for rope in _ropes(config, shape.windows)
    )


def rotary_cache(model: Model, element: float, multimodal: int = 4) -> int:
    """The bytes of `rotary_products`."""
    return total(rotary_products(model, element, multimodal))


def tables(model: Model, version: str | None) -> int:
    """Tables of each kind: one, but one a layer for Gemma 2 before `get_rope`."""
    return model.shape.layers if model.model_type == "gemma2" and TABLE_A_LAYER.at(version) else 1


def _ropes(config: dict[str, Any], windows: tuple[int | None, ...]) -> list[dict[str, Any]]:
    """Distinct parameters: one set, or one for each kind of layer (Gemma 3's `rope_local_base_freq`)."""
    stated = config.get("rope_parameters") or config.get("rope_scaling")
    stated = stated if isinstance(stated, dict) else {}
    kinds = [value for value in stated.values() if isinstance(value, dict)]
    if kinds:
        return [rope for index, rope in enumerate(kinds) if rope not in kinds[:index]]
    return [stated, {}] if config.get("rope_local_base_freq") and any(windows) else [stated]


def _positions(longest: int, rope: dict[str, Any], multimodal: int) -> int:
    kind = rope.get("rope_type", rope.get("type"))
    original = rope.get("original_max_position_embeddings")
    factor = rope.get("factor")
    stretch = factor if isinstance(factor, (int, float)) and factor >= 1 else 1
    if "mrope_section" in rope:
        return multimodal * (original if kind == "yarn" and original else longest)
    if kind == "yarn" or kind == "deepseek_yarn":
        return int((original or longest) * stretch)
    if kind in ("linear", "dynamic"):
        return int(longest * stretch)
    return longest + (original or 0) if kind in ("longrope", "su") else longest


def _width(model: Model, config: dict[str, Any], rope: dict[str, Any]) -> int:
    shape = model.shape
    if shape.qk_rope_head_dim:
        return shape.qk_rope_head_dim
    if isinstance(config.get("rotary_dim"), int):
        return int(config["rotary_dim"])
    stated = [source.get(key) for source in (rope, config) for key in _FRACTIONS]
    fraction = next((value for value in stated if isinstance(value, (int, float))), 1.0)
    return int(shape.head_dim * fraction)
