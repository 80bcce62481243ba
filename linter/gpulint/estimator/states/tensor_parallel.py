"""What tensor, pipeline and expert parallelism leave of a tensor on the fullest rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...job.job import Job
    from ...models.model import Model, Tensor

COLUMN = frozenset({"q", "k", "v", "qkv", "gate", "up", "gate_up", "shared_gate", "shared_up", "embedding", "head"})
"""Divided over their output rows (Megatron's column parallel and vocabulary parallel layers)."""

ROW = frozenset({"o", "down", "shared_down"})
"""Divided over their input columns (Megatron's row parallel layers)."""

_MIXER = frozenset({"ssm", "conv"})
"""Recurrent layers and short convolutions: their channels are divided, outputs over their input columns."""

_SERVERS = ("vllm", "sglang")
"""Engines that divide a vision tower's matrices too (vllm model_executor/models/qwen2_5_vl.py, siglip.py)."""

_WHOLE_EXPERTS = (*_SERVERS, "lmdeploy")
"""Engines whose expert parallel ranks have whole experts (lmdeploy/pytorch/config.py `DistConfig`: `moe_tp` is 1)."""

_MIXER_ROWS = frozenset({"out_proj", "o_proj", "linear_out", "x_proj"})

_LATENT_UP = frozenset({"q_b_proj", "kv_b_proj", "o_a_proj"})
"""Projections of latent attention that make whole heads, or take whole groups of them (DeepSeek V4's o_a)."""

_LATENT_DOWN = frozenset({"o_b_proj"})
"""DeepSeek V4's output projection (vllm 0.28 models/deepseek_v4/attention.py; its indexer's projections are whole)."""


def divided(tensor: Tensor, job: Job, model: Model) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """The shape of one copy and the layers that have it, on the rank that holds most.

    Tensor parallel t: attention and MLP matrices over heads and intermediate features, embedding and head over the
    vocabulary, recurrent layers over their channels; norms, routers and latent down-projections are whole on every
    rank. Keys and values stay whole heads: with fewer heads than ranks each rank keeps one. Expert parallel e: the
    experts' first dimension (times `expert_tensor` over their intermediate features). Pipeline p: ceil(L/p) layers,
    and of what lies outside them the last stage's: final norm and head.
    Source: Megatron-LM core/tensor_parallel/layers.py; HF `base_model_tp_plan`; vLLM model_executor/layers/mamba/
    mamba_mixer2.py, models/deepseek_v2.py, layers/fused_moe/config.py `FusedMoEParallelConfig.make`.
    """
    plan = job.parallelism
    if tensor.role == "vision" and len(tensor.shape) == 2 and tensor.layers is not None and _engine(job) in _SERVERS:
        ranks = 1 if _whole_heads(tensor, plan.tensor, model) else plan.tensor
        return (-(-tensor.shape[0] // ranks), tensor.shape[1]), _layers(tensor, job, model)
    ranks = attention_tensor(job) if _attends(tensor) else plan.tensor
    return _shape(tensor, ranks, plan.expert, expert_tensor(job), model), _layers(tensor, job, model)


def _whole_heads(tensor: Tensor, ranks: int, model: Model) -> bool:
    """Whether a vision tower's attention is whole on every rank: its heads do not divide (InternViT-6B's 25).

    Source: vllm 0.6 model_executor/models/intern_vit.py `_init_attn`; later vLLM and SGLang are taken to do the same.
    """
    config = model.config.get("vision_config")
    heads = config.get("num_attention_heads") if isinstance(config, dict) else None
    attends = ".attention." in tensor.name or "attn." in tensor.name
    return attends and isinstance(heads, int) and heads % ranks != 0


def attention_tensor(job: Job) -> int:
    """Ranks that share attention and its cache: those of `attention_tensor` where it is stated, else all."""
    return job.parallelism.attention_tensor or job.parallelism.tensor


def _attends(tensor: Tensor) -> bool:
    """Whether a tensor is divided as attention is: its projections and the embedding.

    Source: sglang 0.5.23 srt/layers/dp_attention.py, models/deepseek_v2.py, qwen3_moe.py (`attn_tp_size`).
    """
    leaves = tensor.leaf in _LATENT_UP or tensor.leaf in _LATENT_DOWN
    return leaves or tensor.role in _ATTENTION or (tensor.role == "bias" and tensor.leaf in _ATTENTION_LEAVES)


_ATTENTION = frozenset({"q", "k", "v", "qkv", "o", "embedding", "mla"})
_ATTENTION_LEAVES = frozenset({"q_proj", "k_proj", "v_proj", "c_attn", "query_key_value"})


def expert_tensor(job: Job) -> int:
    """Ranks that share one expert's intermediate features: those of `expert_tensor` where it is stated, else of the
    rest; in vLLM those of data parallelism too, and none where ranks divide the experts. TensorRT-LLM divides them
    inside of the tensor parallel group (tensorrt_llm/mapping.py: `moe_tp_size * moe_ep_size` is `tp_size`).
    """
    plan = job.parallelism
    if plan.expert_tensor is not None:
        return plan.expert_tensor
    engine = _engine(job)
    if engine in _WHOLE_EXPERTS and plan.expert > 1:
        return 1
    if engine == "tensorrt-llm":
        return max(1, plan.tensor // plan.expert)
    return plan.tensor * (plan.data or 1) if engine == "vllm" else plan.tensor


def _engine(job: Job) -> str:
    return job.inference.engine if job.kind == "inference" and job.inference else ""


def stages(job: Job) -> int:
    """Pipeline stages, or the GPUs over which one process spreads the layers (`device_map: auto`)."""
    plan = job.parallelism
    if plan.pipeline > 1 or plan.device_map not in ("auto", "balanced", "balanced_low_0", "sequential"):
        return plan.pipeline
    if plan.zero is not None or plan.fsdp is not None or (plan.data or 1) > 1:
        return plan.pipeline
    nodes = max(1, job.hardware.nodes or 1)
    return max(1, job.world_size // nodes)


def _shape(
    tensor: Tensor, tensor_parallel: int, expert_parallel: int, expert_ranks: int, model: Model
) -> tuple[int, ...]:
    shape = tensor.shape
    role = tensor.role
    if role.startswith("expert_") and len(shape) == 3:
        experts = -(-shape[0] // expert_parallel)
        dim = 1 if role == "expert_gate_up" else 2
        inner = [experts, *shape[1:]]
        inner[dim] = -(-inner[dim] // expert_ranks)
        return tuple(inner)
    if role.startswith("expert_") and len(shape) == 2 and tensor.leaf in _STACKED_EXPERTS:
        return (-(-shape[0] // (expert_parallel * expert_ranks)), shape[1])
    if tensor_parallel == 1 or not shape:
        return shape
    if role in ("k", "v") or (role == "bias" and tensor.leaf in ("k_proj", "v_proj")):
        return (_kv_rows(shape[0], tensor_parallel, model.shape.kv_heads), *shape[1:])
    if (role == "qkv" or tensor.leaf in _FUSED_LEAVES) and 1 < model.shape.kv_heads < tensor_parallel:
        queries, keys = model.shape.heads * model.shape.head_dim, model.shape.kv_heads * model.shape.head_dim
        if shape[0] == queries + 2 * keys:
            rows = -(-queries // tensor_parallel) + 2 * _kv_rows(keys, tensor_parallel, model.shape.kv_heads)
            return (rows, *shape[1:])
    if role in COLUMN or (role == "bias" and tensor.leaf in _COLUMN_LEAVES):
        return (-(-shape[0] // tensor_parallel), *shape[1:])
    if ".indexer." in tensor.name:
        return shape
    row = role in ROW or (role in _MIXER and tensor.leaf in _MIXER_ROWS) or tensor.leaf in _LATENT_DOWN
    if row and len(shape) == 2:
        return (shape[0], -(-shape[1] // tensor_parallel))
    if (role in _MIXER and tensor.layers is not None) or tensor.leaf in _LATENT_UP:
        return (-(-shape[0] // tensor_parallel), *shape[1:])
    return shape


_STACKED_EXPERTS = frozenset({"w1", "v1", "w2"})
"""DBRX: the experts of a matrix stand below each other, and its engines divide every one over its features."""

_FUSED_LEAVES = frozenset({"query_key_value"})
"""ChatGLM's two groups of keys on more ranks are on several of them, as keys of their own projection are."""

_COLUMN_LEAVES = frozenset({"q_proj", "gate_proj", "up_proj", "c_fc", "c_attn", "query_key_value", "dense_h_to_4h"})


def _kv_rows(rows: int, tensor_parallel: int, heads: int) -> int:
    heads = max(1, heads)
    return rows // heads * -(-heads // tensor_parallel)


def _layers(tensor: Tensor, job: Job, model: Model) -> tuple[int, ...] | None:
    count = stages(job)
    if count <= 1:
        return tensor.layers
    if tensor.layers is None:
        return None if _outside_on_fullest(tensor, job, model) else ()
    return _last_stage(tensor.layers, count, model)


def _last_stage(layers: tuple[int, ...], stages_: int, model: Model) -> tuple[int, ...]:
    total = max(model.shape.layers, max(layers, default=-1) + 1)
    first = total - -(-total // stages_)
    return tuple(layer for layer in layers if layer >= first)


def divided_adapter(
    inner: int, outer: int, role: str, leaf: str, layers: tuple[int, ...] | None, job: Job, model: Model
) -> tuple[int, int, tuple[int, ...] | None]:
    """Input features of lora_A, output features of lora_B and layers on the fullest rank.

    The pair follows its layer: over a column parallel one lora_B is divided, over a row parallel one lora_A.
    """
    parallel, stages_ = job.parallelism.tensor, stages(job)
    if layers is not None and stages_ > 1:
        layers = _last_stage(layers, stages_, model)
    mixes = role in _MIXER and layers is not None
    if role in ROW or (mixes and leaf in _MIXER_ROWS):
        inner = -(-inner // parallel)
    elif role in COLUMN or mixes:
        outer = -(-outer // parallel)
    return inner, outer, layers


_EVERYWHERE = frozenset({"qwen2_moe", "qwen3_moe", "qwen3_vl_moe", "qwen3_next", "qwen3_5", "qwen3_5_moe"})


def _outside_on_fullest(tensor: Tensor, job: Job, model: Model) -> bool:
    """The last stage: head and final norm; with tied embeddings their copy serves as its head.

    Some of vLLM's models make their embedding on every stage (models/qwen2_moe.py, qwen3_moe.py, qwen3_next.py,
    qwen3_5.py `embed_tokens`).
    """
    if tensor.role in ("embedding", "position"):
        everywhere = _engine(job) == "vllm" and model.model_type in _EVERYWHERE
        return tensor.role == "embedding" and (model.shape.tied or everywhere)
    return True


def fullest_stage(sizes: Sequence[int], pipeline: int) -> int:
    """The largest sum of ceil(n / pipeline) neighbouring layers."""
    return sum(sizes[layer] for layer in fullest_layers(sizes, pipeline))


def fullest_layers(sizes: Sequence[int], pipeline: int) -> range:
    """The ceil(n / pipeline) neighbouring layers that sum to most."""
    if pipeline <= 1 or not sizes:
        return range(len(sizes))
    span = -(-len(sizes) // pipeline)
    starts = range(len(sizes) - span + 1)
    first = max(starts, key=lambda start: sum(sizes[start : start + span]))
    return range(first, first + span)
