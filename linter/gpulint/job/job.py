"""Job: the normalised plan of one GPU job, whatever tool runs it.

The fields are plain dataclasses so that `gpulint check` starts without pydantic; `Job.validate` checks
untrusted mappings against the same declarations with pydantic, and `Job.json_schema` prints their schema.
A field that is None was stated by nobody and has no default: what depends on it is not estimated.
Sizes named `*_size` of ZeRO count elements, as DeepSpeed counts them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from .origin import Origin
from .parts import (
    Adapter,
    AutocastDtype,
    CachingAllocator,
    Dtype,
    Evaluation,
    Hardware,
    Inference,
    JsonObject,
    Loss,
    Optimizer,
    Precision,
    Quantization,
    Rl,
    Weights,
)
from .sharding import Fsdp, FsdpMixedPrecision, Offload, Parallelism, Zero

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "Adapter",
    "AutocastDtype",
    "CachingAllocator",
    "Dtype",
    "Evaluation",
    "Fsdp",
    "FsdpMixedPrecision",
    "Hardware",
    "Inference",
    "Job",
    "JsonObject",
    "Loss",
    "Offload",
    "Optimizer",
    "Parallelism",
    "Precision",
    "Quantization",
    "Rl",
    "Weights",
    "Zero",
    "field_paths",
]


@dataclass(slots=True)
class Job:
    """The normalised plan. `origins` says for every dotted field path where its value comes from.

    `longest_first`: the longest batch is the first one, so that no other of its length leaves anything behind.
    `further_heads`: layers behind the last that predict tokens further on (multi-token prediction), each with a loss.
    `framework` names whose model code and training loop run, where it is not Transformers' (litgpt, torchtune ...).
    `checkpoint_policy` is what `selective` activation checkpointing keeps of a layer: the outputs of attention kernels
    (axolotl), those and of every second matrix product (torchtitan, torchtune), or all but the inside of attention
    (Megatron). None is what the job's framework does. `checkpoint_every` k checkpoints every k-th layer.
    `labels` are the classes of a classification head. With an encoder and a decoder `sequence_length` is what the
    encoder reads and `target_length` what the decoder does; of a model that reads sound it is samples.
    `images` are those of each sequence, 0 for text alone; `image_pixels` is what an image is resized to where the
    model's config does not say, height times width.
    `local_layers`: Megatron's own layers run in the place of Transformer Engine's; they repeat keys for every head.
    `liger_parts` are those operations of a layer that `liger_kernels` stands for (`rope`, `norm`, `mlp`), None for all
    that Liger has for the model.
    `unstated` are dotted paths of fields whose value is a guess: the estimate's interval holds what else they may be.
    """

    kind: Literal["training", "inference"] = "training"
    model: str | JsonObject | None = None
    weights: Weights = field(default_factory=Weights)
    method: str = "full"
    adapter: Adapter | None = None
    trainable: list[str] | None = None
    objective: str = "sft"
    labels: int | None = None
    rl: Rl = field(default_factory=Rl)
    precision: Precision = field(default_factory=Precision)
    optimizer: Optimizer = field(default_factory=Optimizer)
    micro_batch_size: int | None = None
    gradient_accumulation_steps: int = 1
    sequence_length: int | None = None
    target_length: int | None = None
    images: int | None = None
    image_pixels: int | None = None
    packing: bool = False
    padded: bool = False
    longest_first: bool = False
    further_heads: int = 0
    activation_checkpointing: Literal["none", "full", "selective", "offload"] = "none"
    checkpoint_policy: Literal["attention", "every_second_matmul", "core_attention"] | None = None
    checkpoint_every: int = 1
    reentrant: bool | None = None
    attention: str = "sdpa"
    local_layers: bool = False
    loss: Loss = field(default_factory=Loss)
    liger_kernels: bool = False
    liger_parts: list[str] | None = None
    compile: bool = False
    evaluation: Evaluation = field(default_factory=Evaluation)
    parallelism: Parallelism = field(default_factory=Parallelism)
    inference: Inference | None = None
    hardware: Hardware = field(default_factory=Hardware)
    framework: str | None = None
    allocator: CachingAllocator = field(default_factory=CachingAllocator)
    versions: dict[str, str] = field(default_factory=dict)
    unstated: list[str] = field(default_factory=list)
    origins: dict[str, Origin] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def validate(cls, value: JsonObject) -> Job:
        """A Job from plain data, checked by pydantic; a null key is an absent one, unknown keys are dropped.

        Raises pydantic.ValidationError with the path of each bad field.
        """
        from .schema import validate_job

        return validate_job(cls, value)

    model_validate = validate

    @classmethod
    def json_schema(cls) -> JsonObject:
        """The JSON Schema of `gpulint: job/v1` files."""
        from .schema import job_schema

        return job_schema(cls)

    def get(self, path: str) -> Any:
        """The value at a dotted field path; None when a part on the way is None.

        Raises AttributeError for a path that no Job has.
        """
        value: Any = self
        for name in path.split("."):
            if value is None:
                return None
            value = value.get(name) if isinstance(value, dict) else getattr(value, name)
        return value

    def assign(self, path: str, value: Any) -> None:
        """Set a dotted field path in place; parts that are None are created with their defaults."""
        *parents, last = path.split(".")
        part: Any = self
        for name in parents:
            if isinstance(part, dict):
                part = part.setdefault(name, {})
                continue
            if getattr(part, name) is None:
                setattr(part, name, _new_part(name))
            part = getattr(part, name)
        if isinstance(part, dict):
            part[last] = value
        else:
            setattr(part, last, value)

    def with_changes(self, changes: dict[str, Any]) -> Job:
        """A copy with dotted field paths set; parts that were None are created with their defaults."""
        job = self
        for path, value in changes.items():
            job = _replaced(job, path.split("."), value)
        job.origins = {**self.origins, **{path: Origin("assumed", "suggested") for path in changes}}
        return job

    @property
    def world_size(self) -> int:
        """GPUs of the whole job; 1 when nobody stated a count."""
        return self.hardware.gpus or 1

    @property
    def model_shards(self) -> int:
        """GPUs that share one replica's forward pass: tensor x pipeline x context."""
        return self.parallelism.tensor * self.parallelism.pipeline * self.parallelism.context

    @property
    def data_parallel(self) -> int:
        """Ranks over which ZeRO or FSDP can shard states: the GPUs divided by tensor x pipeline.

        Ranks that share a sequence (context parallelism) are among them, also where `parallelism.data` is stated.
        """
        if self.parallelism.data is not None:
            return max(1, self.parallelism.data * self.parallelism.context)
        return max(1, self.world_size // (self.parallelism.tensor * self.parallelism.pipeline))


_PARTS: dict[str, type] = {
    "quantization": Quantization,
    "adapter": Adapter,
    "zero": Zero,
    "fsdp": Fsdp,
    "inference": Inference,
}


def _replaced(part: Any, names: list[str], value: Any) -> Any:
    head = names[0]
    if isinstance(part, dict):
        return {**part, head: value if len(names) == 1 else _replaced(part.get(head, {}), names[1:], value)}
    if len(names) > 1:
        child = getattr(part, head)
        if child is None:
            child = _new_part(head)
        value = _replaced(child, names[1:], value)
    return replace(part, **{head: value})


def _new_part(name: str) -> Any:
    return Quantization("bnb-nf4", 4) if name == "quantization" else _PARTS[name]()


def field_paths(cls: type = Job, prefix: str = "") -> Iterator[str]:
    """Every dotted field path of a Job, parts before their fields, `origins` left out."""
    for item in fields(cls):
        if item.name == "origins":
            continue
        path = prefix + item.name
        yield path
        part = _part_class(str(item.type))
        if part is not None:
            yield from field_paths(part, path + ".")


def _part_class(annotation: str) -> type | None:
    found = globals().get(annotation.split(" |")[0])
    return found if is_dataclass(found) and isinstance(found, type) else None
