"""vLLM's budget: what is left for the KV cache, and when it refuses to start."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gpulint.estimator.estimate import NotEstimable
from gpulint.estimator.estimate_job import estimate_inference
from gpulint.estimator.serving.kv_cache import layer_caches
from gpulint.estimator.serving.layer_cache import LayerCache
from gpulint.estimator.serving.pools.paged_cache import paged_cache
from gpulint.estimator.serving.vllm.activations import profile_run
from gpulint.estimator.serving.vllm.memory_budget import non_kv_cache_bounds
from gpulint.estimator.serving.vllm.profile import profile, table
from gpulint.estimator.serving.vllm.rank_memory import rank_memory
from gpulint.estimator.serving.vllm.settings import captured_sizes, captures_nccl, derived_length, graphs, settings
from gpulint.hardware.catalogue import find
from gpulint.job.job import Inference, Job, Weights
from gpulint.models.model import UnknownModel
from gpulint.models.resolve import resolve
from gpulint.report.text.estimate import render
from gpulint.units import GIB, MIB

from .llama import LLAMA_8B

LLAMA_31_8B = {**LLAMA_8B, "max_position_embeddings": 131072}
GEMMA_27B_LAYERS = {
    "model_type": "gemma3_text",
    "hidden_size": 5376,
    "intermediate_size": 21504,
    "num_hidden_layers": 62,
    "num_attention_heads": 32,
    "num_key_value_heads": 16,
    "head_dim": 128,
    "vocab_size": 262208,
    "sliding_window": 1024,
    "sliding_window_pattern": 6,
    "max_position_embeddings": 131072,
}


def job(tensor=1, pipeline=1, weights=None, **fields) -> Job:
    return Job.validate(
        {
            "kind": "inference",
            "weights": weights or {},
            "parallelism": {"tensor": tensor, "pipeline": pipeline},
            "hardware": {"gpus": tensor * pipeline},
            "inference": {"engine": "vllm", **fields},
        }
    )


def estimate(job, config=LLAMA_31_8B, gpu="h100-80gb"):
    return estimate_inference(job, resolve(config), find(gpu) if gpu else None)


@pytest.mark.parametrize(
    ("version", "gpu", "utilization", "seqs", "tokens"),
    [
        ("0.33.0", "h100-80gb", 0.92, 1024, 8192),
        ("0.33.0", "b200", 0.92, 1024, 16384),
        ("0.33.0", "a100-80gb", 0.92, 256, 2048),
        ("0.33.0", "l40s", 0.92, 256, 2048),
        ("0.33.0", None, 0.92, 256, 2048),
        ("0.24.0", "gb10", 0.92, 256, 2048),
        ("0.19.1", "h200", 0.9, 1024, 8192),
        ("0.8.5", "a100-80gb", 0.9, 1024, 8192),
        ("0.8.4", "a100-80gb", 0.9, 256, 2048),
        ("0.8.4", "h200", 0.9, 1024, 8192),
        ("0.6.6", "h100-80gb", 0.9, 256, 2048),
        (None, "h100-80gb", 0.92, 1024, 8192),
    ],
)
def test_defaults_follow_the_version_and_the_card(version, gpu, utilization, seqs, tokens):
    plan = job(version=version, max_model_len=2048)
    chosen = settings(plan, resolve(LLAMA_31_8B), find(gpu) if gpu else None)
    assert (chosen.utilization, chosen.max_num_seqs, chosen.max_num_batched_tokens) == (utilization, seqs, tokens)


def test_a_batch_without_chunked_prefill_holds_the_longest_request():
    model = resolve(LLAMA_31_8B)
    assert settings(job(version="0.6.6", max_model_len=8192), model, None).max_num_batched_tokens == 8192
    assert settings(job(version="0.6.6", max_model_len=65536), model, None).max_num_batched_tokens == 2048
    assert settings(job(version="0.4.1", max_model_len=65536), model, None).max_num_batched_tokens == 65536
    assert settings(job(max_model_len=8192, chunked_prefill=False), model, None).max_num_batched_tokens == 8192


def test_a_stretched_checkpoint_that_states_no_length_does_not_start():
    """deepseek-coder-33b on two L40: 65,536 tokens in one profile run (vllm-project/vllm issue 4429)."""
    name = "deepseek-ai/deepseek-coder-33b-instruct"
    assert derived_length(resolve(name)) == 65536
    assert "65,536" in estimate(job(version="0.4.1", tensor=2), name, "l40").refusal


def test_attention_of_the_first_fp8_checkpoint_is_16_bit():
    """57.75 GiB a GPU of eight (vllm-project/vllm issue 6746), when it stored its key and value heads twice."""
    found = estimate(job(version="0.5.3", tensor=8), "meta-llama/Meta-Llama-3.1-405B-Instruct-FP8")
    twice = 126 * 16384 * 1024 * 2 * 2 / 8
    assert found.peak.components["weights"] + twice == pytest.approx(57.752 * 2**30, rel=0.001)


def test_what_is_stated_wins_over_defaults_and_defaults_are_told():
    plan = job(max_model_len=4096, max_num_seqs=16, max_num_batched_tokens=512, gpu_memory_utilization=0.5)
    chosen = settings(plan, resolve(LLAMA_31_8B), find("h100-80gb"))
    assert (chosen.max_num_seqs, chosen.max_num_batched_tokens, chosen.utilization) == (16, 512, 0.5)
    assert chosen.defaulted == ()
    told = {item.field: item.value for item in estimate(job()).assumptions}
    assert told["inference.gpu_memory_utilization"] == "0.92"
    assert told["inference.max_model_len"] == "131072"


def test_old_cards_keep_the_old_engine():
    t4 = find("t4")
    assert profile("0.8.5", t4) == profile("0.7.3")
    assert profile("0.8.5", find("l4")) != profile("0.7.3")


def test_the_length_is_the_models_own_stretched_by_its_rope():
    assert derived_length(resolve(LLAMA_31_8B)) == 131072
    stretched = {**LLAMA_31_8B, "max_position_embeddings": 32768}
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    assert derived_length(resolve({**stretched, "rope_scaling": yarn})) == 131072
    assert derived_length(resolve({**stretched, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}})) == 32768


@pytest.mark.parametrize(("kind", "length"), [("yarn", 4096 * 40), ("dynamic", 163840 * 40), ("linear", 163840 * 40)])
def test_only_yarn_stretches_the_length_before_it_was_stretched(kind, length):
    """DeepSeek-V3 states the 163,840 positions that YaRN makes of 4,096; the other kinds stretch what is stated."""
    scaling = {"type": kind, "factor": 40, "original_max_position_embeddings": 4096}
    assert (
        derived_length(resolve({**LLAMA_31_8B, "max_position_embeddings": 163840, "rope_scaling": scaling})) == length
    )


def test_a_model_without_a_longest_sequence_needs_one_stated():
    config = {key: value for key, value in LLAMA_31_8B.items() if key != "max_position_embeddings"}
    model = resolve({**config, "max_position_embeddings": None})
    if model.shape.max_positions is None:
        with pytest.raises(NotEstimable, match="max_model_len"):
            estimate_inference(job(), model, find("h100-80gb"))
    assert estimate_inference(job(max_model_len=2048), model, find("h100-80gb")).kv_cache


def test_the_cache_is_what_the_budget_leaves():
    found = estimate(job(max_model_len=8192, enforce_eager=True))
    split, gpu = found.components, find("h100-80gb")
    context = 460 * 1024 * 1024
    budget = round(0.92 * gpu.usable)
    assert sum(split.values()) == pytest.approx(budget + context, abs=1 << 20)
    assert found.per_gpu.process == sum(split.values())
    assert split["weights"] == 2 * 8_030_261_248 + 2 * 131_072 * 128
    assert found.kv_cache.bytes_per_token == 131_072
    assert found.kv_cache.tokens == split["kv_cache"] // (16 * 131_072) * 16
    assert found.kv_cache.max_concurrency == pytest.approx(found.kv_cache.tokens / 8192, abs=0.01)
    assert found.verdict == "fits"
    assert found.refusal is None
    assert [phase.name for phase in found.phases] == ["load", "profile_run", "serve"]


def test_a_start_whose_graphs_take_the_least_leaves_the_most_for_the_cache():
    """One batch size more adds 32 layers x 180 KiB to the least that is not cache, 450 expected, 1,080 to the most."""
    card, model = find("h100-80gb"), resolve(LLAMA_31_8B)
    one, two = (
        non_kv_cache_bounds(rank_memory(plan, model, card, settings(plan, model, card)))
        for plan in (job(max_model_len=4099, cudagraph_capture_sizes=sizes) for sizes in ([1], [1, 7]))
    )
    assert [most - least for least, most in zip(one, two, strict=True)] == [32 * 180 * 1024, 32 * 1080 * 1024]


def test_graphs_lie_beside_the_budget_before_0_20():
    old, new = (estimate(job(max_model_len=8192, version=v, gpu_memory_utilization=0.9)) for v in ("0.19.0", "0.20.0"))
    assert old.components["kv_cache"] - new.components["kv_cache"] == pytest.approx(
        graphs(resolve(LLAMA_31_8B), 51).expected, rel=0.01
    )
    assert old.per_gpu.process > new.per_gpu.process


def test_graphs_that_hold_nccl_s_collectives_decide_the_verdict():
    """Qwen3-30B-A3B on four A10 ran out while graphs were captured, and started without them (vLLM 0.8.5)."""
    model = resolve("Qwen/Qwen3-30B-A3B")
    alone, apart = graphs(model, 67), graphs(model, 67, nccl=True)
    assert alone.expected == apart.expected
    assert (alone.high, apart.high) == (1080 * 48 * 67 * 1024, 1201 * 48 * 67 * 1024)
    fields = {"version": "0.8.5", "tensor": 4, "max_model_len": 8192}
    verdicts = [
        estimate(job(**fields, enforce_eager=eager), "Qwen/Qwen3-30B-A3B", "a10").verdict for eager in (False, True)
    ]
    assert verdicts == ["tight", "fits"]


def test_whole_graphs_hold_nccl_s_collectives_once_more():
    """GLM-4.7 in NVFP4 on four RTX PRO 6000 ran out as the sampler was warmed up, after the graphs (vLLM 0.15.1)."""
    fields = {"version": "0.15.1", "tensor": 4}
    model = "Salyut1/GLM-4.7-NVFP4"
    both, once = (
        estimate(job(**fields, **more), model, "rtx-pro-6000").verdict
        for more in ({}, {"cudagraph_capture_sizes": [1, 2, 4, 8]})
    )
    assert (both, once) == ("tight", "fits")


@pytest.mark.parametrize(
    ("gpu", "tensor", "captures"),
    [
        ("a10", 4, True),
        ("a10", 2, False),
        ("rtx-4090", 8, True),
        ("h100-80gb", 8, False),
        ("b200", 4, False),
        ("h100-nvl", 4, True),
        ("h100-nvl", 2, False),
    ],
)
def test_collectives_are_nccl_s_among_more_than_two_cards_without_nvlink(gpu, tensor, captures):
    assert captures_nccl(job(tensor=tensor), find(gpu)) is captures
    assert not captures_nccl(job(tensor=tensor), None)


def test_the_sampler_sorts_before_0_17():
    old, new = (estimate(job(max_model_len=8192, version=version)) for version in ("0.16.0", "0.17.0"))
    before, after = (
        next(phase for phase in found.phases if phase.name == "profile_run").components for found in (old, new)
    )
    assert before["logits"] == 1024 * 128256 * 38
    assert after["logits"] < before["logits"]


@pytest.mark.parametrize(
    ("version", "fields", "runs"),
    [
        ("0.22.0", {"model_type": "qwen3"}, True),
        ("0.22.0", {"model_type": "llama"}, False),
        ("0.24.0", {"model_type": "llama"}, True),
        ("0.24.0", {"model_type": "qwen2"}, False),
        ("0.28.0", {"model_type": "qwen2"}, True),
        ("0.28.0", {"model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2}, False),
        ("0.29.0", {"model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2}, True),
    ],
)
def test_model_runner_v2_reads_logits_in_place(version, fields, runs):
    chosen = settings(job(version=version, max_model_len=2048), resolve({**LLAMA_31_8B, **fields}), find("h100-80gb"))
    assert (chosen.samplers.runs.bytes < 14) == runs
    assert chosen.samplers.most.bytes == 14
    assert chosen.profile.graphs_in_budget == (not runs or version == "0.29.0")


def test_model_runner_v2_keeps_counts_of_every_request_s_tokens():
    """consumed 15.17 GiB with weights of 15.0, an A100 with 0.31.0: 256 requests x 128,256 tokens x 4.125 B of it."""
    before, after = (estimate(job(version=version, max_model_len=2048)) for version in ("0.26.0", "0.31.0"))
    kept = after.components["buffers"] - before.components["buffers"]
    assert kept == round(4.125 * 1024 * 128256)
    eager = estimate(job(version="0.31.0", max_model_len=2048, speculative_model="none", speculative_algorithm="ngram"))
    assert eager.components["buffers"] == before.components["buffers"]


def test_an_engine_that_has_started_may_hold_nothing_of_its_run():
    found = estimate(job(version="0.31.0", max_model_len=2048))
    run = next(phase for phase in found.phases if phase.name == "profile_run").components
    assert found.per_gpu.process - found.per_gpu.low > run["activations"] + run["logits"]


def test_the_profile_run_of_published_logs_is_met():
    """Llama-3-8B on an H100: 1.26 GiB (vllm PR 10511), and 4.76 GiB with 0.11's batches (llm-d's measurements)."""
    config = {**LLAMA_31_8B, "max_position_embeddings": 8192}
    first = estimate(job(version="0.6.6"), config).phases[1].components
    assert (first["activations"] + first["logits"]) / GIB == pytest.approx(1.26, rel=0.05)
    second = estimate(job(version="0.11.0"), config).phases[1].components
    assert (second["activations"] + second["logits"]) / GIB == pytest.approx(4.76, rel=0.02)


def test_a_length_that_does_not_fit_is_refused_with_the_longest_that_does():
    found = estimate(job(), gpu="l4")
    assert found.verdict == "exceeds"
    message = re.search(r"max_model_len 131,072 .* longest that fits is ([\d,]+)", found.refusal)
    longest = int(message[1].replace(",", ""))
    assert 8192 < longest < 131072
    assert estimate(job(max_model_len=longest), gpu="l4").refusal is None
    assert estimate(job(max_model_len=longest + 32), gpu="l4").refusal is not None
    assert found.components["kv_cache"] >= 131072 * 131_072


def test_a_length_of_minus_one_is_cut_to_what_fits():
    assert estimate(job(max_model_len=-1), gpu="l4").verdict == "fits"


def test_weights_that_leave_nothing_are_refused():
    found = estimate(job(), gpu="t4")
    assert found.verdict == "exceeds"
    assert "nothing is left" in found.refusal
    assert found.kv_cache.tokens == 0


def test_a_budget_beyond_free_memory_is_refused():
    found = estimate(job(gpu_memory_utilization=1.0))
    assert found.verdict == "exceeds"
    assert "free" in found.refusal


@pytest.mark.parametrize(("share", "verdict"), [(0.97, "exceeds"), (0.92, "tight"), (0.8, "fits")])
def test_a_share_of_unified_memory_is_of_what_the_machine_leaves(share, verdict):
    found = estimate(job(gpu_memory_utilization=share, max_model_len=2048), gpu="gb10")
    assert found.verdict == verdict
    assert (found.refusal is not None) == (verdict == "exceeds")


@pytest.mark.parametrize(("gpu", "verdict"), [("rtx-4090", "tight"), ("rtx-6000-ada", "fits")])
def test_a_share_that_a_desktop_may_not_leave_free_is_tight(gpu, verdict):
    """22.04 GiB of a 4090 were free, and vLLM wanted 22.34."""
    plan = job(gpu_memory_utilization=0.95, max_model_len=2048, version="0.24.0")
    assert estimate(plan, gpu=gpu).verdict == verdict


def test_versions_before_0_9_did_not_ask_what_is_free():
    found = estimate(job(gpu_memory_utilization=1.0, version="0.8.4"))
    assert found.refusal is None
    assert found.verdict == "tight"


def test_without_a_card_the_least_need_is_told():
    found = estimate(job(max_model_len=8192), gpu=None)
    assert found.verdict == "unknown"
    assert found.components["kv_cache"] == 8192 * 131_072
    assert found.kv_cache.max_concurrency == 1.0


def test_eager_mode_has_no_graphs():
    eager, captured = (estimate(job(max_model_len=8192, enforce_eager=eager)) for eager in (True, False))
    assert eager.kv_cache.tokens > captured.kv_cache.tokens
    assert eager.components["buffers"] < captured.components["buffers"]


@pytest.mark.parametrize(
    ("version", "seqs", "sizes"),
    [("0.33.0", 256, 51), ("0.33.0", 64, 19), ("0.33.0", 1, 2), ("0.8.5", 256, 67), ("0.7.3", 256, 35)],
)
def test_captured_batch_sizes_are_counted_as_the_version_lists_them(version, seqs, sizes):
    plan = job(version=version)
    assert captured_sizes(plan.inference, profile(version), seqs) == sizes


@pytest.mark.parametrize(("seqs", "sizes"), [(256, 32 + 44), (64, 32 + 12), (8, 16), (1, 2)])
def test_interactivity_captures_every_small_batch(seqs, sizes):
    given = job(version="0.33.0", performance_mode="interactivity").inference
    listed = {*range(1, min(2 * seqs, 32) + 1), *range(8, min(2 * seqs + 1, 256), 8), *range(256, 2 * seqs + 1, 16)}
    assert captured_sizes(given, profile("0.33.0"), seqs) == len(listed) == sizes


@pytest.mark.parametrize(("seqs", "pieces", "whole"), [(256, 51, 35), (128, 35, 19), (1024, 51, 51)])
def test_batches_of_one_token_a_request_are_captured_whole_too(seqs, pieces, whole):
    """PIECEWISE=51 (largest=512), FULL=35 (largest=256); PIECEWISE=35, FULL=19: logs of 0.24.0."""
    chosen = settings(job(version="0.24.0", max_num_seqs=seqs, max_model_len=2048), resolve(LLAMA_31_8B), find("l40s"))
    assert (chosen.graph_sizes, chosen.whole_graphs) == (pieces, whole)
    older = settings(job(version="0.10.2", max_num_seqs=seqs, max_model_len=2048), resolve(LLAMA_31_8B), find("l40s"))
    assert older.whole_graphs == 0


def test_a_stated_cache_is_taken_as_it_is():
    found = estimate(job(max_model_len=8192, kv_cache_memory_bytes=4 * GIB))
    assert found.components["kv_cache"] == 4 * GIB
    assert found.verdict == "fits"
    assert estimate(job(max_model_len=8192, kv_cache_memory_bytes=70 * GIB)).verdict == "exceeds"


def test_an_eight_bit_cache_holds_twice_the_tokens():
    half, whole = (estimate(job(max_model_len=8192, kv_cache_dtype=dtype)).kv_cache for dtype in ("fp8", "auto"))
    assert half.bytes_per_token * 2 == whole.bytes_per_token
    assert half.tokens == pytest.approx(2 * whole.tokens, rel=1e-3)


def test_lora_slots_and_offload_move_bytes():
    plain = estimate(job(max_model_len=8192))
    slots = estimate(job(max_model_len=8192, enable_lora=True, max_loras=2, max_lora_rank=64))
    widths = 32 * (4096 * 2 + (4096 + 1024) * 2 + 4096 * 2 + 3 * (4096 + 14336)) + 2 * (128256 + 4096)
    assert slots.components["adapter"] == 2 * 64 * 2 * widths
    assert slots.kv_cache.tokens < plain.kv_cache.tokens
    offloaded = estimate(job(max_model_len=8192, cpu_offload_gb=8))
    assert 0 <= plain.components["weights"] - offloaded.components["weights"] - 8 * GIB < 225 * MIB
    assert offloaded.host == 8 * GIB


def test_hybrid_models_share_one_pool_between_kinds_of_layers():
    """62 layers, every sixth full: groups of 10, one full and six sliding (573,440 B a token in a published log)."""
    caches = layer_caches(resolve(GEMMA_27B_LAYERS))
    pool = paged_cache(caches, 2.0, 16, group_ratio=1.0)
    assert sum(group.groups for group in pool.groups) == 7
    assert pool.bytes_per_token == 573_440
    assert pool.tokens(round(88.51 * GIB), 131_072) == pytest.approx(165_712, rel=1e-3)
    long, short = (pool.request_bytes(length, 8192) for length in (131072, 16384))
    assert long < 8 * short


def test_narrower_layers_have_longer_blocks():
    """Gemma-4-31B, 28.41 GiB: 97,541 tokens in requests of 32,768 (vLLM 0.23, RTX PRO 6000).

    Its windowed layers cache 16 x 512 elements a token, the others 4 x 1,024: blocks of 16 and of 32 tokens.
    """
    sliding, full = LayerCache(16, 512, window=1024), LayerCache(4, 1024)
    pool = paged_cache([sliding] * 50 + [full] * 10, 2.0, 16, group_ratio=1.5)
    assert pool.block_bytes == 10 * 16 * 16384
    assert pool.concurrency(round(28.41 * GIB), 32768, 8192) * 32768 == pytest.approx(97541, rel=0.002)
    assert pool.bytes_per_token == 50 * 16384 + 10 * 8192


def test_the_log_counts_whole_requests_since_0_20_2():
    """A hybrid model's windows hold few tokens of a long request, so the pool holds more of them."""
    fields = {"max_model_len": 65536, "kv_cache_memory_bytes": 40 * GIB}
    old, new = (estimate(job(version=version, **fields), GEMMA_27B_LAYERS).kv_cache for version in ("0.20.0", "0.20.2"))
    assert new.tokens == pytest.approx(new.max_concurrency * 65536, rel=0.01)
    assert old.tokens == pytest.approx(40 * GIB / old.bytes_per_token, rel=0.01)
    assert new.tokens > 3 * old.tokens
    plain = [estimate(job(version=version, **fields)).kv_cache.tokens for version in ("0.20.0", "0.20.2")]
    assert plain[1] == pytest.approx(plain[0], rel=1e-3)


