"""What SGLang does with the arguments nobody gave: its static share and the size of a prefill step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ....source.tables import read_table
from ....units import MIB
from ....upstream.behaviour import at_release
from ....upstream.serving.sglang import AITER_SHARE
from ...states.tensor_parallel import attention_tensor
from .static_share import attention_groups, below, static_share

if TYPE_CHECKING:
    from ....hardware.gpu import Gpu
    from ....job.job import Job
    from ....models.model import Model

_TABLE = read_table(__file__, "sglang.json")


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
        chunk = int(below(row["chunks"], total)[1]) if total is not None else 4096
        defaulted.append(("inference.max_num_batched_tokens", str(chunk)))
    fraction = given.gpu_memory_utilization
    beside = _beside_tower(row, model, fraction is not None)
    if fraction is None:
        fraction = static_share(row, job, model, total, chunk) if total is not None else 0.88
        defaulted.append(("inference.gpu_memory_utilization", f"{fraction * beside:.4g}"))
    fraction *= beside * (_OF_AITER if computes_with_aiter(job, model, gpu, version) else 1.0)
    groups = attention_groups(job)
    part = 2 if row["groups_halve"] and groups > 1 else groups
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


def _beside_tower(row: dict[str, Any], model: Model, stated: bool) -> float:
    """What is left of the static share beside a vision encoder.

    0.95 x (1 - 0.1 x (layers x width^2 / those of ViT-L/14 - 1)), the second factor within 0.8 and 1.05 (0.5.4
    srt/server_args.py `adjust_mem_fraction_for_vlm`; layers and width as it finds them, else 24 and 1,024; Kimi K2.5's
    class has what its config calls `vt_*`, 0.5.11 srt/configs/kimi_k25.py).
    """
    vision = model.config.get("vision_config")
    if not isinstance(vision, dict) or (stated and not row["tower_always"]):
        return 1.0
    if row["tower"] is not None:
        return float(row["tower"])
    layers = vision.get("num_hidden_layers") or vision.get("vt_num_hidden_layers") or 24
    width = vision.get("hidden_size") or vision.get("vt_hidden_size") or 1024
    return 0.95 * max(0.8, min(1.05, 1 - 0.1 * (layers * width**2 / (24 * 1024**2) - 1)))


def profile(version: str | None) -> dict[str, Any]:
    """What holds for a version (`sglang.json`): each row up to it replaces what it names; all for an unstated one."""
    found: dict[str, Any] = {}
    for row in at_release(_TABLE["profiles"], version):
        found.update(row)
    return found
