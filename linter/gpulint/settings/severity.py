"""How serious a finding is."""

from __future__ import annotations

from typing import Literal

Severity = Literal["error", "warning", "info"]

SEVERITIES: tuple[Severity, ...] = ("info", "warning", "error")
"""From least to most serious."""
