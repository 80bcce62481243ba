"""Megatron's distributed optimizer: whole 16-bit weights, one gradient buffer, fp32 shards of the rest.

Source: Megatron-LM core/distributed/param_and_grad_buffer.py, core/optimizer/distrib_optimizer.py (core 0.14).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import derivation, optimizer
from .gradients import gradient_dtype
from .layout import Layout
from .loading import loading
from .parameters import allocated, elements
from .ranks import Ranks, per_node, ranks
from .storage import dtype_bytes

if TYPE_CHECKING:
    from ..job import Job
    from .parameter import Parameter


def megatron_layout(job: Job, found: tuple[Parameter, ...]) -> Layout:
    """The Layout under Megatron's DistributedDataParallel. N data-parallel ranks, T trainable elements on the rank.

    gradients   a contiguous buffer of T elements, allocated before the first step and never freed: fp32 with
                `grad_reduce_in_fp32`, else as the weights. The weight gradient's matmul adds into it
                (`gradient_accumulation_fusion`), so that there are no others
    optimizer   fp32 masters and states of T/N elements (of T without the distributed optimizer, stage 0)
    The optimizer reads its part of the buffer in place, and with overlapped all-gathers the weights are views of a
    buffer of the same size: neither step nor gather takes more.
    """
    zero = job.parallelism.zero
    assert zero is not None
    trained = [item for item in found if item.trainable]
    over = ranks(job) if zero.stage else Ranks(1, 1)
    share = over.elements(trained)
    spec = optimizer.of_job(job)
    items = [optimizer.Item((share,), 1, "float32", flat=True)] if share else []
    states = optimizer.states(items, spec, job)
    away = zero.offload_optimizer.device != "none"
    built = Layout(
        weights=allocated(item for item in found if item.part in ("base", "buffer")),
        adapter=allocated(item for item in found if item.part in ("adapter", "copy")),
        optimizer=0 if away else states.allocated + 4 * share,
        host=per_node(job) * (4 * share + states.raw if away else states.host),
        gradients=int(sum(item.elements * dtype_bytes(gradient_dtype(item, job)) for item in trained)),
        trainable=elements(trained),
        load=loading(found, job),
        accumulating=True,
    )
    built.terms = [
        *derivation.weights(found),
        *derivation.gradients(trained, job),
        *derivation.optimizer(items, spec, states, job, masters=4 * share, ranks=over.dense),
    ]
    return built
