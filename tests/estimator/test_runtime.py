"""What a GPU process takes beside its tensors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import gpulint.estimator.allocator.runtime as runtime
from gpulint.estimator.allocator.runtime import allocated_workspace, groups, process_overhead
from gpulint.hardware.catalogue import find, gpus
from gpulint.job.job import Job
from gpulint.units import GIB, MIB


def job(**fields) -> Job:
    return Job.validate({"kind": "training", **fields})


TWO = {"hardware": {"gpus": 2}}


@pytest.mark.parametrize("gpu", [None, *gpus()], ids=lambda gpu: gpu.name if gpu else "unknown")
@pytest.mark.parametrize("plan", [{}, TWO, {"hardware": {"gpus": 16, "nodes": 2}}], ids=["one", "two", "sixteen"])
def test_the_interval_holds_the_expected_value(gpu, plan):
    overhead = process_overhead(gpu, job(**plan))
    assert 0 < overhead.low <= overhead.total <= overhead.high < 8 * GIB
    assert overhead.total == overhead.context + overhead.libraries + overhead.nccl
    assert all(": " in source for source in overhead.sources)


def test_an_unknown_gpu_has_the_widest_interval():
    unknown = process_overhead(None, job())
    for name in ("t4", "a100-80gb", "rtx-6000-ada", "h100-80gb"):
        known = process_overhead(find(name), job())
        assert unknown.low <= known.low <= known.high <= unknown.high


def test_published_contexts_lie_in_their_interval():
    t4 = process_overhead(find("t4"), job())
    assert t4.context == 141 * MIB
    ada = process_overhead(find("rtx-6000-ada"), job())
    assert ada.context == 426 * MIB


def test_nccl_counts_only_where_gpus_work_together():
    assert process_overhead(None, job()).nccl == 0
    two = process_overhead(None, job(**TWO))
    eight = process_overhead(None, job(hardware={"gpus": 8}))
    assert 0 < two.nccl < eight.nccl
    replicas = Job.validate({"kind": "inference", "inference": {"engine": "vllm"}, "hardware": {"gpus": 8}})
    assert process_overhead(None, replicas).nccl == 0


def test_every_kind_of_parallelism_is_a_communicator():
    assert len(groups(job(hardware={"gpus": 8}))) == 1
    plan = job(hardware={"gpus": 8}, parallelism={"tensor": 2, "pipeline": 2})
    assert len(groups(plan)) == 3
    assert process_overhead(None, plan).high > process_overhead(None, job(hardware={"gpus": 8})).high


def test_the_first_communicator_is_that_of_the_widest_group():
    """Two tensor parallel ranks of a server on a node of eight talk to each other alone."""
    pair = {"kind": "inference", "inference": {"engine": "vllm"}, "parallelism": {"tensor": 2}}
    two, eight = (process_overhead(None, Job.validate({**pair, "hardware": {"gpus": gpus}})) for gpus in (2, 8))
    assert eight.nccl == two.nccl


def test_further_communicators_are_smaller_since_nccl_connects_lazily():
    def further(versions):
        one, two = (job(hardware={"gpus": 8}, parallelism=plan, versions=versions) for plan in ({}, {"tensor": 2}))
        return process_overhead(None, two).high - process_overhead(None, one).high

    assert further({"torch": "2.7.0"}) == further({}) < further({"torch": "2.6.0"})


def test_all_to_all_connects_every_pair():
    dense, sparse = (job(hardware={"gpus": 8}, parallelism={"tensor": 2, "expert": expert}) for expert in (1, 4))
    more = process_overhead(None, sparse).high - process_overhead(None, dense).high
    assert more > 2 * 2**30
    assert process_overhead(None, sparse).total == process_overhead(None, dense).total


def test_torch_before_cuda_12_2_may_load_every_kernel():
    a100 = find("a100-80gb")
    old, last, lazy = (process_overhead(a100, job(versions={"torch": torch})) for torch in ("2.0.1", "2.4.1", "2.5.0"))
    assert old.high == last.high > lazy.high == process_overhead(a100, job()).high
    assert last.total == lazy.total


def test_torch_before_lazy_loading_loads_every_kernel():
    """1,343 MiB on a V100, 1.78 GiB on an A100."""
    v100, a100 = find("v100-16gb"), find("a100-80gb")
    old, new = job(versions={"torch": "1.12.1"}), job(versions={"torch": "1.13.0"})
    assert process_overhead(v100, old).context == 1343 * 2**20 > process_overhead(v100, new).context
    assert process_overhead(a100, old).context == 1823 * 2**20
    for gpu in (v100, a100, find("t4"), None):
        assert process_overhead(gpu, old).low < process_overhead(gpu, old).total <= process_overhead(gpu, old).high


@pytest.mark.parametrize(("version", "torch"), [("0.6.3", "2.4.0"), ("0.8.5", "2.6.0"), ("0.11.0", "2.8.0")])
def test_vllm_brings_its_torch(version, torch):
    def serving(versions, release):
        return job(
            kind="inference", inference={"engine": "vllm", "version": release}, versions=versions, hardware={"gpus": 4}
        )

    assert process_overhead(None, serving({}, version)) == process_overhead(None, serving({"torch": torch}, None))


def test_nccl_before_2_22_connects_every_algorithm():
    two, eight = (job(hardware={"gpus": gpus}, versions={"torch": "2.6.0"}) for gpus in (2, 8))
    newer = process_overhead(None, job(hardware={"gpus": 2})).nccl
    assert process_overhead(None, eight).nccl > process_overhead(None, two).nccl > newer


@pytest.mark.parametrize(
    ("gpu", "kind", "size"),
    [
        ("a100-80gb", "training", 2 * 8320 * 1024),
        ("a100-80gb", "inference", 8320 * 1024),
        ("t4", "training", 2 * 8320 * 1024),
        ("h100-80gb", "training", 64 * MIB),
        ("h200", "inference", 32 * MIB),
        ("mi300x", "inference", 128 * MIB),
        (None, "training", 2 * 8320 * 1024),
    ],
)
def test_cublas_workspace_is_counted_by_handle(gpu, kind, size):
    assert allocated_workspace(Job(kind=kind), find(gpu) if gpu else None) == size


def test_every_row_of_the_table_has_a_source_and_an_interval():
    table = json.loads((Path(runtime.__file__).parent / "runtime.json").read_text())
    for kind in ("context", "libraries", "nccl"):
        for row in table[kind]:
            assert row["low"] <= row["expected"] <= row["high"], row
            assert len(row["source"]) > 20, row


def test_each_process_that_looks_at_a_gpu_leaves_a_context_there():
    """accelerate's `get_max_memory` puts a tensor on every GPU, so that every rank has a context on each."""
    alone, both = (process_overhead(find("a100-80gb"), job(hardware={"gpus": 2, "contexts": n})) for n in (1, 2))
    assert both.context == 2 * alone.context
    assert both.total - alone.total == alone.context
    assert both.low - alone.low == alone.context_range[0]
    assert both.high - alone.high == alone.context_range[1]


