"""T5's last projections, which Transformers keeps out of float16 and out of bitsandbytes."""

from __future__ import annotations

import pytest

from gpulint.estimator.states.parameters import parameters
from gpulint.job.job import Adapter, Job, Parallelism, Precision, Quantization, Weights, Zero
from gpulint.models.resolve import resolve

CONFIG = {
    "model_type": "t5", "d_model": 64, "d_ff": 160, "d_kv": 16, "num_heads": 4, "num_layers": 2, "vocab_size": 100,
    "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False,
}  # fmt: skip
MODEL = resolve(CONFIG)


def dtypes(job: Job) -> dict[str, tuple[str, bool]]:
    """Dtype of each projection of the first encoder block, and whether it is packed."""
    prefix = "encoder.block.{0}.layer."
    return {
        item.name.removesuffix(".weight").rpartition(".")[2]: (item.dtype, item.packed)
        for item in parameters(job, MODEL)
        if item.name.startswith(prefix) and "norm" not in item.name and item.part == "base"
    }


@pytest.mark.parametrize(
    ("weights", "expected"), [("float16", "float32"), ("bfloat16", "bfloat16"), ("float32", "float32")]
)
def test_the_last_projection_is_never_float16(weights, expected):
    found = dtypes(Job(model=CONFIG, weights=Weights(weights)))
    assert found["wo"] == (expected, False)
    assert found["wi_0"] == found["q"] == (weights, False)


@pytest.mark.parametrize(("method", "bits"), [("bnb-int8", 8), ("bnb-nf4", 4)])
@pytest.mark.parametrize(("prepared", "expected"), [(False, "bfloat16"), (True, "float32")])
def test_bitsandbytes_packs_what_comes_before_it(method, bits, prepared, expected):
    weights = Weights("bfloat16", quantization=Quantization(method=method, bits=bits))
    adapter = Adapter(r=8, targets=["q", "v"], prepare_kbit=prepared)
    found = dtypes(Job(model=CONFIG, method="lora", adapter=adapter, weights=weights))
    assert found["wo"] == (expected, False)
    assert found["wi_0"][1]
    assert found["q"][1]


def test_deepspeed_makes_it_half_again():
    job = Job(model=CONFIG, weights=Weights("float16"), parallelism=Parallelism(zero=Zero(2)))
    job.precision = Precision(master_weights=True)
    assert dtypes(job)["wo"] == ("float16", False)


def test_it_is_the_model_type_that_asks_for_it():
    llama = resolve({"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1,
                     "num_attention_heads": 4, "vocab_size": 100})  # fmt: skip
    assert {item.dtype for item in parameters(Job(weights=Weights("float16")), llama)} == {"float16"}


FALCON = {
    "model_type": "falcon",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
}


@pytest.mark.parametrize(("release", "packed"), [("5.4.0", True), ("5.5.0", False), ("4.57.6", True)])
def test_bitsandbytes_takes_linear_layers_of_a_class_of_their_own_up_to_a_release(release, packed):
    job = Job(model=FALCON, method="lora", adapter=Adapter(), versions={"transformers": release})
    job.weights = Weights(quantization=Quantization("bnb-nf4", 4))
    found = {item.name: item.packed for item in parameters(job, resolve(FALCON)) if item.part == "base"}
    assert found["transformer.h.{0}.mlp.dense_h_to_4h.weight"] is packed
    assert found["transformer.word_embeddings.weight"] is False
