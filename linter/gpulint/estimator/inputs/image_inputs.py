"""The images of a micro batch: how many, how many patches each is cut into, and how many tokens it becomes.

A tower with a table of positions reads images of one size: its rows, without one for the class token where there is
one. A tower without reads what the processor resizes an image to.
"""

from __future__ import annotations

from math import isqrt
from typing import TYPE_CHECKING, Any, NamedTuple

from ...source.tables import read_table
from ...upstream import nemo_automodel
from ...upstream.rl import verl
from ...upstream.stack import Stack
from ...upstream.transformers import STEP_BATCHES_AT_ONCE
from ..frameworks.frameworks import of_transformers
from . import anyres

if TYPE_CHECKING:
    from ...job.job import Job
    from ...models.model import Model, Tensor
    from .anyres import Cut

_TABLE: dict[str, dict[str, Any]] = read_table(__file__, "encoders.json")


PIXELS = 768 * 768
"""An image's size where nobody states it and the tower reads any (LLaMA-Factory's default `image_max_pixels`)."""

IMAGES = 1
"""Images of a sequence where nobody states them."""

EIGHT = 8
"""Mllama pads the patches of a tile to a multiple of this."""

MATRIX, PATCH = 2, 14
"""Dimensions of a patch embedding that is no convolution; pixels along each side of its patches (Llama 4's default)."""


class EncoderSpec(NamedTuple):
    """How a vision tower is written.

    block       `clip`: a norm before each of two branches;  `qwen`: the same over all images' patches in one row;
                `scaled`: each branch times a vector;  `packed`: all images' patches in one row under one mask
    heads, activation   the class's defaults
    norm        a name of `norms.NORMS`
    before, after   last names of the norms around the layers;  pooled the norm of the first token of each image
    rope        a name of `rope.ROPES` for the rotary embedding of queries and keys
    window      pixels along each side of what a layer attends to, but for `fullatt_block_indexes`; 0 for all
    resampled   whether positions are mixed from four rows of a table for each patch
    conv        whether a convolution joins the patches of each token; positions are sampled from a table of any size
    scores      eager attention's softmax, as in `arch_spec.ArchSpec`
    each        whether positions are looked up for every image
    leaves      what checkpointing of an adapter's base makes want a gradient (`_input_embed_layer`): `patches`, those
                with their positions (`placed`), or nothing
    """

    block: str = "clip"
    heads: int = 12
    activation: str = "gelu"
    norm: str = "layer"
    before: str = ""
    after: str = ""
    pooled: str = ""
    rope: str = ""
    window: int = 0
    resampled: bool = False
    scores: str = "float32"
    each: bool = False
    leaves: str = "patches"
    conv: bool = False


class VisionSpec(NamedTuple):
    """How a model reads what its tower makes.

    projector   a name of `projector.PROJECTORS`
    tower       the tower's row where the vision config has no model type, or that with something behind it
    layer       which layer's output is read where the config does not say, from the end; 0 for what the tower returns
    merge       patches along each side of what makes one token, where the config does not say
    masks       layers that have a mask, since images see all of themselves: `all`, or `sliding` ones where the config
                says so (`use_bidirectional_attention`)
    returned    whether the images' features are among the model's outputs
    listed      whether features come image by image, and are joined by a copy
    crosses     whether layers of the decoder attend to the images, which take no places of the sequence
    resolutions (height, width) that images of any size are fitted into and cut up from, where the config names none
    most        tiles whose features are kept in full, where the config does not say; 0 for all
    alone       whether only an image that is its sequence's only one is cut up
    split       tiles along each side of a square image of whatever size, beside one of the whole (`do_image_splitting`)
    soft        tokens that an image of any size is made to have at the most, where the config does not say
    padded      patches that each tile is padded to
    """

    projector: str
    tower: str
    layer: int = 0
    merge: int = 1
    masks: str = ""
    returned: bool = False
    listed: bool = False
    crosses: bool = False
    resolutions: tuple[tuple[int, int], ...] = ()
    most: int = 0
    alone: bool = False
    split: int = 0
    soft: int = 0
    padded: int = 0


