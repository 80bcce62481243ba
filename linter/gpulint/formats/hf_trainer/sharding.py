"""DeepSpeed and FSDP as `transformers.TrainingArguments` configures them (transformers 5.23.0, accelerate 1.15.0)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...source.node import Entry, Node
from ...upstream import llamafactory, transformers, trl
from ...upstream.behaviour import default_of
from ..core import references
from ..core.arguments import Arguments
from ..core.backends.fsdp import STRATEGIES, FsdpDefaults, Section, apply_fsdp, is_first
from ..core.bindings.kinds import POSITIVE
from ..core.format import Problem
from ..core.model_facts import hidden_size
from ..core.typos import unknown_key
from ..core.world_size import Stated, set_hardware
from ..deepspeed.config import apply
from ..deepspeed.matching import DEFAULTS, arguments
from ..deepspeed.reference import apply_reference
from ..deepspeed.values import AutoValues, Reference
from .trainer_profiles import program_of
from .training_arguments import mixed_precision

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...source.document import Document
    from ..accelerate.launch import AccelerateLaunch
    from ..core.arguments import Given
    from ..core.bindings.reader import Reader
    from .usual_launch import UsualLaunch


WORDS = {"bfloat16": "bf16", "float16": "fp16", None: "no"}
"""Job dtype -> accelerate's word for that mixed precision."""


def set_sharding(reader: Reader, launch: AccelerateLaunch | UsualLaunch | None = None) -> None:
    """`hardware` and `parallelism`: DeepSpeed from a file or inline, FSDP, the launcher's, else plain data parallelism.

    Call it last: DeepSpeed overrides the dtypes and fills "auto" from what has been read before.
    """
    stated = launch.stated if launch else _workers(reader)
    deepspeed = reader.keys.raw("deepspeed")
    fsdp = _fsdp_options(reader)
    launched = launch.kind if launch else ""
    sharded = bool(deepspeed and deepspeed.value) or fsdp is not None or launched in ("DEEPSPEED", "FSDP")
    unknown = launch is not None and launch.unknown and not sharded
    set_hardware(reader, reader.project, stated, sharded=sharded, unknown=unknown)
    reader.default("parallelism.tensor", 1)
    reader.default("parallelism.pipeline", 1)
    reader.default("parallelism.context", 1)
    if deepspeed and deepspeed.value:
        reader.default("parallelism.fsdp", None)
        set_deepspeed(reader, deepspeed)
    elif fsdp is not None:
        reader.default("parallelism.zero", None)
        _set_fsdp(reader, *fsdp)
    else:
        reader.default("parallelism.zero", None)
        reader.default("parallelism.fsdp", None)
        if launch:
            dtype, _ = mixed_precision(reader)
            launch.apply(reader, auto_values(reader), WORDS[dtype])
            if reader.job.parallelism.fsdp is not None:
                _set_reduction(reader)
        else:
            _set_one_process(reader)
            if reader.job.world_size > 1 and not reader.job.parallelism.one_process:
                # `accelerate launch --config_file`, of which nothing here tells, may shard the model
                reader.job.unstated.append("parallelism.zero.stage")
    _shard_packed(reader)


def _shard_packed(reader: Reader) -> None:
    """fms-acceleration's plugins store packed weights in the compute dtype under FSDP, which then shards them.

    Its bitsandbytes plugin sets `bnb_4bit_quant_storage`, its GPTQ plugin views the integers as that dtype
    (plugins/accelerated-peft framework_plugin_bnb.py, framework_plugin_autogptq.py).
    """
    plugin = reader.keys.raw("bnb_qlora") or reader.keys.raw("auto_gptq")
    if plugin is not None and plugin.value and reader.job.parallelism.fsdp is not None:
        reader.set("parallelism.fsdp.shards_packed", plugin, True, "the plugin stores packed weights in 16 bits")


