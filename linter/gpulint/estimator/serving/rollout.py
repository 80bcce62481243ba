"""The inference engine that shares the GPUs of an online objective (GRPO, PPO with vLLM in the same process)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..estimate import Phase, Term

if TYPE_CHECKING:
    from ...hardware.gpu import Gpu
    from ...job.job import Job


class Engine(NamedTuple):
    """vLLM's share of a GPU, in bytes; `sleeps` when it gives it back while the policy is trained, and `alone` when the
    policy is in main memory while it generates.
    """

    share: int
    sleeps: bool
    terms: tuple[Term, ...]
    alone: bool = False

    def beside(self, phases: list[Phase], fixed: dict[str, int]) -> list[Phase]:
        """The phases with the engine in them, and one for the generation itself."""
        others = {name: 0 if self.alone and name != "runtime" else size for name, size in fixed.items()}
        generation = Phase("generation", {**others, "kv_cache": self.share})
        if self.sleeps:
            return [*phases, generation]
        return [
            phase
            if phase.name == "load"
            else Phase(phase.name, {**phase.components, "kv_cache": phase.components["kv_cache"] + self.share})
            for phase in [*phases, Phase("generation", dict(fixed))]
        ]


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
    return Engine(share, job.rl.vllm_sleep, (term,), job.rl.policy_offload)