class ImageInputs(NamedTuple):
    """The images of a micro batch.

    images      of all sequences;  patches of each;  tokens of each in the decoder
    side        patches along each side;  pixel values of each;  patch pixels along each side of a patch
    fixed       whether all images have the size that the model's table of positions is for
    merge       patches along each side of what makes one token
    tiles       of each image, each with a class token and `side` x `side` patches, that attend to each other
    cut         how each of the given images is cut up; `images` are then the tiles
    masked      pixels of the mask that the processor makes of each
    """

    images: int
    patches: int
    tokens: int
    side: int
    pixels: int
    patch: int
    fixed: bool
    merge: int
    tiles: int = 1
    cut: Cut | None = None
    masked: int = 0

    @property
    def given(self) -> int:
        """Images before they are cut up."""
        return self.images // (self.cut.tiles if self.cut is not None else 1)

    @property
    def places(self) -> int:
        """Tokens of each image before it is cut up."""
        return self.tokens if self.cut is None else self.cut.tokens

    @property
    def rows(self) -> int:
        """Patches of all images."""
        return self.images * self.patches


def vision_spec(model: Model) -> VisionSpec | None:
    """How the model reads images; None where it reads none or that is not written down here."""
    row = _TABLE["models"].get(model.model_type)
    found = VisionSpec(**row) if row is not None else None
    return found if found is not None and encoder_spec(model, found) is not None else None


def encoder_spec(model: Model, found: VisionSpec) -> EncoderSpec | None:
    """The tower of a model; None where it is not written down here.

    Its own type is that of a tower of its own name, the whole model's, or either with `_vision` behind it.
    """
    stated, rows = str(vision(model).get("model_type") or found.tower), _TABLE["towers"]
    row = rows.get(stated) or (rows.get(found.tower) if stated.startswith((found.tower, model.model_type)) else None)
    return None if row is None or not _patches(model) or not stacks(model) else EncoderSpec(**row)


MERGERS = "deepstack_merger_list."
"""The list of Qwen3-VL's further mergers, which is no stack of layers."""


def stacks(model: Model) -> dict[str, int]:
    """The tower's stacks by their names before the number, with the layers of each; {} on a pipeline's later stages."""
    counts: dict[str, int] = {}
    for tensor in model.tensors:
        if tensor.role == "vision" and tensor.layers and MERGERS not in tensor.stack:
            counts[tensor.stack] = max(counts.get(tensor.stack, 0), len(tensor.layers))
    return counts


def vision(model: Model) -> dict[str, Any]:
    """The fields of the vision tower."""
    nested = model.config.get("vision_config")
    return nested if isinstance(nested, dict) else {}


