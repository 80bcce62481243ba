"""GPUs and sharding of an axolotl run: world size, tensor, context and expert parallelism, DeepSpeed, FSDP."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ...job.job import Fsdp
from ...upstream.axolotl import SHARDS_PACKED
from ..accelerate.launch import launch_of
from ..core.backends.deepspeed import chooses_file, inline_deepspeed, zero_keys
from ..core.backends.fsdp import STRATEGIES, FsdpDefaults, Section, apply_fsdp
from ..core.bindings.kinds import FLAG, POSITIVE, integer
from ..core.bindings.rows import NEVER, Derived, Fixed, Key
from ..core.key_changes import ZERO
from ..core.keys import load
from ..core.model_facts import hidden_size
from ..core.placeholders import is_blank
from ..core.references import is_here
from ..core.world_size import Stated, set_hardware
from ..deepspeed.matching import DEFAULTS, arguments
from ..deepspeed.reference import apply_reference
from ..deepspeed.values import AutoValues
from ..hf_trainer.sharding import WORDS

if TYPE_CHECKING:
    from ...job.job import Job
    from ..core.arguments import Given
    from ..core.bindings.reader import Reader
    from ..core.format import Reading
    from ..core.key_changes import Keys

NAME, UPSTREAM = "axolotl", "axolotl 0.19.0"

_WORLD = ("dp_shard_size", "dp_replicate_size", "tensor_parallel_size", "context_parallel_size")


def _set(reader: Reader, key: str) -> Given | None:
    """The key, where it says something, be it what the start fills in."""
    given = reader.keys.raw(key)
    return given if given is not None and given.value else None


def is_fsdp(reader: Reader) -> bool:
    """Whether FSDP is configured: `fsdp_config`, or the old `fsdp` list."""
    return any(given and not is_blank(given.value) for given in (_set(reader, "fsdp_config"), _set(reader, "fsdp")))


def is_deepspeed(reader: Reader) -> bool:
    """Whether a DeepSpeed config is named or held."""
    return bool(_set(reader, "deepspeed"))


def _set_sharding(reader: Reader) -> None:
    """FSDP, DeepSpeed, or what `accelerate launch` says where the file says neither."""
    fsdp, deepspeed, legacy = is_fsdp(reader), _set(reader, "deepspeed"), reader.keys.raw("fsdp")
    own = fsdp or deepspeed is not None
    launch = launch_of(reader.reading, reader.project)
    launched = launch is not None and not own and launch.kind in ("DEEPSPEED", "FSDP")
    stated = _stated(reader) or (launch.stated if launch is not None else None)
    unknown = launch is not None and not own and launch.unknown
    set_hardware(reader, reader.project, stated, sharded=own or launched, unknown=unknown)
    if not fsdp:
        reader.default("parallelism.fsdp", None)
    if fsdp or deepspeed is None:
        reader.default("parallelism.zero", None)
    if fsdp:
        _set_fsdp(reader)
        if deepspeed and legacy and legacy.value:
            reader.contradiction(deepspeed, "fsdp", "axolotl refuses DeepSpeed and FSDP together")
    elif deepspeed:
        values = _auto_values(reader)
        apply_reference(reader.reading, reader, deepspeed.entry, deepspeed.key, reader.project, values)
    elif launch is not None:
        launch.apply(reader, _auto_values(reader), WORDS[reader.job.precision.autocast])


def _stated(reader: Reader) -> Stated | None:
    """The GPUs that the file states: Ray's workers, or data x tensor x context degrees where data is given."""
    workers = reader.given(POSITIVE, "ray_num_workers")
    if workers and reader.on("use_ray"):
        return Stated(workers.value, workers.entry, workers.key, "one GPU a Ray worker")
    given = {key: found for key in _WORLD if (found := reader.given(POSITIVE, key))}
    shard = given.get("dp_shard_size") or given.get("dp_replicate_size")
    if shard is None:
        return None
    total = math.prod(found.value for found in given.values())
    return Stated(total, shard.entry, shard.key, " x ".join(given) if len(given) > 1 else "")


def _auto_values(reader: Reader) -> AutoValues:
    """axolotl's values; where it passes none, TrainingArguments' own (decay 0, clipping at 1), but for warm-up."""
    job = reader.job
    origin = job.origins.get("hardware.gpus")
    return AutoValues(
        client="transformers",
        micro_batch_size=job.micro_batch_size,
        gradient_accumulation_steps=job.gradient_accumulation_steps,
        world_size=job.hardware.gpus if origin is not None and origin.kind != "assumed" else None,
        bf16=job.precision.autocast == "bfloat16",
        fp16=job.precision.autocast == "float16",
        hidden_size=hidden_size(job.model, reader.document.path, reader.project.root),
        arguments=arguments(reader, {**DEFAULTS, "learning_rate": None, "warmup_steps": None}),
    )


