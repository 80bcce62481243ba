"""What SGLang does with the arguments nobody gave: its static share and the size of a prefill step."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ....units import MIB
from ....upstream.serving.sglang import AITER_SHARE
from ...states.tensor_parallel import attention_tensor
from .profile import profile

if TYPE_CHECKING:
    from ....hardware.gpu import Gpu
    from ....job.job import Job
    from ....models.model import Model
    from .profile import Profile


class Share(NamedTuple):
    """`fraction` of the memory found free before the weights; `chunk` tokens of one prefill step of a rank; what is
    defaulted.
    """

    fraction: float
    chunk: int
    defaulted: tuple[tuple[str, str], ...]


def share(job: Job, model: Model, gpu: Gpu | None) -> Share:
    """`mem_fraction_static` and `chunked_prefill_size`, stated or by version, card and ranks (`sglang.json`).

    The groups of data parallel attention share out a chunk (0.5.23 srt/arg_groups/parallel_hook.py); before 0.4.4.post1
    they halved it. An unknown card gets 0.88 and 4,096 tokens, as where SGLang cannot ask for its size. What AITER
    computes is given room that a stated share counts too.
    """
    given = job.serving
    version = given.version or job.versions.get("sglang")
    row = profile(version)
    total = gpu.total / MIB if gpu is not None else None
    defaulted = []
    chunk = given.max_num_batched_tokens
    if chunk is None:
        chunk = int(below(row.chunks, total)[1]) if total is not None else 4096
        defaulted.append(("inference.max_num_batched_tokens", str(chunk)))
    fraction = given.gpu_memory_utilization
    beside = _beside_tower(row, model, fraction is not None)
    if fraction is None:
        fraction = static_share(row, job, model, total, chunk) if total is not None else 0.88
        defaulted.append(("inference.gpu_memory_utilization", f"{fraction * beside:.4g}"))
    fraction *= beside * (_OF_AITER if computes_with_aiter(job, model, gpu, version) else 1.0)
    groups = attention_groups(job)
    part = 2 if row.groups_halve and groups > 1 else groups
    return Share(fraction, max(1, chunk // part), tuple(defaulted))


_OF_AITER, _LONG = 0.85, 8192
"""What AITER leaves of the static share where requests may be longer than `_LONG` tokens."""

_AITER_HEADS = (16, 128)
"""Heads of a rank that AITER's latent attention knows."""


def computes_with_aiter(job: Job, model: Model, gpu: Gpu | None, version: str | None) -> bool:
    """Whether attention over long requests is AITER's: on AMD's cards unless another backend is asked for.

    Source: sglang 0.5.17 srt/server_args.py `_get_default_attn_backend`, `_handle_attention_backend_compatibility`
    (`mem_fraction_static *= 0.85`), the same in 0.5.4 srt/model_executor/model_runner.py and 0.5.23
    srt/arg_groups/attention_hook.py; gpt-oss takes Triton's.
    """
    given = job.inference
    if given is None or gpu is None or gpu.vendor != "AMD" or not AITER_SHARE.at(version):
        return False
    if (given.max_model_len or model.shape.max_positions or 0) <= _LONG:
        return False
    if given.attention_backend is not None:
        return given.attention_backend == "aiter"
    heads = model.shape.heads // max(1, attention_tensor(job))
    return heads in _AITER_HEADS if model.shape.kv_lora_rank else model.model_type != "gpt_oss"


def _beside_tower(row: Profile, model: Model, stated: bool) -> float:
    """What is left of the static share beside a vision encoder.

    0.95 x (1 - 0.1 x (layers x width^2 / those of ViT-L/14 - 1)), the second factor within 0.8 and 1.05 (0.5.4
    srt/server_args.py `adjust_mem_fraction_for_vlm`; layers and width as it finds them, else 24 and 1,024; Kimi K2.5's
    class has what its config calls `vt_*`, 0.5.11 srt/configs/kimi_k25.py).
    """
    vision = model.config.get("vision_config")
    if not isinstance(vision, dict) or (stated and not row.tower_always):
        return 1.0
    if row.tower is not None:
        return row.tower
    layers = vision.get("num_hidden_layers") or vision.get("vt_num_hidden_layers") or 24
    width = vision.get("hidden_size") or vision.get("vt_hidden_size") or 1024
    return 0.95 * max(0.8, min(1.05, 1 - 0.1 * (layers * width**2 / (24 * 1024**2) - 1)))


_LARGE_CARD, _KEPT_ON_LARGE_CARDS = 60 * 1024, 10 * 1024
"""MiB of a card from which on the formula leaves at least so many MiB."""

_LARGE_GRAPHS = 300
"""Captured batch from which on data parallel attention reserves 4.5 instead of 3 MiB for each group and request."""

_SMALL_CARD, _BLENDED_CARD, _KEPT_ON_BLENDED = 81920, 96 * 1024, 18 * 1024
"""MiB up to which a share by ranks holds, above which it is blended, and what a blended one leaves (0.4.6.post2)."""

_LATENT_PREFILL = 1536
"""MiB that captured prefill steps of latent attention add."""


