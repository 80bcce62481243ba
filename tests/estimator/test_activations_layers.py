"""What one decoder layer keeps for backward, against arithmetic done by hand.

T tokens, h hidden, q and k widths of queries and keys, nh heads, f feed-forward width. The forms are those of published
derivations and of a memory oracle that ran the real libraries (transformers 5.23, torch 2.13).
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from gpulint.estimator.activations import replay
from gpulint.estimator.forward.network import network
from gpulint.estimator.layer_expansion import Stack
from gpulint.job.job import Adapter, Job, Loss, Precision, Quantization, Weights

B, S = 2, 256
T = B * S


def saved_per_layer(model, **fields) -> int:
    """Bytes that a layer in the middle of the stack leaves alive after its forward pass."""
    fields.setdefault("weights", Weights("bfloat16"))
    job = Job(micro_batch_size=B, sequence_length=S, **fields)
    whole = network(job, model)
    kinds, assigned = whole.kinds()
    kept = Stack(replay(whole, kinds), len(kinds), assigned).kept[0]
    return kept[3] - kept[2]


@pytest.fixture(scope="module")
def sizes(llama_8b):
    shape = llama_8b.shape
    return shape.hidden, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim, shape.heads, 14336


@pytest.fixture(scope="module")
def linear_parameters(llama_8b):
    return sum(tensor.size for tensor in llama_8b.tensors if tensor.layers is not None and tensor.linear)


AMP = {"weights": Weights("float32"), "precision": Precision("bfloat16")}


def flash(sizes):
    """Queries and output, keys and values, the log-sum-exp and the kernel's seeds."""
    _, q, k, heads, _ = sizes
    return 4 * T * q + 4 * T * k + 4 * T * heads + 24


def test_pure_16_bit(llama_8b, sizes):
    h, *_, f = sizes
    assert saved_per_layer(llama_8b) == 16 * T * h + 8 * T + flash(sizes) + 8 * T * f


def test_autocast_over_float32_keeps_a_copy_of_every_matrix(llama_8b, sizes, linear_parameters):
    h, *_, f = sizes
    assert saved_per_layer(llama_8b, **AMP) == 26 * T * h + 8 * T + 2 * linear_parameters + flash(sizes) + 8 * T * f


def test_float32_with_grouped_keys_takes_the_composite_kernel(llama_8b, sizes):
    h, q, _, heads, f = sizes
    attention = 16 * T * q + 4 * B * heads * S * S
    saved = saved_per_layer(llama_8b, weights=Weights("float32"))
    assert saved == pytest.approx(24 * T * h + 8 * T + attention + 16 * T * f, rel=1e-3)


def test_float32_without_grouping_takes_the_efficient_kernel(decoder, sizes):
    h, q, _, heads, f = sizes
    attention = 16 * T * q + 4 * B * heads * S
    saved = saved_per_layer(decoder(kv_heads=32), weights=Weights("float32"))
    assert saved == 24 * T * h + 8 * T + attention + 16 * T * f


def test_a_frozen_base_keeps_neither_products_of_norms_nor_inputs(llama_8b, sizes):
    h, q, k, _, f = sizes
    adapter = Adapter(r=16, targets=["q_proj", "v_proj"], dtype="bfloat16")
    branches = 2 * 2 * T * 16 + 2 * T * h
    saved = saved_per_layer(llama_8b, method="lora", adapter=adapter)
    assert saved == 8 * T * h + 8 * T + flash(sizes) + 6 * T * f + branches
    assert (q, k) == (4096, 1024)


def test_packed_base_after_kbit_preparation_has_a_float32_mlp(llama_8b, sizes):
    h, *_, f = sizes
    adapter = Adapter(r=16, targets=["q_proj", "v_proj"], prepare_kbit=True)
    saved = saved_per_layer(
        llama_8b,
        method="qlora",
        adapter=adapter,
        weights=Weights("bfloat16", quantization=Quantization("bnb-nf4", 4)),
        precision=Precision("bfloat16"),
    )
    branches = 2 * (2 * T * h + 2 * T * 16) + 2 * 16 * (h + 4096 + h + 1024)
    assert saved == 8 * T * h + 8 * T + flash(sizes) + 12 * T * f + branches


def test_liger(llama_8b, sizes, linear_parameters):
    h, *_, f = sizes
    liger = {"liger_kernels": True, "loss": Loss("liger")}
    assert saved_per_layer(llama_8b, **liger) == 8 * T * h + 8 * T + flash(sizes) + 6 * T * f
    saved = saved_per_layer(llama_8b, **liger, **AMP)
    assert saved == 18 * T * h + 8 * T + 2 * linear_parameters + flash(sizes) + 6 * T * f


def test_eager_scores(llama_8b, sizes):
    h, q, _, heads, f = sizes
    attention = 8 * T * q + 6 * B * heads * S * S
    assert saved_per_layer(llama_8b, attention="eager") == 16 * T * h + 8 * T + attention + 8 * T * f


