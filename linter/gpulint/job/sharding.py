"""The parts of a Job that say how a run is divided over GPUs: ZeRO, FSDP and the degrees of parallelism."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..declared import declared
from .weights import Dtype


@dataclass(slots=True)
class Offload:
    """A ZeRO or FSDP offload target."""

    device: Literal["none", "cpu", "nvme"] = declared("The device: `cpu`, `nvme` or `none`.", "none")
    pin_memory: bool = declared("Whether that memory is pinned.", False)
    ratio: float = declared("Share that is offloaded.", 1.0, least=0)


@dataclass(slots=True)
class Zero:
    """DeepSpeed ZeRO. Defaults are DeepSpeed's (`deepspeed/runtime/zero/config.py`)."""

    stage: int = declared(
        "What is partitioned: 0 nothing, 1 optimizer states, 2 also gradients, 3 also weights.", 0, least=0
    )
    init: bool = declared(
        "Whether ZeRO-3 partitions each tensor when it is created (`deepspeed.zero.Init`); otherwise each "
        "rank first builds the whole model.",
        True,
    )
    library: Literal["deepspeed", "megatron"] = declared(
        "The library that partitions: `deepspeed`, or `megatron`'s DistributedDataParallel with a gradient "
        "buffer (stage 1, its distributed optimizer; stage 0 partitions nothing).",
        "deepspeed",
    )
    offload_optimizer: Offload = declared("Where optimizer states are offloaded to.", made=Offload)
    offload_parameters: Offload = declared("Where parameters are offloaded to.", made=Offload)
    reduce_bucket_size: int = declared("Elements per reduction.", 500_000_000, unit="elements", least=0)
    allgather_bucket_size: int = declared("Elements per all-gather.", 500_000_000, unit="elements", least=0)
    prefetch_bucket_size: int = declared("Elements that ZeRO-3 prefetches.", 50_000_000, unit="elements", least=0)
    max_live_parameters: int = declared(
        "Most elements that ZeRO-3 keeps gathered at once.", 1_000_000_000, unit="elements", least=0
    )
    max_reuse_distance: int = declared(
        "ZeRO-3 keeps a parameter that is used again within this many elements.",
        1_000_000_000,
        unit="elements",
        least=0,
    )
    param_persistence_threshold: int = declared(
        "Parameters up to this size are not partitioned.", 100_000, unit="elements", least=0
    )
    sub_group_size: int = declared("Elements per optimizer update.", 1_000_000_000, unit="elements", least=-1)
    overlap_comm: bool | None = declared(
        "Whether reduction overlaps the backward pass; null is the stage's default.", None
    )
    contiguous_gradients: bool = declared("Whether gradients are copied into one buffer.", True)
    round_robin_gradients: bool = declared("Whether gradients are assigned to ranks round-robin.", False)
    immediate_gradients: bool = declared(
        "Whether each 16-bit gradient is added to the float32 gradients immediately (`bf16.immediate_grad_update`).",
        False,
    )
    gather_16bit_weights_on_save: bool = declared("Whether ZeRO-3 gathers the whole model to save it.", False)
    hpz_partition_size: int = declared("GPUs that share a secondary partition of the weights (ZeRO++ hpZ).", 1, least=0)
    replicas: int = declared(
        "Replicas of the partitioned states (Megatron's `num_distributed_optimizer_instances`).", 1, least=0
    )
    quantized_weights: bool = declared("Whether all-gathers are quantized (ZeRO++ qwZ).", False)


@dataclass(slots=True)
class FsdpMixedPrecision:
    """FSDP's MixedPrecision policy; null keeps the parameter's dtype."""

    param_dtype: Dtype | None = declared("Dtype of gathered weights.", None)
    reduce_dtype: Dtype | None = declared("Dtype of gradient reduction.", None)
    buffer_dtype: Dtype | None = declared("Dtype of buffers.", None)


