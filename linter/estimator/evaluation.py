"""The evaluation loop of a training run: a forward pass without gradients at its own batch size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .estimate import Phase
from .parameters import base_dtype
from .storage import dtype_bytes

if TYPE_CHECKING:
    from ..job import Job
    from ..models.model import Model


HEADLESS = frozenset({"classification", "token_classification", "question_answering", "reward"})
"""Objectives whose models score tokens or rows without the vocabulary (`models/heads.json`)."""


def phase(job: Job, model: Model, fixed: dict[str, int]) -> Phase | None:
    """The instant of an evaluation step with most memory; None where no evaluation is configured.

    Nothing is saved for backward, gradients are gone (`zero_grad` sets them to None) but for those in buffers, which
    `fixed` holds, states stay. T = batch x
    sequence tokens, h hidden, f widest MLP, V vocabulary, e = 2 (16-bit) or 4:
    loss    logits e T V, their fp32 copy 4 T V (none in fp32), log-softmax 4 T V, hidden state e T h
    layer   3 e T f + 4 e T h  (gate, up and their product; residual, normed input and its fp32 copy)
    A trainer that keeps the logits for metrics adds 4 T V, each step more until it moves them to the CPU
    (`eval_accumulation_steps`). Fused losses and tiles need no vocabulary-wide tensor (Liger's where the trainer asks
    for it, as TRL does; by itself it skips logits in training alone, liger_kernel/transformers/model/llama.py:
    `evaluation.unfused`). OpenRLHF scores rollouts so, and with flash-attn's cross entropy, which makes no log-softmax.
    Source: transformers 5.23 loss/loss_utils.py `ForCausalLMLoss`, trainer.py `evaluation_loop`; the layer's form is
    the prefill transient of the memory oracle.
    """
    batch = job.evaluation.micro_batch_size
    if not batch or not job.sequence_length:
        return None
    shape = model.shape
    tokens = batch * job.sequence_length // max(1, job.parallelism.context)
    dtype = base_dtype(job, model)
    wide = dtype == "float32" and job.precision.autocast is None
    size = 4 if wide else 2
    vocabulary = -(-shape.vocabulary // job.parallelism.tensor)
    logits = 0
    headless = job.objective in HEADLESS
    tiled = job.loss.kernel == "chunked" and job.loss.logits in ("tiles", "passes")
    fused = tiled or job.loss.kernel in ("liger", "cut_cross_entropy")
    if not headless and (not fused or job.evaluation.keeps_logits or job.evaluation.unfused):
        logits = tokens * vocabulary * (8 if wide else 6 if job.framework == "openrlhf" else 10)
    if job.evaluation.keeps_logits and not headless:
        logits += tokens * vocabulary * 4
    widest = max(shape.intermediate, shape.moe_intermediate * shape.experts_per_token)
    layer = size * tokens * (3 * -(-widest // job.parallelism.tensor) + 4 * shape.hidden)
    hidden = int(dtype_bytes(dtype)) * tokens * shape.hidden
    if logits + hidden >= layer:
        return Phase("evaluation", {**fixed, "activations": hidden, "logits": logits})
    return Phase("evaluation", {**fixed, "activations": layer})
