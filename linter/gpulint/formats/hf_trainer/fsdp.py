"""What an FSDP section means for a Job: `fsdp_config` of accelerate, axolotl and the Transformers Trainer.

Facts from accelerate 1.15.0 (`utils/dataclasses.py: FullyShardedDataParallelPlugin`, `utils/fsdp_utils.py`,
`accelerator.py: prepare_model`) and Transformers 5.23.0 (`training_args.py: _process_fsdp_args`), read statically.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.coercion import as_boolean, as_integer

if TYPE_CHECKING:
    from ...source.node import Entry, Node
    from ..core.format import JobBuilder

_STRATEGIES = ("full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2")
"""FSDP1's strategies in the order of torch's `ShardingStrategy`, which a config may name by number from 1."""

_WRAPS = {"transformer_based_wrap": "transformer", "size_based_wrap": "size", "no_wrap": "none"}

_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp8": "bfloat16", "fp32": "float32"}
"""`set_mixed_precision` of the plugin."""


class FsdpDefaults(NamedTuple):
    """What holds where an FSDP section is silent; it differs by the tool that reads it.

    `reshards` is FSDP 2's, `backward_prefetch` FSDP 1's, of which accelerate's plugin hands torch none.
    """

    upstream: str
    version: int = 1
    wrap: str = "none"
    use_orig_params: bool = False
    cpu_ram_efficient_loading: bool = False
    state_dict_type: str | None = None
    reshards: bool = True
    backward_prefetch: str = "NO_PREFETCH"


class Section(NamedTuple):
    """An FSDP mapping and its dotted place; keys may carry the `fsdp_` prefix.

    `known` are the keys that its tool does not drop; None where all reach accelerate.
    """

    node: Node | None
    prefix: str
    known: frozenset[str] | None = None

    def find(self, *names: str) -> tuple[Entry | None, str]:
        """The entry of the first name that is there, with or without prefix, and its dotted key."""
        for name in names:
            if self.known is not None and name not in self.known:
                continue
            for key in (name, f"fsdp_{name}"):
                entry = self.node.entry(key) if self.node is not None else None
                if entry is not None and entry.value.value is not None:
                    return entry, f"{self.prefix}.{key}" if self.prefix else key
        return None, ""


def apply_fsdp(
    builder: JobBuilder,
    section: Section,
    defaults: FsdpDefaults,
    mixed_precision: str | None,
    version: tuple[int, Entry, str] | None = None,
) -> None:
    """Set `parallelism.fsdp` and, where the section asks for it, `activation_checkpointing`.

    `mixed_precision` is accelerate's word (`bf16`, `fp16`, `no`; None when unknown); with any but `no` trainable
    parameters are held in float32. `version` is one stated outside the section, with its entry and dotted key.
    """
    _Fsdp(builder, section, defaults).run(mixed_precision, version)


class _Fsdp:
    __slots__ = ("builder", "defaults", "section")

    def __init__(self, builder: JobBuilder, section: Section, defaults: FsdpDefaults) -> None:
        self.builder = builder
        self.section = section
        self.defaults = defaults

    def run(self, mixed_precision: str | None, version: tuple[int, Entry, str] | None) -> None:
        self.version(version)
        self.sharding()
        self.wrapping()
        self.switch("offload", False, "offload_params", "cpu_offload", "offload")
        self.switch("use_orig_params", self.defaults.use_orig_params, "use_orig_params")
        self.switch("forward_prefetch", False, "forward_prefetch")
        self.switch("cpu_ram_efficient_loading", self.defaults.cpu_ram_efficient_loading, "cpu_ram_efficient_loading")
        self.word("backward_prefetch", "backward_prefetch")
        self.word("state_dict_type", "state_dict_type")
        self.precision(mixed_precision)
        self.checkpointing()

    def version(self, outside: tuple[int, Entry, str] | None) -> None:
        entry, key = self.section.find("version")
        number = as_integer(_scalar(entry))
        if outside is not None:
            self.builder.from_entry("parallelism.fsdp.version", outside[0], outside[1], outside[2])
        elif entry is not None and number in (1, 2):
            self.builder.from_entry("parallelism.fsdp.version", number, entry, key)
        else:
            self.default("version", self.defaults.version)

    @property
    def is_second(self) -> bool:
        return bool(self.builder.job.get("parallelism.fsdp.version") == 2)

    def sharding(self) -> None:
        """FSDP2 knows `reshard_after_forward` only; FSDP1 takes a strategy under either name."""
        path = "parallelism.fsdp."
        entry, key = self.section.find("reshard_after_forward")
        old, old_key = self.section.find("sharding_strategy")
        if self.is_second:
            reshard = as_boolean(_scalar(entry))
            if reshard is None and entry is not None:
                reshard = _strategy(_scalar(entry)) not in ("shard_grad_op", "hybrid_shard_zero2")
            if entry is not None and reshard is not None:
                self.builder.from_entry(f"{path}reshard_after_forward", reshard, entry, key)
                name = "full_shard" if reshard else "shard_grad_op"
                self.builder.from_entry(f"{path}sharding", name, entry, key, "what FSDP1 calls it")
            else:
                self.default("reshard_after_forward", self.defaults.reshards)
                self.default("sharding", "full_shard" if self.defaults.reshards else "shard_grad_op")
            return
        for found, place in ((old, old_key), (entry, key)):
            strategy = _strategy(_scalar(found))
            if found is not None and strategy is not None:
                self.builder.from_entry(f"{path}sharding", strategy, found, place)
                reshard = strategy not in ("shard_grad_op", "hybrid_shard_zero2", "no_shard")
                self.builder.derived(
                    f"{path}reshard_after_forward", reshard, f"what {strategy} does", f"{path}sharding"
                )
                return
        self.default("sharding", "full_shard")
        self.default("reshard_after_forward", True)

    def wrapping(self) -> None:
        path = "parallelism.fsdp."
        entry, key = self.section.find("auto_wrap_policy")
        wrap = _WRAPS.get(str(_scalar(entry)).lower())
        if entry is not None and wrap is not None:
            self.builder.from_entry(f"{path}wrap", wrap, entry, key)
        else:
            self.default("wrap", self.defaults.wrap)
        layers, key = self.section.find("transformer_layer_cls_to_wrap", "transformer_cls_names_to_wrap")
        names = layers.value.plain() if layers is not None else None
        if isinstance(names, str):
            names = [name.strip() for name in names.split(",") if name.strip()]
        if layers is not None and isinstance(names, list) and all(isinstance(name, str) for name in names):
            self.builder.from_entry(f"{path}layer_classes", names, layers, key)
        least, key = self.section.find("min_num_params")
        number = as_integer(_scalar(least))
        if least is not None and number:
            self.builder.from_entry(f"{path}min_num_params", number, least, key)

    def switch(self, field: str, default: bool, *names: str) -> None:
        entry, key = self.section.find(*names)
        value = as_boolean(_scalar(entry))
        if entry is not None and value is not None:
            self.builder.from_entry(f"parallelism.fsdp.{field}", value, entry, key)
        else:
            self.default(field, default)

    def word(self, field: str, *names: str) -> None:
        entry, key = self.section.find(*names)
        value = _scalar(entry)
        if entry is not None and isinstance(value, str):
            self.builder.from_entry(f"parallelism.fsdp.{field}", value, entry, key)
        elif field == "state_dict_type":
            self.default(field, self.defaults.state_dict_type or _state_dict_type(self.is_second))
        elif field == "backward_prefetch" and not self.is_second:
            self.default(field, self.defaults.backward_prefetch)

    def precision(self, mixed_precision: str | None) -> None:
        path = "parallelism.fsdp.mixed_precision."
        entry, key = self.section.find("mixed_precision_policy", "mixed_precision")
        stated = _DTYPES.get(str(_scalar(entry)).lower())
        dtype = stated or _DTYPES.get(mixed_precision or "")
        parts = ("param_dtype", "reduce_dtype") if self.is_second else ("param_dtype", "reduce_dtype", "buffer_dtype")
        for part in parts:
            if entry is not None and stated is not None:
                self.builder.from_entry(path + part, stated, entry, key)
            elif dtype is not None:
                self.builder.derived(path + part, dtype, f"mixed precision {mixed_precision}", "precision.autocast")
        if mixed_precision not in (None, "no"):
            note = "accelerate upcasts trainable parameters to float32 under FSDP mixed precision"
            self.builder.derived("parallelism.fsdp.upcast_trainable", True, note, "precision.autocast")

    def checkpointing(self) -> None:
        entry, key = self.section.find("activation_checkpointing")
        offload, offload_key = self.section.find("activation_checkpointing_offload")
        if entry is not None and as_boolean(_scalar(entry)):
            self.builder.from_entry("activation_checkpointing", "full", entry, key)
            note = "accelerate puts torch's checkpoint wrapper into its units, without reentry (accelerator.py 1.15)"
            self.builder.derived("parallelism.fsdp.checkpoints_inside", True, note, "activation_checkpointing")
            self.builder.derived("reentrant", False, note, "activation_checkpointing")
            if offload is not None and as_boolean(_scalar(offload)) and self.is_second:
                self.builder.from_entry("activation_checkpointing", "offload", offload, offload_key)

    def default(self, field: str, value: Any, note: str = "") -> None:
        self.builder.default(f"parallelism.fsdp.{field}", value, note or f"default of {self.defaults.upstream}")


def _scalar(entry: Entry | None) -> Any:
    return entry.value.value if entry is not None and entry.value.is_scalar else None


def _strategy(value: Any) -> str | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int) or (isinstance(value, str) and value.isdecimal() and len(value) == 1):
        number = int(value)
        return _STRATEGIES[number - 1] if 1 <= number <= len(_STRATEGIES) else None
    name = str(value).lower()
    return name if name in _STRATEGIES else None


def _state_dict_type(second: bool) -> str:
    return "SHARDED_STATE_DICT" if second else "FULL_STATE_DICT"
