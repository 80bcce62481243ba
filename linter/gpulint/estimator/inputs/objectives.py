"""What a training objective does to a micro batch: how many sequences, which tokens are scored, with which loss."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ...models.adapter_types import virtual_tokens
from ...models.arch_spec import arch_spec
from ...models.model import text_config
from ...upstream.rl import openrlhf
from ...upstream.stack import Stack
from ..estimate import NotEstimable
from ..frameworks.release import release
from ..states.parameters import base_dtype
from ..states.reference import needs_reference
from ..states.storage import dtype_bytes

if TYPE_CHECKING:
    from ...job.job import Job
    from ...models.model import Model


PAIRED = frozenset({"dpo", "ipo", "orpo", "cpo", "simpo", "reward"})
"""Objectives whose batches hold a chosen and a rejected sequence for every example (TRL `concatenated_forward`)."""

ONLINE = frozenset({"grpo", "rloo", "ppo", "online_dpo", "xpo", "nash_md", "gspo", "dapo"})
"""Objectives that score completions they generated."""

UNPAIRED = frozenset({"kto", "bco"})

TASKS = frozenset({"classification", "token_classification", "question_answering", "masked_lm", "seq2seq", "ctc"})
"""Objectives with a head or a loss of their own (`models/heads.json`)."""


class Objective(NamedTuple):
    """One micro batch of an objective.

    sequences   forward rows of the batch for every configured one;  length  tokens of a sequence
    scored      the last tokens of each sequence that get logits
    loss        cross_entropy, log_probabilities, score, or the name of a task
    reference   whether a forward pass without gradients runs before backward (a frozen model or a disabled adapter)
    """

    sequences: int
    length: int
    scored: int
    loss: str
    reference: bool


def objective(job: Job) -> Objective:
    """How a job's objective shapes the micro batch.

    Online objectives: sequences of prompt and completion, logits of the completion's tokens only. Packed pairs fill
    the length together: ms-swift, which alone packs them, adds up both lengths (swift/dataset/packing.py
    `create_packed_idx`, 4.6).
    """
    name = job.objective
    length = job.sequence_length or 0
    if job.packing and name in PAIRED:
        length = -(-length // 2)
    if name in ONLINE:
        completion = job.rl.completion_length or length
        length = max(length, (job.rl.prompt_length or 0) + completion)
        # OpenRLHF makes the logits of the prompts too
        scored = length if Stack(job).runs(openrlhf.NAME) else min(length, completion + 1)
        return Objective(1, length, scored, "log_probabilities", False)
    if name in TASKS:
        return Objective(1, length, length, name, False)
    if name == "reward":
        return Objective(2, length, length, "score", False)
    if name in PAIRED:
        return Objective(2, length, length, "log_probabilities", _reference(job))
    if name in UNPAIRED:
        return Objective(1, length, length, "log_probabilities", _reference(job))
    return Objective(1, length, length, "cross_entropy", False)


def _reference(job: Job) -> bool:
    if job.rl.precompute_reference or job.objective in ("orpo", "cpo", "simpo"):
        return False
    return needs_reference(job) or job.adapter is not None


KERNELS, STRIDES = (10, 3, 3, 3, 3, 2, 2), (5, 2, 2, 2, 2, 2, 2)
"""The classes' defaults of `conv_kernel` and `conv_stride`."""


def frames(config: dict[str, Any], samples: int) -> list[int]:
    """Positions behind each convolution: (n - kernel) / stride + 1, one after the other, at least one."""
    found: list[int] = []
    kernels, strides = config.get("conv_kernel") or KERNELS, config.get("conv_stride") or STRIDES
    for kernel, stride in zip(kernels, strides, strict=False):
        samples = max(1, (samples - int(kernel)) // int(stride) + 1)
        found.append(samples)
    return found


def spoken(found: Objective, model: Model) -> Objective:
    """The objective of a model that reads samples: its alignment with a text, whatever is trained on words.

    Raises NotEstimable where something else stands behind the layers.
    """
    if found.loss not in ("cross_entropy", "ctc"):
        raise NotEstimable(f"what {model.model_type} has behind its layers is read for the ctc objective alone")
    return found._replace(loss="ctc")


def scored_positions(job: Job, model: Model) -> int:
    """The tokens of a sequence with virtual ones before them, or the frames that its samples of sound become."""
    config = {**model.defaults, **text_config(model.config)}
    if arch_spec(model.model_type, config, model.shape.norm).waves:
        return frames(config, job.sequence_length or 0)[-1]
    return lengthened(job).sequence_length or 0


def logits_width(job: Job, model: Model) -> float:
    """Bytes of an element of the logits that the model hands back: what it computes in, or 4 where it upcasts them."""
    upcast = job.loss.upcast or release(job, model.model_type).upcast
    return 4.0 if upcast == "model" else dtype_bytes(job.precision.autocast or base_dtype(job, model))


def lengthened(job: Job) -> Job:
    """A job whose sequences have the virtual tokens too."""
    tokens = virtual_tokens(job.adapter)
    if not tokens or not job.sequence_length:
        return job
    return replace(job, sequence_length=job.sequence_length + tokens)


def is_encoder_decoder(model: Model) -> bool:
    """Whether a model has an encoder with a stack of its own and layers that are written down here."""
    order = arch_spec(model.model_type, text_config(model.config), model.shape.norm).order
    return bool(model.shape.encoder_layers) and order in ("t5", "bart", "mbart")


def has_audio(model: Model) -> bool:
    """Whether the encoder reads mel frames and not tokens."""
    return any(tensor.role == "conv" and "encoder." in tensor.name for tensor in model.tensors)


def source_length(job: Job, model: Model) -> int | None:
    """Positions that the encoder reads: the job's tokens, or the frames of Whisper's window, half of them mel frames.

    Its feature extractor pads every recording to the window (transformers feature_extraction_whisper.py).
    """
    return model.shape.cross_tokens if has_audio(model) else job.sequence_length


def target_length(job: Job, model: Model) -> int | None:
    """Tokens that the decoder reads."""
    target = job.target_length or job.sequence_length
    most = model.config.get("max_target_positions") if has_audio(model) else None
    return min(target, most) if target and isinstance(most, int) else target
