"""Images beside the memory oracle's token ids: what a processor would hand to the model, on fake CUDA tensors.

Whatever a model reads of an image's size is known here as plain numbers: `Sizes` stands for the tensors that modelling
code calls `.tolist()` on, which a fake tensor refuses.
"""

from __future__ import annotations

import importlib
import math
import sys
from typing import Any

WINDOWED = ("qwen2_5_vl",)


class Sizes(list[int]):
    """A small tensor of sizes whose values are known."""

    def __getitem__(self, key: Any) -> Any:
        return self if isinstance(key, slice) else super().__getitem__(key)

    def __sub__(self, _: Any) -> Sizes:
        return self

    def tolist(self) -> list[int]:
        """The values themselves."""
        return list(self)


class Shapes:
    """Height and width of each image."""

    def __init__(self, sizes: list[tuple[int, int]]) -> None:
        self.sizes = sizes

    def __floordiv__(self, other: int) -> Shapes:
        return Shapes([(height // other, width // other) for height, width in self.sizes])

    def prod(self, **_: int) -> Sizes:
        """Height times width."""
        return Sizes([height * width for height, width in self.sizes])


class Grid:
    """`image_grid_thw` of images of `side` x `side` patches."""

    def __init__(self, images: int, side: int) -> None:
        self.images, self.side = images, side

    def __getitem__(self, key: Any) -> Any:
        return key[0].clone()

    def prod(self, _: int) -> Grid:
        """Patches of each image."""
        return self

    def __floordiv__(self, other: int) -> Sizes:
        return Sizes([self.side**2 // other] * self.images)


def given(torch: Any, model: Any, images: int, pixels: int, sequences: int, length: int) -> dict[str, Any]:
    """The arguments of the model's forward function that carry `images` images of `pixels` x `pixels`.

    They are the caller's for the whole step, as those of a training loop are.
    """
    unchecked()
    config = model.config
    vision = config.vision_config
    device = "cuda"
    kind = config.model_type
    if hasattr(vision, "temporal_patch_size"):
        side = pixels // vision.patch_size
        _sized(torch, kind, images, side, vision, length, sequences)
        width = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
        pixels = torch.zeros((images * side**2, width), device=device)
        return {"pixel_values": pixels, "image_grid_thw": Grid(images, side)}
    if kind == "mllama":
        return _tiled(torch, vision, images, sequences, length)
    if kind == "lfm2_vl":
        return _padded(torch, vision, images, pixels)
    if kind == "gemma4":
        return _soft(torch, config, images, sequences, length)
    if hasattr(config, "scale_factor"):
        return _split(torch, vision, images, sequences)
    if hasattr(config, "image_grid_pinpoints"):
        return _any_resolution(torch, config, images, pixels)
    if vision.model_type == "pixtral":
        torch.as_tensor = lambda sizes, **_: Shapes(sizes)
        return {
            "pixel_values": torch.zeros((images, 3, pixels, pixels), device=device),
            "image_sizes": [(pixels, pixels)] * images,
        }
    side = vision.image_size if isinstance(vision.image_size, int) else vision.image_size[0]
    dtype = next(model.parameters()).dtype if kind == "llama4" else torch.float32
    found = {"pixel_values": torch.zeros((images, 3, side, side), dtype=dtype, device=device)}
    if kind in ("gemma3", "paligemma"):
        found["token_type_ids"] = torch.zeros((sequences, length), dtype=torch.long, device=device)
    return found


def _tiled(torch: Any, vision: Any, images: int, sequences: int, length: int) -> dict[str, Any]:
    """Mllama's: all tiles of every image, and which of them each token attends to."""
    each, tiles = images // sequences, vision.max_num_tiles

    def whole(*size: int) -> Any:
        return torch.zeros((sequences, *size), dtype=torch.long, device="cuda")

    return {
        "pixel_values": torch.zeros(
            (sequences, each, tiles, vision.num_channels, vision.image_size, vision.image_size), device="cuda"
        ),
        "aspect_ratio_ids": whole(each),
        "aspect_ratio_mask": whole(each, tiles),
        "cross_attention_mask": whole(length, each, tiles),
    }


def _any_resolution(torch: Any, config: Any, images: int, pixels: int) -> dict[str, Any]:
    """LLaVA-NeXT's: the tiles of every image, behind the whole."""
    from transformers.models.llava_next.modeling_llava_next import image_size_to_num_patches

    side, sizes = config.vision_config.image_size, [(pixels, pixels)] * images
    tiles = image_size_to_num_patches(sizes[0], config.image_grid_pinpoints, side)
    return {"pixel_values": torch.zeros((images, tiles, 3, side, side), device="cuda"), "image_sizes": sizes}


def _split(torch: Any, vision: Any, images: int, sequences: int) -> dict[str, Any]:
    """Idefics 3's: 4 x 4 tiles of every image and the whole, none of them padding.

    The model leaves tiles of padding out by a mask; here an index of all takes its place, which allocates the same.
    """
    each, side = 17 * images // sequences, vision.image_size
    _counted(torch, {1: 17 * images}, sequences, each, full=True)
    return {
        "pixel_values": torch.zeros((sequences, each, vision.num_channels, side, side), device="cuda"),
        "pixel_attention_mask": torch.zeros((sequences, each, side, side), dtype=torch.long, device="cuda"),
    }


def _soft(torch: Any, config: Any, images: int, sequences: int, length: int) -> dict[str, Any]:
    """Gemma 4's: a budget of patches for each image, of which those of a square one are no padding."""
    vision = config.vision_config
    merge = vision.pooling_kernel_size
    budget = getattr(config, "vision_soft_tokens_per_image", 280)
    tokens = math.isqrt(budget) ** 2
    width = config.get_text_config().hidden_size
    _counted(torch, {2: images * tokens, 3: images * tokens * width}, images, tokens, full=False)
    rows = budget * merge**2
    return {
        "pixel_values": torch.zeros((images, rows, 3 * vision.patch_size**2), device="cuda"),
        "image_position_ids": torch.zeros((images, rows, 2), dtype=torch.long, device="cuda"),
        "mm_token_type_ids": torch.zeros((sequences, length), dtype=torch.long, device="cuda"),
    }


class Spatial(list[Sizes]):
    """Patches along each side of every tile."""

    @property
    def shape(self) -> tuple[int, int]:
        """As of the tensor that it stands for."""
        return len(self), 2


def _padded(torch: Any, vision: Any, images: int, pixels: int) -> dict[str, Any]:
    """LFM2-VL's: tiles padded to 1,024 patches, 2 x 2 and the whole of an image of 720 pixels and more each way."""
    tiles, side = (5, 32) if pixels >= 720 else (1, pixels // vision.patch_size)
    count = images * tiles
    _counted(torch, {}, 0, 0, full=side == 32)
    torch.Tensor.__index__ = lambda _: side * side
    return {
        "pixel_values": torch.zeros((count, 1024, 3 * vision.patch_size**2), device="cuda"),
        "pixel_attention_mask": torch.zeros((count, 1024), dtype=torch.long, device="cuda"),
        "spatial_shapes": Spatial([Sizes([side, side])] * count),
    }


def _counted(torch: Any, chosen: dict[int, int], lists: int, each: int, *, full: bool) -> None:
    """Known numbers where values decide: of what masks choose, by their dimensions, and in lists of `lists` numbers.

    An index takes a mask's place. `full`: no patch is padding, so that `sdpa` gets no mask.
    """
    fake = importlib.import_module("torch._subclasses").FakeTensor
    take, tolist = torch.Tensor.__getitem__, fake.tolist
    vars(importlib.import_module("transformers.masking_utils")).update(
        _ignore_bidirectional_mask_sdpa=lambda *_a, **_k: full
    )

    def item(x: Any, key: Any) -> Any:
        if not isinstance(key, torch.Tensor) or key.dtype != torch.bool or key.dim() not in chosen:
            return take(x, key)
        index = torch.zeros(chosen[key.dim()], dtype=torch.long, device="cuda")
        return take(x.flatten(0, key.dim() - 1) if key.dim() > 1 else x, index)

    torch.Tensor.__getitem__ = item
    fake.tolist = lambda x: [each] * len(x) if x.shape == (lists,) else tolist(x)


def unchecked() -> None:
    """Leave out the checks of values, which fake tensors do not have."""
    for name, module in list(sys.modules.items()):
        if name.startswith("transformers.models.") and "torch_compilable_check" in vars(module):
            vars(module)["torch_compilable_check"] = lambda *_a, **_k: None


def _sized(torch: Any, kind: str, images: int, side: int, vision: Any, length: int, sequences: int) -> None:
    """Put known sizes in the place of what the module of a Qwen model works out from the grid."""
    module = importlib.import_module(f"transformers.models.{kind}.modeling_{kind}")
    patches = images * side**2

    def zeros(*size: int, dtype: Any = torch.long) -> Any:
        return torch.zeros(size, dtype=dtype, device="cuda")

    def lens(count: int, each: int) -> Sizes:
        return Sizes([each] * count)

    replaced = {
        "get_vision_position_ids": lambda *_a, **_k: zeros(patches, 2),
        "get_vision_attention_seqlens": lambda *_a, **_k: (lens(images, side**2), side**2),
        "get_max_seqlen": lambda *_a, **_k: side**2,
        "get_vision_interpolation_indices_and_weights": lambda *_a, **_k: (
            zeros(patches, 4),
            zeros(patches, 4, dtype=torch.float32),
        ),
    }
    if kind in WINDOWED:
        merged = vision.spatial_merge_size**2
        edge = vision.window_size // vision.patch_size
        count = images * (side // edge) ** 2
        replaced["get_vision_window_index"] = lambda *_a, **_k: (zeros(patches // merged), lens(count, edge**2))
    for name, function in replaced.items():
        if hasattr(module, name):
            setattr(module, name, function)
    text: Any = next((value for name, value in vars(module).items() if name.endswith("VLTextModel")), None)
    if hasattr(text, "_deepstack_process"):
        text._deepstack_process = _deepstack  # noqa: SLF001
    whole = next(
        value for name, value in vars(module).items() if name.endswith(("VLModel", "Qwen3_5Model", "Glm4vModel"))
    )
    whole.compute_3d_position_ids = lambda *_a, **_k: zeros(3, sequences, length)


def _deepstack(_: Any, hidden: Any, mask: Any, embeds: Any) -> Any:
    """`Qwen3VLTextModel._deepstack_process` with rows by number where it has a mask, whose `nonzero` is one.

    The same look-up and assignment by an int64 index of the image's tokens.
    """
    embeds = embeds.to(hidden.dtype)
    hidden = hidden.clone()
    flat = hidden.view(-1, hidden.shape[-1])
    rows = hidden.new_zeros((len(embeds),), dtype=mask.long().dtype)
    local = flat[rows, :] + embeds
    flat[rows, :] = local
    return hidden
