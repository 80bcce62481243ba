"""A job as it is put to another estimator."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gpulint.hardware.gpu import Gpu
    from gpulint.job.job import Job
    from gpulint.models.model import Model

ADAM = frozenset(
    {"adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw_apex_fused", "paged_adamw_32bit", "paged_adamw"}
)
"""Adam with two states of the parameter's or of four bytes."""

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


class Unsaid(Exception):  # noqa: N818
    """A job that an estimator has no words for; the message says which of its fields."""


class Unrecorded(Unsaid):
    """A question that was never put to a tool that has to be run."""


class Question(NamedTuple):
    """`counter` is what was measured: `allocated`, `reserved` or `process`. `gpu` None where no row names one."""

    job: Job
    model: Model
    gpu: Gpu | None
    counter: str

    @property
    def parameters(self) -> int:
        """Parameters of the whole model."""
        return int(self.model.parameters)

    @property
    def stored(self) -> str:
        """dtype of the weights, the checkpoint's own where the job states none."""
        return self.job.weights.dtype or self.model.dtype or "float32"

    @property
    def computed(self) -> str:
        """dtype of the matrix products: autocast's, or that of the weights."""
        return self.job.precision.autocast or self.stored

    @property
    def width(self) -> int:
        """Bytes of an unquantised weight."""
        return BYTES[self.stored]

    @property
    def bits(self) -> float:
        """Bits of a stored weight, quantised or not."""
        packed = self.job.weights.quantization
        return 8.0 * self.width if packed is None else packed.bits or 8.0

    def need(self, said: bool, what: str) -> None:
        """Raise Unsaid with `what` unless `said`."""
        if not said:
            raise Unsaid(what)

    def full_training(self) -> None:
        """Raise Unsaid unless every parameter of unquantised weights is trained."""
        self.need(self.job.kind == "training", "inference")
        self.need(self.job.method == "full" and self.job.trainable is None, "training of a part of the parameters")
        self.need(self.job.weights.quantization is None, "quantised weights")
        self.need(self.stored in BYTES, f"weights in {self.stored}")

    def adam(self) -> None:
        """Raise Unsaid unless the optimizer keeps two states for each parameter."""
        self.need(self.job.optimizer.name in ADAM, f"optimizer {self.job.optimizer.name}")

    def whole_model(self) -> None:
        """Raise Unsaid where the model or its states are spread over GPUs."""
        plan = self.job.parallelism
        mapped = plan.device_map is not None and self.job.world_size > 1
        spread = self.job.model_shards > 1 or plan.expert > 1 or mapped
        self.need(not spread, "a model spread over GPUs")
        plain = plan.fsdp is None and plan.zero is None
        self.need(plain or (self.job.data_parallel == 1 and not _offloads(self.job)), "sharded states")


def _offloads(job: Job) -> bool:
    zero, fsdp = job.parallelism.zero, job.parallelism.fsdp
    devices = (zero.offload_optimizer.device, zero.offload_parameters.device) if zero else ("none",)
    return any(device != "none" for device in devices) or bool(fsdp and fsdp.offload)
