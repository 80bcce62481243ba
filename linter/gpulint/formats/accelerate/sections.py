"""What the sections of an accelerate config mean for a Job, whoever wrote them: a file, or options of a command.

Facts from accelerate 1.15.0 (`utils/dataclasses.py: DeepSpeedPlugin`, `ParallelismConfig`), read statically.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...upstream import accelerate, transformers
from ...upstream.behaviour import default_of
from ..core.backends.fsdp import PLUGIN, FsdpDefaults, Section, apply_fsdp
from ..core.bindings.kinds import FLAG, NATURAL, POSITIVE, WORD, Kind, Unsaid, integer
from ..core.bindings.reader import Reader
from ..core.bindings.rows import LEAVE, NEVER, Derived, Fixed, Key, Table, within
from ..core.bindings.spelling import MIXED_PRECISION
from ..core.format import Problem
from ..core.key_changes import OFFLOADS, STAGE, ZERO
from ..core.references import plain_document
from ..deepspeed.config import apply
from ..deepspeed.reference import apply_reference
from ..deepspeed.values import Reference

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ..core.arguments import Given
    from ..core.bindings.rows import Rest, Row
    from ..core.format import JobBuilder, Project, Reading
    from ..core.key_changes import Keys
    from ..core.sections import Sections
    from ..deepspeed.values import AutoValues

NAME = "accelerate"
UPSTREAM = "accelerate 1.15.0"

_REFUSED_BESIDE_FILE = (
    "gradient_accumulation_steps", "gradient_clipping", "zero_stage", "offload_optimizer_device",
    "offload_param_device", "offload_param_nvme_path", "offload_optimizer_nvme_path", "zero3_save_16bit_model",
)  # fmt: skip
"""Keys that `_deepspeed_config_checks` refuses beside `deepspeed_config_file`, as it does `mixed_precision`."""

_STAGE = Kind("a stage", lambda value: _stage(NATURAL.read(value)), samples=(0, 1, 2, 3))


def _stage(number: Any) -> Any:
    return number if number in range(4) else Unsaid.WRONG


_USUAL_STAGE = 2

_OWN = within(
    "deepspeed_config",
    Key(STAGE, "zero_stage", _STAGE, _USUAL_STAGE),
    *(
        Key(path, f"{section}_device", WORD, "none", {device: device for device in ("none", "cpu", "nvme")})
        for path, section in OFFLOADS.items()
    ),
    Key(f"{ZERO}gather_16bit_weights_on_save", "zero3_save_16bit_model", FLAG, back=NEVER),
)
"""The config that `DeepSpeedPlugin` makes of its own keys; sizes are DeepSpeed's defaults."""


def set_deepspeed(
    builder: JobBuilder, keys: Sections, reading: Reading, project: Project, values: AutoValues, path: str | None = None
) -> Given | None:
    """ZeRO as the section says, or the DeepSpeed file that it names: then that is returned.

    accelerate refuses keys of its config file, `path`, beside one, not options of its command line
    (`ACCELERATE_CONFIG_DS_FIELDS`).
    """
    reader = Reader.over(builder, builder.document, keys, builder.upstream)
    file = deepspeed_file(keys)
    if file is None:
        stage = reader.given(_STAGE, "deepspeed_config.zero_stage")
        given = stage or keys.raw("deepspeed_config", "distributed_type")
        assert given is not None
        config = {"zero_optimization": {"stage": stage.value if stage else _USUAL_STAGE}}
        document = plain_document(config, builder.document.path)
        apply(builder, document, values, reference=Reference(given.entry, given.key, "the config accelerate makes"))
        reader.under = dict(builder.job.origins)
        reader.bind(_OWN)
    else:
        apply_reference(reading, builder, file.entry, file.key, project, values)
        refused = [keys.raw(f"deepspeed_config.{key}") for key in _REFUSED_BESIDE_FILE]
        precision = keys.raw("mixed_precision")
        refused.append(precision if precision is not None and precision.value is not None else None)
        for given in (given for given in refused if given is not None and given.entry.key.path == path):
            words = {
                "value": given.entry.value.raw,
                "other": f"deepspeed_config_file: {file.value}",
                "message": "accelerate refuses it beside a DeepSpeed file; say it there",
                "upstream": UPSTREAM,
            }
            span = given.entry.value.span
            reading.problems.append(Problem("contradiction", given.key, span, words, given.entry.key.path))
    _set_init(reader, project.versions)
    return file