REFUSING = {row.package: row for row in (llamafactory.REFUSES_DATA_PARALLEL, trl.REFUSES_DATA_PARALLEL)}


def _set_one_process(reader: Reader) -> None:
    """Several GPUs for a script that is started as one process: torch.nn.DataParallel (trainer.py `_wrap_model`).

    Not for a quantised model, without the Trainer, off the GPU, nor where the launch asks for one GPU. A script that no
    table names may spread the model itself, by a device map: `unstated`.
    """
    job, project = reader.job, reader.project
    if not project.alone or (job.hardware.gpus or 1) < 2 or (job.hardware.nodes or 1) > 1:
        return
    if reader.keys.is_on("use_cpu") or reader.keys.is_on("no_cuda") or job.hardware.asked_gpus == 1:
        return
    script = program_of(project.program)
    if script is not None and script.own_loop:
        return
    name = "trl" if script is not None and script.trl else reader.reading.format
    if name in REFUSING and REFUSING[name].at(job.versions.get(name)):
        reader.derived("parallelism.one_process", False, f"{name} refuses several GPUs in one process", "versions")
        return
    if job.weights.quantization is not None:
        return
    if script is None and name not in REFUSING:
        job.unstated.append("parallelism.one_process")
        return
    note = f"{project.program} is one process, in which the Trainer takes DataParallel for all GPUs"
    reader.derived("parallelism.one_process", True, note, "hardware.gpus")


def _workers(reader: Reader) -> Stated | None:
    """LLaMA-Factory's Ray workers, of one GPU each (llamafactory 0.9.5 `RayArguments.ray_num_workers`)."""
    given = reader.given(POSITIVE, "ray_num_workers")
    return Stated(given.value, given.entry, given.key, "Ray workers of one GPU each") if given else None


def set_deepspeed(reader: Reader, given: Given) -> None:
    """A DeepSpeed config: a path, or a mapping (or JSON text) in its place."""
    text = given.value if isinstance(given.value, str) else ""
    if not text.lstrip().startswith("{"):
        apply_reference(reader.reading, reader, given.entry, given.key, reader.project, auto_values(reader))
        return
    document = _inline(given, reader.document.path)
    if document is not None:
        reference = Reference(given.entry, given.key, "the JSON text")
        reader.reading.problems += apply(reader, document, auto_values(reader), reference=reference)


def auto_values(reader: Reader) -> AutoValues:
    """What the Trainer puts for "auto" (`trainer_config_process`)."""
    dtype, _ = mixed_precision(reader)
    job = reader.job
    steps = job.origins["gradient_accumulation_steps"]
    return AutoValues(
        client=reader.defaults.get("client", "transformers"),
        micro_batch_size=job.micro_batch_size,
        gradient_accumulation_steps=None if steps.kind == "assumed" else job.gradient_accumulation_steps,
        world_size=reader.project.gpus,
        bf16=None if reader.keys.blank("bf16") else dtype == "bfloat16",
        fp16=None if reader.keys.blank("fp16") else dtype == "float16",
        hidden_size=hidden_size(job.model, reader.document.path, reader.project.root),
        arguments=arguments(reader, *_defaults(reader)),
    )


def _defaults(reader: Reader) -> tuple[dict[str, Any] | None, str]:
    """What the compared arguments are when nobody states them, and how sure that is.

    The configs of TRL's trainers have learning rates of their own, which its releases change. A script that no table
    names may have its own arguments; what TrainingArguments say is only assumed then.
    """
    name = reader.reading.format
    if name in _PROGRAM_DEFAULTS:
        full = reader.job.method == "full"
        rate: dict[str, Any] = {"learning_rate": 1e-5 if full else 1e-4} if name == "ms_swift" else {}
        return {**DEFAULTS, **_PROGRAM_DEFAULTS[name], **rate}, "default"
    if name != "hf_trainer":
        return None, ""
    script = program_of(reader.project.program)
    known = script is not None or reader.project.program.startswith("trl ")
    trl_runs = reader.project.program.startswith("trl ") or (script is not None and script.trl)
    rate = {"learning_rate": None} if trl_runs or not known else {}
    return {**DEFAULTS, **rate}, "default" if known else "assumed"


