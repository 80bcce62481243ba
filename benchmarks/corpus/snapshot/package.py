"""All that the snapshot takes from gpulint: when a module moves, only this file changes."""

from __future__ import annotations

from gpulint import Job, Settings, check, estimate
from gpulint.estimator.explain.explain import explained
from gpulint.launchers.reading import open_jobs, recognise_file
from gpulint.models.catalogue import search
from gpulint.models.resolve import resolve
from gpulint.rules.examples import open_example, run_example, selection_with
from gpulint.rules.load import all_rules
from gpulint.run.estimated import estimated

__all__ = [
    "Job",
    "Settings",
    "all_rules",
    "check",
    "estimate",
    "estimated",
    "explained",
    "open_example",
    "open_jobs",
    "recognise_file",
    "resolve",
    "run_example",
    "search",
    "selection_with",
]
