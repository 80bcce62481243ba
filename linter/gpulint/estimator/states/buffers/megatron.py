"""What Megatron's layers hold from the first pass on and never free, beside cuBLAS' workspaces in torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....units import KIB, MIB
from ...frameworks.attention import HOPPER
from ...frameworks.frameworks import framework
from ..parameters import base_dtype
from ..storage import dtype_bytes

if TYPE_CHECKING:
    from ....hardware.gpu import Gpu
    from ....job.job import Job
    from ....models.model import Model

_WORKSPACE, _WORKSPACE_OF_HOPPER = 4 * MIB, 32 * MIB + KIB


def held(job: Job, model: Model, gpu: Gpu | None) -> int:
    """Bytes of the buffers of one rank: Transformer Engine's workspace, or that of Megatron's own attention.

    Transformer Engine multiplies with a cuBLAS workspace of its own, a tensor of 4 MiB, from Hopper on of 32 MiB and
    1 KiB (transformer_engine/pytorch/cpp_extensions/gemm.py `get_cublas_workspace_size_bytes`, 2.18).
    """
    if not framework(job).fuses_layers:
        return 0
    if job.without_transformer_engine:
        return scores(job, model) if job.attention == "eager" else 0
    return _WORKSPACE_OF_HOPPER if gpu is not None and (gpu.compute_capability or 0) >= HOPPER else _WORKSPACE


def scores(job: Job, model: Model) -> int:
    """e b (nh / t) s^2 bytes: what `torch.baddbmm` adds a layer's scores to with a factor of 0.

    A tensor of the global memory buffer, which all layers share (Megatron-LM core/transformer/dot_product_attention.py
    and core/utils.py `GlobalMemoryBuffer`; before core 0.3 megatron/model/transformer.py `CoreAttention`).
    """
    heads = -(-model.shape.heads // job.parallelism.tensor)
    length = job.sequence_length or 0
    return int(dtype_bytes(base_dtype(job, model))) * (job.micro_batch_size or 0) * heads * length * length
