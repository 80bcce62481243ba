"""Bytes by phase on a CUDA device; None for each on a CPU."""

from __future__ import annotations

import torch


class Meter:
    """`mark(name)` closes a phase: the most allocated and reserved during it, and what the card has in use after it.

    torch keeps what it reserved, so the use after a phase is the use at its peak. `before` is what the card had in use
    before this process touched it.
    """

    def __init__(self, device: str, before: int) -> None:
        self.cuda = device != "cpu"
        self.before = before
        self.phases: dict[str, dict[str, int | None]] = {}
        self.prefix = ""

    def mark(self, name: str) -> None:
        """Close the phase `name` and begin the next."""
        sizes: dict[str, int | None] = dict.fromkeys(("allocated", "reserved", "process"))
        if self.cuda:
            torch.cuda.synchronize()
            free, total = torch.cuda.mem_get_info()
            sizes = {
                "allocated": torch.cuda.max_memory_allocated(),
                "reserved": torch.cuda.max_memory_reserved(),
                "process": total - free - self.before,
            }
            torch.cuda.reset_peak_memory_stats()
        self.phases[self.prefix + name] = sizes
