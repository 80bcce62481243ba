"""Which parts of a vision-language model a training script trains: its freeze and tune flags.

Facts from Qwen2.5-VL `qwen-vl-finetune` (`train_qwen.py`: `tune_mm_*`, off unless stated), InternVL
(`internvl_chat_finetune.py`: `freeze_backbone` is the vision model), LLaVA 1.5 and LLaVA-NeXT (`train.py`: the tower is
never trained unless stated, `freeze_backbone` is the language model, `tune_mm_mlp_adapter` trains the projector alone),
2U1's Qwen2-VL-Finetune (`freeze_vision_tower`, `freeze_llm`, `freeze_merger`), MiniCPM-V (`tune_vision`, `tune_llm`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..core.arguments import Given
    from .training_arguments import Run

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


def set_trainable(run: Run) -> None:
    """`trainable` of a full fine-tune whose flags freeze a part; nothing where no flag says so."""
    arguments = run.arguments
    if run.builder.job.method != "full":
        return
    trained = {"vision": True, "projector": True, "llm": True}
    stated: Given | None = None
    if any(arguments.flag(name) for name in _QWEN):
        trained = dict.fromkeys(trained, False)
    if any(arguments.raw(name) for name in _LLAVA):
        trained["vision"] = False
    for name, part in (*_FREEZES.items(), *_TUNES.items()):
        given = arguments.flag(name)
        if given:
            stated = given
            trained[part] = bool(given.value) is (name in _TUNES)
    backbone = arguments.flag("freeze_backbone")
    if backbone:
        stated = backbone
        vision = any(arguments.raw(name) for name in _INTERNVL)
        trained["vision" if vision else "llm"] = not backbone.value
    alone = arguments.flag("tune_mm_mlp_adapter")
    if alone and alone.value:
        stated, trained = alone, {"vision": False, "projector": True, "llm": False}
    parts = arguments.words("mm_tunable_parts")
    if parts:
        stated = parts
        trained = {part: any(word.strip() == name for word in parts.value) for name, part in _TUNABLE.items()}
    if stated is None:
        return
    kept = [_PATTERNS[part] for part, is_trained in trained.items() if is_trained]
    said = ", ".join(part for part, is_trained in trained.items() if is_trained) or "nothing"
    if len(kept) == len(trained):
        run.builder.from_entry("trainable", None, stated.entry, stated.key, "nothing is frozen")
    else:
        run.builder.from_entry("trainable", kept, stated.entry, stated.key, f"trains {said}")
