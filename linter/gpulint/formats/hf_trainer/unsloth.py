"""Models that Unsloth loads and wraps in Transformers' place: `use_unsloth` of LLaMA-Factory and Firefly, AutoTrain's
`unsloth`.

Facts from unsloth 2026.8.19 (`models/llama.py`, `models/_utils.py`), LLaMA-Factory 0.9.5
(`model/model_utils/unsloth.py`) and Firefly's train.py (`load_unsloth_model`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...upstream.unsloth import CUT_CROSS_ENTROPY, FUSED_LOSS, NAME

if TYPE_CHECKING:
    from ..core.arguments import Given
    from ..core.bindings.reader import Reader

PARTS = ["qkv", "o", "mlp"]

LAYER = ["norm", "rope"]
"""What Unsloth's Triton kernels replace besides, which save and allocate as Liger's do (kernels/rms_layernorm.py,
rope_embedding.py: both gradients in place)."""


def set_unsloth(reader: Reader, given: Given, release: str, checkpointing: str) -> None:
    """What Unsloth decides, over what was read before: checkpointing, kernels, attention, the loss of plain training.

    `release` is the one that the tool is of, unless another is stated.
    Adapters are float32 over a base that stays as it was loaded. Layers with LoRA run in Unsloth's functions where
    `lora_dropout` is 0 (fused_lora.py). Its loss needs labels, which smoothing keeps from the model.
    """
    job = reader.job
    if not job.versions.get(NAME):
        reader.versions({NAME: release}, {}, "what loads the model")
    reader.set("framework", given, NAME, "Unsloth loads the model and wraps it")
    reader.set("activation_checkpointing", given, checkpointing, "Unsloth's checkpointing")
    if job.attention == "eager":
        reader.set("attention", given, "sdpa", "Unsloth's attention")
    reader.set("liger_kernels", given, True, "Unsloth's norms and rotary embedding, which allocate as Liger's do")
    reader.set("liger_parts", given, LAYER, "Unsloth's norms and rotary embedding")
    if job.adapter is not None:
        reader.set("adapter.prepare_kbit", given, False, "Unsloth leaves the base as it was loaded")
        if job.adapter.type == "lora":
            reader.set("adapter.kernels", given, [] if job.adapter.dropout else PARTS, "Unsloth's functions")
    if job.objective in ("sft", "pretrain") and job.loss.kernel != "smoothed":
        reader.set("loss.kernel", given, _loss(job.versions[NAME]), "Unsloth's loss")


def _loss(release: str) -> str:
    if FUSED_LOSS.at(release):
        return "unsloth"
    return "cut_cross_entropy" if CUT_CROSS_ENTROPY.at(release) else "unsloth_cross_entropy"
