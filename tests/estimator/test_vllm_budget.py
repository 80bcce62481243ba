"""What vLLM holds beside its cache: sampler, experts' workspace, NCCL; and the tokens that are left, against logs."""

from __future__ import annotations

import pytest

from gpulint.estimator.allocator.runtime import Neighbours, process_overhead
from gpulint.estimator.estimate_job import estimate_inference
from gpulint.estimator.serving.vllm.activations import layer_bytes, profile_run
from gpulint.estimator.serving.vllm.memory_budget import available_kv_cache_memory
from gpulint.estimator.serving.vllm.rank_memory import rank_memory
from gpulint.estimator.serving.vllm.settings import settings
from gpulint.estimator.serving.vllm.workspace import expert_bytes, workspace
from gpulint.estimator.terms import total
from gpulint.hardware.catalogue import find
from gpulint.job.job import Job
from gpulint.models.resolve import resolve
from gpulint.units import GIB, MIB

QWEN2 = "Qwen/Qwen2-7B-Instruct"
MOE = "Qwen/Qwen3-30B-A3B"


def job(model, gpu, tensor=1, expert=1, **fields) -> Job:
    return Job.validate(
        {
            "kind": "inference",
            "model": model,
            "parallelism": {"tensor": tensor, "expert": expert},
            "hardware": {"gpu": gpu, "gpus": tensor},
            "inference": {"engine": "vllm", **fields},
        }
    )


def parts(plan):
    model, gpu = resolve(plan.model), find(plan.hardware.gpu)
    chosen = settings(plan, model, gpu)
    assert chosen is not None
    return rank_memory(plan, model, gpu, chosen)


def cache(plan):
    found = estimate_inference(plan, resolve(plan.model), find(plan.hardware.gpu)).kv_cache
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    return found


@pytest.mark.parametrize(
    ("gpu", "tensor", "share", "flashinfer", "tokens"),
    [
        ("a100-80gb", 1, 0.25, True, 93_872),
        ("a100-80gb", 1, 0.5, True, 464_848),
        ("a100-80gb", 2, 0.25, True, 450_192),
        ("a100-80gb", 2, 0.5, True, 1_192_160),
        ("a100-40gb", 2, 0.5, False, 412_944),
    ],
)
def test_the_tokens_of_logs_that_name_their_sampler(gpu, tensor, share, flashinfer, tokens):
    """vllm 0.10.1.1 logged them, and whether FlashInfer samples (dennislee22/vLLM-benchmarking b474d1e log/)."""
    fields = {"version": "0.10.1.1", "max_model_len": 16384, "gpu_memory_utilization": share}
    found = cache(job(QWEN2, gpu, tensor, flashinfer_sampler=flashinfer, **fields))
    assert found.tokens == pytest.approx(tokens, rel=0.035)
    assert found.low <= tokens <= found.high


def test_an_installed_flashinfer_samples_unasked_until_it_is_a_requirement():
    def logit_bytes(version, **more):
        plan = job(QWEN2, "a100-80gb", version=version, max_model_len=4096, **more)
        return settings(plan, resolve(QWEN2), find("a100-80gb")).samplers.runs.bytes

    for version in ("0.10.1.1", "0.11.2"):
        assert logit_bytes(version) == 38
        assert logit_bytes(version, flashinfer_sampler=True) == 14
        plan = job(QWEN2, "a100-80gb", version=version, max_model_len=4096)
        plan.versions = {"flashinfer-python": "0.2.11"}
        assert settings(plan, resolve(QWEN2), None).samplers.runs.bytes == (14 if version == "0.10.1.1" else 38)
    assert logit_bytes("0.18.0", flashinfer_sampler=False) == 14


def test_nccl_counts_against_the_budget_until_it_comes_before_the_baseline():
    """vllm 0.11.0 opens its communicators first (v1/worker/gpu_worker.py init_device)."""
    older, newer = (parts(job(QWEN2, "h100-80gb", 2, version=version)) for version in ("0.10.2", "0.11.0"))
    assert newer.initial_snapshot - older.initial_snapshot == newer.overhead.nccl > 0
    assert older.non_torch_increase == newer.non_torch_increase, "torch's communicator opens in the profile run"
    assert newer.non_torch_bounds[1] < older.non_torch_bounds[1]


