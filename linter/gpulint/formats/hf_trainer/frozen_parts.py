"""Which parts of a vision-language model a training script trains: its freeze and tune flags.

Facts from Qwen2.5-VL `qwen-vl-finetune` (`train_qwen.py`: `tune_mm_*`, off unless stated), InternVL
(`internvl_chat_finetune.py`: `freeze_backbone` is the vision model), LLaVA 1.5 and LLaVA-NeXT (`train.py`: the tower is
never trained unless stated, `freeze_backbone` is the language model, `tune_mm_mlp_adapter` trains the projector alone),
2U1's Qwen2-VL-Finetune (`freeze_vision_tower`, `freeze_llm`, `freeze_merger`), MiniCPM-V (`tune_vision`, `tune_llm`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.bindings.kinds import FLAG, WORDS

if TYPE_CHECKING:
    from ..core.arguments import Given
    from ..core.bindings.reader import Reader

_VISION = "vision|visual|audio_tower|vpm|image_encoder"
_PROJECTOR = "projector|merger|aligner|mlp1|connector|resampler"

_PATTERNS = {
    "vision": f"^(?!.*(?:{_PROJECTOR})).*(?:{_VISION})",
    "projector": _PROJECTOR,
    "llm": f"^(?!.*(?:{_VISION}|{_PROJECTOR}))",
}
"""Parameters of each part, by words in their names; a merger may stand inside the vision model."""

_FREEZES = {
    "freeze_vision_tower": "vision", "freeze_vit": "vision", "freeze_vision": "vision", "fix_vit": "vision",
    "freeze_visual_encoder": "vision", "freeze_vision_encoder": "vision", "freeze_llm": "llm",
    "freeze_language_model": "llm", "freeze_merger": "projector", "freeze_projector": "projector",
    "freeze_aligner": "projector", "freeze_multi_modal_projector": "projector", "freeze_mlp": "projector",
    "freeze_mm_mlp_adapter": "projector", "freeze_mm_projector": "projector", "freeze_connector": "projector",
}  # fmt: skip
_TUNES = {
    "tune_mm_vision": "vision", "tune_mm_mlp": "projector", "tune_mm_llm": "llm", "tune_vision": "vision",
    "tune_llm": "llm", "tune_merger": "projector", "unfreeze_mm_vision_tower": "vision",
}  # fmt: skip

_QWEN = ("tune_mm_vision", "tune_mm_mlp", "tune_mm_llm")
_INTERNVL = ("use_llm_lora", "use_backbone_lora", "freeze_mlp", "freeze_llm", "vision_select_layer")
_LLAVA = ("tune_mm_mlp_adapter", "mm_projector_type", "mm_vision_select_layer", "mm_tunable_parts")

_TUNABLE = {"mm_vision_tower": "vision", "mm_mlp_adapter": "projector", "mm_language_model": "llm"}
"""LLaVA-NeXT's words of `mm_tunable_parts`."""


def set_trainable(reader: Reader) -> None:
    """`trainable` of a full fine-tune whose flags freeze a part; nothing where no flag says so."""
    if reader.job.method != "full":
        return
    trained = {"vision": True, "projector": True, "llm": True}
    stated: Given | None = None
    if any(reader.given(FLAG, name) for name in _QWEN):
        trained = dict.fromkeys(trained, False)
    if any(reader.keys.raw(name) for name in _LLAVA):
        trained["vision"] = False
    for name, part in (*_FREEZES.items(), *_TUNES.items()):
        if given := reader.given(FLAG, name):
            stated, trained[part] = given, bool(given.value) is (name in _TUNES)
    if backbone := reader.given(FLAG, "freeze_backbone"):
        vision = any(reader.keys.raw(name) for name in _INTERNVL)
        stated, trained["vision" if vision else "llm"] = backbone, not backbone.value
    if alone := reader.on("tune_mm_mlp_adapter"):
        stated, trained = alone, {"vision": False, "projector": True, "llm": False}
    if parts := reader.given(WORDS, "mm_tunable_parts"):
        stated, trained = parts, {part: name in parts.value for name, part in _TUNABLE.items()}
    if stated is None:
        return
    kept = [part for part, is_trained in trained.items() if is_trained]
    whole = len(kept) == len(trained)
    note = "nothing is frozen" if whole else f"trains {', '.join(kept) or 'nothing'}"
    reader.set("trainable", stated, None if whole else [_PATTERNS[part] for part in kept], note)
