"""The `zero_optimization` section of a DeepSpeed config: stage, offload, and the sizes in elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...job.job import Zero
from ...upstream import deepspeed
from ...upstream.behaviour import default_of
from ..core.coercion import as_boolean, as_integer, as_number
from ..core.placeholders import is_blank
from .values import AUTO, UPSTREAM, Writer, first, scalar

if TYPE_CHECKING:
    from ...source.node import Node

_FIELDS: tuple[tuple[str, tuple[str, ...], bool], ...] = (
    ("reduce_bucket_size", ("reduce_bucket_size",), False),
    ("allgather_bucket_size", ("allgather_bucket_size",), False),
    ("prefetch_bucket_size", ("stage3_prefetch_bucket_size", "prefetch_bucket_size"), False),
    ("max_live_parameters", ("stage3_max_live_parameters", "max_live_parameters"), False),
    ("max_reuse_distance", ("stage3_max_reuse_distance", "max_reuse_distance"), False),
    ("param_persistence_threshold", ("stage3_param_persistence_threshold", "param_persistence_threshold"), False),
    ("sub_group_size", ("sub_group_size",), False),
    ("overlap_comm", ("overlap_comm",), True),
    ("contiguous_gradients", ("contiguous_gradients",), True),
    ("round_robin_gradients", ("round_robin_gradients",), True),
    (
        "gather_16bit_weights_on_save",
        (
            "stage3_gather_16bit_weights_on_model_save",
            "gather_16bit_weights_on_model_save",
            "stage3_gather_fp16_weights_on_model_save",
        ),
        True,
    ),
    ("hpz_partition_size", ("zero_hpz_partition_size",), False),
    ("quantized_weights", ("zero_quantized_weights",), True),
)
"""Field of `Zero`, the spellings that DeepSpeed takes for it (alias first), and whether it is a switch."""


def spelled(section: Node, field: str) -> str | None:
    """The key that says a field of `Zero`: the one that the section holds, else the newest; None for other fields."""
    spellings = next((names for name, names, _ in _FIELDS if name == field), ())
    return next((name for name in spellings if section.get(name) is not None), spellings[0] if spellings else None)


def apply_zero(writer: Writer) -> None:
    """Set `parallelism.zero`; a config without the section, or with `false`, is stage 0."""
    entry = writer.root.entry("zero_optimization")
    writer.put(
        "parallelism.zero", Zero(), entry, "zero_optimization", "" if entry is not None else "a DeepSpeed config"
    )
    section = entry.value if entry is not None and entry.value.is_mapping else None
    stage = section.entry("stage") if section is not None else None
    number = as_integer(scalar(stage))
    if stage is not None and number is not None and 0 <= number <= 3:
        writer.put("parallelism.zero.stage", number, stage, "zero_optimization.stage")
    elif stage is not None and is_blank(scalar(stage)):
        note = f"stage is {scalar(stage)}, filled in when the job starts; the stage that needs least stands in"
        writer.builder.assumed("parallelism.zero.stage", 3, note)
    elif entry is not None and entry.value.value is True:
        writer.put("parallelism.zero.stage", 1, entry, "zero_optimization", "true is the old spelling of stage 1")
    else:
        writer.default("parallelism.zero.stage", 0)
    _fields(writer, section)
    _offload(writer, section, "offload_optimizer", "offload_optimizer", "cpu_offload")
    _offload(writer, section, "offload_param", "offload_parameters", "cpu_offload_param")


def _fields(writer: Writer, section: Node | None) -> None:
    defaults = Zero()
    for field, spellings, switch in _FIELDS:
        path = f"parallelism.zero.{field}"
        entry, key = first(section, spellings)
        raw = scalar(entry)
        value = as_boolean(raw) if switch else as_integer(raw)
        filled = _filled(writer, field) if raw == AUTO else None
        if entry is not None and value is not None and value >= 0:
            writer.put(path, value, entry, f"zero_optimization.{key}")
        elif entry is not None and filled is not None:
            note = f'"auto", filled from hidden_size {writer.values.hidden_size}'
            writer.put(path, filled, entry, f"zero_optimization.{key}", note)
        elif field == "overlap_comm":
            writer.default(path, writer.stage == 3, f"default of {UPSTREAM}: true for stage 3")
        else:
            note = f'"auto" is not filled here; default of {UPSTREAM}' if raw == AUTO else ""
            if is_blank(raw):
                note = f"{key} is {raw}; default of {UPSTREAM}"
            writer.default(path, getattr(defaults, field), note)


def _filled(writer: Writer, field: str) -> int | None:
    """What Transformers and accelerate put for "auto": h^2, and for stage 3 0.9 h^2 and 10 h.

    Sources: `trainer_config_finalize` of Transformers 5.23.0, `_prepare_deepspeed` of accelerate 1.15.0.
    """
    hidden = writer.values.hidden_size
    if not hidden or not writer.values.client:
        return None
    if field == "reduce_bucket_size":
        return hidden * hidden
    if writer.stage != 3:
        return None
    return {"prefetch_bucket_size": int(0.9 * hidden * hidden), "param_persistence_threshold": 10 * hidden}.get(field)


def _offload(writer: Writer, section: Node | None, key: str, field: str, legacy: str) -> None:
    path = f"parallelism.zero.{field}"
    entry = section.entry(key) if section is not None else None
    old = section.entry(legacy) if section is not None else None
    if entry is not None and entry.value.is_mapping:
        place = f"zero_optimization.{key}"
        device = entry.value.entry("device")
        if device is not None and scalar(device) in ("none", "cpu", "nvme"):
            writer.put(f"{path}.device", scalar(device), device, f"{place}.device")
        else:
            writer.default(f"{path}.device", "none")
        pin = entry.value.entry("pin_memory")
        pinned = as_boolean(scalar(pin))
        if pin is not None and pinned is not None:
            writer.put(f"{path}.pin_memory", pinned, pin, f"{place}.pin_memory")
        else:
            _pin_by_release(writer, path)
        ratio = entry.value.entry("ratio")
        share = as_number(scalar(ratio))
        if ratio is not None and share is not None and 0 <= share <= 1:
            writer.put(f"{path}.ratio", float(share), ratio, f"{place}.ratio")
    elif old is not None and as_boolean(scalar(old)):
        writer.put(f"{path}.device", "cpu", old, f"zero_optimization.{legacy}", f"old spelling of {key}")
        _pin_by_release(writer, path)
    else:
        writer.default(f"{path}.device", "none")


def _pin_by_release(writer: Writer, path: str) -> None:
    release = writer.builder.job.versions.get("deepspeed", "")
    note = f"default of DeepSpeed {release}" if release else ""
    writer.default(f"{path}.pin_memory", default_of(deepspeed.DEFAULTS, release, "pin_memory", True), note)