def test_what_gathers_logits_opens_beside_what_reduces():
    """Two ranks of vLLM 0.11.0 on H100 leave 0.42 GiB less than one (Qwen3-32B, llm-d's benchmarks; its runs alike)."""
    one, two = (parts(job("Qwen/Qwen3-32B", "h100-80gb", ranks, version="0.11.0")) for ranks in (1, 2))
    assert two.non_torch_increase - one.non_torch_increase == pytest.approx(0.42 * GIB, rel=0.01)
    assert parts(job(QWEN2, "a100-80gb", 2, version="0.6.6")).gathering == (0, 0)


@pytest.mark.parametrize("version", ["0.10.2", "0.11.0"])
def test_what_connects_cards_without_nvlink_takes_little_of_them(version):
    """A start of 0.10.2 on eight L40S printed 0.17 to 0.21 GiB beside torch for NCCL and the libraries' 90 MiB."""
    found, linked = (parts(job(QWEN2, gpu, 8, version=version)) for gpu in ("l40s", "a100-80gb"))
    assert found.non_torch_increase - found.overhead.libraries == 105 * MIB
    assert total(found.runtime) - found.overhead.libraries - found.overhead.context == 105 * MIB
    assert linked.non_torch_increase - linked.overhead.libraries == linked.overhead.nccl
    above = found.overhead.high - total(found.runtime)
    assert above >= found.overhead.nccl - found.nccl, "as much as elsewhere at the most"


@pytest.mark.parametrize("gpu", ["mi300x", "gb10"])
def test_cards_with_links_of_their_own_are_not_without_nvlink(gpu):
    assert parts(job(QWEN2, gpu, 2)).connecting is None


def test_pipeline_stages_without_nvlink_take_as_much_as_ranks_of_a_group():
    """torch's communicator has nothing to gather between them: vLLM's own counts."""
    plan = job(QWEN2, "l40s")
    plan.parallelism.pipeline = plan.hardware.gpus = 2
    assert total(parts(plan).runtime) == total(parts(job(QWEN2, "l40s", 2)).runtime)


def test_cards_without_nvlink_are_as_others_before_the_nccl_that_was_measured():
    """torch 2.6, which 0.8.5 pins, comes before NCCL 2.22."""
    found = parts(job(QWEN2, "l40s", 4, version="0.8.5"))
    assert found.connecting is None
    assert found.nccl == found.overhead.nccl
    assert total(found.runtime) == found.overhead.total


@pytest.mark.parametrize(("version", "starts", "verdict"), [("0.10.2", True, "fits"), ("0.11.0", False, "tight")])
def test_a_share_that_leaves_no_room_for_nccl_is_refused(version, starts, verdict):
    plan = job(QWEN2, "h100-80gb", 8, version=version, gpu_memory_utilization=0.988, max_model_len=4096)
    found = estimate_inference(plan, resolve(QWEN2), find("h100-80gb"))
    assert (found.refusal is None) == starts
    assert found.verdict == verdict


def test_what_is_measured_after_the_baseline_never_passes_the_budget():
    """NCCL that counts makes the cache smaller: two 24 GB cards at vLLM's own share have room for the graphs.

    So they have beside the communicator that is there before, with every algorithm of it connected.
    """
    for version in ("0.6.6", "0.8.5", "0.11.2"):
        fields = {"version": version, "max_model_len": 4096, "max_num_seqs": 64}
        found = estimate_inference(job(QWEN2, "l4", 2, **fields), resolve(QWEN2), find("l4"))
        assert found.verdict == "fits", version


def test_the_workspace_of_experts_stays_beside_the_sampler():
    model = resolve(MOE)
    fields = {"max_model_len": 4096, "max_num_batched_tokens": 8192, "max_num_seqs": 256}
    before, after = (
        profile_run(model, settings(job(MOE, "h100-80gb", version=version, **fields), model, None), 2.0, 1)
        for version in ("0.13.0", "0.15.0")
    )
    assert before.workspace == 0
    assert after.workspace == 2 * 8192 * 8 * (max(768, 2048) + max(2 * 768, 2048))
    assert after.activations - after.workspace < before.total
    assert after.low <= after.total - after.workspace
    assert layer_bytes(model, 8192, 2.0, 1, 0) < layer_bytes(model, 8192, 2.0, 1)