@pytest.mark.parametrize(("version", "copies"), [("4.30.2", 1), ("4.31.0", 0)])
def test_scores_were_bounded_from_below_until_4_31(llama_8b, sizes, version, copies):
    """`torch.max` saves the masked scores."""
    _, _, _, heads, _ = sizes
    old = saved_per_layer(llama_8b, attention="eager", versions={"transformers": version})
    new = saved_per_layer(llama_8b, attention="eager", versions={"transformers": "4.31.0"})
    assert old - new == copies * 2 * B * heads * S * S


@pytest.mark.parametrize(
    ("model_type", "versions", "fused"),
    [
        ("llama", {"transformers": "4.36.0"}, True),
        ("llama", {"transformers": "4.35.2"}, False),
        ("mistral", {"transformers": "4.36.0"}, False),
        ("gpt2", {"transformers": "4.41.2"}, False),
        ("gpt2", {"transformers": "4.42.0", "torch": "2.1.0"}, False),
        ("gpt2", {"transformers": "4.42.0", "torch": "2.1.1"}, True),
    ],
)
def test_classes_without_sdpa_yet_make_the_scores(llama_8b, model_type, versions, fused):
    whole = network(Job(attention="sdpa", versions=versions), llama_8b._replace(model_type=model_type))
    assert whole.dims.attention.implementation == ("sdpa" if fused else "eager")


def test_frameworks_with_models_of_their_own_call_sdpa_in_any_release(llama_8b):
    job = Job(attention="sdpa", versions={"transformers": "4.35.2"}, framework="torchtune")
    assert network(job, llama_8b).dims.attention.implementation == "sdpa"


def test_a_padded_batch_keeps_a_float_mask_and_repeated_keys(llama_8b, sizes):
    h, q, _, heads, f = sizes
    attention = 8 * T * q + 4 * B * heads * S + 2 * B * S * S
    assert saved_per_layer(llama_8b, padded=True) == 16 * T * h + 8 * T + attention + 8 * T * f


@pytest.mark.parametrize(
    ("model_type", "version", "repeats"),
    [("mistral", "4.47.1", True), ("mistral", "4.48.0", False), ("llama", "4.47.1", False)],
)
def test_old_classes_repeat_keys_before_flash_attention(llama_8b, sizes, model_type, version, repeats):
    _, q, k, *_ = sizes
    model = llama_8b._replace(model_type=model_type)
    fields = {"attention": "flash_attention_2", "versions": {"transformers": version}}
    more = saved_per_layer(model, **fields) - saved_per_layer(model, attention="flash_attention_2")
    assert more == (4 * T * (q - k) if repeats else 0)


def test_a_window_shorter_than_the_sequence_does_the_same(decoder, sizes):
    model = decoder()
    windowed = model._replace(shape=model.shape._replace(windows=(128,) * 32))
    more = saved_per_layer(windowed) - saved_per_layer(model)
    h, q, k, *_ = sizes
    assert h == q
    assert more == 4 * T * q - 4 * T * k + 2 * B * S * S - 24


def test_mixture_of_experts(decoder, sizes):
    """Sorted rows, gate and up, their activation and product, outputs: 8 K f + 4 K h a token."""
    h, *_ = sizes
    saved = saved_per_layer(decoder(experts=8))
    small = 2 * T * h + 64 * T * 8 + 2 * T * 8 * 8
    exact = 16 * T * h + 8 * T + flash(sizes) + 8 * T * 2 * 14336 + 4 * T * 2 * h
    assert exact < saved < exact + small


@pytest.mark.parametrize("mode", ["full", "selective", "offload"])
def test_a_checkpointed_layer_keeps_its_input(llama_8b, sizes, mode):
    h, q, _, heads, _ = sizes
    kept = {"full": 2 * T * h, "offload": 0, "selective": 2 * T * h + 2 * T * q + 4 * T * heads}
    assert saved_per_layer(llama_8b, activation_checkpointing=mode) == kept[mode]


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_of_both_kinds_keep_as_much(llama_8b, sizes, reentrant):
    saved = saved_per_layer(llama_8b, activation_checkpointing="full", reentrant=reentrant)
    assert saved == 2 * T * sizes[0]


def test_autocast_keeps_its_copies_under_checkpointing(llama_8b, sizes, linear_parameters):
    saved = saved_per_layer(llama_8b, activation_checkpointing="full", **AMP)
    assert saved == 4 * T * sizes[0] + 2 * linear_parameters