_PROGRAM_DEFAULTS: dict[str, dict[str, Any]] = {
    "llamafactory": {},
    "ms_swift": {"weight_decay": 0.1, "adam_beta2": 0.95},
}
"""Programs whose arguments are a subclass of the Trainer's, and what they change (ms-swift 4.6 `trainers/arguments.py`,
`arguments/sft_args.py`; LLaMA-Factory 0.9.5 changes none)."""


def _inline(given: Given, path: str) -> Document | None:
    from ...source.document import SourceError
    from ...source.read import parse

    try:
        return parse(given.value, path, "json")
    except SourceError:
        return None


def _fsdp_options(reader: Reader) -> tuple[Given, list[str]] | None:
    """The `fsdp` argument and its words; None when FSDP is off. `true`, words in a string, or a list of words."""
    given = reader.keys.raw("fsdp")
    if given is None or not given.value:
        return None
    if isinstance(given.value, str):
        words = given.value.lower().replace(",", " ").split()
        return None if words in ([], ["false"], ["none"], ["no"]) else (given, words)
    if isinstance(given.value, list):
        return given, [str(word).lower() for word in given.value]
    return given, []


def _set_fsdp(reader: Reader, given: Given, words: list[str]) -> None:
    """`parallelism.fsdp` from `fsdp_config`, and from the words of `fsdp` where that is silent
    (`_apply_legacy_fsdp_to_config`).
    """
    node, prefix, document = _fsdp_config(reader)
    release, word = reader.job.versions.get("transformers", ""), WORDS[mixed_precision(reader)[0]]
    section, defaults = Section(node, prefix, _fsdp_keys(release)), _fsdp_defaults(release, words)
    reader.reading.problems += _unread(section, f"transformers {release}".strip(), document)
    apply_fsdp(reader.beside(document, section) if document else reader, section, defaults, word)
    strategy = next((word for word in words if word in STRATEGIES), None)
    if strategy and section.raw("reshard_after_forward", "sharding_strategy") is None:
        first, whole = is_first(reader.job), strategy in ("full_shard", "hybrid_shard")
        if first:
            reader.set("parallelism.fsdp.sharding", given, strategy)
        if first or defaults.reshards:  # before 5.4 FSDP 2 took no strategy from `fsdp`
            reader.set("parallelism.fsdp.reshard_after_forward", given, whole, strategy)
    _set_reduction(reader)
    if "offload" in words and section.raw("cpu_offload") is None:
        reader.set("parallelism.fsdp.offload", given, True)


def _set_reduction(reader: Reader) -> None:
    """`sync_each_batch` of `accelerator_config`, a mapping or JSON text: whole gradients are never accumulated."""
    given = reader.keys.raw("accelerator_config")
    document = _inline(given, reader.document.path) if given is not None and isinstance(given.value, str) else None
    keys = Arguments(document.root) if document is not None else reader.keys.mapping("accelerator_config")
    switch = keys.mapping("gradient_accumulation_kwargs").flag("sync_each_batch")
    if given is not None and switch is not None:
        reader.set("parallelism.fsdp.sync_each_batch", given, switch.value, "sync_each_batch")


def _fsdp_keys(version: str) -> frozenset[str]:
    """What the Trainer of a release reads of `fsdp_config`: the plugin of accelerate gets nothing else."""
    return frozenset(key for row, keys in _FSDP_KEYS if row is None or row.at(version) for key in keys)


