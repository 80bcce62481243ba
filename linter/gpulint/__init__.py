"""gpulint: the linter for the configs that start GPU jobs.

report = gpulint.check(["configs/"], gpulint.Settings(gpu="h100-80gb", gpus=8))
estimate = gpulint.estimate(gpulint.Job.validate({"model": "gpt2-xl", "micro_batch_size": 1, "sequence_length": 512}))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .run.check import check
from .settings.settings import Settings

if TYPE_CHECKING:
    from .estimator.estimate import Estimate
    from .estimator.estimate_job import estimate
    from .finding import Finding, Report
    from .job.job import Job

__version__ = "0.1.0"
__all__ = ["Estimate", "Finding", "Job", "Report", "Settings", "__version__", "check", "estimate"]

_HOMES = {
    "Estimate": "estimator.estimate",
    "Finding": "finding",
    "Job": "job.job",
    "Report": "finding",
    "estimate": "estimator.estimate_job",
}


def __getattr__(name: str) -> Any:
    """Import public names when they are asked for: `gpulint check` needs few of them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