@pytest.mark.parametrize(
    ("version", "needed"),
    [("0.9.2", 240), ("0.10.0", None), ("0.10.1", 240), ("0.13.0", 240), ("0.14.0", None), (None, None)],
)
def test_llama_4_keeps_whole_sequences_in_some_releases(version, needed):
    """The log of one of 8 ranks says of 10,485,760 tokens that "240.00 GiB KV cache is needed", and refuses."""
    scout = estimate(job(tensor=8, version=version), "meta-llama/Llama-4-Scout-17B-16E-Instruct", "h200-141gb")
    assert (scout.refusal is not None) == (needed is not None)
    if needed is not None:
        assert scout.components["kv_cache"] / GIB == pytest.approx(needed, rel=1e-3)


def test_a_draft_model_takes_weights_and_cache():
    """Llama-3.2-1B drafts: 1,235,814,400 parameters, and 16 layers of 8 heads of 64 in the cache."""
    alone = estimate(job(max_model_len=4096))
    drafted = estimate(job(max_model_len=4096, speculative_model="meta-llama/Llama-3.2-1B"))
    added = drafted.components["weights"] - alone.components["weights"]
    assert added == pytest.approx(2 * 1_235_814_400, rel=1e-3)
    assert drafted.kv_cache.bytes_per_token - alone.kv_cache.bytes_per_token == 16 * 2 * 8 * 64 * 2
    assert drafted.kv_cache.tokens < alone.kv_cache.tokens
    unknown = estimate(job(max_model_len=4096, speculative_model="nobody/knows-it"))
    assert unknown.components["weights"] == alone.components["weights"]
    assert "inference.speculative_model" in {item.field for item in unknown.assumptions}