_FSDP = FsdpDefaults(UPSTREAM, version=1, wrap="transformer", use_orig_params=True, state_dict_type="FULL_STATE_DICT")
"""axolotl pins unversioned configs to FSDP1; the rest are the Trainer's defaults (`_process_fsdp_args`)."""


def _set_fsdp(reader: Reader) -> None:
    given, legacy = reader.keys.raw("fsdp_config"), reader.keys.raw("fsdp")
    node = given.entry.value if given is not None and given.entry.value.is_mapping else None
    version = reader.given(POSITIVE, "fsdp_version")
    stated = (version.value, version.entry, version.key) if version and version.value in (1, 2) else None
    known = frozenset(load(NAME)["$defs"]["FSDPConfig"]["properties"]) | {"version"}
    reader.set("parallelism.fsdp", given if given is not None and given.value else legacy, Fsdp())
    apply_fsdp(reader, Section(node, "fsdp_config", known), _FSDP, WORDS[reader.job.precision.autocast], stated)
    fsdp = reader.job.parallelism.fsdp
    if fsdp is not None and fsdp.version == 2 and fsdp.upcast_trainable:
        note = "Axolotl's own fsdp2_prepare_model (monkeypatch/accelerate/fsdp2.py, from 0.12 on) leaves dtypes alone"
        reader.derived("parallelism.fsdp.upcast_trainable", False, note, "parallelism.fsdp.version")
    if legacy is not None and legacy.value:
        _set_words(reader, legacy)
    reader.bind(_OWN_FSDP)


def _shards_packed(job: Job) -> bool:
    fsdp = job.parallelism.fsdp
    return fsdp is not None and fsdp.version == 2 and SHARDS_PACKED.at(job.versions.get(NAME))


def _set_shards(reader: Reader) -> None:
    replicas, shards = reader.given(integer(2), "dp_replicate_size"), reader.given(POSITIVE, "dp_shard_size")
    if replicas and shards:
        reader.set("parallelism.fsdp.shard_size", shards, note=f"{replicas.value} replicas")


_OWN_FSDP = (
    Fixed(
        "parallelism.fsdp.shards_packed",
        Derived(
            True, "Axolotl's FSDPParam shards Params4bit and Int8Params (monkeypatch/fsdp2_qlora.py, from 0.15 on)",
            "parallelism.fsdp.version",
        ),
        when=_shards_packed,
    ),
    Key(
        "parallelism.fsdp.sync_each_batch", "accelerator_config.gradient_accumulation_kwargs.sync_each_batch", FLAG,
        back=NEVER,
    ),
    _set_shards,
)  # fmt: skip


def _set_words(reader: Reader, legacy: Given) -> None:
    """The words of the old `fsdp` list; `fsdp_config` says more and wins (`_apply_legacy_fsdp_to_config`)."""
    raw, origins = legacy.value, reader.job.origins
    for word in (str(word).lower() for word in (raw if isinstance(raw, list) else str(raw).split())):
        if word in STRATEGIES and origins["parallelism.fsdp.sharding"].kind == "default":
            reader.set("parallelism.fsdp.sharding", legacy, word)
            reader.set("parallelism.fsdp.reshard_after_forward", legacy, word in ("full_shard", "hybrid_shard"))
        elif word == "offload" and origins["parallelism.fsdp.offload"].kind == "default":
            reader.set("parallelism.fsdp.offload", legacy, True)


PARALLEL = (
    Key("parallelism.tensor", "tensor_parallel_size", POSITIVE, 1),
    Key("parallelism.context", ("context_parallel_size", "sequence_parallel_degree"), POSITIVE, 1, back=NEVER),
    Key("parallelism.expert", "expert_parallel_size", POSITIVE, 1, back=NEVER),
    Fixed(
        "loss.parallel", Derived(False, "Transformers' tensor parallel plan gathers the logits", "parallelism.tensor"),
        when=lambda job: job.parallelism.tensor > 1,
    ),
    _set_sharding,
)  # fmt: skip
"""`hardware` and `parallelism`, after dtypes, adapter and batch, which DeepSpeed works on."""