def deepspeed_file(keys: Sections) -> Given | None:
    """The key that names a DeepSpeed file."""
    file = keys.text("deepspeed_config.deepspeed_config_file")
    return file if file and file.value.lower() != "none" else None


def _set_init(reader: Reader, versions: Mapping[str, str]) -> None:
    """Whether stage 3 divides the weights as they are made, by `zero3_init_flag` and the releases that are stated.

    Where a release of transformers stands alone, accelerate's is taken to be of its time, and `unstated`.
    """
    if reader.job.get(STAGE) != 3:
        return
    flag = reader.given(FLAG, "deepspeed_config.zero3_init_flag")
    ours, theirs = versions.get(accelerate.NAME), versions.get(transformers.NAME)
    if flag.value if flag else default_of(accelerate.DEFAULTS, ours, "zero3_init_flag", newest=True):
        return
    known = bool(ours) or not theirs or transformers.NEEDS_ACCELERATE_1_1.at(theirs)
    ignored = accelerate.ZERO3_INIT_ALWAYS
    whole = not ignored.at(ours) if ours else transformers.BEFORE_ACCELERATE_1_0.at(theirs)
    note = f"before accelerate {ignored.since} each rank makes the whole model first; later ones ignore the flag"
    reader.set(f"{ZERO}init", flag, not whole, note if flag else "")
    if not known:
        reader.job.unstated.append(f"{ZERO}init")


def set_fsdp(builder: JobBuilder, keys: Sections, versions: Mapping[str, str], word: str) -> None:
    """FSDP as the section says, over what accelerate's plugin takes where it is silent."""
    given = keys.raw("fsdp_config")
    node = given.entry.value if given is not None and given.entry.value.is_mapping else None
    whole = default_of(accelerate.DEFAULTS, versions.get(accelerate.NAME), "fsdp_use_orig_params", True)
    defaults = FsdpDefaults(UPSTREAM, use_orig_params=whole, cpu_ram_efficient_loading=True)
    apply_fsdp(builder, Section(node, "fsdp_config"), defaults, word)


def _set_shards(reader: Reader) -> None:
    """The ranks that share the weights, where a run has replicas of them."""
    sizes = "parallelism_config.parallelism_config_dp_"
    shard, replicas = reader.given(POSITIVE, f"{sizes}shard_size"), reader.given(integer(2), f"{sizes}replicate_size")
    if shard and replicas and reader.job.parallelism.fsdp is not None:
        reader.set("parallelism.fsdp.shard_size", shard, note=f"{replicas.value} replicas")


def _gathered(reader: Reader) -> Any:
    if reader.job.parallelism.tensor == 1 or reader.given(POSITIVE, _MEGATRON.names[0]):
        return LEAVE
    return Derived(False, "Transformers' tensor parallel plan gathers the logits", "parallelism.tensor")


_MEGATRON = Key("parallelism.tensor", "megatron_lm_config.megatron_lm_tp_degree", POSITIVE, back=NEVER)

_DEGREES: tuple[Row, ...] = (
    _MEGATRON,
    Key("parallelism.pipeline", "megatron_lm_config.megatron_lm_pp_degree", POSITIVE, back=NEVER),
    Key("parallelism.tensor", "parallelism_config.parallelism_config_tp_size", POSITIVE, 1, back=NEVER),
    Key("parallelism.context", "parallelism_config.parallelism_config_cp_size", POSITIVE, 1, back=NEVER),
    Fixed("loss.parallel", _gathered),
    _set_shards,
)


