"""Which attention kernels and which loss run, of what a job asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...upstream import olmo, torch, torchtitan, unsloth
from ...upstream.stack import Stack
from ...upstream.transformers import SDPA_NEEDS_TORCH_2_1_1
from ...upstream.transformers_models import NO_SDPA
from .frameworks import framework, of_transformers, runs_own_model
from .unsloth import compiles_scores, takes_xformers

if TYPE_CHECKING:
    from ...job.job import Job
    from ...models.arch_spec import ArchSpec
    from ...models.model import Model


AMPERE, HOPPER, BLACKWELL = 8.0, 9.0, 10.0
"""The compute capability of their first GPUs."""

FUSED_LAYERS = ("unsloth", "unsloth_cross_entropy")
"""Losses whose library brings layers of its own, which make anew what torch's autograd would save (unsloth
kernels/fast_lora.py `LoRA_MLP`, rms_layernorm.py)."""


def attention_implementation(job: Job, model: Model, found: ArchSpec, config: dict[str, Any]) -> str:
    """The kernel family that runs. With soft-capped scores Transformers refuses sdpa and falls back to eager, the
    classes of GPT-J and GPT-Neo have none (`GPTJ_ATTENTION_CLASSES`), and those of older releases had none yet or
    wanted torch 2.1.1 (utils/import_utils.py `is_torch_sdpa_available`). Unsloth has classes of its own. Before Ampere
    Transformer Engine has no fused kernel (pytorch/attention/dot_product_attention/utils.py `get_attention_backend`:
    sm80 for flash-attn and cuDNN's).
    """
    stated = job.attention
    if stated == "flash_attention_2" and framework(job).fuses_layers and (_capability(job) or AMPERE) < AMPERE:
        return "eager"
    if takes_xformers(job, model):
        return "xformers"
    if compiles_scores(job, model):
        return "softcapped"
    if stated == "sdpa" and of_transformers(job):
        stack = Stack(job)
        before = stack.does(SDPA_NEEDS_TORCH_2_1_1) and not stack.does(torch.SDPA_OF_TRANSFORMERS)
        if before or stack.does(NO_SDPA, model.model_type):
            return "eager"
    written = found.sinks or found.scores in ("upcast", "relative")
    if stated in ("sdpa", "flex") and ((found.softcap and config.get(found.softcap, True)) or written):
        return "eager"
    return stated


def sdpa_kernels(job: Job) -> str:
    """The best of torch's attention kernels for the 16-bit operands of a job on its GPU.

    flash        from Ampere on (sdp_utils.cpp `check_flash_attention_hardware_support`: sm80)
    efficient    before it, of float16 (`less_than_sm80_mem_efficient_dtypes`: half and float)
    math         before it, of bfloat16: no kernel but the composite one, in float32
    narrow math  the same in bfloat16, of older releases of torch
    xformers has the same two (ops/fmha/flash.py and cutlass.py, `CUDA_MINIMUM_COMPUTE_CAPABILITY`). A job that has
    Unsloth's loss and names no release of it is taken to have flash-attn (fms-acceleration). For OLMo `sdpa`
    stands for `flash_attention` false.
    """
    stack, of_torch = Stack(job), job.attention == "sdpa"
    other = job.loss.kernel in FUSED_LAYERS and not stack.runs(unsloth.NAME)
    capability = _capability(job) if job.attention in ("sdpa", "xformers") and not other else None
    flash = not (of_torch and stack.does(olmo.FLASH_OFF))
    if flash and (capability is None or capability >= AMPERE):
        return "flash"
    plan = job.parallelism.fsdp
    mixed = plan.mixed_precision.param_dtype if plan is not None else None
    half = (job.precision.autocast or mixed or job.weights.dtype) == "float16"
    if half and not (of_torch and stack.does(olmo.EFFICIENT_OFF)):
        return "efficient"
    return "math" if stack.does(torch.WIDE_COMPOSITE_ATTENTION) else "narrow math"


def composite(job: Job, grouped: bool, shared: bool, element: float) -> str:
    """ "math" or "narrow math" where torch's composite attention runs for `sdpa` without a mask, else nothing.

    `grouped` where query heads share key heads, `shared` where nobody repeats those: the memory-efficient kernel, all
    that float32 and GPUs before Ampere have, takes no grouped keys (sdp_utils.cpp `supports_grouped_query_attention`).
    """
    if job.attention != "sdpa":
        return ""
    if element > 2:
        return "math" if grouped else ""
    kernels = sdpa_kernels(job)
    if kernels == "efficient":
        return "math" if grouped and shared else ""
    return "" if kernels == "flash" else kernels


def sequence_first(job: Job) -> bool:
    """Whether Megatron lays the output of flash attention out anew, [b, s] as [s, b]; the projection saves the copy.

    Its own flash attention does (megatron/legacy/model/transformer.py, `rearrange(context_layer, 'b s h d -> s b (h
    d)')`), and so does Transformer Engine around flash-attn, which it takes before Hopper; from Hopper on it takes
    cuDNN's, which has that layout itself (transformer_engine/pytorch/attention: backends.py, utils.py
    `get_attention_backend`, 1.9 to 2.18). Where the inside of attention is made again, the copy is all that stays.
    """
    if not framework(job).fuses_layers or job.attention != "flash_attention_2":
        return False
    if job.activation_checkpointing == "selective" and job.checkpoint_policy == "core_attention":
        return False
    capability = _capability(job)
    return job.without_transformer_engine or (capability is not None and capability < HOPPER)


def remakes_scores(job: Job, attention: str) -> bool:
    """Whether the inside of an attention that is not fused runs again in backward.

    Megatron's `core_attn` (core/transformer/attention.py `_checkpointed_attention_forward`, tensor_parallel/random.py
    `CheckpointFunction`): queries, keys and values are saved, and the scores are made again. Fused kernels make theirs
    again by themselves.
    """
    selective = job.activation_checkpointing == "selective" and job.checkpoint_policy == "core_attention"
    return selective and attention == "eager"


def on_blackwell(job: Job) -> bool:
    """Whether the job's GPU is known to be of Blackwell or later."""
    return (_capability(job) or 0) >= BLACKWELL


def _capability(job: Job) -> float | None:
    from ...hardware.catalogue import find

    return find(job.hardware.gpu).compute_capability if job.hardware.gpu else None


def loss_kernel(kernel: str, found: ArchSpec) -> str:
    """The loss kernel that runs: Liger leaves a model type that it does not know as it is."""
    if kernel != "liger" or "loss" in found.liger:
        return kernel
    return "liger_cross_entropy" if "cross_entropy" in found.liger else "torch"


def fused_operations(job: Job, found: ArchSpec) -> frozenset[str]:
    """The operations of a layer that Liger's kernels replace, norms of heads with the other norms."""
    if not job.liger_kernels:
        return frozenset()
    wanted = job.liger_parts
    return frozenset(part for part in found.liger if wanted is None or any(name in part for name in wanted))


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
    if runs_own_model(job, model.model_type):
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
