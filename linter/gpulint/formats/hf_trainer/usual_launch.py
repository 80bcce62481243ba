"""The launch that a program's documentation gives for a full fine-tune."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...job.origin import Origin
from ..core import references
from ..deepspeed.config import apply

if TYPE_CHECKING:
    from ..core.format import JobBuilder
    from ..core.world_size import Stated
    from ..deepspeed.values import AutoValues
    from .trainer_profiles import Flavour


class UsualLaunch:
    """The launch that a program documents for a full fine-tune, where neither file nor user says another."""

    stated: Stated | None = None
    kind = "DEEPSPEED"
    unknown = False

    def __init__(self, flavour: Flavour) -> None:
        self.flavour = flavour

    def apply(self, builder: JobBuilder, values: AutoValues, word: str) -> None:  # noqa: ARG002
        """`parallelism.zero` and its precision, all of it assumed."""
        job = builder.job
        before = dict(job.origins)
        document = references.plain_document({"zero_optimization": {"stage": self.flavour.zero_stage}}, "")
        apply(builder, document, values._replace(client="accelerate"))
        origin = Origin("assumed", f"{self.flavour.title}: {self.flavour.launch}")
        for path, found in job.origins.items():
            if before.get(path) is not found and found.kind != "default":
                job.origins[path] = origin
