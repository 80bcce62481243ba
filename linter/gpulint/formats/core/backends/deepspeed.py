"""DeepSpeed's `zero_optimization`: the fields of a Job that it says, and changes of them, wherever its config stands.

Facts from DeepSpeed 0.19.8 (`runtime/zero/config.py`, `runtime/zero/offload_config.py`), read statically.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ....job.job import Job, Zero
from ....source.document import Document
from ....upstream import deepspeed
from ....upstream.behaviour import default_of
from ..bindings.kinds import FLAG, NATURAL, NUMBER, TEXT, Kind, Unsaid
from ..bindings.rows import LEAVE, NEVER, Assumed, Default, Key, Table, within
from ..format import Reading
from ..key_changes import OFFLOADS, STAGE, ZERO
from ..placeholders import is_blank

if TYPE_CHECKING:
    from ....source.node import Node
    from ..arguments import Given
    from ..bindings.reader import Reader
    from ..bindings.rows import Row, Source
    from ..key_changes import Keys

UPSTREAM = "DeepSpeed 0.19.8"
AUTO = "auto"
"""Stands for a value that the tool which runs DeepSpeed fills in."""

SECTION = "zero_optimization"


def _filled_in(value: Any) -> bool:
    return value == AUTO or is_blank(value)


_GATHERS = (
    "stage3_gather_16bit_weights_on_model_save", "gather_16bit_weights_on_model_save",
    "stage3_gather_fp16_weights_on_model_save",
)  # fmt: skip
"""Names of the switch without which ZeRO-3 saves shards only, today's first."""

SIZE, SWITCH = replace(NATURAL, blank=_filled_in), replace(FLAG, blank=_filled_in)
_STAGE = Kind("a stage from 0 to 3", lambda value: _stage(NATURAL.read(value)), samples=(0, 1, 2, 3))
_WHOLE = Kind("true or false", lambda value: value if isinstance(value, bool) else Unsaid.WRONG, samples=(True, False))


def _stage(number: Any) -> Any:
    return number if number in range(4) else Unsaid.WRONG


def _usual(field: str, kind: Kind, *names: str) -> Key:
    return Key(f"{ZERO}{field}", names or field, kind, getattr(Zero(), field))


def _overlaps(reader: Reader, _given: Given | None = None) -> Source:
    return Default(reader.job.get(STAGE) == 3, f"default of {UPSTREAM}: true for stage 3")


_DEVICES = {device: device for device in ("none", "cpu", "nvme")}


def _offload(path: str, key: str, former: str) -> tuple[Row, ...]:
    """`former` is the old switch of the section `key`, which DeepSpeed refuses beside it."""

    def pinned(reader: Reader) -> Any:
        held = reader.keys.raw(f"{SECTION}.{key}")
        if reader.job.get(f"{path}.device") == "none" and not (held and held.entry.value.is_mapping):
            return LEAVE
        release = reader.job.versions.get(deepspeed.NAME, "")
        note = f"default of DeepSpeed {release}" if release else ""
        return Default(default_of(deepspeed.DEFAULTS, release, "pin_memory", newest=True), note)

    return (
        Key(f"{path}.device", f"{key}.device", TEXT, to=_DEVICES),
        Key(f"{path}.device", former, FLAG, "none", {True: "cpu"}, NEVER, note=f"old spelling of {key}"),
        Key(f"{path}.pin_memory", f"{key}.pin_memory", FLAG, pinned, back=NEVER),
    )


FORMER = {"offload_optimizer": "cpu_offload", "offload_param": "cpu_offload_param"}