class TestReleasesOfBitsandbytes:
    """What a layer of packed matrices keeps: up to 0.43.1 the inputs of all seven, that no float tensor saves."""

    FIELDS = {  # noqa: RUF012
        "method": "lora",
        "adapter": Adapter(r=16, targets=["q_proj"], dtype="bfloat16"),
        "weights": Weights("bfloat16", quantization=Quantization("bnb-nf4", 4)),
    }

    def test_the_inputs_of_4_bit_matrices(self, llama_8b, sizes):
        h, *_, f = sizes
        old = saved_per_layer(llama_8b, **self.FIELDS, versions={"bitsandbytes": "0.43.1"})
        new = saved_per_layer(llama_8b, **self.FIELDS, versions={"bitsandbytes": "0.43.2"})
        assert new == saved_per_layer(llama_8b, **self.FIELDS)
        # the second norm's output and the product; the adapter saves the first norm's, attention its own
        assert old - new == 2 * T * h + 2 * T * f

    def test_what_others_pack_keeps_no_input(self, llama_8b):
        gptq = Weights("bfloat16", quantization=Quantization("gptq", 4, group_size=128))
        fields = {**self.FIELDS, "weights": gptq}
        old = saved_per_layer(llama_8b, **fields, versions={"bitsandbytes": "0.43.1"})
        assert old == saved_per_layer(llama_8b, **self.FIELDS, versions={"bitsandbytes": "0.43.2"})

    def test_the_transposed_copies_of_8_bit_matrices(self, llama_8b, sizes):
        h, q, *_, f = sizes
        fields = {**self.FIELDS, "weights": Weights("bfloat16", quantization=Quantization("bnb-int8", 8))}
        old = saved_per_layer(llama_8b, **fields, versions={"bitsandbytes": "0.44.1"})
        new = saved_per_layer(llama_8b, **fields, versions={"bitsandbytes": "0.45.0"})
        assert old - new == T * (3 * h + q + 2 * h + f)


class TestCheckpointing:
    def test_every_second_product_is_kept(self, llama_8b, sizes):
        """torchtitan's: q, v, gate and down of q, k, v, o, gate, up, down, and attention's output."""
        h, q, k, heads, f = sizes
        saved = saved_per_layer(llama_8b, activation_checkpointing="selective", checkpoint_policy="every_second_matmul")
        kernel = 2 * T * q + 4 * T * heads
        assert saved == 2 * T * h + 2 * T * (q + k + f + h) + kernel

    def test_attention_that_is_fused_makes_its_inside_again_anyway(self, llama_8b):
        saved = saved_per_layer(llama_8b, activation_checkpointing="selective", checkpoint_policy="core_attention")
        assert saved == saved_per_layer(llama_8b)

    def test_scores_are_made_again_with_what_attention_repeats(self, llama_8b, sizes):
        """Megatron's `core_attn`: of eager attention queries, keys, values and the output stay."""
        h, q, k, _, f = sizes
        fields = {"activation_checkpointing": "selective", "checkpoint_policy": "core_attention"}
        saved = saved_per_layer(llama_8b, attention="eager", **fields)
        assert saved == 16 * T * h + 8 * T + 4 * T * q + 4 * T * k + 8 * T * f

    def test_every_third_layer(self, llama_8b, sizes):
        job = Job(micro_batch_size=B, sequence_length=S, weights=Weights("bfloat16"))
        job.activation_checkpointing, job.checkpoint_every = "full", 3
        whole = network(job, llama_8b)
        kinds, assigned = whole.kinds()
        kept = Stack(replay(whole, kinds), len(kinds), assigned).kept[0]
        each = [after - before for before, after in pairwise(kept)]
        assert each[5] == 2 * T * sizes[0]
        assert each[3] == each[4] == saved_per_layer(llama_8b)


class TestCompiledLayers:
    """What torch.compile's partitioner keeps of a Llama layer, read off its own partition (see compiled.py)."""

    def test_16_bit(self, llama_8b, sizes):
        h, *_, f = sizes
        assert saved_per_layer(llama_8b, compile=True) == 8 * T * h + 8 * T + flash(sizes) + 6 * T * f

    def test_no_checkpoint_keeps_less_than_eager_does(self, llama_8b):
        assert saved_per_layer(llama_8b, compile=True, **AMP) < saved_per_layer(llama_8b, **AMP)


def test_frozen_layers_save_by_what_comes_before_them(llama_8b):
    """Before the first trained layer nothing wants a gradient; behind it frozen layers save their activations."""
    adapter = Adapter("lora", 8, 16, 0.0, ["q_proj", "v_proj"], layers=[4, 5])
    job = Job(micro_batch_size=B, sequence_length=S, weights=Weights("bfloat16"), method="lora", adapter=adapter)
    whole = network(job, llama_8b)
    kinds, assigned = whole.kinds()
    kept = Stack(replay(whole, kinds), len(kinds), assigned).kept[0]
    layers = [after - before for before, after in pairwise(kept)]
    assert assigned[2] != assigned[6]
    assert layers[2] == layers[3] == 0
    assert layers[4] < layers[5]
    assert layers[6] == layers[30] > 0
