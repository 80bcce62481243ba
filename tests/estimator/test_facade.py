"""`estimate`: a job's model and GPU are looked up before it is estimated."""

from __future__ import annotations

import pytest

from gpulint.estimator.estimate import NotEstimable
from gpulint.estimator.estimate_job import estimate
from gpulint.hardware.catalogue import UnknownGpu
from gpulint.job.job import Hardware, Inference, Job, Weights
from gpulint.models.model import UnknownModel

SMALL = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "tie_word_embeddings": False,
}


def job(**changes):
    return Job(model=SMALL, weights=Weights("bfloat16"), micro_batch_size=1, sequence_length=32, **changes)


def test_training_with_an_inline_model_and_a_named_gpu():
    found = estimate(job(hardware=Hardware(gpu="h100-80gb")))
    assert (found.kind, found.verdict) == ("training", "fits")
    assert found.parameters == found.trainable_parameters == 2 * 1000 * 64 + 2 * (3 * 64 * 64 + 3 * 64 * 160 + 128) + 64
    assert found.capacity.gpu == "h100-80gb"


def test_inference_goes_to_its_own_estimator():
    found = estimate(job(kind="inference", inference=Inference(batch_size=1, prompt_length=16, new_tokens=16)))
    assert found.kind == "inference"


def test_what_is_missing_or_unknown_is_said():
    with pytest.raises(NotEstimable, match="names no model"):
        estimate(Job())
    with pytest.raises(UnknownModel):
        estimate(Job(model="nobody/has-this-model"))
    with pytest.raises(UnknownGpu):
        estimate(job(hardware=Hardware(gpu="no-such-card-9000")))


@pytest.mark.parametrize("kind", ["vit", "clip", "siglip", "siglip_vision_model", "clip_vision_model", "pixtral"])
def test_an_encoder_of_images_alone_is_said_to_be_unread(kind):
    for objective in ("sft", "classification"):
        with pytest.raises(NotEstimable, match=f"a {kind} model reads images"):
            estimate(Job(model={"model_type": kind}, micro_batch_size=8, sequence_length=77, objective=objective))
