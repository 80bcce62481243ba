"""Images cut into tiles of the tower's size beside one of the whole (LLaVA-NeXT, LLaVA-OneVision, Idefics 3, SmolVLM).

Source: transformers 5.23 image_processing_utils.py `select_best_resolution`, modeling_llava_next.py `unpad_image`,
modeling_llava_onevision.py `pack_image_features`, image_processing_idefics3.py `split_images`.
"""

from __future__ import annotations

from math import isqrt, sqrt
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

BLUR = 1.1
"""How many times too long each side of the features must be for them to be scaled down (`pack_image_features`)."""


class Cut(NamedTuple):
    """What becomes of one image.

    tiles   the whole image among them;  base  tokens that are handed on as they are
    grid    patches of the tiles that it is cut into;  shown  those without what only pads
    scaled  (height, width) of the features that are handed on, each row with one more that ends it
    """

    tiles: int
    base: int
    grid: int
    shown: int
    scaled: tuple[int, int]

    @property
    def tokens(self) -> int:
        """Places that the image takes in the sequence."""
        height, width = self.scaled
        return self.base + height * (width + 1)


def whole(patches: int) -> Cut:
    """An image that is one tile, of `patches` patches along each side: they are followed by one end."""
    return Cut(1, patches * patches, 0, 0, (1, 0))


def split(sides: int, tokens: int) -> Cut:
    """An image that fills `sides` x `sides` tiles of `tokens` tokens, and one more of the whole.

    Its longest side is made `sides` tiles long whatever it was: `size.longest_edge` of Idefics3ImageProcessor is 4
    times `max_image_size`, the tower's own. Images that are not square have fewer tiles.
    """
    tiles = sides * sides + 1
    return Cut(tiles, tiles * tokens, 0, 0, (0, 0))


TILE, FEWEST, MOST, TOLERANCE = 512, 64, 256, 2.0
"""Pixels along each side of a tile, tokens that a tile has at least and at most, and how many times the most pixels an
image has before it is cut (image_processing_lfm2_vl.py `Lfm2VlImageProcessor`)."""

SIDES = (TILE, 3 * TILE)
"""Pixels along each side of square images that become the most patches: of one tile, and of nine."""


def squares(side: int, token: int, places: int | None) -> Cut | None:
    """A square image of LFM2-VL, `token` pixels along each side of a token, that has `places` tokens at most.

    A large one is cut into 2 x 2 or 3 x 3 tiles beside one of the whole (`_is_image_too_large`,
    `find_closest_aspect_ratio` of 2 to 10 tiles); another is scaled to a multiple of a token. None where none fits.
    """
    rounded = max(1, round(side / token))
    if rounded**2 > MOST * TOLERANCE:
        across = 3 if side * side > 0.5 * 9 * TILE**2 else 2
        for tiles in sorted({across, 2}, reverse=True):
            count = tiles**2 + 1
            if places is None or count * (TILE // token) ** 2 <= places:
                return Cut(count, count * (TILE // token) ** 2, 0, 0, (0, 0))
    along = min(max(rounded, isqrt(FEWEST)), isqrt(MOST))
    along = along if places is None else min(along, isqrt(places))
    return Cut(1, along * along, 0, 0, (0, 0)) if along >= isqrt(FEWEST) else None


def cut(side: int, resolutions: Iterable[tuple[int, int]], tile: int, patches: int, most: int) -> Cut:
    """A square image of `side` pixels: to the resolution that keeps most of it and wastes least.

    tile  pixels along each side of a tile, of `patches` x `patches` patches;  most  tiles whose features are kept in
    full, 0 for all
    """
    height, width = best(side, resolutions)
    rows, columns = height // tile, width // tile
    grid = rows * patches, columns * patches
    shown = _unpadded(side, *grid)
    return Cut(rows * columns + 1, patches**2, grid[0] * grid[1], shown[0] * shown[1], _scaled(shown, patches, most))


def best(side: int, resolutions: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """The (height, width) that a square image is fitted into; the first of equals."""

    def worth(size: tuple[int, int]) -> tuple[int, int]:
        effective = min(int(side * min(size[1] / side, size[0] / side)) ** 2, side * side)
        return effective, effective - size[0] * size[1]

    return max(resolutions, key=worth)


def _unpadded(side: int, height: int, width: int) -> tuple[int, int]:
    if width < height:
        shown = int(round(side * (width / side), 7))
        return height - 2 * ((height - shown) // 2), width
    shown = int(round(side * (height / side), 7))
    return height, width - 2 * ((width - shown) // 2)


def _scaled(shown: tuple[int, int], patches: int, most: int) -> tuple[int, int]:
    ratio = sqrt(shown[0] * shown[1] / (most * patches**2)) if most else 0.0
    return (int(shown[0] // ratio), int(shown[1] // ratio)) if ratio > BLUR else shown


def fitting(
    side: int, places: int, resolutions: Iterable[tuple[int, int]], tile: int, patches: int, most: int
) -> Cut | None:
    """The largest square image of at most `side` pixels a side whose tokens find `places`; None where none does."""
    sides = {side, *(isqrt(height * width) for height, width in resolutions if height == width), tile}
    cuts = [cut(each, resolutions, tile, patches, most) for each in sorted(sides, reverse=True) if each <= side]
    return next((found for found in cuts if found.tokens <= places), None)
