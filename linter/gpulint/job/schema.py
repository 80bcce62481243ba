"""Job files checked by pydantic, from the dataclasses of `job.py`."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter

JsonObject = dict[str, Any]
AnyJob = TypeVar("AnyJob")
"""The class of `job.py`, which alone hands it in."""

_DTYPE_ALIASES = {
    "fp64": "float64", "fp32": "float32", "f32": "float32", "float": "float32", "bf16": "bfloat16",
    "fp16": "float16", "f16": "float16", "half": "float16", "fp8": "float8",
}  # fmt: skip
_DTYPE_KEYS = {"dtype", "autocast", "gradients", "state_dtype", "param_dtype", "reduce_dtype", "buffer_dtype"}
_SHORTHANDS = {"loss": "kernel", "adapter": "type", "offload_optimizer": "device", "offload_parameters": "device"}


def validate_job(of: type[AnyJob], value: JsonObject) -> AnyJob:
    """A Job from plain data; see `Job.validate`."""
    job: AnyJob = _adapter(of).validate_python(long_spelling(value))  # type: ignore[arg-type]
    return job


def job_schema(of: type[Any]) -> JsonObject:
    """The JSON Schema of job files, generated from the dataclasses."""
    schema = _adapter(of).json_schema()  # type: ignore[arg-type]
    schema["properties"].pop("origins", None)
    schema["properties"]["gpulint"] = {"const": "job/v1"}
    return schema


@cache
def _adapter(of: type[Any]) -> TypeAdapter[Any]:
    """Classes hash by identity, which mypy does not see of a dataclass with `__eq__`."""
    return TypeAdapter(of)


def long_spelling(value: JsonObject) -> JsonObject:
    """The long spelling of what people write short: `loss: liger`, `offload_optimizer: cpu`, `dtype: bf16`."""
    out: JsonObject = {}
    for key, item in value.items():
        if item is None:
            continue
        if key == "model":
            out[key] = item
        elif key == "activation_checkpointing" and isinstance(item, bool):
            out[key] = "full" if item else "none"
        elif key in ("offload_optimizer", "offload_parameters") and isinstance(item, bool):
            out[key] = {"device": "cpu" if item else "none"}
        elif key == "mixed_precision" and isinstance(item, str):
            dtype = _DTYPE_ALIASES.get(item, item)
            out[key] = {"param_dtype": dtype, "reduce_dtype": dtype}
        elif key in _SHORTHANDS and isinstance(item, str):
            out[key] = {_SHORTHANDS[key]: item}
        elif key in _DTYPE_KEYS and isinstance(item, str):
            out[key] = _DTYPE_ALIASES.get(item, item)
        elif isinstance(item, dict):
            out[key] = long_spelling(item)
        else:
            out[key] = item
    return out