DEEPSPEED_FILES = {
    (1, "none", "none"): "deepspeed_configs/zero1.json",
    (2, "cpu", "none"): "deepspeed_configs/zero2.json",
    (3, "none", "none"): "deepspeed_configs/zero3_bf16.json",
    (3, "none", "cpu"): "deepspeed_configs/zero3_bf16_cpuoffload_params.json",
    (3, "cpu", "cpu"): "deepspeed_configs/zero3_bf16_cpuoffload_all.json",
}
"""(stage, optimizer offload, parameter offload) -> the file axolotl 0.19.0 ships; its zero2.json offloads."""


def zero(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """A DeepSpeed file that axolotl ships, in place of FSDP; a mapping where it ships none of that kind."""
    entry, job = reading.config.root.entry("deepspeed"), reading.job
    if entry is not None and entry.value.is_mapping:
        return zero_keys(reading.config.root, "deepspeed", changes)
    after = job.with_changes(changes).parallelism.zero
    if after is None or not chooses_file(changes):
        return None
    stage, optimizer, parameters = after.stage, after.offload_optimizer.device, after.offload_parameters.device
    if "nvme" in (optimizer, parameters):
        return None
    narrow = job.weights.dtype == "bfloat16"
    if narrow and stage == 3 and optimizer == "cpu" and f"{ZERO}offload_parameters.device" not in changes:
        parameters = "cpu"  # no shipped file offloads the optimizer alone
    file: Any = DEEPSPEED_FILES.get((stage, optimizer, parameters))
    if file is not None and "bf16" in file and not narrow:
        file = "deepspeed_configs/zero3.json" if file.endswith("zero3_bf16.json") else None
    if file is None or not is_here(reading.config, file, "deepspeed"):
        file = inline_deepspeed(stage, {"offload_optimizer": optimizer, "offload_param": parameters})
    fsdp = ("fsdp", "fsdp_config", "fsdp_version", "fsdp_final_state_dict_type", "dp_shard_size", "dp_replicate_size")
    return {"deepspeed": file, **dict.fromkeys(fsdp)}


def fsdp_keys(reading: Reading, sharding: str) -> Keys | None:
    """FSDP2, which shards everything and gathers a layer at a time."""
    if sharding != "full_shard":
        return None
    wanted: Keys = {"fsdp_version": 2, "fsdp": None, "deepspeed": None}
    if reading.job.parallelism.fsdp is not None:
        return {**wanted, "fsdp_config.reshard_after_forward": True}
    section = {"auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "reshard_after_forward": True}
    return {**wanted, "fsdp_config": {**section, "state_dict_type": "FULL_STATE_DICT"}}


def places(reading: Reading, name: str) -> list[str]:
    """Where the file says an FSDP key, with and without prefix."""
    names = (f"fsdp_config.{name}", f"fsdp_config.fsdp_{name}")
    return [place for place in names if reading.config.root.find(place) is not None]


def offload_keys(reading: Reading, value: bool) -> Keys | None:
    """`offload_params` of the section, spelled as its other keys are."""
    if reading.job.parallelism.fsdp is None:
        return None
    config = reading.config.root.get("fsdp_config")
    prefixed = config is not None and any(str(key).startswith("fsdp_") for key in config.keys())  # noqa: SIM118
    spelled = f"fsdp_config.{'fsdp_' if prefixed else ''}offload_params"
    return {next(iter(places(reading, "offload_params")), spelled): value}


_NOT_WITH_FSDP2 = frozenset({"adamw_8bit", "adamw_bnb_8bit"})
_NOT_WITH_DEEPSPEED = frozenset(
    {
        "muon", "polora", "q_galore_adamw8bit", "flash_adamw", "flash_adam", "flash_sgd", "flash_sgdw", "flash_lion",
    }
)  # fmt: skip
"""Optimizers that axolotl's validators refuse with FSDP2, and with DeepSpeed."""


def is_refused(reading: Reading, changes: dict[str, Any]) -> bool:
    """Whether axolotl's validators would refuse the file after the change; lengths of `rl` are others than a row's."""
    before, after = reading.job.parallelism, reading.job.with_changes(changes)
    into_zero = any(path.startswith(ZERO) for path in changes)
    into_fsdp = "parallelism.fsdp.sharding" in changes
    fsdp2 = into_fsdp or (before.fsdp is not None and before.fsdp.version == 2 and not into_zero)
    deepspeed = into_zero or (before.zero is not None and not fsdp2)
    return (
        (fsdp2 and after.optimizer.name in _NOT_WITH_FSDP2)
        or (deepspeed and after.optimizer.name in _NOT_WITH_DEEPSPEED)
        or (changes.get("loss.kernel") == "liger" and after.parallelism.tensor > 1)
        or (not {"sequence_length", "packing"}.isdisjoint(changes) and reading.config.root.get("rl") is not None)
    )