ROWS = (
    *within(
        SECTION,
        Key(
            STAGE, "stage", _STAGE,
            blank=Assumed(3, "stage is {value}, filled in when the job starts; the stage that needs least stands in"),
        ),
    ),
    Key(STAGE, SECTION, _WHOLE, 0, {True: 1}, NEVER, note="true is the old spelling of stage 1"),
    *within(
        SECTION,
        _usual("reduce_bucket_size", SIZE),
        _usual("allgather_bucket_size", SIZE),
        _usual("prefetch_bucket_size", SIZE, "stage3_prefetch_bucket_size", "prefetch_bucket_size"),
        _usual("max_live_parameters", SIZE, "stage3_max_live_parameters", "max_live_parameters"),
        _usual("max_reuse_distance", SIZE, "stage3_max_reuse_distance", "max_reuse_distance"),
        _usual(
            "param_persistence_threshold", SIZE, "stage3_param_persistence_threshold", "param_persistence_threshold"
        ),
        _usual("sub_group_size", SIZE),
        Key(f"{ZERO}overlap_comm", "overlap_comm", SWITCH, _overlaps, blank=_overlaps),
        _usual("contiguous_gradients", SWITCH),
        _usual("round_robin_gradients", SWITCH),
        _usual("gather_16bit_weights_on_save", SWITCH, *_GATHERS),
        _usual("hpz_partition_size", SIZE, "zero_hpz_partition_size"),
        _usual("quantized_weights", SWITCH, "zero_quantized_weights"),
        Key(
            f"{ZERO}offload_optimizer.ratio", "offload_optimizer.ratio", NUMBER,
            to=lambda share, _: share if 0 <= share <= 1 else Unsaid.OTHER, back=NEVER,
        ),
        *(row for path, key in OFFLOADS.items() for row in _offload(path.rpartition(".")[0], key, FORMER[key])),
    ),
)  # fmt: skip
"""The section's keys, under the alias that DeepSpeed takes first."""


def zero_keys(root: Node, prefix: str, changes: Keys) -> Keys | None:
    """The ZeRO part of a change as keys of a DeepSpeed config that a file holds at `prefix`, "" for all of it."""
    from ..bindings.changes import wanted_keys

    held = root.find(prefix) if prefix else None
    config, place = (held.value, f"{prefix}.") if held is not None else (root, "")
    section = config.get(SECTION)
    if section is None or not section.is_mapping:
        return None
    document = Document("", "json", "", [config], [], [])
    wanted = wanted_keys(_CHANGES, Reading("", UPSTREAM, document, Job()), changes)
    if wanted is not None and changes.get(STAGE) == 3 and not any(section.get(key) is not None for key in _GATHERS):
        wanted = {**wanted, f"{SECTION}.{_GATHERS[0]}": True}  # else the Trainer saves shards only
    return None if wanted is None else {place + key: value for key, value in wanted.items()}


def _device(path: str) -> Any:
    """A section that is there gets the device; one that is not, the pinned memory that DeepSpeed's pages advise."""
    key = f"{SECTION}.{OFFLOADS[path]}"

    def said(reading: Reading, device: str) -> Keys | None:
        if reading.config.root.find(f"{SECTION}.{FORMER[OFFLOADS[path]]}") is not None:
            return None
        held = reading.config.root.find(key)
        kept = held is not None and held.value.is_mapping
        return {f"{key}.device": device} if kept else {key: {"device": device, "pin_memory": True}}

    return said


_CHANGES = Table(ROWS, {path: _device(path) for path in OFFLOADS})


def chooses_file(changes: Keys) -> bool:
    """Whether the ZeRO part of a change is what a DeepSpeed file is chosen by: the stage and the offloads."""
    return all(path == STAGE or path in OFFLOADS for path in changes if path.startswith(ZERO))


def inline_deepspeed(stage: int, offloads: dict[str, str]) -> Keys:
    """A DeepSpeed config that leaves all it can to the Trainer ("auto"). `offloads` is section -> device."""
    zero: Keys = {"stage": stage}
    for section, device in offloads.items():
        if device != "none":
            zero[section] = {"device": device, "pin_memory": True}
    zero |= {"overlap_comm": True, "contiguous_gradients": True, "reduce_bucket_size": AUTO}
    if stage == 3:
        zero |= {_GATHERS[0]: True, "stage3_prefetch_bucket_size": AUTO, "stage3_param_persistence_threshold": AUTO}
    sizes = ("gradient_clipping", "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    precision = {name: {"enabled": AUTO} for name in ("bf16", "fp16")}
    return {SECTION: zero, **precision, **dict.fromkeys(sizes, AUTO)}