def test_ranks_that_divide_the_experts_share_no_features():
    model = resolve(MOE)
    whole, halved = expert_bytes(model, 100, 2.0, 1), expert_bytes(model, 100, 2.0, 2)
    assert whole >= halved
    assert expert_bytes(resolve(QWEN2), 100, 2.0, 1) == 0
    run = parts(job(MOE, "h100-80gb", 2, expert=2, version="0.22.0", max_num_batched_tokens=1024)).run
    assert run.workspace == workspace(model, 1024, 40960, 2.0, 1).expected


def test_throughput_doubles_the_batches_that_nobody_states():
    """A start of 0.17 in this mode printed 4,096 tokens, and captured for 512 requests."""
    model = resolve(QWEN2)
    usual, doubled, stated = (
        settings(job(QWEN2, "rtx-6000-ada", version="0.17.0", **fields), model, find("rtx-6000-ada"))
        for fields in (
            {"performance_mode": "balanced"},
            {"performance_mode": "throughput"},
            {"performance_mode": "throughput", "max_num_seqs": 8, "max_num_batched_tokens": 512},
        )
    )
    assert (usual.max_num_seqs, usual.max_num_batched_tokens) == (256, 2048)
    assert (doubled.max_num_seqs, doubled.max_num_batched_tokens) == (512, 4096)
    assert (stated.max_num_seqs, stated.max_num_batched_tokens) == (8, 512)


def test_an_indexer_gathers_the_keys_of_forty_of_the_longest_requests():
    """1,024 fewer tokens a request leave 40 x 1,024 x 132 B; where experts need more than the keys, nothing."""
    sparse, dense = resolve("deepseek-ai/DeepSeek-V3.2"), resolve("deepseek-ai/DeepSeek-V3.1")
    longer, shorter = (workspace(sparse, 64, length, 2.0, 8) for length in (163840, 162816))
    assert longer.expected == 40 * 163840 * 132
    assert longer.expected - shorter.expected == 40 * 1024 * 132
    assert longer.low == longer.expected
    assert longer.high >= 5 * 163840 * 576 * 2
    assert workspace(dense, 64, 163840, 2.0, 8).expected == expert_bytes(dense, 64 * 8, 2.0, 8)
    assert workspace(sparse, 8192, 4096, 2.0, 8).expected == expert_bytes(sparse, 8192 * 8, 2.0, 8)


def test_deepseek_v4_needs_what_its_log_says_and_may_not_get_it():
    """`LLM(...)` of 0.22 on two GH200 asked for 6.66 GiB and found 5.44 (vllm issue 44376)."""
    fields = {"version": "0.22.0", "max_model_len": 30000, "gpu_memory_utilization": 0.95, "kv_cache_dtype": "fp8"}
    plan = job("deepseek-ai/DeepSeek-V4-Flash", "gh200-96gb", 2, 2, max_num_batched_tokens=16384, **fields)
    found = parts(plan)
    assert found.request_bytes / GIB == pytest.approx(6.66, abs=0.005)
    assert found.cache.request_bytes(13528, found.settings.in_flight) / GIB == pytest.approx(5.44, abs=0.005)
    assert estimate_inference(plan, resolve(plan.model), find("gh200-96gb")).verdict == "tight"


def test_trial_graphs_may_take_of_the_cache():
    """0.19 captures graphs for trial while it measures; gpt-oss-20b on an A100 logged 36.56 GiB (0.19.0)."""
    fields = {"version": "0.19.0", "max_model_len": 131072, "gpu_memory_utilization": 0.65}
    found = parts(job("openai/gpt-oss-20b", "a100-80gb", **fields))
    room = available_kv_cache_memory(found, find("a100-80gb"), None)
    assert room.low / GIB <= 36.56 <= room.high / GIB
    before = parts(job("openai/gpt-oss-20b", "a100-80gb", **{**fields, "version": "0.18.0"}))
    assert available_kv_cache_memory(before, find("a100-80gb"), None).low - room.low == found.graphs.expected


