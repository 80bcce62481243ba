"""What holds for every job: more work never needs less memory, and what is meant to save memory does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpulint.estimator.activations import instants
from gpulint.estimator.losses.losses import TILE_COLUMNS, TILE_ROWS
from gpulint.job.job import Adapter, Job, Loss, Parallelism, Precision, Quantization, Weights

QUIET = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

PRECISIONS = {
    "16-bit": (Weights("bfloat16"), Precision()),
    "autocast": (Weights("float32"), Precision("bfloat16")),
    "float32": (Weights("float32"), Precision()),
    "packed": (Weights("bfloat16", quantization=Quantization("bnb-nf4", 4)), Precision("bfloat16")),
}
ADAPTERS = [None, Adapter(r=8, targets=["q_proj", "v_proj"]), Adapter(r=4, targets="all-linear", dropout=0.1)]


@st.composite
def jobs(draw):
    weights, precision = PRECISIONS[draw(st.sampled_from(sorted(PRECISIONS)))]
    adapter = draw(st.sampled_from(ADAPTERS))
    if weights.quantization is not None and adapter is None:
        adapter = ADAPTERS[1]
    return Job(
        weights=replace(weights),
        precision=replace(precision),
        adapter=adapter,
        method="full" if adapter is None else "lora",
        micro_batch_size=draw(st.integers(1, 4)),
        sequence_length=draw(st.integers(1, 400)),
        gradient_accumulation_steps=draw(st.sampled_from([1, 4])),
        activation_checkpointing=draw(st.sampled_from(["none", "full", "selective", "offload"])),
        reentrant=draw(st.booleans()),
        attention=draw(st.sampled_from(["eager", "sdpa", "flash_attention_2"])),
        padded=draw(st.booleans()),
        loss=Loss(draw(st.sampled_from(["torch", "liger", "cut_cross_entropy", "chunked"]))),
        liger_kernels=draw(st.booleans()),
        objective=draw(st.sampled_from(["sft", "dpo", "orpo", "kto", "reward", "grpo"])),
    )


@pytest.fixture(scope="module")
def models(decoder, tiny):
    mixture = decoder(hidden=64, layers=3, heads=4, kv_heads=4, intermediate=96, vocabulary=500, experts=4)
    return [tiny, mixture]


def peaks(job, model):
    """The most bytes of each phase, gradients of two bytes included."""
    found = {}
    for x in instants(job, model):
        found[x.phase] = max(found.get(x.phase, 0), x.activations + x.logits + 2 * x.gradient_elements)
    return found


def kept(job, model):
    """Bytes alive, apart from logits, while the loss is computed: no gradient exists yet."""
    return max(x.activations for x in instants(job, model) if x.phase == "loss")


@QUIET
@given(job=jobs(), which=st.integers(0, 1))
def test_instants_are_sane(models, job, which):
    model = models[which]
    for x in instants(job, model):
        assert x.phase in ("forward", "loss", "backward")
        assert x.activations >= 0
        assert x.logits >= 0
        assert x.gradient_elements >= 0
        assert x.layer is None or 0 <= x.layer < model.shape.layers


@QUIET
@given(job=jobs(), which=st.integers(0, 1), more=st.integers(1, 3))
def test_a_larger_batch_never_needs_less(models, job, which, more):
    less = peaks(job, models[which])
    job.micro_batch_size += more
    for phase, size in peaks(job, models[which]).items():
        assert size >= less[phase]


@QUIET
@given(job=jobs(), which=st.integers(0, 1), more=st.integers(1, 200))
def test_a_longer_sequence_never_needs_less(models, job, which, more):
    less = peaks(job, models[which])
    job.sequence_length += more
    for phase, size in peaks(job, models[which]).items():
        assert size >= less[phase]


@QUIET
@given(job=jobs(), mode=st.sampled_from(["full", "offload", "selective"]))
def test_checkpointing_never_keeps_more(tiny, job, mode):
    job.activation_checkpointing = "none"
    without = kept(job, tiny)
    job.activation_checkpointing = mode
    assert kept(job, tiny) <= without


@QUIET
@given(job=jobs(), kernel=st.sampled_from(["liger", "cut_cross_entropy", "chunked"]))
def test_a_fused_loss_never_holds_more_logits(tiny, job, kernel):
    """But for the buffer of TRL's tiles, which is as wide for a small vocabulary."""
    job.objective, job.liger_kernels = "sft", False
    job.loss = Loss("torch")
    stock = max(x.logits for x in instants(job, tiny))
    job.loss = Loss(kernel)
    buffer = 4 * TILE_COLUMNS * min(TILE_ROWS, job.micro_batch_size * job.sequence_length) if kernel == "chunked" else 0
    assert max(x.logits for x in instants(job, tiny)) <= max(stock, buffer)


@QUIET
@given(job=jobs())
def test_cut_cross_entropy_never_needs_more(tiny, job):
    """Where the head's matmul has 16 bits anyway."""
    job.objective, job.liger_kernels, job.loss = "sft", False, Loss("torch")
    job.precision.autocast = "bfloat16"
    stock = peaks(job, tiny)
    job.loss = Loss("cut_cross_entropy")
    fused = peaks(job, tiny)
    assert max(fused.values()) <= max(stock.values())


@QUIET
@given(job=jobs())
def test_a_frozen_base_never_keeps_more(tiny, job):
    """In 16 bits throughout, with an adapter of 16 bits on two projections."""
    job.weights, job.precision, job.adapter = Weights("bfloat16"), Precision(), None
    job.activation_checkpointing = "none"
    full = kept(job, tiny)
    job.adapter = Adapter(r=2, targets=["q_proj", "v_proj"], dtype="bfloat16")
    assert kept(job, tiny) <= full


@QUIET
@given(job=jobs(), degree=st.sampled_from([2, 4]))
def test_dividing_the_work_never_needs_more(tiny, job, degree):
    whole = peaks(job, tiny)
    for plan in (Parallelism(tensor=2), Parallelism(tensor=2, sequence=True), Parallelism(context=degree)):
        job.parallelism = plan
        divided = peaks(job, tiny)
        for name in ("forward", "backward"):
            assert divided[name] <= whole[name] * 1.02 + 65536


@QUIET
@given(job=jobs())
def test_accumulating_gradients_never_needs_less(tiny, job):
    job.gradient_accumulation_steps = 1
    once = peaks(job, tiny)
    job.gradient_accumulation_steps = 8
    for phase, size in peaks(job, tiny).items():
        assert size >= once[phase]
