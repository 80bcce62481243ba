"""Rules of thumb, P parameters and b bytes of one of them. Each counts what it names and nothing else.

load       2 P bytes in 16 bit, 4 P in float32: huggingface.co/docs/transformers/llm_tutorial_optimization
serve      1.2 x the bytes of the weights: blog.eleuther.ai/transformer-math
fine_tune  8 P in 16 bit, weights 2 + gradients 2 + two states 4; 16 P in float32
adam       2 + 2 + 12 bytes a parameter, each part over the N GPUs that shard it: ZeRO, arXiv 1910.02054, 3.1 and 5
blog       P b + 2 P b + max(P b, A x tokens x b), A = 4.6894e-4 P + 1.8494e6 activations a token:
           huggingface.co/blog/train_memory
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .question import BYTES

if TYPE_CHECKING:
    from .question import Question

SLOPE, OFFSET = 4.6894e-4, 1.8494e6


def load(q: Question) -> float:
    """The weights alone, for inference. Raises Unsaid."""
    q.need(q.job.kind == "inference", "training")
    q.need(q.job.weights.quantization is None, "quantised weights")
    q.need(q.stored in BYTES, f"weights in {q.stored}")
    _no_engine(q)
    return float(q.width * q.parameters)


def serve(q: Question) -> float:
    """1.2 x weights at their bits. Raises Unsaid."""
    q.need(q.job.kind == "inference", "training")
    _no_engine(q)
    return 1.2 * q.bits / 8 * q.parameters


def _no_engine(q: Question) -> None:
    engine = q.job.inference.engine if q.job.inference else "transformers"
    q.need(engine == "transformers", f"{engine} takes what it is given")
    q.whole_model()


def fine_tune(q: Question) -> float:
    """8 GB per billion in 16 bit, twice that in float32. Raises Unsaid."""
    q.full_training()
    q.whole_model()
    return 4.0 * q.width * q.parameters


def adam(q: Question) -> float:
    """Mixed precision with Adam: 16 bytes a parameter, sharded by ZeRO's stage. Raises Unsaid."""
    q.full_training()
    q.adam()
    plan = q.job.parallelism
    q.need(q.job.model_shards == 1, "tensor or pipeline parallel")
    stage = plan.zero.stage if plan.zero else 0
    if plan.fsdp:
        stage = {"full_shard": 3, "shard_grad_op": 2}.get(plan.fsdp.sharding, 0)
        q.need(stage > 0 or plan.fsdp.sharding == "no_shard", f"FSDP {plan.fsdp.sharding}")
    return mixed(q.parameters, stage, q.job.data_parallel)


def mixed(parameters: int, stage: int, gpus: int) -> float:
    """2 P weights (over N from stage 3 on) + 2 P gradients (from 2 on) + 12 P states (from 1 on)."""
    shares = [gpus if stage >= least else 1 for least in (3, 2, 1)]
    return sum(each * parameters / share for each, share in zip((2, 2, 12), shares, strict=True))


def blog(q: Question) -> float:
    """Weights, Adam's states, and the larger of gradients and activations. Raises Unsaid."""
    q.full_training()
    q.adam()
    q.whole_model()
    q.need(bool(q.job.micro_batch_size and q.job.sequence_length), "no batch or length")
    tokens = (q.job.micro_batch_size or 0) * (q.job.sequence_length or 0)
    return peak(q.parameters, tokens, q.width)


def peak(parameters: int, tokens: int, width: int) -> float:
    """The blog's total for weights of `width` bytes."""
    activations = (SLOPE * parameters + OFFSET) * tokens
    return width * (3 * parameters + max(parameters, activations))
