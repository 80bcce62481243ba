"""The EleutherAI cookbook's `calc_transformer_mem.py`, with its own count of parameters and its own defaults.

h hidden, l layers, s tokens, b batch, a heads, v vocabulary, f MLP width, k KV heads / heads, m matrices of an MLP
(2, or 3 with a gate), e experts, N GPUs; w bytes of a weight, 2 in mixed precision and 4 otherwise.
  parameters   2 v h + s h + 8 h l + 2 h + 2 (1 + k) l h^2 + e m l h f
  training     w P (/ N at ZeRO-3) + 4 P (/ N from ZeRO-2 on) + 12 P (/ N from ZeRO-1 on)
               + buckets with ZeRO on several GPUs: 5e8 w, and 1e9 w more at ZeRO-3
               + s b h l (34 + 5 a s / h), with checkpointing s b h l 34
  inference    w P + 34 s b h + 2 h l b (s + generated)
Weights are split over tensor and pipeline ranks, gradients and states are not. There is no word for LoRA, quantised
weights, FSDP, other optimizers, other attention kernels or losses: attention and loss are taken as they come.
Source: EleutherAI/cookbook calc/calc_transformer_mem.py @069ae2ef.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .question import Question

STATES = 12
GRADIENT = 4
BUCKET = 5e8
LIVE = 1e9


class Sizes(NamedTuple):
    """The calculator's arguments that shape the model."""

    hidden: int
    layers: int
    heads: int
    kv_ratio: float
    mlp_ratio: float
    mlp_matrices: int
    vocabulary: int
    tokens: int
    experts: int = 0


def answer(q: Question) -> float:
    """Bytes on one GPU. Raises Unsaid."""
    job, shape = q.job, q.model.shape
    q.need(job.weights.quantization is None, "quantised weights")
    q.need(job.parallelism.fsdp is None, "FSDP")
    q.need(job.parallelism.device_map is None or job.world_size == 1, "device_map")
    q.need(bool(shape.hidden and shape.layers and shape.heads), "the model's shape is not known")
    inference = job.inference if job.kind == "inference" else None
    tokens = (inference.prompt_length if inference else job.sequence_length) or 0
    batch = (inference.batch_size if inference else job.micro_batch_size) or 0
    q.need(bool(tokens and batch), "no batch or length")
    width = 4 if q.computed == "float32" else 2
    sizes = Sizes(
        shape.hidden, shape.layers, shape.heads, (shape.kv_heads or shape.heads) / shape.heads,
        (shape.moe_intermediate or shape.intermediate) / shape.hidden, 3 if shape.mlp == "gated" else 2,
        shape.vocabulary, tokens, shape.experts,
    )  # fmt: skip
    ranks = job.parallelism.tensor * job.parallelism.pipeline
    if inference:
        q.need(inference.engine == "transformers", f"engine {inference.engine}")
        return serving(sizes, batch, inference.new_tokens or 0, width, ranks)
    q.full_training()
    q.adam()
    stage = job.parallelism.zero.stage if job.parallelism.zero else 0
    return training(sizes, batch, width, stage, job.world_size, ranks, job.activation_checkpointing != "none")


def parameters(s: Sizes) -> float:
    """The calculator's own count: embeddings never tied, learned positions, an MLP for each expert."""
    mlp = s.mlp_matrices * s.layers * s.hidden * s.mlp_ratio * s.hidden
    attention = int(2 * (1 + s.kv_ratio) * s.layers * s.hidden * s.hidden)
    rest = 2 * s.vocabulary * s.hidden + s.hidden * s.tokens + 8 * s.hidden * s.layers + 2 * s.hidden
    return rest + attention + max(1, s.experts) * mlp


def training(s: Sizes, batch: int, width: int, stage: int, gpus: int, ranks: int, checkpointing: bool) -> float:
    """Bytes on a GPU of a training run; `ranks` is tensor x pipeline."""
    count = parameters(s)
    weights = count * width / ranks / (gpus if stage == 3 else 1)
    gradients = count * GRADIENT / (gpus if stage >= 2 else 1)
    states = count * STATES / (gpus if stage >= 1 else 1)
    buckets = 0.0
    if gpus > 1 and stage >= 1:
        buckets = BUCKET * width + (LIVE * width if stage == 3 else 0)
    scores = 0.0 if checkpointing else 5 * s.heads * s.tokens / s.hidden
    return weights + gradients + states + buckets + s.tokens * batch * s.hidden * s.layers * (34 + scores)


def serving(s: Sizes, batch: int, generated: int, width: int, ranks: int) -> float:
    """Bytes on a GPU of a generation."""
    cache = 2 * s.hidden * s.layers * (s.tokens + generated) * batch
    return parameters(s) * width / ranks + 34 * s.tokens * batch * s.hidden + cache
