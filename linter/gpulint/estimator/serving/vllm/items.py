"""Which images or videos vLLM's profile run puts through a vision tower, by model family and release.

The budget of the encoder is max_num_batched_tokens, or one item where that is longer; as many items are run as it
holds (until 0.10.0: as it takes to fill it). Until 0.10 the items are made for max_num_batched_tokens, since 0.11 for
max_model_len, while the budget goes by max_model_len in all of them.
Source: vllm v1/worker/utils.py or multimodal/encoder_budget.py `MultiModalBudget`, v1/core/encoder_cache_manager.py,
v1/worker/gpu_model_runner.py `profile_run`, `_get_mm_dummy_batch`, in the releases of vllm/encoder.py.
"""

from __future__ import annotations

from math import isqrt
from typing import TYPE_CHECKING, Any, NamedTuple

from ....upstream.serving import vllm
from .settings import takes_items

if TYPE_CHECKING:
    from ....models.model import Model
    from .settings import Settings


class Items(NamedTuple):
    """The items of the run, all together but for `budget`, in tokens, which is the encoder's.

    `number` items of `patches` patches in all, each of `pixels` values, become `tokens` tokens of `width` elements, of
    which DeepStack's features are those beyond `out`. `hidden`, `inner` and `head_dim` are the tower's widths.
    """

    number: int
    patches: int
    pixels: int
    tokens: int
    width: int
    out: int
    hidden: int
    inner: int
    head_dim: int
    budget: int


class _Family(NamedTuple):
    """Pixels of the largest image, of the largest video (0: as many frames as fit), and pixels of a patch's side."""

    image: int
    video: int
    patch: int


_FAMILIES = {
    "qwen2_vl": _Family(12845056, 0, 14),
    "qwen2_5_vl": _Family(12845056, 0, 14),
    **dict.fromkeys(("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"), _Family(16777216, 25165824, 16)),
}
"""`max_pixels` and `size.longest_edge` of preprocessor_config.json and video_preprocessor_config.json of
Qwen/Qwen2-VL-7B-Instruct, Qwen/Qwen2.5-VL-7B-Instruct, Qwen/Qwen3-VL-8B-Instruct and Qwen/Qwen3.5-9B."""

_MERGED, _FRAMES = 2, 2
"""Patches along each side of what becomes one token, and frames of a patch (`spatial_merge_size`,
`temporal_patch_size` of the vision configs)."""

_COLOURS = 3

_TIMED = 12.5
"""Tokens that Qwen3-VL counts for each of a video's, with its time in words, until 0.12 (`get_max_video_tokens`)."""


def items(model: Model, settings: Settings) -> Items | None:
    """The items of a model's profile run; None where the family is not known or nothing runs."""
    family, config = _FAMILIES.get(model.model_type), model.config.get("vision_config")
    tower = isinstance(config, dict) and any(tensor.role == "vision" for tensor in model.tensors)
    if family is None or not tower or not settings.sees or settings.given.skip_mm_profiling:
        return None
    if not vllm.V1_ENGINE.at(settings.version):
        return None
    assert isinstance(config, dict)
    version, patch = settings.version, int(config.get("patch_size") or family.patch)
    image = _image(settings.job.image_pixels or family.image, patch, version)
    off = settings.modalities_off
    longest = {
        kind: tokens
        for kind, tokens in (("image", image), ("video", _video(family, image, patch, settings)))
        if kind not in off and tokens
    }
    if not longest:
        return None
    kind = max(longest, key=lambda name: longest[name])
    budget = max(settings.max_num_batched_tokens, longest[kind])
    number = _number(longest[kind], budget, settings, settings.job.images or None if kind == "image" else None)
    each = image if kind == "image" else _dummy(family, image, patch, settings)
    return _made(config, patch, number, each, budget)


