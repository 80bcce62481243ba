"""What several dims of a job's layers follow from: its config, architecture, framework, release and sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ...models.adapter_types import prefix_tokens
from ...models.model import text_config
from ...upstream.stack import Stack
from ..estimate import NotEstimable
from ..frameworks.frameworks import framework
from ..frameworks.release import REMOTE, arch_at, release
from ..inputs.image_inputs import image_inputs
from ..inputs.objectives import frames, objective, spoken

if TYPE_CHECKING:
    from ...job.job import Job
    from ...models.arch_spec import ArchSpec
    from ...models.model import Model
    from ..frameworks.frameworks import Framework
    from ..frameworks.release import Release
    from ..inputs.image_inputs import ImageInputs
    from ..inputs.objectives import Objective
    from ..states.parameter import Parameter


class Facts(NamedTuple):
    """What several dims follow from."""

    job: Job
    stack: Stack
    model: Model
    config: dict[str, Any]
    arch: ArchSpec
    framework: Framework
    release: Release
    objective: Objective
    images: ImageInputs | None
    batch: int
    length: int
    samples: int
    items: tuple[Parameter, ...] = ()

    @property
    def keys(self) -> int:
        """Positions that a sequence attends to."""
        return self.length + prefix_tokens(self.job.adapter)


def facts_of(job: Job, model: Model) -> Facts:
    """The facts of a job. Raises NotEstimable for an objective without a head, and for what PEFT refuses."""
    config = {**model.defaults, **text_config(model.config)}
    arch, own, context = arch_at(job, model), framework(job), max(1, job.parallelism.context)
    if own.norm and arch.norm in ("rms", "gemma"):
        arch = arch._replace(norm=own.norm)
    if own.rope and arch.rope != "none":
        arch = arch._replace(rope=own.rope)
    found = objective(job)
    batch = (job.micro_batch_size or 1) * found.sequences
    length = samples = -(-max(1, found.length) // context)
    if arch.waves:
        found, length = spoken(found, model), frames(config, samples)[-1]
    elif found.loss == "ctc":
        raise NotEstimable(f"{model.id} has no head for the ctc objective")
    if prefix_tokens(job.adapter) and job.activation_checkpointing != "none":
        raise NotEstimable("PEFT refuses prefix tuning with gradient checkpointing")
    first_qwen = "kv_channels" in config and "no_bias" in config  # its own code, whatever model type stands for it
    version = release(job, REMOTE if first_qwen else model.model_type)
    if own.repeats_keys:
        version = version._replace(grouped_keys=False, contiguous=False)
    return Facts(
        job,
        Stack(job),
        model,
        config,
        arch,
        own,
        version,
        found,
        image_inputs(job, model, batch),
        batch,
        length,
        samples,
    )
