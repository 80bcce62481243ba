"""What the encoder and the decoder of an encoder-decoder read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...models.arch_spec import arch_spec
from ...models.model import text_config

if TYPE_CHECKING:
    from ...job.job import Job
    from ...models.model import Model


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
