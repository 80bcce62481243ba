"""`schemas/job.json`, the JSON Schema of `gpulint: job/v1` files, from the dataclasses of `gpulint.job`."""

from __future__ import annotations

import json
from typing import Any

from gpulint.job.job import Job


def schema() -> dict[str, Any]:
    """`Job.json_schema()` with the annotations that `formats/keys.py` reads: unknown keys are dropped."""
    raw = Job.json_schema()
    parts = [raw, *raw.get("$defs", {}).values()]
    for part in parts:
        if "properties" in part:
            part["x-unknown-keys"] = "ignored"
        for field in part.get("properties", {}).values():
            field.pop("title", None)
    raw.get("$defs", {}).pop("Origin", None)
    raw.get("$defs", {}).pop("Span", None)
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "gpulint job",
        "x-upstream": "job/v1",
        "x-coercion": "pydantic",
    }
    return {**raw, **head}


def text() -> str:
    """The file's content."""
    return json.dumps(schema(), indent=1, sort_keys=True) + "\n"