@pytest.mark.parametrize(("name", "states"), [("yuhuili/EAGLE-LLaMA3.1-Instruct-8B", 2), ("nobody/eagle3-of-it", 3)])
def test_an_eagle_head_that_is_not_known_is_a_layer_like_the_target_s(name, states):
    """Llama-3.1-8B with one keeps 33 layers in the cache (vllm-project/vllm issue 19996)."""
    alone, drafted = (estimate(job(max_model_len=4096, speculative_model=draft)) for draft in (None, name))
    layer = 2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14336 * 4096 + 2 * 4096
    added = drafted.components["weights"] - alone.components["weights"]
    assert added == pytest.approx(2 * (layer + states * 4096**2), rel=1e-2)
    assert drafted.kv_cache.bytes_per_token / alone.kv_cache.bytes_per_token == pytest.approx(33 / 32)


def test_data_parallel_ranks_share_experts_but_not_attention():
    config = {
        "model_type": "mixtral", "hidden_size": 1024, "intermediate_size": 3584, "num_hidden_layers": 12,
        "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 32000, "num_local_experts": 8,
        "num_experts_per_tok": 2, "max_position_embeddings": 32768, "torch_dtype": "bfloat16",
    }  # fmt: skip
    one, four = (job(version="0.11.0") for _ in range(2))
    four.parallelism.data = 4
    experts = 12 * 8 * 3 * 1024 * 3584 * 2
    lost = estimate(one, config).components["weights"] - estimate(four, config).components["weights"]
    assert lost == pytest.approx(experts * 3 // 4, abs=24 * MIB)


def test_the_profile_run_of_a_published_log_is_the_layers():
    """vLLM 0.6 over Llama-3.1-8B: peaks of 17.06 and 17.98 GiB over weights of 14.99 (issue 10517, RTX 3090)."""
    for length, peak in ((20000, 17.06), (29000, 17.98)):
        phases = {phase.name: phase for phase in estimate(job(version="0.6.4", max_model_len=length)).phases}
        assert phases["profile_run"].allocated / GIB == pytest.approx(peak, abs=0.05)


def test_tensor_parallel_ranks_share_weights_and_heads_but_not_the_latent_cache():
    one, two = (estimate(job(tensor=tensor, max_model_len=8192)) for tensor in (1, 2))
    assert two.components["weights"] == pytest.approx(one.components["weights"] / 2, rel=0.01)
    assert two.kv_cache.bytes_per_token == one.kv_cache.bytes_per_token // 2
    assert two.runtime > one.runtime


GPUS = st.sampled_from(["t4", "l4", "a100-40gb", "l40s", "a100-80gb", "h100-80gb", "h200", "b200"])
LENGTHS = st.integers(1, 131072)


@given(GPUS, LENGTHS, LENGTHS, st.sampled_from(["0.6.6", "0.8.5", "0.11.0", "0.20.0", "0.33.0"]))
def test_longer_requests_never_need_less(gpu, length, longer, version):
    assume(length <= longer)
    short, long = (
        estimate(job(max_model_len=n, version=version, max_num_batched_tokens=2048), gpu=gpu) for n in (length, longer)
    )
    order = ["fits", "tight", "exceeds"]
    assert order.index(short.verdict) <= order.index(long.verdict)
    assert short.kv_cache.max_concurrency >= long.kv_cache.max_concurrency


@given(GPUS, st.integers(1, 512), st.integers(1, 512), st.sampled_from(["0.6.6", "0.8.5", "0.16.0", "0.33.0"]))
def test_more_requests_at_once_never_leave_more_for_the_cache(gpu, few, more, version):
    found = [
        estimate(
            job(max_model_len=2048, max_num_batched_tokens=4096, max_num_seqs=seqs, version=version), gpu=gpu
        ).kv_cache.tokens
        for seqs in sorted((few, more))
    ]
    assert found[1] <= found[0]


@given(GPUS, LENGTHS, st.sampled_from([1, 2, 4, 8]), st.sampled_from([2, 4]))
def test_more_ranks_never_leave_less_for_a_token(gpu, length, tensor, factor):
    few, many = (estimate(job(tensor=ranks, max_model_len=length), gpu=gpu) for ranks in (tensor, tensor * factor))
    assert many.kv_cache.bytes_per_token <= few.kv_cache.bytes_per_token
    assert many.components["weights"] <= few.components["weights"]
    activations = ("activations", "logits")
    assert sum(many.components[name] for name in activations) <= sum(few.components[name] for name in activations)


@given(GPUS, st.floats(0.1, 1.0), LENGTHS)
def test_the_estimate_always_adds_up(gpu, utilization, length):
    found = estimate(job(max_model_len=length, gpu_memory_utilization=utilization), gpu=gpu)
    split = found.components
    assert sum(split.values()) - split["runtime"] == found.per_gpu.allocated
    assert found.per_gpu.low <= found.per_gpu.process <= found.per_gpu.high
    assert min(split.values()) >= 0
    assert (found.refusal is None) or found.verdict in ("tight", "exceeds")


def test_the_least_that_graphs_take_is_below_the_most():
    measured = table()["graphs"]
    assert measured["low_kib"] <= measured["expected_kib"] <= measured["high_kib"]


SAME = {
    "unsloth/Llama-3.2-3B-Instruct": "meta-llama/Llama-3.2-3B-Instruct",
    "Erland/DeepSeek-R1-0528-Qwen3-8B": "Qwen/Qwen3-8B",
    "unsloth/meta-llama-3.1-8b-instruct-unsloth-bnb-4bit": "meta-llama/Llama-3.1-8B-Instruct",
    "unsloth/phi-4-bnb-4bit": "microsoft/phi-4",
    "unsloth/qwen2.5-3b-instruct-unsloth-bnb-4bit": "Qwen/Qwen2.5-3B-Instruct",
    "unsloth/Qwen3-8B-FP8": "Qwen/Qwen3-8B",
    "deepseek-ai/DeepSeek-R1-Distill-Llama-8B": "meta-llama/Llama-3.1-8B-Instruct",
    "neuralmagic/Meta-Llama-3.1-8B-Instruct-FP8-dynamic": "meta-llama/Llama-3.1-8B-Instruct",
}


def _logged(rows, counter):
    """Rows of vLLM's own logs whose model is dense and known: (row, resolved model)."""
    for row in rows:
        if row["source_group"] not in ("vllm_logs_in_repos", "issue_threads") or row["confidence"] != "high":
            continue
        if row["counter_class"] != counter or "vllm" not in row["id"]:
            continue
        try:
            model = resolve(SAME.get(row["model"], row["model"]))
        except UnknownModel:
            continue
        if not model.shape.experts:
            yield row, model


def test_tokens_of_logged_caches_are_met(shared_data):
    """`GPU KV cache size` and `# GPU blocks`, from the pool's size as the same log rounds it to 0.01 GiB."""
    seen = 0
    for row, model in _logged(shared_data("measurements"), "engine_kv_tokens"):
        size = (row["extra_measurements"] or {}).get("kv_cache_GiB")
        if size is None:
            continue
        pool = paged_cache(layer_caches(model), 2.0, 16)
        assert pool.tokens(round(size * GIB), 131_072) == pytest.approx(
            row["measured_value"], rel=0.5 * 0.01 / size + 2e-4
        )
        seen += 1
    assert seen >= 9


def test_weights_of_logged_engines_are_met(shared_data):
    """`Model loading took`: within 6 %; 4-bit files keep a few layers in 16 bits that their config does not name."""
    seen = 0
    for row, model in _logged(shared_data("measurements"), "engine_log"):
        if not row["id"].endswith("-weights") or row["measured_gib"] is None:
            continue
        packing = f"{row['quantization']} {row['weights_dtype']}"
        weights = {"dtype": "bfloat16"}
        if "bitsandbytes" in packing:
            weights["quantization"] = {"method": "bnb-nf4", "bits": 4, "double_quant": True}
        elif "fp8" in packing:
            weights["quantization"] = {"method": "fp8", "bits": 8}
        ranks = re.search(r"-tp(\d+)-", row["id"])
        lora = "Unsloth" in (row["framework_version"] or "")
        plan = job(
            int(ranks[1]) if ranks else 1, weights=weights, max_model_len=2048, enable_lora=lora, max_lora_rank=64
        )
        load = estimate_inference(plan, model, None).phases[0]
        assert load.allocated / GIB == pytest.approx(row["measured_gib"], rel=0.06), row["id"]
        seen += 1
    assert seen >= 14


@pytest.mark.parametrize(("requests", "verdict"), [(1, "fits"), (128, "tight")])
def test_an_image_for_every_request_may_fill_the_card(requests, verdict):
    """Mllama's encoder took 36.6 GiB for 128 requests (vllm pull 12126): not derived, but within the bound."""
    model = resolve("meta-llama/Llama-3.2-11B-Vision")
    inference = Inference(
        engine="vllm", version="0.6.6", max_num_seqs=requests, max_model_len=65536, enforce_eager=True
    )
    plan = Job(kind="inference", weights=Weights(dtype="bfloat16"), inference=inference)
    chosen = settings(plan, model, None)
    run = profile_run(model, chosen, 2.0, 1)
    assert run.low <= run.total <= run.high
    assert estimate_inference(plan, model, find("h100-80gb")).verdict == verdict
    if requests == 128:
        assert run.high > 36.63 * GIB


LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "torch_dtype": "bfloat16",
}  # fmt: skip


