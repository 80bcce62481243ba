"""How many micro batches a pipeline stage has in flight, by schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...job.job import Job


def in_flight(job: Job, index: int, count: int) -> float:
    """Micro batches whose activations a stage holds at once, in those of all its layers.

    m micro batches, p stages, stage s counted from 0, v model chunks a rank:
    gpipe         m: all forward passes come first
    1f1b          min(m, p - s): p - s - 1 warm-up passes and the one in hand
    interleaved   min(2(p - s - 1) + (v - 1)p + 1, m v) chunks of 1/v of the layers
    zero_bubble   as 1f1b: ZB-H1 and ZBV move weight gradients into the bubble and keep its peak
    dualpipe      min(m, p + 1), of two stages' layers together: (p + 1) / 2 of each
    One process that spreads a model over its GPUs (`device_map`) runs one batch at a time.
    Source: Megatron-LM core/pipeline_parallel/schedules.py `get_pp_rank_microbatches`; Qi et al. 2023 (zero bubble),
    section 4 and Table 2; DeepSeek-V3 report, Table 2.
    """
    plan = job.parallelism
    if count <= 1 or plan.pipeline <= 1:
        return 1.0
    micro = max(1, plan.microbatches or job.gradient_accumulation_steps)
    chunks = max(1, plan.virtual_stages)
    if plan.pipeline_schedule == "gpipe":
        return float(micro)
    if plan.pipeline_schedule == "dualpipe":
        return min(micro, count + 1) / 2
    if chunks > 1 and plan.pipeline_schedule != "zero_bubble":
        warm = 2 * (count - index - 1) + (chunks - 1) * count
        return min(warm + 1, micro * chunks) / chunks
    return float(min(micro, count - index))
