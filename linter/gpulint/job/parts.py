"""The parts of a Job: weights, adapter, precision, optimizer, loss, engines, hardware.

A field that is None was stated by nobody and has no default. How a run is divided over GPUs is in `job_sharding`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Dtype = Literal["float64", "float32", "bfloat16", "float16", "float8"]
AutocastDtype = Literal["bfloat16", "float16"]
JsonObject = dict[str, Any]


@dataclass(slots=True)
class Quantization:
    """How the stored base weights are packed.

    `method` is bnb-nf4, bnb-fp4, bnb-int8, gptq, awq, fp8, mxfp4, hqq, gguf-<type> ...; `skip` names modules
    that stay in `weights.dtype`. `experts`: fused 3-D expert tensors are packed too, which bitsandbytes by itself
    leaves alone. `head`: the output head is packed too. `modules` are modules that another method packs, by a part of
    their dotted name: `{experts: mxfp4-linear}`.
    """

    method: str
    bits: float | None = None
    group_size: int | None = None
    double_quant: bool = False
    skip: list[str] = field(default_factory=list)
    storage_dtype: str | None = None
    experts: bool = False
    head: bool = False
    modules: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Weights:
    """The base weights as loaded. `dtype` None means the checkpoint's own.

    `trainable_dtype` is the dtype of base weights that are trained, where the tool upcasts only those; None is `dtype`.
    `float32` are parts of names of parameters that the tool keeps in float32 (`norm`, `embed_tokens`), `float32_once`
    of those that it makes float32 and narrows again before training.
    `layers_offloaded`: frozen weights of decoder layers wait in main memory for their turn (axolotl).
    """

    dtype: Dtype | None = None
    trainable_dtype: Dtype | None = None
    quantization: Quantization | None = None
    float32: list[str] = field(default_factory=list)
    float32_once: list[str] = field(default_factory=list)
    layers_offloaded: bool = False


@dataclass(slots=True)
class Adapter:
    """A PEFT adapter. `targets` are module name suffixes or `all-linear`; names the model lacks are skipped.

    `dtype` None is what PEFT chooses (float32 with `autocast_adapter_dtype`, over 16-bit or 4-bit bases).
    `prepare_kbit` is PEFT's `prepare_model_for_kbit_training`: norms, embeddings and head become float32;
    `prepared_head` is the dtype to which a trainer then takes embeddings and head back (TRL up to 0.19: bfloat16).
    `exclude` is PEFT's `exclude_modules` (name suffixes, or a regular expression), `parameters` its
    `target_parameters`: suffixes of parameters that are adapted as such (`mlp.experts.gate_up_proj`).
    `options` are what a type other than LoRA has of its own, as its PEFT config names it (`oft_block_size`,
    `num_virtual_tokens`); `r` is its rank, AdaLoRA's `init_r`.
    `kernels` are the parts of a layer that run in fused autograd functions where all their projections have LoRA:
    `qkv`, `o` and `mlp`. They are axolotl's where `versions.axolotl` is stated (`lora_*_kernel`), Unsloth's where
    `versions.unsloth` is, else fms-acceleration's. `own`: the tool's own LoRA, which adapts what PEFT refuses to
    (AutoModel).
    """

    type: str = "lora"
    r: int = 8
    alpha: float | None = None
    dropout: float = 0.0
    targets: list[str] | str | None = None
    modules_to_save: list[str] = field(default_factory=list)
    dtype: Dtype | None = None
    prepare_kbit: bool = False
    prepared_head: Dtype | None = None
    layers: list[int] | None = None
    rank_pattern: dict[str, int] = field(default_factory=dict)
    exclude: list[str] | str | None = None
    parameters: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    kernels: list[str] = field(default_factory=list)
    own: bool = False


@dataclass(slots=True)
class Precision:
    """`gradients` None is the dtype of the weight; `master_weights` is a separate fp32 copy (DeepSpeed, Megatron).

    `compute` names what linear layers multiply in where that is narrower than what they are given: `float8`, `mxfp8`,
    `nvfp4` (torchao, cast for each product) or `float8-te` (Transformer Engine).
    """

    autocast: AutocastDtype | None = None
    gradients: Dtype | None = None
    master_weights: bool = False
    compute: str | None = None


@dataclass(slots=True)
class Optimizer:
    """`name` in the Transformers `optim` spelling; None fields are that optimizer's own defaults.

    `embeddings_32bit`: 8-bit bitsandbytes optimizers keep fp32 states for nn.Embedding, as the Transformers Trainer
    arranges with `GlobalOptimManager`. Formats that run through the Trainer set it.
    `between_steps_offloaded`: states wait in main memory and are on the GPU for the step alone (prime-rl).
    """

    name: str = "adamw_torch_fused"
    state_dtype: Dtype | None = None
    foreach: bool | None = None
    in_backward: bool = False
    rank: int | None = None
    embeddings_32bit: bool = False
    between_steps_offloaded: bool = False


@dataclass(slots=True)
class Loss:
    """Where the logits live: `torch` (whole), `smoothed` (whole, the Trainer's label smoothing), `liger`, `unsloth`,
    `cut_cross_entropy` or `chunked` with `chunk` tokens; `liger_cross_entropy`, `unsloth_cross_entropy` and
    `te_cross_entropy` are of whole logits, whose bytes their gradient takes.

    `logits` is what a chunked loss holds: tiles that are made again in backward (TRL), the `whole` 16-bit logits
    (axolotl), `pieces` of them that the head makes one by one (torchtune, LitGPT), or those of one piece, which goes
    backward before the next is made, `passes` (torchtitan). prime-rl's head holds `blocks` of `chunk` tokens by 8192
    columns, before 0.4.1.dev127 `chunk` `columns` of the vocabulary for all tokens. `compiled`: torch.compile over
    upcast and cross entropy, None where `compile` says so.
    `upcast` is where 16-bit logits become float32, None as Transformers does at its version. `kept`: the training loop
    names the logits until the next step's are there (true), or to the end of its `step`. `parallel`: under tensor
    parallelism each rank has its part of the vocabulary's logits (Megatron, torchtitan); else the head gathers them.
    `log_softmax` is how preference trainers come by log-probabilities: by a `kernel` that reads the logits (TRL from
    1.14 on), `rows` of the batch one at a time (from 0.15 on), the `whole` at once (before), or the whole in `float32`,
    whose logits are named until the loss is there (LLaMA-Factory). `idle_logits`: the loss does not use the logits that
    the model makes (TRL's value head). `deferred` micro batches of a step leave gradients of logits for the head's.
    """

    kernel: str = "torch"
    chunk: int | None = None
    logits: Literal["tiles", "whole", "pieces", "passes", "blocks", "columns"] = "tiles"
    compiled: bool | None = None
    upcast: Literal["loss", "model", "never"] | None = None
    kept: Literal["step"] | bool = False
    parallel: bool = True
    log_softmax: Literal["kernel", "rows", "whole", "float32"] = "rows"
    idle_logits: bool = False
    deferred: int = 0


@dataclass(slots=True)
class Inference:
    """A generation or serving run. None fields are the engine's own defaults for its version and GPU.

    `max_total_tokens` is the most tokens that the cache of a rank holds (SGLang, TensorRT-LLM). `flashinfer_sampler` is
    vLLM's VLLM_USE_FLASHINFER_SAMPLER. `speculative_algorithm` is SGLang's word (EAGLE, NEXTN, STANDALONE, NGRAM)
    or vLLM's `method` (mtp, ngram) where it is stated. `performance_mode` is vLLM's: throughput, interactivity.
    `compiles` is False where vLLM compiles nothing and still captures graphs; `pooling`: its answer is hidden states,
    True or False where it is told so. Of SGLang, `prefix_caching` is its radix cache, `max_states` the requests whose
    recurrent states it keeps, `state_ratio` those states' bytes over the tokens', `kv_cache_off` says that it keeps no
    token, and `attention_backend` its kernels where they are stated.
    """

    engine: str = "transformers"
    version: str | None = None
    batch_size: int | None = None
    prompt_length: int | None = None
    new_tokens: int | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    kv_cache_dtype: str | None = None
    kv_cache_memory_bytes: int | None = None
    max_total_tokens: int | None = None
    gpu_memory_utilization: float | None = None
    block_size: int | None = None
    enforce_eager: bool = False
    compiles: bool | None = None
    full_prefill_logits: bool | None = None
    cpu_offload_gb: float = 0.0
    swap_space_gb: float | None = None
    enable_lora: bool = False
    max_loras: int | None = None
    max_lora_rank: int | None = None
    speculative_model: str | None = None
    speculative_algorithm: str | None = None
    speculative_tokens: int | None = None
    cudagraph_capture_sizes: list[int] | None = None
    chunked_prefill: bool | None = None
    flashinfer_sampler: bool | None = None
    performance_mode: str | None = None
    prefix_caching: bool | None = None
    max_states: int | None = None
    state_ratio: float | None = None
    kv_cache_off: bool = False
    attention_backend: str | None = None
    pooling: bool | None = None
    modalities_off: list[str] | None = None
    skip_mm_profiling: bool = False


@dataclass(slots=True)
class Rl:
    """What preference and online objectives add. Counts of completions are per prompt.

    `value_model` of PPO: a `model` of its own that is trained beside the policy (TRL), or a `head` on it
    (LLaMA-Factory). `teacher`: the frozen model whose distribution a student is trained on, hub id or path.
    `reference_apart`: the reference is loaded as a model of its own, whose weights want gradients, and runs while the
    policy's outputs have a name (TRL's DPO and KTO from 0.29 on); else a frozen copy runs when the logits are gone.
    """

    reference_model: bool | None = None
    precompute_reference: bool = False
    prompt_length: int | None = None
    completion_length: int | None = None
    generations: int | None = None
    vllm: str | None = None
    vllm_gpu_memory_utilization: float | None = None
    vllm_sleep: bool = False
    reward_model: str | None = None
    teacher: str | None = None
    value_model: Literal["model", "head", "apart"] = "model"
    policy_offload: bool = False
    reference_apart: bool = False


@dataclass(slots=True)
class Hardware:
    """`gpu` is a catalogue name (`h100-80gb`); `gpus` the total that the job uses over all `nodes`.

    `asked_gpus` is what a launcher asks the cluster for; `host_memory` and `shared_memory` (/dev/shm) are bytes of one
    node. `contexts` is how many processes have a CUDA context on each GPU: more than one where every rank asks every
    GPU how much is free (accelerate's `get_max_memory`, for a device map that a rank works out).
    """

    gpu: str | None = None
    gpus: int | None = None
    nodes: int | None = None
    asked_gpus: int | None = None
    host_memory: int | None = None
    shared_memory: int | None = None
    contexts: int = 1


@dataclass(slots=True)
class CachingAllocator:
    """PYTORCH_ALLOC_CONF: torch's allocator settings that move memory, under torch's names."""

    expandable_segments: bool = False
    max_split_size_mb: int | None = None
    roundup_power2_divisions: int | None = None


@dataclass(slots=True)
class Evaluation:
    """The evaluation loop of a training run; `micro_batch_size` None when none is configured to run.

    `unfused`: it makes the logits though the training loss is fused, as Liger's models do where nobody asks otherwise.
    `caches`: a pass keeps the keys and values of all layers until its outputs are gone (`use_cache`).
    """

    micro_batch_size: int | None = None
    accumulation_steps: int | None = None
    keeps_logits: bool = False
    unfused: bool = False
    caches: bool = False
