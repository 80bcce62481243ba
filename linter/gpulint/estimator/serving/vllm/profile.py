"""How a release of vLLM shares out a GPU: `vllm.json`, of which a row states only what changed with its release.

A new figure is a field here, whose default is what every release before did, a row there, and the formula that reads
it off `Settings.profile`, or off one of `Settings.samplers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from ....declared import declared
from ....source.tables import read_table
from ....upstream.behaviour import as_of
from ....upstream.serving import vllm

if TYPE_CHECKING:
    from ....hardware.gpu import Gpu


@dataclass(frozen=True, slots=True)
class Profile:
    """What a release does; the defaults are what the first ones did."""

    utilization: float = declared("Default of gpu_memory_utilization (config/cache.py).", 0.9)
    context_in_budget: bool = declared(
        "Whether the CUDA context counts against the budget: the baseline is taken before it exists or not at all.",
        True,
    )
    nccl_in_budget: bool = declared(
        "Whether NCCL's buffers count against the budget: 0.10.1.1 takes its baseline before they exist, 0.11.0 after "
        "(v1/worker/gpu_worker.py init_device).",
        True,
    )
    checks_free: bool = declared(
        "Whether a start is refused when less than the budget is free (v1/worker/utils.py request_memory; absent in "
        "0.8.4).",
        False,
    )
    moe_workspace: bool = declared(
        "Whether the buffers of the fused experts stay once they are made (v1/worker/workspace.py); 0.13.0 has the "
        "workspace and does not use it for the usual kernels, 0.15.0 does "
        "(fused_moe/unquantized_fused_moe_method.py, quantization/fp8.py).",
        False,
    )
    sampler: str = declared("The sampler, a name of `samplers`.", "sort")
    sampler_may_be: str = declared(
        "That of an installation with FlashInfer (the official images; an optional dependency before 0.11.1), where it "
        "is used without being asked for: until 0.11.1, which wants VLLM_USE_FLASHINFER_SAMPLER=1 "
        "(v1/sample/ops/topk_topp_sampler.py of 0.8.5, 0.10.1.1, 0.11.2, 0.14.0).",
        "sort",
    )
    graphs_tried: bool = declared(
        "Whether graphs are captured for trial while memory is measured, of which the driver may keep some that counts "
        "against the budget (v1/worker/gpu_worker.py determine_available_memory; not in 0.17.0).",
        False,
    )
    graphs_in_budget: bool = declared(
        "Whether the estimate for CUDA graphs is taken off the cache (VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS; logs "
        "of 0.20.0 say that it is).",
        False,
    )
    hybrid_cache: bool = declared(
        "Whether layers with a window keep only the window when others keep all (disable_hybrid_kv_cache_manager).",
        False,
    )
    group_ratio: float = declared(
        "Below this ratio of layer counts a hybrid model's layer kinds are padded to one group size "
        "(kv_cache_utils.py).",
        1.0,
    )
    batches_in_flight: int = declared(
        "Batches whose tokens a window keeps (config/vllm.py max_in_flight_tokens: 2 with asynchronous scheduling, "
        "which is the default, as many as pipeline stages if those are more); 0: one batch, whatever is in flight "
        "(0.24.0 and before).",
        0,
    )
    tokens_of_requests: bool = declared(
        "Whether the log's tokens are those of as many whole requests of max_model_len as fit, instead of blocks by "
        "groups (kv_cache_utils.py; 0.22.0, 0.21.0 by vllm issue 43308, and by logs 0.20.2: 286,007 tokens for 1.117 "
        "requests of 256,000; 0.20.0 and 0.20.1rc1 not).",
        False,
    )
    tiers: tuple[tuple[int, int, int], ...] = declared(
        "Defaults by device memory: GiB from which on, max_num_seqs, max_num_batched_tokens as a server "
        "(arg_utils.py).",
        ((0, 256, 2048),),
    )
    a100_small: bool = declared("Whether an A100 gets the defaults of a smaller card.", False)
    large: tuple[str, ...] = declared(
        "The only cards with the first tier, by the device's name, where a version goes by that.", ()
    )
    chunked_prefill: bool = declared(
        "Whether the batch is cut at max_num_batched_tokens by default; without it a batch holds max_model_len tokens.",
        False,
    )
    chunk: int | None = declared(
        "Tokens of a batch where a context of more than 32k has prompts cut into batches unasked (config.py "
        "SchedulerConfig; 512 in 0.6.4); null: that of the tier.",
        512,
    )
    graph_sizes: tuple[int, int | None] = declared(
        "Largest batch captured, and from which size on every 16th instead of every 8th.", (256, None)
    )
    both_graphs: bool = declared(
        "Whether batches of one token a request, as many as may run, are captured whole beside the pieces "
        "(config/compilation.py FULL_AND_PIECEWISE, the default of 0.11.2; not in 0.10.0).",
        False,
    )
    by_driver: bool = declared(
        "Whether the profile run counts as what the driver says is taken, torch's free segments with it, instead of by "
        "torch's peak (worker/worker.py; 0.2.5 to 0.6.3.post1).",
        False,
    )
    sums_held: bool = declared(
        "Whether what NCCL's stream reduced stays taken until the host waits (0.2.5; "
        "TORCH_NCCL_AVOID_RECORD_STREAMS=1 in 0.2.7).",
        False,
    )
    tries_kernels: bool = declared(
        "Whether Inductor, while memory is measured, tries kernels on random tensors where it finds no compiled model "
        "(vllm/envs.py VLLM_USE_STANDALONE_COMPILE: off in 0.11.0, on in 0.11.1; torch/_inductor/standalone_compile.py "
        "autotune_at_compile_time).",
        False,
    )
    v2_types: tuple[str, ...] = declared(
        "Model types whose runs go by Model Runner V2 (config/vllm.py use_v2_model_runner).", ()
    )
    v2_others: Literal["none", "dense", "all"] = declared(
        "Of the other types: none, those that are dense (neither experts nor recurrent states), or all.", "none"
    )
    v2_quantized: bool = declared("Whether it runs quantized weights too.", False)
    v2_graphs: bool = declared(
        "Whether its graphs are taken off the cache (gpu/model_runner.py profile_cudagraph_memory).", False
    )
    v2_sampler: str = declared("Its sampler, a name of `samplers`.", "copy")


@dataclass(frozen=True, slots=True)
class Sampler:
    """What a sampler's warm-up takes, over a logit for each request and token of the padded vocabulary."""

    source: str = declared("Upstream's files.")
    blocks: tuple[int, ...] = declared("Bytes a logit of each tensor that is there at the widest point.")
    states: float = declared(
        "Bytes that stay for each request and token of the vocabulary, where they count: since 0.27 a count of 4 B and "
        "a bit (gpu/sample/penalties.py; before, only what loading the weights and the profile run take counts).",
        0.0,
    )

    @property
    def bytes(self) -> int:
        """Bytes a logit at the widest point."""
        return sum(self.blocks)


NO_SAMPLER = Sampler("", ())
"""Of pooling models, whose answers are hidden states."""


def profile(version: str | None, gpu: Gpu | None = None) -> Profile:
    """What holds for a version; for an unstated one, the newest."""
    return Profile(**{name: _frozen(value) for name, value in as_of(_rows(), engine(version, gpu)).items()})


def engine(version: str | None, gpu: Gpu | None = None) -> str | None:
    """The release whose engine a release runs on a card: that of 0.7 on old ones, where newer ones have the next."""
    capability = gpu.compute_capability if gpu is not None else None
    if version is None or capability is None or capability >= 8.0:
        return version
    return vllm.LAST_V0 if vllm.OLD_CARDS_ON_V0.at(version) else version


def sampler(name: str) -> Sampler:
    """A row of `samplers`."""
    return Sampler(**{key: _frozen(value) for key, value in table()["samplers"][name].items()})


def _rows() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table()["profiles"]
    return rows


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


@cache
def table() -> dict[str, Any]:
    """`vllm.json`."""
    return read_table(__file__, "vllm.json")
