"""The parts of a Job that say how it trains: precision, optimizer, loss, evaluation, preference and online RL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..declared import declared
from .weights import Dtype

AutocastDtype = Literal["bfloat16", "float16"]


@dataclass(slots=True)
class Precision:
    """Precision of the computation."""

    autocast: AutocastDtype | None = declared("Dtype of torch autocast; null without autocast.", None)
    gradients: Dtype | None = declared("Dtype of gradients; null is the weight's dtype.", None)
    master_weights: bool = declared(
        "Whether the optimizer keeps a float32 copy of the weights (DeepSpeed, Megatron).", False
    )
    compute: str | None = declared(
        "Low-precision format of matrix multiplications in linear layers: `float8`, `mxfp8`, `nvfp4` "
        "(torchao, cast for each product), `float8-te` (Transformer Engine).",
        None,
    )


@dataclass(slots=True)
class Optimizer:
    """The optimizer; null fields are its own defaults."""

    name: str = declared("The optimizer's name, as in Transformers' `optim`.", "adamw_torch_fused")
    state_dtype: Dtype | None = declared("Dtype of the optimizer states; null is the optimizer's default.", None)
    foreach: bool | None = declared("Whether the foreach implementation updates all parameters at once.", None)
    in_backward: bool = declared(
        "Whether the optimizer steps inside the backward pass, so that gradients are freed at once.", False
    )
    rank: int | None = declared("Rank of low-rank optimizers (GaLore, APOLLO).", None, least=0)
    embeddings_32bit: bool = declared(
        "Whether an 8-bit bitsandbytes optimizer keeps float32 states for nn.Embedding, as the Transformers "
        "Trainer arranges (`GlobalOptimManager`).",
        False,
    )
    states_offloaded_between_steps: bool = declared(
        "Whether optimizer states stay in host RAM and are on the GPU only during the step (prime-rl).", False
    )


@dataclass(slots=True)
class Loss:
    """The loss, and where its logits live."""

    kernel: str = declared(
        "`torch`, `smoothed` (the Trainer's label smoothing), `liger`, `unsloth`, `cut_cross_entropy` or "
        "`chunked`; with full logits, whose memory their gradient takes, `liger_cross_entropy`, "
        "`unsloth_cross_entropy` or `te_cross_entropy`.",
        "torch",
    )
    chunk: int | None = declared("Tokens per chunk of a chunked loss.", None, unit="tokens", least=0)
    logits: Literal["tiles", "whole", "pieces", "passes", "blocks", "columns"] = declared(
        "Which logits a chunked loss keeps: `tiles` that are recomputed in backward (TRL), the `whole` 16-bit "
        "logits (axolotl), `pieces` that the head computes one by one (torchtune, LitGPT), `passes` of one "
        "piece that goes backward before the next is computed (torchtitan), `blocks` of `chunk` tokens by "
        "8192 columns, or `chunk` `columns` of the vocabulary for all tokens (prime-rl from 0.4.1.dev127, and "
        "before).",
        "tiles",
    )
    compiled: bool | None = declared(
        "Whether the upcast and the cross entropy are compiled; null is what `compile` says.", None
    )
    upcast: Literal["loss", "model", "never"] | None = declared(
        "Where 16-bit logits are upcast to float32; null is what the Transformers release does.", None
    )
    kept: Literal["step"] | bool = declared(
        "Whether the logits are kept to the end of the `step`, or (true) until the next step has computed its own.",
        False,
    )
    parallel: bool = declared(
        "Whether tensor-parallel ranks hold only their shard of the vocabulary's logits (Megatron, "
        "torchtitan); otherwise the head gathers them.",
        True,
    )
    log_softmax: Literal["kernel", "rows", "whole", "float32"] = declared(
        "How preference trainers compute the log-softmax: a `kernel` that reads the logits (TRL from 1.14), "
        "`rows` of the batch one at a time (from 0.15), the `whole` at once (before), or the whole in "
        "`float32`, kept until the loss is computed (LLaMA-Factory).",
        "rows",
    )
    logits_unused: bool = declared(
        "Whether the model computes logits that its loss does not use (TRL's value head).", False
    )
    deferred: int = declared("Micro batches whose logits' gradients are kept until the end of the step.", 0, least=0)


@dataclass(slots=True)
class Evaluation:
    """The evaluation loop of a training run."""

    micro_batch_size: int | None = declared(
        "Samples per GPU in evaluation; null if no evaluation is configured.", None, least=1
    )
    accumulation_steps: int | None = declared(
        "Batches whose logits stay on the GPU before they are moved to host RAM.", None, least=0
    )
    keeps_logits: bool = declared("Whether evaluation keeps the logits.", False)
    unfused: bool = declared(
        "Whether evaluation computes full logits although the training loss is fused, as Liger's models do by default.",
        False,
    )
    caches: bool = declared("Whether the forward pass keeps the KV cache of all layers (`use_cache`).", False)


@dataclass(slots=True)
class Rl:
    """What preference and online RL objectives add; counts of completions are per prompt."""

    reference_model: bool | None = declared(
        "Whether a reference model is loaded; null is the objective's default.", None
    )
    precompute_reference: bool = declared(
        "Whether the reference's log-probabilities are computed before training.", False
    )
    prompt_length: int | None = declared("Maximum prompt length.", None, unit="tokens", least=0)
    completion_length: int | None = declared("Maximum completion length.", None, unit="tokens", least=0)
    generations: int | None = declared("Completions per prompt.", None, least=1)
    vllm: str | None = declared("Where vLLM generates: `colocate` or `server`; null without vLLM.", None)
    vllm_gpu_memory_utilization: float | None = declared("Share of GPU memory for a colocated vLLM.", None, least=0)
    vllm_sleep: bool = declared("Whether vLLM releases its memory (sleep mode) while the policy is trained.", False)
    reward_model: str | None = declared("The reward model that is loaded along with the policy.", None)
    teacher: str | None = declared("The frozen teacher model of a distillation, hub id or path.", None)
    value_model: Literal["model", "head", "apart"] = declared(
        "PPO's value model: a separate `model` that is trained along (TRL), a `head` on the policy "
        "(LLaMA-Factory), or on other GPUs (`apart`).",
        "model",
    )
    policy_offload: bool = declared("Whether the policy is offloaded while completions are generated.", False)
    reference_apart: bool = declared(
        "Whether the reference is loaded as a model of its own with gradients enabled and runs while the "
        "policy's outputs are in memory (TRL's DPO and KTO from 0.29); otherwise a frozen copy runs after the "
        "logits are freed.",
        False,
    )