@pytest.mark.parametrize(
    ("gpu", "config", "verdict"),
    [
        ("rtx-4090", LLAMA, "tight"),
        ("a100-80gb", LLAMA, "fits"),
        ("rtx-4090", {**LLAMA, "max_position_embeddings": 131072}, "exceeds"),
        ("rtx-4090", {**LLAMA, "max_position_embeddings": 8192}, "fits"),
    ],
)
def test_a_length_that_no_config_states_decides_nothing(gpu, config, verdict):
    """Some 3 GiB of cache hold 8,192 tokens and not the 32,768 that are usual; llama's class says 2,048."""
    inference = {"engine": "vllm", "version": "0.10.0", "gpu_memory_utilization": 0.83}
    plan = Job.validate({"kind": "inference", "model": config, "inference": inference})
    plan.hardware.gpu, plan.hardware.gpus = gpu, 1
    found = estimate_inference(plan, resolve(config), find(gpu))
    assert found.verdict == verdict
    noted = [item.origin for item in found.assumptions if item.field == "inference.max_model_len"]
    assert any("class" in origin for origin in noted) == ("max_position_embeddings" not in config)


@pytest.mark.parametrize(("version", "other"), [("0.10.1.1", True), ("0.11.2", False), ("0.18.0", False)])
def test_flashinfer_may_sample_in_less(version, other):
    """Qwen2-7B on an A100 logged 5.01 GiB of cache at a share of 0.25, with FlashInfer installed."""
    model = resolve("Qwen/Qwen2-7B-Instruct")
    chosen = settings(job(version=version, max_model_len=16384, max_num_seqs=256), model, find("a100-80gb"))
    run = profile_run(model, chosen, 2.0, 1)
    assert (run.low < run.total) == other
    assert run.low >= 14 * 256 * 152064