def requests_profiled(model: Model, settings: Settings) -> int:
    """Requests of the profile run: `max_num_seqs`, each of at least a token.

    Before 0.8 no more than have room for the largest item in a batch, and one at the least, which then brings none
    (worker/model_runner.py `profile_run` of 0.6.6, `max_mm_tokens`).
    """
    requests = min(settings.max_num_seqs, settings.max_num_batched_tokens)
    family = _FAMILIES.get(model.model_type)
    if family is None or vllm.V1_ENGINE.at(settings.version) or not takes_items(model, settings.modalities_off):
        return requests
    config = model.config.get("vision_config")
    patch = int(config.get("patch_size") or family.patch) if isinstance(config, dict) else family.patch
    item = _image(settings.job.image_pixels or family.image, patch, settings.version)
    return max(1, min(requests, settings.max_num_batched_tokens // item))


def _made(config: dict[str, Any], patch: int, number: int, each: int, budget: int) -> Items:
    hidden = int(config.get("embed_dim") or config.get("hidden_size") or 0)
    out = int(config.get("out_hidden_size") or config.get("hidden_size") or 0)
    inner = int(config.get("intermediate_size") or (config.get("mlp_ratio") or 4) * hidden)
    heads = int(config.get("num_heads") or 16)
    deep = config.get("deepstack_visual_indexes")
    tokens = number * each
    return Items(
        number=number,
        patches=tokens * _MERGED**2,
        pixels=_COLOURS * _FRAMES * patch**2,
        tokens=tokens,
        width=out * (1 + (len(deep) if isinstance(deep, list) else 0)),
        out=out,
        hidden=hidden,
        inner=inner,
        head_dim=hidden // heads,
        budget=budget,
    )


def _number(tokens: int, budget: int, settings: Settings, limit: int | None) -> int:
    """Items of a batch: those that the encoder's budget holds, and that all requests may bring, `limit` each.

    Source: `MultiModalBudget._get_max_items`; before 0.10.1 `profile_run`, which rounds up.
    """
    most = settings.max_model_len // tokens if limit is None else limit
    if not vllm.BUDGETS_ITEMS.at(settings.version):
        held, brought = -(-budget // tokens), settings.max_num_seqs * (budget if limit is None else limit)
    else:
        held, brought = budget // tokens, settings.max_num_seqs * max(1, min(most, settings.max_model_len // tokens))
    return max(1, min(held, brought))


def _image(pixels: int, patch: int, version: str | None) -> int:
    """Tokens of the largest image: a square one until 0.12, since 0.13 one of any shape.

    Source: qwen2_vl.py `get_image_size_with_most_features`.
    """
    unit = patch * _MERGED
    if not vllm.ANY_SHAPE.at(version):
        return (isqrt(pixels) // unit) ** 2
    return pixels // unit**2


def _video(family: _Family, image: int, patch: int, settings: Settings) -> int:
    """Tokens that the release counts for the largest video (`get_max_video_tokens`)."""
    version = settings.version
    if family.video:
        tokens = family.video // _FRAMES // (patch * _MERGED) ** 2
        return round(tokens * _TIMED) if vllm.COUNTS_TIMES.at(version) else tokens
    length = settings.max_model_len
    if vllm.VIDEO_BESIDE_IMAGE.at(version):
        length -= 0 if "image" in settings.modalities_off else image
    return image * _pairs(length, image, version)


def _dummy(family: _Family, image: int, patch: int, settings: Settings) -> int:
    """Tokens of the video that is made for the run."""
    if family.video:
        return family.video // _FRAMES // (patch * _MERGED) ** 2
    length = settings.max_num_batched_tokens if vllm.VIDEO_BESIDE_IMAGE.at(settings.version) else settings.max_model_len
    return image * _pairs(length, image, settings.version)


def _pairs(length: int, image: int, version: str | None) -> int:
    """Pairs of frames, each as large as an image, that a length holds: 8 at the most, 7 since 0.11, and one at least.

    Source: qwen2_vl.py `_MAX_FRAMES_PER_VIDEO`, `get_num_frames_with_most_features`.
    """
    return max(1, min(length // image, 7 if vllm.SEVEN_PAIRS.at(version) else 8))
