"""The inference engine that shares the GPUs of an online objective (GRPO, PPO with vLLM in the same process)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..estimate import Phase
from ..terms import Term

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...hardware.gpu import Gpu
    from ...job.job import Job


class Engine(NamedTuple):
    """vLLM's share of a GPU; `sleeps` when it gives it back while the policy is trained, and `alone` when the policy is
    in main memory while it generates.
    """

    share: Term
    sleeps: bool
    alone: bool = False

    def beside(self, phases: list[Phase], fixed: Sequence[Term]) -> list[Phase]:
        """The phases with the engine in them, and one for the generation itself."""
        generation = Phase("generation", (*(() if self.alone else fixed), self.share))
        if self.sleeps:
            return [*phases, generation]
        shared = [phase if phase.name == "load" else phase.plus(self.share) for phase in phases]
        return [*shared, Phase("generation", (*fixed, self.share))]


def engine(job: Job, gpu: Gpu | None) -> Engine | None:
    """vLLM in colocate mode takes `gpu_memory_utilization` of the total that torch reports: weights, cache and graphs.

    None without it, or where the card is not known. Source: vllm/v1/worker/gpu_worker.py `request_memory`; trl 1.16
    GRPOConfig (`vllm_mode` colocate, `vllm_gpu_memory_utilization` 0.3, `vllm_enable_sleep_mode` False).
    """
    if job.rl.vllm != "colocate" or gpu is None:
        return None
    fraction = job.rl.vllm_gpu_memory_utilization
    if fraction is None:
        return None
    share = int(fraction * gpu.usable)
    formula = f"{fraction:g} x {gpu.usable:,} B of the card for vLLM's weights, cache and graphs"
    term = Term("kv_cache", formula, share, "vllm gpu_worker.py request_memory")
    return Engine(term, job.rl.vllm_sleep, job.rl.policy_offload)
