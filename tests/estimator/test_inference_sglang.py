"""SGLang's static share of a GPU."""

from __future__ import annotations

import pytest

from gpulint.estimator.estimate_job import estimate_inference
from gpulint.estimator.serving.sglang.estimate import request_table
from gpulint.estimator.serving.sglang.profile import profile
from gpulint.estimator.serving.sglang.settings import captured_sizes
from gpulint.estimator.serving.vllm.rank_memory import RESIDUAL_MARGIN
from gpulint.hardware.catalogue import find
from gpulint.job.job import Job
from gpulint.models.resolve import resolve
from gpulint.units import GIB, MIB

from .llama import LLAMA_8B

GEMMA_3 = {**LLAMA_8B, "model_type": "gemma3_text", "head_dim": 128, "sliding_window": 1024}


def estimate(gpu="h100-80gb", tensor=1, attention=None, **fields):
    job = Job.validate(
        {
            "kind": "inference",
            "parallelism": {"tensor": tensor, "attention_tensor": attention},
            "hardware": {"gpus": tensor},
            "inference": {"engine": "sglang", **fields},
        }
    )
    return estimate_inference(job, resolve(LLAMA_8B), find(gpu) if gpu else None)


@pytest.mark.parametrize(
    ("gpu", "chunk", "reserve_mib"),
    [
        ("h100-80gb", 8192, 512 + 1.5 * 8192 + 1024 / 8 + 2 * 256 + 8 * 58),
        ("a100-40gb", 4096, 512 + 1.5 * 4096 + 1024 / 8 + 2 * 32 + 8 * 50),
        ("t4", 2048, 512 + 1.5 * 2048 + 1024 / 8 + 2 * 8 + 8 * 42),
    ],
)
def test_the_default_share_leaves_room_for_activations_and_graphs(gpu, chunk, reserve_mib):
    told = {item.field: item.value for item in estimate(gpu).assumptions}
    share = 1 - reserve_mib * 1024 * 1024 / find(gpu).total
    assert float(told["inference.gpu_memory_utilization"]) == pytest.approx(share, abs=1e-3)
    assert int(told["inference.max_num_batched_tokens"]) == chunk


@pytest.mark.parametrize(
    ("version", "gpu", "tensor", "share", "chunk"),
    [
        ("0.3.5", "l4", 8, 0.83, 8192),
        ("0.3.6", "l4", 8, 0.82, 2048),
        ("0.4.4", "h200-141gb", 8, 0.81, 8192),
        ("0.4.6", "h100-80gb", 1, 0.88, 8192),
        ("0.4.6", "h200-141gb", 8, 1 - 13 / (143771 / 1024), 8192),
        ("0.4.6.post2", "h200-141gb", 8, 1 - 18 / (143771 / 1024), 8192),
        ("0.4.6", "h100-80gb", 8, 0.81, 8192),
        ("0.4.7", "b200", 1, 0.79, 16384),
        ("0.4.9", "h100-80gb", 2, 1 - (9.5 + 2 / 2) / (81559 / 1024), 8192),
        ("0.4.7.post1", "h100-80gb", 2, 1 - (9.5 + 2 / 2) / (81559 / 1024), 8192),
        ("0.5.2", "t4", 1, 1 - (2.8 + 1 / 10) / 15, 2048),
        ("0.5.3", "rtx-4090", 1, 1 - (512 + 3072 + 128 + 32) / 24564, 2048),
        ("0.5.4.post1", "rtx-4090", 1, 1 - (512 + 3072 + 128 + 48) / 24564, 2048),
        ("0.5.10", "rtx-4090", 1, 1 - (512 + 3072 + 128 + 48 + 8 * 42) / 24564, 2048),
        ("0.5.20", "rtx-4090", 1, 1 - (512 + 6144 + 128 + 96 + 8 * 50) / 24564, 4096),
    ],
)
def test_the_default_share_follows_the_version(version, gpu, tensor, share, chunk):
    told = {item.field: item.value for item in estimate(gpu, tensor, version=version).assumptions}
    assert float(told["inference.gpu_memory_utilization"]) == pytest.approx(share, abs=1e-3)
    assert int(told["inference.max_num_batched_tokens"]) == chunk