def image_inputs(job: Job, model: Model, batch: int) -> ImageInputs | None:
    """The images of `batch` sequences; None for text alone, and where a tower or a framework is not written down.

    Images that nobody counts are no larger than a sequence has places for, and none where one of fixed size is.
    """
    how = vision_spec(model)
    count = IMAGES if job.images is None else job.images
    if how is None or not count or not of_transformers(job):
        return None
    if how.crosses:
        return _tiled(model, batch * count)
    if how.soft:
        return _budgeted(model, how, batch * count)
    if how.padded:
        return _padded(job, model, how, batch * count)
    shape = _patches(model)[0].shape
    channels = _patches(model)[0].elements // shape[0]
    patch = shape[-1] if len(shape) > MATRIX else int(vision(model).get("patch_size") or PATCH)
    names = ("position_embedding.weight", "position_embeddings", "positional_embedding_vlm")
    table = next((found for name in names if (found := _named(model, name))), [])
    kind = encoder_spec(model, how)
    table = [] if kind is not None and kind.conv else table
    first = 1 if _named(model, "class_embedding") or _named(model, "cls_token") else 0
    cut = None
    if table:
        side = isqrt(table[0].shape[-2] - first)
        merged = _pooled(model, how, side)
        if how.resolutions:
            cut = _cut_up(job, model, how, patch, side)
            if cut is None:
                return None
        if how.split:
            cut = anyres.split(how.split, (side // merged) ** 2)
    else:
        merged = int(vision(model).get("spatial_merge_size") or model.config.get("spatial_merge_size") or how.merge)
        across = isqrt(job.image_pixels or PIXELS) // (patch * merged)
        most = isqrt((job.sequence_length or 0) // count)
        side = max(1, min(across, most) if most and job.images is None else across) * merged
    patches = side * side
    tokens, pixels = patches // merged**2, patches * channels
    places, tiles = (tokens, 1) if cut is None else (cut.tokens, cut.tiles)
    if table and job.images is None and job.sequence_length and places > job.sequence_length:
        return None
    fixed = bool(table) and not how.resolutions
    masked = (side * patch) ** 2 if how.split else 0
    return ImageInputs(
        batch * count * tiles, patches + first, tokens, side, pixels, patch, fixed, merged, 1, cut, masked
    )


def _budgeted(model: Model, how: VisionSpec, images: int) -> ImageInputs:
    """Gemma 4's images: square ones, as large as the budget of patches lets them be, and padded to it.

    Source: transformers 5.23 image_processing_gemma4.py `get_aspect_ratio_preserving_size`, `pad_along_first_dim`.
    """
    weight, config = _patches(model)[0], vision(model)
    merge = int(config.get("pooling_kernel_size") or POOLED)
    patches = int(model.config.get("vision_soft_tokens_per_image") or how.soft) * merge**2
    side = isqrt(patches) // merge * merge
    pixels = patches * (weight.elements // weight.shape[0])
    patch = int(config.get("patch_size") or SOFT_PATCH)
    return ImageInputs(images, patches, (side // merge) ** 2, side, pixels, patch, True, merge)


POOLED, SOFT_PATCH = 3, 16
"""Patches along each side of a soft token, pixels along each side of a patch: Gemma4VisionConfig's defaults."""


def _padded(job: Job, model: Model, how: VisionSpec, images: int) -> ImageInputs | None:
    """LFM2-VL's images: a large one is cut into tiles, each of which is padded to one number of patches."""
    config = vision(model)
    patch = int(config.get("patch_size") or SOFT_PATCH)
    factor = int(model.config.get("downsample_factor") or how.merge)
    places = job.sequence_length if job.images is None and job.sequence_length else None
    cut = anyres.squares(isqrt(job.image_pixels or PIXELS), patch * factor, places)
    if cut is None:
        return None
    tokens = cut.base // cut.tiles
    weight = _patches(model)[0]
    pixels = how.padded * weight.elements // weight.shape[0]
    side = isqrt(tokens) * factor
    return ImageInputs(images * cut.tiles, how.padded, tokens, side, pixels, patch, False, factor, 1, cut)


def _cut_up(job: Job, model: Model, how: VisionSpec, patch: int, side: int) -> Cut | None:
    """How an image is cut up; None where nobody counts images and the smallest has more tokens than its sequence."""
    if how.alone and (job.images or 0) > 1:
        return anyres.whole(side)
    resolutions, stated = resolutions_of(model, how), str(model.config.get("vision_aspect_ratio") or "")
    tile = int(vision(model).get("image_size") or side * patch)
    most = int(stated.rpartition("_")[2]) if stated.rpartition("_")[2].isdigit() else how.most
    pixels = isqrt(job.image_pixels or PIXELS)
    if job.images is None and job.sequence_length:
        return anyres.fitting(pixels, job.sequence_length, resolutions, tile, side, most)
    return anyres.cut(pixels, resolutions, tile, side, most)


def resolutions_of(model: Model, how: VisionSpec) -> list[tuple[int, int]]:
    """The (height, width) that images are fitted into, as the config has them or else the class.

    Of padded tiles, which images of any size are cut into, those that fill them.
    """
    if how.padded:
        return [(side, side) for side in anyres.SIDES]
    stated = model.config.get("image_grid_pinpoints")
    return [(int(height), int(width)) for height, width in (stated if isinstance(stated, list) else how.resolutions)]


def _tiled(model: Model, images: int) -> ImageInputs:
    """Mllama's images: each is padded to all tiles, and each tile to eight patches.

    Source: transformers 5.23 image_processing_mllama.py `pad_batches_and_tiles`, MllamaVisionModel.forward.
    """
    patch = _patches(model)[0]
    rows = _named(model, "gated_positional_embedding.embedding")[0].shape[0]
    tiles = _named(model, "pre_tile_positional_embedding.embedding.weight")[0].shape[1] // patch.shape[0]
    side, padded = isqrt(rows - 1), -(-rows // EIGHT) * EIGHT
    pixels = tiles * side * side * patch.elements // patch.shape[0]
    return ImageInputs(images, tiles * padded, tiles * rows, side, pixels, patch.shape[-1], True, 1, tiles)


def deep_layers(model: Model) -> tuple[int, ...]:
    """The layers of the tower whose outputs the decoder's first layers get (Qwen3-VL); () without such a thing."""
    if not any(MERGERS in tensor.name for tensor in model.tensors):
        return ()
    stated = vision(model).get("deepstack_visual_indexes")
    return tuple(stated) if isinstance(stated, list) else (8, 16, 24)


def _pooled(model: Model, found: VisionSpec, side: int) -> int:
    """Patches along each side of what makes one token: averaged (Gemma 3), side by side (InternVL, Llama 4), or one."""
    for ratio in (model.config.get("downsample_ratio"), vision(model).get("pixel_shuffle_ratio")):
        if isinstance(ratio, float):
            return round(1 / ratio)
    factor = model.config.get("scale_factor", model.config.get("downsample_factor"))
    if isinstance(factor, int):
        return factor
    if found.projector != "gemma3":
        return found.merge
    tokens = model.config.get("mm_tokens_per_image")
    return side // isqrt(tokens if isinstance(tokens, int) else GEMMA_TOKENS)


GEMMA_TOKENS = 256
"""Tokens of an image, where Gemma 3's config does not say (configuration_gemma3.py `mm_tokens_per_image`)."""


def _patches(model: Model) -> list[Tensor]:
    ends = (
        "patch_embed.proj.weight", "patch_embedding.weight", "patch_embeddings.projection.weight", "patch_conv.weight",
        "patch_embedding.linear.weight", "patch_embedder.input_proj.weight",
    )  # fmt: skip
    return next((found for end in ends if (found := _named(model, end))), [])


def _named(model: Model, end: str) -> list[Tensor]:
    return [tensor for tensor in model.tensors if tensor.role == "vision" and tensor.name.endswith(end)]


def of_trainer(job: Job) -> bool:
    """Whether Transformers' Trainer runs the steps, or one made of it (TRL, LLaMA-Factory, axolotl, ms-swift)."""
    stack = Stack(job)
    return of_transformers(job) and not (stack.does(nemo_automodel.BATCHES_IN_TURN) or stack.does(verl.BATCHES_IN_TURN))


def waiting(job: Job, model: Model, sequences: int) -> tuple[int, int]:
    """Bytes of the pixels of a micro batch of `sequences`, and of those of the others of its step.

    4 b images pixels, and 8 bytes for every pixel of a mask; the optimizer steps beside all of them.
    """
    found = image_inputs(job, model, sequences) if sequences else None
    if found is None or not of_trainer(job):
        return 0, 0
    size = found.images * (4 * found.pixels + 8 * found.masked)
    # accelerate's loader has put them on the GPU by then (data_loader.py `__iter__`)
    others = job.gradient_accumulation_steps - 1 if Stack(job).does(STEP_BATCHES_AT_ONCE) else 0
    return size, size * max(0, others)