def test_the_first_communicator_brings_its_kernels():
    """Before NCCL 2.22: 544 MiB of buffers (nccl#964) and 0.73 GiB that stay when a group is destroyed (stas00)."""
    older = process_overhead(find("a100-80gb"), job(hardware={"gpus": 2}, versions={"torch": "2.4.1"}))
    assert older.nccl == (544 + int((1.28 - 0.55) * 1024)) * MIB
    assert older.nccl <= older.nccl_range[1]
    assert process_overhead(find("a100-80gb"), job(hardware={"gpus": 2}, versions={"torch": "2.7.0"})).nccl < older.nccl


MEGATRON = {"framework": "megatron", "hardware": {"gpus": 8}}
DIVIDED = {"tensor": 2, "pipeline": 2, "zero": {"stage": 1, "library": "megatron"}}


def test_megatron_opens_a_communicator_for_each_of_its_groups():
    """World, tensor, pipeline, data with and without context, model, and the distributed optimizer's."""
    assert sorted(groups(job(**MEGATRON, parallelism=DIVIDED))) == [2, 2, 2, 2, 4, 8, 8]
    assert len(groups(job(hardware={"gpus": 8}, parallelism={"tensor": 2, "pipeline": 2}))) == 3
    experts = {**DIVIDED, "expert": 4, "expert_tensor": 1}
    assert len(groups(job(**MEGATRON, parallelism=experts))) == 10


def test_megatron_s_published_communicators_lie_in_their_interval():
    """8 x H100, 2-way tensor, pipeline and data parallelism: about 7 GB a rank, 9.5 GB with experts."""
    for expert, measured in ((1, 7.0e9), (4, 9.5e9)):
        plan = {**DIVIDED, "expert": expert, "expert_tensor": 1}
        overhead = process_overhead(find("h100-80gb"), job(**MEGATRON, parallelism=plan))
        others = overhead.context + overhead.libraries
        assert overhead.low < measured + others < overhead.high
        assert overhead.nccl == pytest.approx(measured, rel=0.1)


def test_one_gpu_has_no_communicator_under_megatron_either():
    assert groups(job(framework="megatron", hardware={"gpus": 1})) == []
