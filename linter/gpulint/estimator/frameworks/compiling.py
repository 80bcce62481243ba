"""What torch.compile gets to see of a decoder layer, and what a selective checkpoint keeps of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...upstream import torchtitan
from ...upstream.stack import Stack
from . import prime_rl
from .attention import on_blackwell
from .frameworks import of_transformers

if TYPE_CHECKING:
    from ...job.job import Job
    from ...models.model import Model


def traced(job: Job, model: Model) -> bool:
    """Whether torch.compile gets graphs of a decoder layer.

    What runs inside `torch.utils.checkpoint` is traced as a whole or not at all: at a graph break Dynamo leaves the
    call to eager, and `checkpoint` keeps it from the frames within (`_disable_dynamo`, torch/utils/checkpoint.py).
    Transformers' flash attention branches on the values of `position_ids` where there is one row
    (modeling_flash_attention_utils.py `_is_packed_sequence`), which no graph holds: a checkpointed layer stays eager.
    So does one with experts that are divided over ranks in torchtitan before 0.2.1, where FSDP's hooks around them are
    the break (torchtitan#1895), and one of prime-rl's own with experts, whose adapters are chosen by a number that is
    read from the GPU (trainer/models/layers/lora/multi_moe.py; without adapters it is not known, and counted the same)
    or with FlashAttention 4, which it keeps Dynamo from (trainer/models/layers/attn.py).
    """
    if not job.compile:
        return False
    divided = model.shape.experts and job.parallelism.expert > 1
    if divided and Stack(job).does(torchtitan.WHOLE_BLOCKS):
        return job.activation_checkpointing == "none" or job.checkpoint_every > 1
    whole = job.activation_checkpointing in ("full", "offload") and job.checkpoint_every <= 1
    if not whole or not of_transformers(job):
        return True
    if prime_rl.own(job, model.model_type):
        return not model.shape.experts and job.attention != "flash_attention_4"
    return not job.attention.startswith("flash") or (job.micro_batch_size or 1) > 1


def remade_attention(job: Job) -> bool:
    """Whether torchtitan's policy by operator makes attention again: cuDNN comes first, and its operator is not listed.

    In 0.2.0 everywhere, in 0.1 on Blackwell only.
    """
    stack = Stack(job)
    if job.attention != "sdpa":
        return False
    return stack.does(torchtitan.ATTENTION_AGAIN) or (
        stack.does(torchtitan.ATTENTION_AGAIN_ON_BLACKWELL) and on_blackwell(job)
    )
