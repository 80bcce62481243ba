"""Encoders that vLLM leaves out of a multimodal model whose inputs of their kind are turned off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....upstream.serving.vllm import SKIPS_TOWERS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ....job.job import Job
    from ....models.model import Model
    from ...states.parameter import Parameter

_IMAGES_ALONE = ("aya_vision", "gemma3", "llama4", "llava", "llava_next", "mistral3", "phi3_v", "pixtral")
"""Model types whose tower reads no videos (vllm 0.20 models/*.py `_mark_tower_model(vllm_config, "image")`)."""


def sees(job: Job, model: Model) -> bool:
    """Whether images or videos may come, so that the vision encoder is loaded and profiled.

    A tower is left out when all kinds of input that it reads are limited to none.
    """
    given = job.inference
    off = (given.modalities_off if given else None) or []
    version = (given.version if given else None) or job.versions.get("vllm")
    videos = "video" not in off and model.model_type not in _IMAGES_ALONE
    return not SKIPS_TOWERS.at(version) or "image" not in off or videos


def takes_items(model: Model, off: Collection[str]) -> bool:
    """Whether requests may bring what a model sees or hears, of the modalities that are not `off`.

    A model that may get some is given embeddings in place of tokens, whatever a request brings
    (v1/worker/gpu_model_runner.py `supports_mm_inputs`).
    """
    roles = {tensor.role for tensor in model.tensors}
    seen = ("image",) if model.model_type in _IMAGES_ALONE else ("image", "video")
    kinds = (seen if "vision" in roles else ()) + (("audio",) if "audio" in roles else ())
    return any(kind not in off for kind in kinds)


def loaded(found: Iterable[Parameter], job: Job, model: Model) -> tuple[Parameter, ...]:
    """The parameters without those of the vision tower and its projector where it is left out."""
    if sees(job, model):
        return tuple(found)
    return tuple(item for item in found if item.role not in ("vision", "projector"))
