"""How images are cut up: tiles and tokens of what Transformers' own functions make of square images."""

from __future__ import annotations

import pytest

from gpulint import estimate
from gpulint.estimator.inputs import anyres
from gpulint.estimator.inputs.image_inputs import image_inputs, resolutions_of, vision_spec
from gpulint.job.job import Job
from gpulint.models.resolve import resolve

TEXT = {"model_type": "llama", "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 2,
        "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 1000}  # fmt: skip
NEXT = {"model_type": "llava_next", "text_config": TEXT}
ONE = {"model_type": "llava_onevision", "text_config": {**TEXT, "model_type": "qwen2"}}

LFM = {"model_type": "lfm2_vl", "text_config": {**TEXT, "model_type": "lfm2", "layer_types": ["full_attention"] * 2},
       "vision_config": {"vision_use_head": False}}  # fmt: skip


# image_size_to_num_patches and pack_image_features of transformers 5.23, run on real tensors
@pytest.mark.parametrize(
    ("config", "side", "tiles", "tokens"),
    [
        (NEXT, 336, 3, 1176),
        (NEXT, 672, 5, 2928),
        (NEXT, 2304, 5, 2928),
        (ONE, 384, 2, 1485),
        (ONE, 768, 5, 3699),
        (ONE, 1152, 10, 7371),
        (ONE, 2304, 37, 7371),
    ],
)
def test_an_image_is_cut_as_transformers_cuts_it(config, side, tiles, tokens):
    found = image_inputs(Job(images=1, image_pixels=side**2), resolve(config), 1)
    assert (found.images, found.places) == (tiles, tokens)


def test_padding_is_left_off():
    tall = anyres.cut(100, [(300, 100)], 100, 10, 0)
    assert (tall.tiles, tall.grid, tall.shown, tall.tokens) == (4, 300, 100, 100 + 10 * 11)


def test_of_equals_the_first_is_taken():
    assert anyres.best(300, [(300, 600), (600, 300)]) == (300, 600)
    assert anyres.best(300, [(100, 100), (200, 600)]) == (200, 600)


def test_several_images_of_a_sequence_are_no_longer_cut():
    cut = {n: image_inputs(Job(images=n, image_pixels=768**2), resolve(ONE), 2).images for n in (1, 2)}
    assert cut == {1: 2 * 5, 2: 2 * 2}
    assert image_inputs(Job(images=2, image_pixels=768**2), resolve(NEXT), 2).images == 2 * 2 * 5


def test_the_config_names_resolutions():
    model = resolve({**NEXT, "image_grid_pinpoints": [[336, 336]]})
    assert resolutions_of(model, vision_spec(model)) == [(336, 336)]
    assert image_inputs(Job(images=1), model, 1).images == 2
    model = resolve({**ONE, "vision_aspect_ratio": "anyres_max_4"})
    assert image_inputs(Job(images=1, image_pixels=2304**2), model, 1).places < 4000


def test_images_that_nobody_counts_shrink_into_their_sequence():
    model = resolve(NEXT)
    seen = {length: image_inputs(Job(sequence_length=length), model, 1) for length in (4096, 2048, 512)}
    assert seen[4096].places == 2928
    assert seen[2048].places == 1176
    assert seen[512] is None


def test_idefics_fills_its_tiles_with_any_image():
    vision = {"image_size": 384, "patch_size": 14, "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}
    model = resolve({"model_type": "idefics3", "scale_factor": 3, "text_config": TEXT, "vision_config": vision})
    for pixels in (100**2, 3000**2):
        found = image_inputs(Job(images=1, image_pixels=pixels), model, 1)
        assert (found.images, found.tokens, found.places) == (17, 81, 17 * 81)


# the functions of Lfm2VlImageProcessor, transformers 5.23, run on numbers
@pytest.mark.parametrize(
    ("side", "tiles", "tokens"),
    [(20, 1, 64), (448, 1, 196), (600, 1, 256), (719, 1, 256), (724, 5, 1280), (1086, 5, 1280), (1200, 10, 2560)],
)
def test_lfm2_cuts_large_images_and_pads_small_ones(side, tiles, tokens):
    found = anyres.squares(side, 32, None)
    assert (found.tiles, found.tokens) == (tiles, tokens)
    seen = image_inputs(Job(images=1, image_pixels=side**2), resolve(LFM), 1)
    assert (seen.images, seen.patches, seen.places) == (tiles, 1024, tokens)


def test_an_image_of_lfm2_shrinks_into_its_sequence():
    seen = {length: image_inputs(Job(sequence_length=length), resolve(LFM), 1) for length in (2048, 512, 100, 50)}
    assert [seen[length].places for length in (2048, 512, 100)] == [1280, 256, 100]
    assert seen[50] is None


def test_an_unknown_size_may_be_that_of_most_patches():
    def of(**fields: object):
        return estimate(Job(model=ONE, micro_batch_size=1, sequence_length=8192, images=1, **fields))

    unknown, most = of(), of(image_pixels=2304**2)
    assert not [note for note in most.assumptions if note.field == "images"]
    more = next(note.high for note in unknown.assumptions if note.field == "images")
    assert more == pytest.approx(most.per_gpu.allocated - unknown.per_gpu.allocated, rel=0.01)
