"""Virtual tokens, which prompt learning puts before those of the text."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...models.adapter_types import virtual_tokens

if TYPE_CHECKING:
    from ...job.job import Job


def lengthened(job: Job) -> Job:
    """A job whose sequences have the virtual tokens too."""
    tokens = virtual_tokens(job.adapter)
    if not tokens or not job.sequence_length:
        return job
    return replace(job, sequence_length=job.sequence_length + tokens)
