"""Which module reads which group of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import (
    autoawq_rows,
    document_rows,
    fms_rows,
    fresh_rows,
    gpu_rows,
    liger_rows,
    litgpt_rows,
    megatron_rows,
    oracle_cases,
    outcome_rows,
    plain_rows,
    qwen_rows,
    torchtitan_rows,
    torchtune_rows,
    vllm_rows,
)
from .case import load, read_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from .case import Case, Excluded, Row

READERS: dict[str, Callable[[Row], Case | list[Case]]] = {
    "litgpt_resource_tables": litgpt_rows.case,
    "litgpt_tutorials": litgpt_rows.case,
    "fms_acceleration_refs": fms_rows.cases,
    "qwen_speed_benchmark": qwen_rows.speed_case,
    "qwen1_readme_inference": qwen_rows.readme_inference,
    "qwen1_readme_finetune": qwen_rows.readme_finetune,
    "torchtune": torchtune_rows.case,
    "torchtitan": torchtitan_rows.cases,
    "liger_kernel_csv": liger_rows.case,
    "autoawq_readme": autoawq_rows.case,
    "vllm_logs_in_repos": vllm_rows.case,
    "issue_threads": vllm_rows.case,
    "hf_llm_tutorial_optimization": document_rows.tutorial,
    "deepspeed_docs": document_rows.muon,
}


def measurements() -> tuple[list[Case], list[Excluded]]:
    """The rows of measurements.json, those of a source that is new here by their columns."""
    return read_rows(load("measurements"), lambda row: row["source_group"], READERS, plain_rows.case)


def everything() -> tuple[list[Case], list[Excluded]]:
    """The rows of all three tables, of our own search and of our own runs."""
    cases, excluded = measurements()
    more, refused = outcome_rows.cases()
    fresh, unread = fresh_rows.all_cases()
    tests, other = megatron_rows.cases()
    found = [*cases, *gpu_rows.cases(), *oracle_cases.cases(), *more, *fresh, *tests]
    return found, [*excluded, *refused, *unread, *other]