_FSDP_KEYS = (
    (
        None,
        (
            "min_num_params", "transformer_layer_cls_to_wrap", "forward_prefetch", "backward_prefetch",
            "sync_module_states", "cpu_ram_efficient_loading", "use_orig_params", "limit_all_gathers",
            "activation_checkpointing", "xla", "xla_fsdp_v2", "xla_fsdp_grad_ckpt", "xla_fsdp_settings",
        ),
    ),
    (transformers.FSDP_SHARDING_KEYS, ("version", "reshard_after_forward")),
    (transformers.FSDP_PLUGIN_KEYS, ("cpu_offload", "auto_wrap_policy", "state_dict_type")),
)  # fmt: skip
"""Keys, and since when they are read."""

_ACCELERATE_KEYS = {
    "offload_params": "cpu_offload", "cpu_offload": "", "sharding_strategy": "", "reshard_after_forward": "",
    "version": "", "auto_wrap_policy": "", "state_dict_type": "", "mixed_precision_policy": "",
    "backward_prefetch_policy": "backward_prefetch", "transformer_cls_names_to_wrap": "transformer_layer_cls_to_wrap",
}  # fmt: skip
"""Keys of accelerate's own FSDP section -> the Trainer's key of the same meaning; "" where it has none."""


def _unread(section: Section, upstream: str, document: Document | None) -> Iterator[Problem]:
    """Keys of accelerate's that the Trainer drops."""
    assert section.known is not None
    for entry in section.node.entries() if section.node is not None else ():
        key = str(entry.key.value)
        name = key.removeprefix("fsdp_")
        if name in section.known or name not in _ACCELERATE_KEYS or not entry.value.value:
            continue
        meant = _ACCELERATE_KEYS[name]
        dotted = f"{section.prefix}.{key}" if section.prefix else key
        place = dotted.removesuffix(name) + meant if meant in section.known else ""
        path = document.path if document is not None else None
        yield unknown_key(entry, dotted, place, "ignored", upstream, path)


def _fsdp_defaults(version: str, words: list[str]) -> FsdpDefaults:
    """What the Trainer of a release takes where `fsdp_config` is silent; `auto_wrap` is a word of `fsdp`."""
    upstream = f"transformers {version}".strip()
    wrap = default_of(transformers.DEFAULTS, version, "fsdp_wrap", "transformer")
    return FsdpDefaults(
        upstream,
        default_of(transformers.DEFAULTS, version, "fsdp_version", 2),
        "transformer" if "auto_wrap" in words else wrap,
        use_orig_params=True,
        state_dict_type="FULL_STATE_DICT",
        reshards=default_of(transformers.DEFAULTS, version, "fsdp_reshard_after_forward", True),
    )


def _fsdp_config(reader: Reader) -> tuple[Node | None, str, Document | None]:
    """`fsdp_config` as a mapping, its dotted place, and the file it came from when it is a path."""
    given = reader.keys.raw("fsdp_config")
    if given is None or given.value is None:
        return None, "", None
    if given.entry.value.is_mapping:
        return given.entry.value, given.key, None
    if not isinstance(given.value, str):
        return None, "", None
    if given.value.lstrip().startswith("{"):
        document = _inline(given, reader.document.path)
        return (anchored(document.root, given.entry), given.key, None) if document else (None, "", None)
    found = references.find(given.value, reader.document.path, reader.project)
    if found.document is None or not found.document.roots:
        reader.reading.problems.append(
            references.unresolved(given.entry, given.key, given.value, found, "the defaults of FSDP")
        )
        return None, "", None
    reader.reading.references[given.key] = found.document
    return found.document.root, "", found.document


def anchored(node: Node, entry: Entry) -> Node:
    """The mapping with every entry standing where `entry` does: for JSON that is written inside a string."""
    entries = [Entry(Node("scalar", e.key.value, entry.key.span), _moved(e.value, entry)) for e in node.entries()]
    return Node("mapping", entries, entry.value.span)


def _moved(node: Node, entry: Entry) -> Node:
    return Node(node.kind, node.value, entry.value.span, node.raw)
