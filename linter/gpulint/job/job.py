"""Job: the normalised plan of one GPU job, whatever tool runs it.

The fields are plain dataclasses so that `gpulint check` starts without pydantic; `Job.validate` checks
untrusted mappings against the same declarations with pydantic, and `Job.json_schema` prints their schema.
A field that is None was stated by nobody and has no default: what depends on it is not estimated.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from ..declared import declared
from .hardware import CachingAllocator, Hardware
from .inference import Inference
from .origin import Origin
from .sharding import Fsdp, FsdpMixedPrecision, Offload, Parallelism, Zero
from .training import AutocastDtype, Evaluation, Loss, Optimizer, Precision, Rl
from .weights import Adapter, Dtype, Quantization, Weights

if TYPE_CHECKING:
    from collections.abc import Iterator
    from dataclasses import Field

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
    "job_fields",
]

JsonObject = dict[str, Any]


@dataclass(slots=True)
class Job:
    """The normalised plan. `origins` says for every dotted field path where its value comes from."""

    kind: Literal["training", "inference"] = declared("What the job does.", "training")
    model: str | JsonObject | None = declared(
        "The model as the config names it: a hub id, a path, or the fields of a config.json.", None
    )
    weights: Weights = declared("The base weights.", made=Weights)
    method: str = declared("Training method: `full`, `lora`, `freeze` ...", "full")
    adapter: Adapter | None = declared("The PEFT adapter.", None)
    trainable: list[str] | None = declared(
        "Parts of names of the trained parameters; null if `method` defines them.", None
    )
    objective: str = declared(
        "Training objective: `pretrain`, `sft`, `masked_lm`, `classification`, `token_classification`, "
        "`question_answering`, `seq2seq`, `dpo`, `kto`, `orpo`, `reward`, `ppo`, `grpo` ...",
        "sft",
    )
    labels: int | None = declared("Classes of a classification head; null is the model's own number.", None, least=0)
    rl: Rl = declared("Settings of preference and online RL objectives.", made=Rl)
    precision: Precision = declared("Precision of the computation.", made=Precision)
    optimizer: Optimizer = declared("The optimizer.", made=Optimizer)
    micro_batch_size: int | None = declared("Samples per GPU per forward pass.", None, least=1)
    gradient_accumulation_steps: int = declared("Micro batches per optimizer step.", 1, least=1)
    sequence_length: int | None = declared(
        "Maximum sequence length; samples of audio if the model reads sound.", None, unit="tokens", least=1
    )
    target_length: int | None = declared(
        "Target length of an encoder-decoder, whose encoder reads `sequence_length`; null is the encoder's length.",
        None,
        least=0,
    )
    images: int | None = declared("Images per sequence; 0 for text only, null if unknown.", None, least=0)
    image_pixels: int | None = declared(
        "Height x width of an image after resizing, if the model's config does not set it; null if unknown.",
        None,
        least=0,
    )
    packing: bool = declared("Whether several samples are packed into one sequence.", False)
    padded: bool = declared("Whether every sample is padded to the maximum length.", False)
    longest_batch_first: bool = declared(
        "Whether the longest batch comes first, so that no shorter one before it leaves blocks behind in the "
        "allocator.",
        False,
    )
    further_heads: int = declared("Multi-token prediction layers, each with a loss of its own.", 0, least=0)
    activation_checkpointing: Literal["none", "full", "selective", "offload"] = declared(
        "Which activations are recomputed in the backward pass.", "none"
    )
    checkpoint_policy: Literal["attention", "every_second_matmul", "core_attention"] | None = declared(
        "What `selective` checkpointing saves of a layer: the outputs of `attention` kernels (axolotl), also "
        "those of `every_second_matmul` (torchtitan, torchtune), or all but the inside of `core_attention` "
        "(Megatron); null is the framework's own.",
        None,
    )
    checkpoint_every: int = declared("One of this many layers is checkpointed.", 1, least=0)
    reentrant: bool | None = declared("Whether checkpointing is reentrant (`use_reentrant`).", None)
    attention: str = declared(
        "The attention kernel: `eager`, `sdpa`, `flash_attention_2`, `flash_attention_3`, `flex` ...", "sdpa"
    )
    without_transformer_engine: bool = declared(
        "Whether Megatron's local layers, which repeat keys for every head, are used instead of Transformer Engine's.",
        False,
    )
    loss: Loss = declared("The loss and its logits.", made=Loss)
    liger_kernels: bool = declared("Whether Liger kernels replace norms, RoPE and MLP.", False)
    liger_parts: list[str] | None = declared(
        "Operations that Liger replaces (`rope`, `norm`, `mlp`); by default all that it supports for the model.", None
    )
    compile: bool = declared("Whether torch.compile is on.", False)
    evaluation: Evaluation = declared("The evaluation loop.", made=Evaluation)
    parallelism: Parallelism = declared("How the GPUs share the work.", made=Parallelism)
    inference: Inference | None = declared("Generation or serving.", None)
    hardware: Hardware = declared("The hardware that the job runs on.", made=Hardware)
    framework: str | None = declared(
        "The framework whose code runs instead of Transformers' (`litgpt`, `megatron`, `openrlhf`, `qwen`, "
        "`torchtitan`, `torchtune`) or around it (`ai2-olmo`, `axolotl`, `nemo-automodel`, `prime-rl`, `unsloth`, "
        "`verl`). A version in `versions` only tells which release of it.",
        None,
    )
    allocator: CachingAllocator = declared("Settings of torch's caching allocator.", made=CachingAllocator)
    versions: dict[str, str] = declared("Package versions, by name: `versions.vllm`.", made=dict)
    unstated: list[str] = declared(
        "Dotted paths of fields whose value is a guess, because nothing sets it; the estimate's interval "
        "covers their other values.",
        made=list,
    )
    unread: str = declared("A file that decides facts and is not here, in words; without it there is no verdict.", "")
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
    def serving(self) -> Inference:
        """What it says of its inference, which a job of that kind must."""
        assert self.inference is not None
        return self.inference

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


def job_fields(cls: type = Job, prefix: str = "") -> Iterator[tuple[str, Field[Any]]]:
    """Every dotted field path of a Job with its declaration, parts before their fields, `origins` left out."""
    for item in fields(cls):
        if item.name == "origins":
            continue
        path = prefix + item.name
        yield path, item
        part = _part_class(str(item.type))
        if part is not None:
            yield from job_fields(part, path + ".")


def field_paths() -> Iterator[str]:
    """Every dotted field path of a Job, parts before their fields, `origins` left out."""
    return (path for path, _ in job_fields())


def _part_class(annotation: str) -> type | None:
    found = globals().get(annotation.split(" |")[0])
    return found if is_dataclass(found) and isinstance(found, type) else None