def set_degrees(builder: JobBuilder, keys: Sections) -> None:
    """Tensor, context and pipeline parallel degrees, and the replicas of a sharded run."""
    Reader.over(builder, builder.document, keys, builder.upstream).bind(_DEGREES)


# changes, in the config that shards the run

_ON_GPUS = frozenset({"NO", "MULTI_GPU", "DEEPSPEED", "FSDP", ""})
"""Kinds of runs on GPUs that can become each other."""

_FSDP2 = {
    "fsdp_version": 2, "fsdp_reshard_after_forward": True, "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    "fsdp_cpu_ram_efficient_loading": True, "fsdp_state_dict_type": "FULL_STATE_DICT", "fsdp_offload_params": False,
}  # fmt: skip
"""What TRL ships as `fsdp2.yaml`."""


def _kind(reading: Reading) -> str:
    kind = reading.config.root.get("distributed_type")
    return str(kind.value) if kind is not None and kind.value is not None else ""


def _spelled(reading: Reading, key: str) -> str:
    """FSDP's keys have a prefix, unless the file spells one without."""
    section, _, name = key.rpartition(".")
    plain = section != "fsdp_config" or name.startswith("fsdp_") or reading.config.root.find(key) is not None
    return key if plain else f"{section}.fsdp_{name}"


def _own(key: str) -> Any:
    """A key of `deepspeed_config`, where accelerate makes the config itself."""

    def said(reading: Reading, value: Any) -> Keys | None:
        held = _kind(reading) == "DEEPSPEED"
        file = reading.config.root.find("deepspeed_config.deepspeed_config_file")
        return {f"deepspeed_config.{key}": value} if held and file is None else None

    return said


def _zero(reading: Reading, changes: dict[str, Any]) -> Keys | None:
    """The section's keys; where the run is sharded otherwise yet, all of the section with its stage."""
    from ..core.bindings.changes import wanted_keys

    root, kind = reading.config.root, _kind(reading)
    wanted = wanted_keys(Table((*_OWN, _INIT)), reading, changes)
    if wanted is None or kind not in _ON_GPUS:
        return None
    if kind == "DEEPSPEED":
        return wanted if root.find("deepspeed_config.deepspeed_config_file") is None else None
    section = {key.removeprefix("deepspeed_config."): value for key, value in wanted.items()}
    if "zero_stage" not in section:
        return None
    last = section["zero_stage"] == 3
    section |= {"zero3_init_flag": last, **({"zero3_save_16bit_model": True} if last else {})}
    return {"distributed_type": "DEEPSPEED", "deepspeed_config": section, "fsdp_config": None}


_INIT = Key(f"{ZERO}init", "deepspeed_config.zero3_init_flag", FLAG)


def _sharding(reading: Reading, strategy: str) -> Keys | Rest | None:
    """A strategy of FSDP, or the switch to FSDP 2."""
    kind = _kind(reading)
    if kind == "FSDP":
        return LEAVE
    switches = kind in _ON_GPUS and strategy == "full_shard"
    return {"distributed_type": "FSDP", "fsdp_config": dict(_FSDP2), "deepspeed_config": None} if switches else None


def _with_fsdp(reading: Reading, _value: Any) -> Rest | None:
    return LEAVE if _kind(reading) == "FSDP" else None


TABLE = Table(
    (
        Key(
            "precision.autocast", "mixed_precision", MIXED_PRECISION, None,
            {"bfloat16": "bfloat16", "float16": "float16"}, other=None,
        ),
        *_OWN,
        *within("fsdp_config", *PLUGIN),
        *_DEGREES,
    ),
    says={
        "parallelism.fsdp.sharding": _sharding,
        "parallelism.fsdp.offload": _with_fsdp,
        "parallelism.fsdp.reshard_after_forward": lambda *_: None,
        "activation_checkpointing": _with_fsdp,
        "gradient_accumulation_steps": _own("gradient_accumulation_steps"),
    },
    zero=_zero,
    spelled=_spelled,
)  # fmt: skip
"""Its rows are read section by section, since a command's options may say them, too."""
