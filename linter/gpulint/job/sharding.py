"""The parts of a Job that say how a run is divided over GPUs: ZeRO, FSDP and the degrees of parallelism.

A field that is None was stated by nobody and has no default. Sizes named `*_size` of ZeRO count elements, as DeepSpeed
counts them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .parts import Dtype


@dataclass(slots=True)
class Offload:
    """A ZeRO or FSDP offload target."""

    device: Literal["none", "cpu", "nvme"] = "none"
    pin_memory: bool = False
    ratio: float = 1.0


@dataclass(slots=True)
class Zero:
    """DeepSpeed ZeRO. Defaults are DeepSpeed's (`deepspeed/runtime/zero/config.py`); sizes in elements.

    `library` is `megatron` where Megatron's DistributedDataParallel divides (stage 1, its distributed optimizer) or
    does not (stage 0): a gradient buffer instead of DeepSpeed's buckets. `replicas`: so many groups of ranks hold the
    divided states each (Megatron's `num_distributed_optimizer_instances`). `immediate_gradients` is `bf16`'s
    `immediate_grad_update`: a 16-bit gradient is added to the float32 ones as soon as there is one. `init`: stage 3
    divides each tensor as it is made (`deepspeed.zero.Init`); else each rank makes the whole model first.
    """

    stage: int = 0
    init: bool = True
    library: Literal["deepspeed", "megatron"] = "deepspeed"
    offload_optimizer: Offload = field(default_factory=Offload)
    offload_parameters: Offload = field(default_factory=Offload)
    reduce_bucket_size: int = 500_000_000
    allgather_bucket_size: int = 500_000_000
    prefetch_bucket_size: int = 50_000_000
    max_live_parameters: int = 1_000_000_000
    max_reuse_distance: int = 1_000_000_000
    param_persistence_threshold: int = 100_000
    sub_group_size: int = 1_000_000_000
    overlap_comm: bool | None = None
    contiguous_gradients: bool = True
    round_robin_gradients: bool = False
    immediate_gradients: bool = False
    gather_16bit_weights_on_save: bool = False
    hpz_partition_size: int = 1
    replicas: int = 1
    quantized_weights: bool = False


@dataclass(slots=True)
class FsdpMixedPrecision:
    """FSDP's MixedPrecision policy; None leaves the parameter's dtype."""

    param_dtype: Dtype | None = None
    reduce_dtype: Dtype | None = None
    buffer_dtype: Dtype | None = None


@dataclass(slots=True)
class Fsdp:
    """PyTorch FSDP. `wrap` is `none`, `transformer` or `size`; `sharding` in FSDP1's names, lower case.

    `reshard_after_forward` may be the size of a smaller group over which version 2 reshards. `outer`: what lies outside
    the layers belongs to the `root` unit, or embedding and head are `separate` units (torchtune's
    `custom_sharded_layers`, torchtitan). `wrap_adapters`: adapter modules are units of their own, as PEFT's
    `fsdp_auto_wrap_policy` arranges; version 1 without it flattens them together with the frozen weights.
    `backward_prefetch` is version 1's policy in torch's words, None torch's own default, BACKWARD_PRE.
    `checkpoints_inside`: a unit holds a checkpointed layer (torch's `checkpoint_wrapper` put on after FSDP, as
    accelerate does), where a checkpoint by Transformers' model code holds a unit, which is entered again in backward.
    `shards_packed`: bitsandbytes weights are sharded whatever they are stored as. `keeps_last`: the last layer stays
    gathered from forward to backward (torchtitan's default until July 2025). `experts_apart`: experts of which expert
    parallelism leaves each rank its own are no units, and have no mixed precision policy (AutoModel).
    """

    version: Literal[1, 2] = 1
    sharding: str = "full_shard"
    reshard_after_forward: bool | int = True
    offload: bool = False
    wrap: str = "none"
    outer: Literal["root", "separate"] = "root"
    wrap_adapters: bool = True
    min_num_params: int | None = None
    layer_classes: list[str] = field(default_factory=list)
    mixed_precision: FsdpMixedPrecision = field(default_factory=FsdpMixedPrecision)
    backward_prefetch: str | None = None
    forward_prefetch: bool = False
    use_orig_params: bool = True
    cpu_ram_efficient_loading: bool = False
    state_dict_type: str | None = None
    shard_size: int | None = None
    upcast_trainable: bool = False
    sync_each_batch: bool = False
    checkpoints_inside: bool = False
    shards_packed: bool = False
    keeps_last: bool = False
    experts_apart: bool = False


@dataclass(slots=True)
class Parallelism:
    """Degrees of parallelism; `data`, the replicas that see other samples, None is what the GPUs leave over.

    `pipeline_schedule` decides how many micro batches a stage has in flight; `microbatches` None is
    `gradient_accumulation_steps`; `virtual_stages` are the model chunks of a rank (interleaved 1F1B).
    `first_stage_layers` and `last_stage_layers` state an uneven split. `expert_tensor` is the tensor parallel degree
    of the experts, None that of the rest; `attention_tensor` that of attention and embedding (SGLang's data parallel
    attention). `one_process`: the GPUs of data parallelism belong to one process (torch.nn.DataParallel).
    """

    data: int | None = None
    one_process: bool = False
    tensor: int = 1
    pipeline: int = 1
    pipeline_schedule: Literal["gpipe", "1f1b", "zero_bubble", "dualpipe"] = "1f1b"
    virtual_stages: int = 1
    microbatches: int | None = None
    first_stage_layers: int | None = None
    last_stage_layers: int | None = None
    context: int = 1
    sequence: bool = False
    expert: int = 1
    expert_tensor: int | None = None
    attention_tensor: int | None = None
    zero: Zero | None = None
    fsdp: Fsdp | None = None
    device_map: str | None = None
