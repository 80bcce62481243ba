"""The catalogue listings: rules, GPUs, models, as aligned text or JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..units import GIB, count_text
from .printable import json_text, printable
from .table import PLAIN, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..hardware.gpu import Gpu
    from ..models.catalogue import CatalogueRow
    from ..models.model import Model
    from ..rules.load import RuleFile
    from .style import Style


def rules(known: Sequence[RuleFile], output_format: str, style: Style = PLAIN) -> str:
    """The rules; as JSON with everything their files say."""
    if output_format == "json":
        return json_text({"schema": "gpulint-rules/1", "rules": [rule.source for rule in known]})
    return table(
        ("RULE", "NAME", "SUBJECT", "SEVERITY", "STATUS", "FIX", "APPLIES TO"),
        [
            (rule.id, rule.name, rule.subject, rule.severity, rule.status, rule.fix, rule.applies_text)
            for rule in sorted(known, key=lambda rule: (rule.subject, rule.id))
        ],
        style,
    )


def gpus(known: Sequence[Gpu], output_format: str, style: Style = PLAIN) -> str:
    """GPUs with the memory that nvidia-smi and torch report."""
    if output_format == "json":
        rows: list[dict[str, Any]] = [{**gpu._asdict(), "aliases": list(gpu.aliases)} for gpu in known]
        return json_text({"schema": "gpulint-gpus/1", "gpus": rows})
    return table(
        ("NAME", "GPU", "ARCHITECTURE", "TOTAL GiB", "USABLE GiB", "BF16", "FP8"),
        [
            (
                gpu.name,
                gpu.title,
                gpu.architecture,
                f"{gpu.total / GIB:.2f}",
                f"{gpu.usable / GIB:.2f}",
                "yes" if gpu.bf16 else "no",
                "yes" if gpu.fp8 else "no",
            )
            for gpu in known
        ],
        style,
    )


def models(found: Sequence[CatalogueRow], output_format: str, style: Style = PLAIN) -> str:
    """Models of the catalogue."""
    if output_format == "json":
        return json_text({"schema": "gpulint-models/1", "models": [row._asdict() for row in found]})
    return table(
        ("MODEL", "ARCHITECTURE", "PARAMETERS"),
        [(row.id, row.model_type, count_text(row.parameters) if row.parameters else "?") for row in found],
        style,
    )


def model(found: Model) -> str:
    """One model in a line."""
    stands_in = "" if found.exact else "; architecture unknown, approximated by a similar one"
    return printable(f"{found.model_type}, {found.parameters:,} parameters{stands_in}")
