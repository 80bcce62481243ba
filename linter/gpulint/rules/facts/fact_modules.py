"""Every module that registers facts."""

from __future__ import annotations

from . import (
    batch_facts,
    card_facts,
    floor_facts,
    job_facts,
    launcher_facts,
    memory_facts,
    parallel_facts,
    rendezvous_facts,
    serving_facts,
    split_facts,
    training_facts,
)

__all__ = [
    "batch_facts",
    "card_facts",
    "floor_facts",
    "job_facts",
    "launcher_facts",
    "memory_facts",
    "parallel_facts",
    "rendezvous_facts",
    "serving_facts",
    "split_facts",
    "training_facts",
]