def test_large_cards_keep_at_least_ten_gib():
    told = {item.field: item.value for item in estimate(max_num_batched_tokens=2048).assumptions}
    share = 1 - 10 * GIB / find("h100-80gb").total
    assert float(told["inference.gpu_memory_utilization"]) == pytest.approx(share, abs=1e-3)


def test_the_cache_is_the_static_share_without_what_loading_took():
    """Weights in segments of 2 MiB, all but a few of which they fill, and no table without positions."""
    found = estimate(gpu_memory_utilization=0.8)
    free = find("h100-80gb").usable - 460 * 1024 * 1024
    loaded = found.phases[0].components["weights"]
    assert found.components["kv_cache"] == pytest.approx(0.8 * free - loaded, rel=1e-6)
    assert 0 < loaded - 2 * 8_030_261_248 < 100 * MIB
    assert found.kv_cache.tokens == found.components["kv_cache"] // 131_072
    assert found.verdict == "fits"


def test_a_share_below_the_weights_is_refused():
    found = estimate(gpu_memory_utilization=0.15)
    assert found.verdict == "exceeds"
    assert found.refusal.startswith("nothing is left for the KV cache: of the static 11.8 GiB")


def test_a_refused_engine_is_not_said_to_need_a_request_of_the_longest_length():
    """SGLang starts with a cache of any size: what it lacks is a token, not 128 Ki of them."""
    found = estimate(gpu_memory_utilization=0.15)
    assert found.components["kv_cache"] == 131_072
    assert found.needed < find("h100-80gb").usable
    assert "Please try to increase --mem-fraction-static" in found.refusal


def test_around_the_share_of_the_weights_the_verdict_goes_by_what_may_be_free():
    """The free memory lies between what torch reports at least and nvidia-smi's figure, both less the context."""
    weights = 2 * 8_030_261_248
    shares = [weights / find("h100-80gb").usable * (1 + part / 1000) for part in (-60, 3, 8, 90)]
    found = [estimate(gpu_memory_utilization=share) for share in shares]
    assert [item.verdict for item in found] == ["exceeds", "tight", "tight", "fits"]
    assert [item.refusal is None for item in found] == [False, False, True, True]


def test_a_table_of_the_tokens_of_each_request_lies_beside_the_share():
    """Llama 4 Scout's ten million positions for 2,048 requests are 80 GiB (sgl-project/sglang issue 5755)."""
    assert request_table(None, 10_485_760, 100_000).size == 2048 * 10_485_764 * 4
    assert request_table(None, 8192, 40_000).size == 2500 * 8196 * 4
    assert request_table(None, 8192, 10**6).size == 4096 * 8196 * 4
    assert request_table(64, 8192, 10**6).size == 64 * 8196 * 4
    fields = {"max_model_len": 131072, "gpu_memory_utilization": 0.8, "enforce_eager": True}
    few, many = (estimate(max_num_seqs=count, **fields) for count in (8, 2048))
    assert many.components["buffers"] - few.components["buffers"] == 2040 * 131076 * 4
    assert few.kv_cache == many.kv_cache


def test_the_cache_lies_between_what_the_card_and_its_context_leave():
    found = estimate(tensor=4).kv_cache
    assert found.low < found.tokens < found.high
    stated = estimate(max_total_tokens=1000).kv_cache
    assert (stated.low, stated.tokens, stated.high) == (1000, 1000, 1000)


def test_the_static_share_of_unified_memory_is_of_what_the_machine_leaves():
    """116 GiB free on an idle machine, 101 on one without a desktop, and what the engine's processes take meanwhile."""
    found = estimate("gb10", gpu_memory_utilization=0.8).kv_cache
    spread = (found.high - found.low) * found.bytes_per_token
    margin = RESIDUAL_MARGIN * find("gb10").total
    moved = 0.8 * (121.69 - 119.56 + 116.05 - 101.3) * GIB + (2.23 + 0.51) * GIB + 2 * margin
    assert spread == pytest.approx(moved, rel=0.01)
    assert found.low < found.tokens < found.high