@dataclass(slots=True)
class Fsdp:
    """PyTorch FSDP."""

    version: Literal[1, 2] = declared("FSDP's version.", 1)
    sharding: str = declared(
        "FSDP 1's strategy in lower case: `full_shard`, `shard_grad_op`, `no_shard`, `hybrid_shard` ...", "full_shard"
    )
    reshard_after_forward: bool | int = declared(
        "Whether weights are resharded after the forward pass, or the size of the smaller group that version "
        "2 reshards to.",
        True,
    )
    offload: bool = declared("Whether parameters are offloaded to host RAM.", False)
    wrap: str = declared(
        "What FSDP wraps: `transformer` (each layer), `size`, or `none` (only the whole model).", "none"
    )
    outer: Literal["root", "separate"] = declared(
        "Whether modules outside the layers form one `root` unit or `separate` units (torchtune's "
        "`custom_sharded_layers`, torchtitan).",
        "root",
    )
    wrap_adapters: bool = declared(
        "Whether adapter modules are wrapped as units of their own (PEFT's `fsdp_auto_wrap_policy`); "
        "otherwise version 1 flattens them together with the frozen weights.",
        True,
    )
    min_num_params: int | None = declared(
        "Minimum parameters of a unit if `wrap` is `size`.", None, unit="parameters", least=0
    )
    layer_classes: list[str] = declared("Layer classes that are wrapped.", made=list)
    mixed_precision: FsdpMixedPrecision = declared(
        "FSDP's mixed-precision policy; null keeps the parameter's dtype.", made=FsdpMixedPrecision
    )
    backward_prefetch: str | None = declared(
        "When version 1 prefetches the next unit in the backward pass; null is torch's default, BACKWARD_PRE.", None
    )
    forward_prefetch: bool = declared("Whether the next unit is prefetched in the forward pass.", False)
    use_orig_params: bool = declared(
        "Whether original parameters are exposed instead of the flat parameter (FSDP 1).", True
    )
    cpu_ram_efficient_loading: bool = declared("Whether only rank 0 loads the checkpoint.", False)
    state_dict_type: str | None = declared(
        "Form of saved checkpoints (`FULL_STATE_DICT`, `SHARDED_STATE_DICT` ...).", None
    )
    shard_size: int | None = declared("GPUs per sharding group; null for all.", None, least=0)
    upcast_trainable: bool = declared("Whether trained weights are upcast to float32.", False)
    sync_each_batch: bool = declared("Whether gradients are reduced after every micro batch.", False)
    checkpoints_inside: bool = declared(
        "Whether checkpointing is applied inside FSDP units (torch's `checkpoint_wrapper` after FSDP, as "
        "accelerate does) rather than around them, where backward enters the unit again.",
        False,
    )
    checkpoints_twice: bool = declared(
        "Whether FSDP is asked to checkpoint activations that the Trainer checkpoints too.", False
    )
    shards_packed: bool = declared("Whether bitsandbytes weights are sharded whatever their storage dtype.", False)
    keeps_last_layer_gathered: bool = declared(
        "Whether the last layer stays gathered between forward and backward (torchtitan's default until July 2025).",
        False,
    )
    experts_unwrapped: bool = declared(
        "Whether expert-parallel experts are left out of FSDP and its mixed precision (AutoModel).", False
    )


@dataclass(slots=True)
class Parallelism:
    """Degrees of parallelism."""

    data: int | None = declared(
        "Data-parallel size: replicas that see different samples; null is GPUs / model-parallel size.", None, least=1
    )
    data_elsewhere: bool = declared("Whether data-parallel ranks of the server run on GPUs of other launches.", False)
    one_process: bool = declared("Whether one process uses all GPUs (torch.nn.DataParallel).", False)
    tensor: int = declared("Tensor-parallel size.", 1, least=1)
    pipeline: int = declared("Pipeline stages.", 1, least=1)
    pipeline_schedule: Literal["gpipe", "1f1b", "zero_bubble", "dualpipe"] = declared(
        "The pipeline schedule, which sets how many micro batches a stage has in flight.", "1f1b"
    )
    virtual_stages: int = declared("Model chunks per rank (interleaved schedules).", 1, least=0)
    microbatches: int | None = declared("Micro batches per step; null is `gradient_accumulation_steps`.", None, least=0)
    first_stage_layers: int | None = declared("Layers of the first stage, if the split is uneven.", None, least=0)
    last_stage_layers: int | None = declared("Layers of the last stage, if the split is uneven.", None, least=0)
    context: int = declared("Context-parallel size: GPUs that share one sequence.", 1, least=1)
    sequence: bool = declared(
        "Megatron's sequence parallelism: whether tensor-parallel ranks split the sequence outside attention and MLP.",
        False,
    )
    expert: int = declared("Expert-parallel size.", 1, least=1)
    expert_tensor: int | None = declared(
        "Tensor-parallel size of the experts; null is that of the other layers.", None, least=0
    )
    attention_tensor: int | None = declared(
        "Tensor-parallel size of attention and embedding (SGLang's data parallel attention); null is that of "
        "the other layers.",
        None,
        least=0,
    )
    zero: Zero | None = declared("DeepSpeed ZeRO, or Megatron's distributed optimizer.", None)
    fsdp: Fsdp | None = declared("PyTorch FSDP.", None)
    device_map: str | None = declared("Transformers' `device_map`.", None)