def test_graphs_at_their_least_leave_more_for_the_cache():
    """0.22 takes graphs off the budget: at the most of the cache they are as small as the least that was measured."""
    found, card = parts(job(QWEN2, "h100-80gb", version="0.22.0", max_model_len=4096)), find("h100-80gb")
    assert found.settings.profile.graphs_in_budget
    assert 0 < found.graphs.low < found.graphs.expected < found.graphs.high
    none = found._replace(graphs=found.graphs._replace(low=0, high=0))
    usual, without = (available_kv_cache_memory(memory, card, None) for memory in (found, none))
    assert without.high - usual.high == found.graphs.low
    assert without.low - usual.low == found.graphs.high
    assert without.expected == usual.expected


def test_a_machine_that_shares_its_memory_moves_the_cache():
    """What the log of one node says of its engine beside torch, and of another whose neighbour gave memory back."""
    plan = job(QWEN2, "gb10", gpu_memory_utilization=0.5, max_model_len=8192, version="0.24.0")
    shared, own = parts(plan), parts(plan)._replace(neighbours=Neighbours((0, 0), (0, 0)))
    gpu = find("gb10")
    wide, narrow = available_kv_cache_memory(shared, gpu, None), available_kv_cache_memory(own, gpu, None)
    assert narrow.low - wide.low == pytest.approx(2.23 * GIB, rel=0.01)
    assert wide.high - narrow.high == pytest.approx(0.51 * GIB, rel=0.01)
    assert wide.low < wide.expected < wide.high
    assert parts(job(QWEN2, "l40s", max_model_len=8192)).neighbours == Neighbours((0, 0), (0, 0))


def test_a_stated_cache_has_no_interval():
    found = cache(job(QWEN2, "a100-80gb", version="0.10.1.1", kv_cache_memory_bytes=5 * GIB))
    assert found.low == found.tokens == found.high


@pytest.mark.parametrize("tensor", [1, 2, 8])
def test_parts_of_the_overhead_lie_in_their_bounds(tensor):
    found = process_overhead(find("h100-80gb"), job(QWEN2, "h100-80gb", tensor))
    assert found.context_range[0] <= found.context <= found.context_range[1]
    assert found.nccl_range[0] <= found.nccl <= found.nccl_range[1]
    assert found.low <= found.context_range[0] + found.nccl_range[0] + found.libraries
    assert found.high >= found.context_range[1] + found.nccl_range[1] + found.libraries


def test_the_tokens_of_data_parallel_ranks_pass_through_the_experts_of_each():
    """Eight ranks that gather 4,096 tokens each route 32,768 of them; their gathered inputs lie beside."""
    model, tokens = resolve(MOE), 4096
    shape = model.shape
    alone, together = (layer_bytes(model, tokens, 2, 1, data=data) for data in (1, 8))
    routed = 2 * shape.experts_per_token * (max(2 * shape.moe_intermediate, shape.hidden) + shape.moe_intermediate)
    assert together - alone == 7 * tokens * routed + 2 * tokens * (2 + 8 - 4) * shape.hidden
    plan = job(MOE, "h200-141gb", version="0.10.0", max_num_seqs=16)
    chosen = settings(plan, model, find("h200-141gb"))
    assert chosen is not None
    one, eight = (profile_run(model, chosen, 2, 1, data=data) for data in (1, 8))
    assert eight.high > one.high
    dense = resolve(QWEN2)
    assert profile_run(dense, chosen, 2, 1, data=8) == profile_run(dense, chosen, 2, 1)


def test_the_estimated_length_of_a_data_parallel_log_lies_in_the_interval():
    """Qwen3-Coder-480B-FP8 on eight H20 of 141 GB, one rank each (vllm-project/recipes pull 12)."""
    model = "Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8"
    fields = {"engine": "vllm", "version": "0.10.0", "gpu_memory_utilization": 0.9}
    plan = Job.validate(
        {"kind": "inference", "model": model, "inference": fields, "parallelism": {"data": 8, "expert": 8},
         "hardware": {"gpu": "h200-141gb", "gpus": 8}}
    )  # fmt: skip
    assert cache(plan).low <= 205_728 <= cache(plan).high
