"""DeepSeek V4: FP4 experts beside fp8, grouped output projections, and caches of compressed entries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulint import estimate
from gpulint.estimator.serving.kv_cache import layer_caches
from gpulint.estimator.serving.pools.compressed_cache import compressed_pool
from gpulint.estimator.serving.vllm.settings import settings
from gpulint.estimator.serving.vllm.weights import made_wider
from gpulint.estimator.states.checkpoint import stored_quantization
from gpulint.estimator.states.parameters import parameters
from gpulint.estimator.states.skipping import skips
from gpulint.job.job import Inference, Job
from gpulint.models.resolve import resolve
from gpulint.units import GIB

FLASH = "deepseek-ai/DeepSeek-V4-Flash"


def served(tensor: int = 1, **inference) -> Job:
    job = Job(kind="inference", model=FLASH, inference=Inference(engine="vllm", **inference))
    job.parallelism.tensor = tensor
    job.hardware.gpu, job.hardware.gpus = "h200-141gb", tensor
    return job


def sizes(job: Job) -> dict[str, tuple[int, int]]:
    """Bytes and elements of a layer's tensors, by the last words of their names."""
    found = parameters(job, resolve(FLASH))
    return {item.name.partition("{0}.")[2]: (sum(item.pieces), item.elements // item.copies) for item in found}


def test_experts_take_half_a_byte_and_a_scale_for_32():
    found = sizes(served())
    assert stored_quantization(resolve(FLASH)).modules == {"experts": "mxfp4-linear"}
    size, elements = found["mlp.experts.gate_up_proj"]
    assert size == elements // 2 + elements // 32
    size, elements = found["self_attn.q_b_proj.weight"]
    assert elements < size < 1.01 * elements


def test_the_lists_of_modelopt_name_the_method_of_each_module():
    layers = {
        "model.layers.0.mlp.up_proj": {"quant_algo": "W4A16_NVFP4", "group_size": 16},
        "model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"},
    }
    config = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    small = {
        "model_type": "qwen3", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "head_dim": 16,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 96, "max_position_embeddings": 64,
    }  # fmt: skip
    groups = {"group_0": {"weights": {"num_bits": 8, "type": "float"}}}
    job = Job(kind="inference", model={**small, "quantization_config": {**config, "config_groups": groups}})
    job.inference = Inference(engine="vllm")
    found = {item.name.rpartition("{0}.")[2]: item for item in parameters(job, resolve(job.model))}
    assert sum(found["mlp.up_proj.weight"].pieces) == 64 * 128 * 9 // 16 + 4
    assert sum(found["self_attn.q_proj.weight"].pieces) == 64 * 64 + 4 * 64


def test_modelopt_packs_what_it_lists_and_nothing_else():
    """nvidia/Qwen3.6-27B-NVFP4: the head is listed, the vision tower and the prediction layer are not."""
    model = resolve("nvidia/Qwen3.6-27B-NVFP4")
    job = Job(kind="inference", model=model.id, inference=Inference(engine="vllm"))
    found = parameters(job, model)
    assert all(item.packed == (item.role != "vision") for item in found if item.name.endswith("proj.weight"))
    (head,) = (item for item in found if item.role == "head")
    assert sum(head.pieces) == head.elements * 9 // 16 + 4
    stored = stored_quantization(model)
    assert skips("mtp.layers.0", stored)
    assert not skips("model.language_model.layers.3.self_attn.q_proj", stored)


@pytest.mark.parametrize(
    ("name", "divided"),
    [
        ("self_attn.o_a_proj.weight", True),
        ("self_attn.o_b_proj.weight", True),
        ("self_attn.q_b_proj.weight", True),
        ("self_attn.kv_proj.weight", False),
        ("self_attn.compressor.indexer.q_b_proj.weight", False),
    ],
)
def test_ranks_divide_whole_heads_and_groups(name, divided):
    whole, half = sizes(served())[name][1], sizes(served(2))[name][1]
    assert half == (whole // 2 if divided else whole)


ENTRY, KEY, FOLDED = 576 * 65, 576 * 15, 576 * 3
"""Pages of 64 entries, of their keys for the indexer, and of 2 entries that stand for 128 tokens each."""


@pytest.mark.parametrize(
    ("version", "block"),
    [
        ("0.22.0", 22 * (ENTRY + KEY + FOLDED)),
        ("0.23.0", 22 * ENTRY + 21 * KEY + 20 * FOLDED),
        (None, 21 * (ENTRY + KEY) + 20 * FOLDED),
    ],
)
def test_five_groups_share_one_pool(version, block):
    """21 layers of entries and keys and 20 of 2 entries a block of 256 tokens; 43 windows in two groups make 22."""
    pool = compressed_pool(resolve(FLASH), version=version)
    assert pool.block_bytes == block
    assert sum(group.groups for group in pool.groups) == 5
    assert pool.bytes_per_token == pool.block_bytes // 256


@pytest.mark.parametrize(
    ("version", "pool", "batch", "tokens"),
    [("0.23.0", 32.08, 8192, 2_175_276), ("0.31.1", 47.43, 16_384, 1_728_531)],
)
def test_logs_tell_a_pool_in_requests_of_the_longest_length(version, pool, batch, tokens):
    """Two H200 NVL and eight H100: the pool is known to 0.01 GiB; the second's batches of 8,192 stand for two."""
    shape = compressed_pool(resolve(FLASH), version=version)
    low, high = (shape.concurrency(round((pool + half) * GIB), 2**18, batch) * 2**18 for half in (-0.005, 0.005))
    assert low <= tokens <= high


def test_a_request_too_long_for_two_gh200():
    """vllm#44376: 6.66 GiB for 30,000 tokens with batches of 16,384, and 13,528 tokens in 5.44 GiB."""
    shape = compressed_pool(resolve(FLASH), version="0.22.0")
    assert shape.request_bytes(30_000, 16_384) / GIB == pytest.approx(6.66, abs=0.005)


def test_vllm_makes_some_weights_wider_than_they_are_stored():
    """Two H200 NVL loaded 74.08 GiB a rank in 0.23.0."""
    terms = estimate(served(2, version="0.23.0")).terms
    weights = sum(term.size for term in terms if term.component == "weights")
    assert weights / GIB == pytest.approx(74.08, rel=0.005)
    assert made_wider(resolve("Qwen/Qwen3-8B"), parameters(served(), resolve("Qwen/Qwen3-8B"))) == 0


@given(short=st.integers(1, 60_000), more=st.integers(0, 60_000), in_flight=st.integers(1, 20_000))
def test_the_first_tokens_are_dear_and_the_rest_cheap(short, more, in_flight):
    pool = compressed_pool(resolve(FLASH))
    least, most = (pool.request_bytes(length, in_flight) for length in (short, short + more))
    assert least <= most
    if short > in_flight + 128:
        assert most - least <= (more // 256 + 1) * pool.block_bytes


def test_ranks_do_not_divide_the_cache_and_windows_do_not_grow():
    one, two = (estimate(served(count, kv_cache_dtype="fp8")).kv_cache for count in (4, 8))
    assert one.bytes_per_token == two.bytes_per_token
    first = layer_caches(resolve(FLASH))[0]
    assert (first.latent, first.fixed) == (0, 128 * 512)


@pytest.mark.parametrize(("version", "batches"), [("0.24.0", 1), ("0.26.0", 2), (None, 2)])
def test_newer_versions_keep_windows_for_two_batches(version, batches):
    model = resolve("google/gemma-3-4b-it")
    job = Job(kind="inference", inference=Inference(engine="vllm", version=version, max_num_batched_tokens=4096))
    assert settings(job, model, None).in_flight == batches * 4096