def test_a_desktop_may_take_of_a_card_that_is_sold_with_a_screen():
    desk, server = (estimate(gpu, gpu_memory_utilization=0.88).kv_cache for gpu in ("rtx-4090", "l40s"))
    below = [(cache.tokens - cache.low) * cache.bytes_per_token for cache in (desk, server)]
    below[1] += RESIDUAL_MARGIN * (find("rtx-4090").total - find("l40s").total)
    assert below[0] - below[1] == pytest.approx(0.88 * (1372 - 614) * MIB, rel=0.01)


def test_rotary_tables_are_float32_and_gemma_3_has_none():
    """131,072 positions less 2,048, of 128 values; Gemma 3 computes its cosines."""

    def loaded(config):
        return cached(config, max_model_len=1024).phases[0].components["weights"]

    long, short = ({**LLAMA_8B, "max_position_embeddings": length} for length in (131072, 2048))
    assert loaded(long) - loaded(short) == (131072 - 2048) * 128 * 4
    long, short = ({**GEMMA_3, "max_position_embeddings": length} for length in (131072, 2048))
    assert loaded(long) == loaded(short)


def test_a_larger_share_holds_more_tokens():
    small, large = (estimate(gpu_memory_utilization=share).kv_cache.tokens for share in (0.5, 0.9))
    assert small < large


def test_without_a_card_there_is_no_verdict():
    assert estimate(gpu=None).verdict == "unknown"