def test_cross_attention_takes_blocks_of_its_own_for_every_request():
    """Whisper: 448 tokens and 1,500 positions of the encoder, 28 and 94 blocks of 16 (vllm CrossAttentionSpec)."""
    layer = LayerCache(heads=20, head_elements=128, cross=20 * 128 * 1500)
    pool = paged_cache([layer] * 32, 2.0, 16)
    assert pool.block_bytes == 16 * 32 * 20 * 128 * 2
    assert pool.request_blocks(448, 2048) == 28 + 94
    assert pool.bytes_per_token == 2 * 32 * 20 * 128 * 2


def test_narrower_layers_have_longer_blocks_so_that_pages_are_equal():
    """Gemma 4 31B on vLLM 0.23: 28.41 GiB, 97,541 tokens for requests of 32,768 and batches of 8,192.

    50 layers of 16 heads of 256 keep 1,024 tokens, 10 of 4 heads of 512 all: half as wide, so 32 tokens of a block for
    their 16.
    """
    sliding, full = LayerCache(heads=16, head_elements=512, window=1024), LayerCache(heads=4, head_elements=1024)
    cache = paged_cache(([sliding] * 5 + [full]) * 10, 2, 16)
    assert cache.block_bytes == 10 * 16 * 16384
    assert cache.request_blocks(32768, 8192) == 32768 // 32 + 5 * (-(-(1023 + 8192) // 16) + 1)
    assert round(cache.concurrency(round(28.41 * GIB), 32768, 8192) * 32768) == 97541
    odd = LayerCache(heads=5, head_elements=1024)
    assert paged_cache(([sliding] * 5 + [odd]) * 10, 2, 16).request_blocks(32768, 8192) == 2048 + 5 * 577


def test_a_page_that_does_not_divide_the_widest_is_padded():
    caches = [LayerCache(3, 256, window=1024)] * 4 + [LayerCache(2, 256)] * 4
    assert paged_cache(caches, 2, 16).bytes_per_token == 8 * 3 * 256 * 2


@pytest.mark.parametrize("name", ["google-bert/bert-base-uncased", "albert/albert-base-v2"])
def test_a_pooling_model_has_no_cache_and_not_one_of_no_tokens(name):
    served = Job.validate({"kind": "inference", "model": name, "inference": {"engine": "vllm"}})
    found = estimate_inference(served, resolve(name), find("a100-80gb"))
    assert found.kv_cache is None
    assert found.uncached
    assert found.components["kv_cache"] == 0
    assert "none" in next(line for line in render("serve.sh", found).splitlines() if "KV cache" in line)