def static_share(row: Profile, job: Job, model: Model, total: float, chunk: int) -> float:
    """The share of a card of `total` MiB, without what a vision encoder takes; `chunk` tokens of a prefill step.

    `row` says by which of its three rules. Source: sglang 0.3.0 to 0.5.18
    srt/server_args.py, from 0.5.19 on srt/arg_groups/memory_hook.py `handle_gpu_memory_settings`.
    """
    plan = job.parallelism
    ranks = plan.tensor * plan.pipeline
    if row.rule == "ranks":
        return _by_ranks(row, job, ranks, total)
    reserve = _speculation(row, job)
    if row.rule == "reserve":
        _, base, each = below(row.reserve, total)
        reserve += base + each * ranks + (row.grouped if attention_groups(job) > 1 else 0)
        return round((total - reserve) / total, 3)
    reserve += 512 + 1.5 * max(chunk, 2048) + 128 * ranks
    reserve += _decode_graphs(row, job, total) + _prefill_graphs(row, job, model, chunk)
    if total > _LARGE_CARD:
        reserve = max(reserve, _KEPT_ON_LARGE_CARDS + _speculation(row, job))
    return round((total - reserve) / total, 3)


def attention_groups(job: Job) -> int:
    """Groups of ranks with attention of their own: the data parallel size of `enable_dp_attention`."""
    return max(1, job.parallelism.tensor // attention_tensor(job))


def below(rows: list[list[float]], total: float) -> list[float]:
    """The first row whose bound is above `total`; a bound of None is above all."""
    return next(row for row in rows if row[0] is None or total < row[0])


def prefill_sizes(largest: int) -> int:
    """How many token counts of a prefill step are captured, up to `largest`.

    Steps of 4, 16, 32, 64, 256 and 512 up to 32, 256, 512, 1,024, 4,096 and beyond (0.5.23
    srt/arg_groups/cuda_graph_hook.py `generate_prefill_cuda_graph_batch_sizes`).
    """
    ends = ((4, 32), (16, 256), (32, 512), (64, 1024), (256, 4096), (512, max(largest, 4096)))
    count, start = 0, 0
    for step, end in ends:
        count += max(0, min(end, largest) - start) // step
        start = end
    return count


def captured_sizes(row: Profile, job: Job, model: Model, total: float, chunk: int) -> int:
    """How many batches of new tokens and of prefill tokens are captured in graphs on a card of `total` MiB.

    Source: sglang 0.5.11 and 0.5.18 srt/server_args.py `_generate_cuda_graph_batch_sizes`.
    """
    given = job.serving
    prefill = prefill_sizes(_largest_step(job, chunk)) if _captures_prefill(row, job, model) else 0
    if given.enforce_eager:
        return prefill
    if given.cudagraph_capture_sizes:
        return prefill + len(given.cudagraph_capture_sizes)
    largest = int(_largest_batch(row, job, total))
    drafts = (*range(1, 9), *range(10, 33, 2), *range(40, 65, 4), *range(72, 257, 8), *range(272, largest + 1, 16))
    usual = (1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16), *range(512, largest + 1, 32))
    sizes = drafts if given.speculative_algorithm else usual
    return prefill + len({largest, *(size for size in sizes if size <= largest)})


def _largest_batch(row: Profile, job: Job, total: float) -> float:
    given = job.serving
    batch = below(row.graphs, total)[1 if job.parallelism.tensor < 4 else 2]
    if given.cudagraph_capture_sizes:
        return max(given.cudagraph_capture_sizes)
    if row.capped and given.max_num_seqs is not None:
        return min(batch, given.max_num_seqs)
    return batch


def _decode_graphs(row: Profile, job: Job, total: float) -> float:
    """MiB for the graphs of decoding, and for the padding of data parallel attention."""
    given = job.serving
    batch = _largest_batch(row, job, total)
    groups = attention_groups(job)
    padding = batch * groups * (4.5 if batch > _LARGE_GRAPHS else 3) if groups > 1 else 0
    return padding + (2 * batch if row.eager_reserves or not given.enforce_eager else 0)


def _captures_prefill(row: Profile, job: Job, model: Model) -> bool:
    """Whether prefill steps are captured; a few model types that SGLang never captures are not told apart."""
    given = job.serving
    holds = {
        "speculation": bool(given.speculative_algorithm),
        "groups": attention_groups(job) > 1,
        "pipeline": job.parallelism.pipeline > 1,
        "adapters": given.enable_lora,
        "vision": isinstance(model.config.get("vision_config"), dict),
        "offload": given.cpu_offload_gb > 0,
        "eager": given.enforce_eager,
        "latent": bool(model.shape.kv_lora_rank),
    }
    off = row.prefill_graphs
    return off is not None and not any(holds[name] for name in off)


def _largest_step(job: Job, chunk: int) -> int:
    limit = job.inference.max_total_tokens if job.inference is not None else None
    return min(chunk, limit or chunk)


def _prefill_graphs(row: Profile, job: Job, model: Model, chunk: int) -> float:
    """MiB for the graphs of prefill steps."""
    if not _captures_prefill(row, job, model):
        return 0
    return _LATENT_PREFILL if model.shape.kv_lora_rank else 8 * prefill_sizes(_largest_step(job, chunk))


def _speculation(row: Profile, job: Job) -> float:
    """MiB that speculative decoding adds to what is kept free."""
    algorithm = job.inference.speculative_algorithm if job.inference is not None else None
    known = row.speculation
    return known.get(algorithm.upper(), known.get("other", 0)) if algorithm else 0


def _by_ranks(row: Profile, job: Job, ranks: int, total: float) -> float:
    share: float = next(part for least, part in row.shares if ranks >= least)
    if row.largest and total > row.largest[0]:
        return float(row.largest[1])
    if row.large == "reserve" and total > _SMALL_CARD:
        return (total - 13 * 1024) / total
    if row.large == "blend":
        kept = _speculation(row, job)
        share = share if total <= _SMALL_CARD else 0.88
        if total > _BLENDED_CARD:
            return min(share + 48 * 1024 * (1 - share) / total, (total - (kept or _KEPT_ON_BLENDED)) / total)
        return share * row.speculation["factor"] if kept else share
    return share