def test_data_parallel_attention_repeats_attention_its_cache_and_the_embedding():
    """8 ranks of two groups: 4 that share attention, of which each holds twice what it holds of 8."""
    together, apart = estimate(tensor=8), estimate(tensor=8, attention=4)
    model = resolve(LLAMA_8B)
    roles = ("q", "k", "v", "o", "embedding")
    size = sum(2 * len(t.layers or (0,)) * t.shape[0] * t.shape[1] for t in model.tensors if t.role in roles)
    more = apart.phases[0].components["weights"] - together.phases[0].components["weights"]
    assert more == pytest.approx(size // 8, abs=40 * MIB)
    assert apart.kv_cache.bytes_per_token == 2 * together.kv_cache.bytes_per_token


@pytest.mark.parametrize(
    ("attention", "sizes", "reserve_mib"),
    [
        (None, [1, 2, 3000], 2 * 3000 + 8 * 58),
        (1, [256], 256 * (2 + 3 * 8) + 8 * 58),
        (1, [400], 400 * (2 + 4.5 * 8) + 8 * 58),
    ],
)
def test_captured_batches_and_groups_make_the_share_smaller(attention, sizes, reserve_mib):
    found = estimate(tensor=8, attention=attention, cudagraph_capture_sizes=sizes)
    told = {item.field: item.value for item in found.assumptions}
    share = 1 - (512 + 1.5 * 8192 + 1024 + reserve_mib) * 1024 * 1024 / find("h100-80gb").total
    assert float(told["inference.gpu_memory_utilization"]) == pytest.approx(share, abs=1e-3)


STEP = 90
"""MiB of an H100 that lie between two shares of three digits, and a little."""


def shared(model=LLAMA_8B, gpu="h100-80gb", plan=None, **fields):
    """The defaulted share of a server, as MiB that it leaves of an H100."""
    job = Job.validate(
        {"kind": "inference", "parallelism": plan or {}, "inference": {"engine": "sglang", **fields}, "hardware": {}}
    )
    told = {item.field: item.value for item in estimate_inference(job, resolve(model), find(gpu)).assumptions}
    return (1 - float(told["inference.gpu_memory_utilization"])) * find(gpu).total / MIB


@pytest.mark.parametrize(
    ("version", "algorithm", "more"),
    [
        ("0.4.6", "EAGLE", 0),
        ("0.4.9", "EAGLE", 2048),
        ("0.5.2", "STANDALONE", 6144),
        ("0.5.4", "STANDALONE", 6144),
        ("0.5.4", "NGRAM", 0),
        ("0.5.4", "eagle3", 2048),
        ("0.5.10", "NEXTN", 4096 - 8 * 58),
        ("0.5.14", "NEXTN", 0),
        (None, "EAGLE", 0),
    ],
)
def test_speculation_makes_the_share_smaller_in_some_versions(version, algorithm, more):
    """From 0.5.10 to 0.5.13 it turns the capture of prefill steps off, too."""
    without, beside = (shared(version=version, speculative_algorithm=name) for name in (None, algorithm))
    assert beside - without == pytest.approx(more, abs=STEP)


def test_speculation_takes_a_twentieth_of_small_cards_and_two_gib_of_large_ones_in_0_4_7():
    assert shared(version="0.4.7", speculative_algorithm="EAGLE") == pytest.approx((1 - 0.88 * 0.95) * 81559, abs=STEP)
    large = [shared(gpu="h200-141gb", version="0.4.7", speculative_algorithm=name) for name in (None, "EAGLE")]
    assert large == pytest.approx([18 * 1024, 20 * 1024], abs=STEP)


@pytest.mark.parametrize(
    ("version", "fields", "less"),
    [
        ("0.5.9", {"enforce_eager": True}, 0),
        ("0.5.10", {"enforce_eager": True}, 0),
        ("0.5.10", {"enable_lora": True}, 8 * 58),
        ("0.5.14", {"enforce_eager": True}, 8 * 58),
        ("0.5.15", {"enforce_eager": True}, 8 * 58 + 2 * 256),
        ("0.5.15", {"enable_lora": True}, 8 * 58),
        ("0.5.16", {"enable_lora": True}, 0),
        ("0.5.21", {"max_num_seqs": 8}, 0),
        ("0.5.22", {"max_num_seqs": 8}, 2 * 248),
    ],
)
def test_graphs_that_are_not_captured_leave_the_share_larger(version, fields, less):
    assert shared(version=version) - shared(version=version, **fields) == pytest.approx(less, abs=STEP)


@pytest.mark.parametrize(("version", "more"), [("0.5.9", 0), ("0.5.10", 1536), ("0.5.16", 0), ("0.5.18", 1536)])
def test_latent_attention_keeps_more_for_captured_prefill_steps(version, more):
    plain = 512 + 1.5 * 8192 + 128 + 2 * 256
    assert shared("deepseek-ai/DeepSeek-V2-Lite", version=version) - plain == pytest.approx(more, abs=STEP)


def test_a_pipeline_captures_no_prefill_steps():
    plain = 512 + 1.5 * 8192 + 256 + 2 * 256
    assert shared(plan={"pipeline": 2}, version="0.5.18") - plain == pytest.approx(8 * 58, abs=STEP)
    assert shared(plan={"pipeline": 2}) - plain == pytest.approx(0, abs=STEP)


def cached(model, gpu="h200-141gb", tensor=1, **fields):
    job = Job.validate(
        {
            "kind": "inference",
            "parallelism": {"tensor": tensor},
            "hardware": {"gpus": tensor},
            "inference": {"engine": "sglang", **fields},
        }
    )
    return estimate_inference(job, resolve(model), find(gpu))


@pytest.mark.parametrize(
    ("version", "sliding"),
    [("0.4.9", 1), ("0.4.10", 0.8), ("0.5.7", 1), ("0.5.8", 0.8), ("0.5.10", 0.8), ("0.5.23", 0.8), (None, 0.8)],
)
def test_sliding_layers_keep_fewer_tokens_where_they_have_a_pool(version, sliding):
    """gpt-oss-20b: 12 of 24 layers slide; 8 heads of 64, key and value, two bytes."""
    found = cached("openai/gpt-oss-20b", version=version).kv_cache.bytes_per_token
    assert found == pytest.approx(12 * 8 * 64 * 2 * 2 * (1 + sliding), abs=24)


def test_the_types_with_a_pool_of_their_own_follow_the_version():
    """Gemma 3's windows had one from 0.4.9.post3 to 0.4.10, Gemma 4's have since 0.5.11; a Llama has none."""

    def shrinks(model, version):
        return cached(model, version=version).kv_cache.bytes_per_token < plain[model]

    models = ("google/gemma-3-4b-it", "google/gemma-4-12B-it")
    plain = {model: cached(model, version="0.4.9").kv_cache.bytes_per_token for model in models}
    gemma3 = ("0.4.9.post2", "0.4.9.post3", "0.4.10", "0.5.1", "0.5.4", "0.5.10", None)
    assert [shrinks(models[0], version) for version in gemma3] == [False, True, True, False, False, False, False]
    assert [shrinks(models[1], version) for version in ("0.5.10", "0.5.11", None)] == [False, True, True]


def test_sparse_attention_caches_fp8_on_blackwell():
    """975,424 tokens in 43.67 GB a GPU of eight B200 (DeepSeek-V3.2): 61 layers of 656 bytes and a key of 132."""
    model = "deepseek-ai/DeepSeek-V3.2"
    fields = {"tensor": 8, "version": "0.5.10"}
    assert cached(model, "b200", **fields).kv_cache.bytes_per_token == 61 * (656 + 132)
    assert cached(model, "h200-141gb", **fields).kv_cache.bytes_per_token == 61 * (576 * 2 + 132)
    assert cached(model, "b200", kv_cache_dtype="bfloat16", **fields).kv_cache.bytes_per_token == 61 * (576 * 2 + 132)


@pytest.mark.parametrize(
    ("version", "stated", "left"),
    [
        ("0.4.4", None, 0.95),
        ("0.4.6", None, 0.9),
        ("0.4.9", None, 0.9),
        ("0.5.2", None, 0.95 * (1 - 0.1 * (27 * 1152**2 / (24 * 1024**2) - 1))),
        ("0.4.6", 0.8, 0.9),
        ("0.5.2", 0.8, 1.0),
    ],
)
def test_a_vision_encoder_takes_from_the_share(version, stated, left):
    """Gemma 3's tower has 27 layers of width 1,152."""
    plain, seeing = (
        cached(model, version=version, gpu_memory_utilization=stated)
        for model in ("Qwen/Qwen3-4B", "google/gemma-3-4b-it")
    )

    def static(found):
        return found.peak.components["kv_cache"] + found.peak.components["weights"]

    assert static(seeing) / static(plain) == pytest.approx(left, rel=1e-3)


def test_short_convolutions_states_take_their_part_of_the_pool():
    """LFM2-700M on a card of 16 GB (SGLang 0.5.6): 4.88 GB of states, 473,854 tokens of 12,288 bytes."""
    job = Job.validate({"kind": "inference", "inference": {"engine": "sglang", "version": "0.5.6"}})
    found = estimate_inference(job, resolve("LiquidAI/LFM2-700M"), find("rtx-5060-ti-16gb"))
    assert found.kv_cache.tokens == pytest.approx(473_854, rel=0.05)


QWEN = "Qwen/Qwen2.5-7B-Instruct"


def server(**fields):
    return Job.validate({"kind": "inference", "inference": {"engine": "sglang", "max_model_len": 8192, **fields}})


def test_graphs_lie_beside_the_share():
    """Qwen2.5-7B on an RTX PRO 6000 with 0.5.11: nvidia-smi 46.1 GiB, of which graphs took 0.71 and 1.27 GB."""
    fields = {"gpu_memory_utilization": 0.45, "version": "0.5.11"}
    usual, eager = (
        estimate_inference(server(**fields, enforce_eager=flag), resolve(QWEN), find("rtx-pro-6000"))
        for flag in (False, True)
    )
    assert usual.components["kv_cache"] == eager.components["kv_cache"]
    assert usual.per_gpu.low < 47179 * MIB < usual.per_gpu.high
    assert eager.components["buffers"] < usual.components["buffers"]


@pytest.mark.parametrize(
    ("version", "fields", "sizes"),
    [
        ("0.5.11", {}, 36 + 58),
        ("0.5.9", {}, 36),
        ("0.5.9", {"speculative_algorithm": "EAGLE"}, 51),
        ("0.5.9", {"cudagraph_capture_sizes": [1, 2]}, 2),
        ("0.5.23", {"enforce_eager": True}, 0),
    ],
)
def test_as_many_batches_are_captured_as_a_server_writes_down(version, fields, sizes):
    """1, 2, 4, 8, 12, 16, 24, ..., 256 are 36; prefill steps to 8,192 tokens are 58."""
    job = server(version=version, **fields)
    assert captured_sizes(profile(version), job, resolve(QWEN), 97_000, 8192) == sizes


def test_a_float32_checkpoint_is_served_in_16_bits():
    """embeddinggemma-300m with 0.5.18: `mem usage=0.59 GB`."""
    found = estimate_inference(server(version="0.5.18"), resolve("google/embeddinggemma-300m"), find("h100-80gb"))
    assert found.components["weights"] / GIB == pytest.approx(0.59, abs=0.02)
