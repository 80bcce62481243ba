"""FSDP: torch's `fully_shard` as trainers of reinforcement learning put it on, and accelerate's plugin.

Facts of the plugin from accelerate 1.15.0 (`utils/dataclasses.py: FullyShardedDataParallelPlugin`,
`utils/fsdp_utils.py`, `accelerator.py: prepare_model`) and Transformers 5.23.0 (`training_args.py:
_process_fsdp_args`), read statically.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..arguments import Arguments
from ..bindings.kinds import FLAG, INTEGER, POSITIVE, TEXT, WORD, WORDS, Kind, Unsaid
from ..bindings.reader import Reader, by_program
from ..bindings.rows import LEAVE, NEVER, Default, Derived, Fixed, Key, only
from ..bindings.spelling import DTYPE, DTYPES, SHORT, dtype

if TYPE_CHECKING:
    from ....job.job import Job
    from ....source.node import Entry, Node
    from ..arguments import Given
    from ..bindings.rows import Row
    from ..format import JobBuilder

FSDP = "parallelism.fsdp."


def may_shard(job: Job) -> bool:
    """Whether no row before this one has said that there is no FSDP."""
    return "parallelism.fsdp" not in job.origins


def fsdp2(
    *, reshard: str = "", size: str = "", offload: str = "", param_dtype: str = "", reduce_dtype: str = "",
    note: str = "",
) -> tuple[Row, ...]:  # fmt: skip
    """Weights in shards that are gathered in bfloat16, gradients that are reduced in float32 after every micro batch.

    The arguments are the tool's keys, "" for what it has no key for: whether a layer is let go after its forward pass,
    the ranks of a group that divides the weights, offload to main memory, the dtypes of the mixed precision policy. A
    tool that differs in a field says that field in a row of its own before these. `note` is upstream's place.
    """
    return (
        Fixed("parallelism.zero", None),
        Fixed("precision.master_weights", False),
        Fixed("precision.gradients", Derived(None, "gradients have the dtype of their weight")),
        Fixed(f"{FSDP}version", Default(2, note)),
        Fixed(f"{FSDP}wrap", Default("transformer", note)),
        Fixed(f"{FSDP}upcast_trainable", False),
        Fixed(f"{FSDP}sync_each_batch", True),
        _said(f"{FSDP}reshard_after_forward", reshard, FLAG, default=True),
        *((Key(f"{FSDP}shard_size", size, POSITIVE, to=_smaller, back=_smaller),) if size else ()),
        Fixed(f"{FSDP}sharding", _sharding(note)),
        _said(f"{FSDP}mixed_precision.param_dtype", param_dtype, DTYPE, default="bfloat16"),
        _said(f"{FSDP}mixed_precision.reduce_dtype", reduce_dtype, DTYPE, default="float32"),
        _said(f"{FSDP}offload", offload, FLAG, default=False),
    )


def _said(field: str, key: str, kind: Any, *, default: Any) -> Row:
    return Key(field, key, kind, default=default) if key else Fixed(field, default)


def _smaller(ranks: int, job: Job) -> Any:
    """The ranks of a group, where that is not all of them."""
    return ranks if ranks < (job.hardware.gpus or 1) else Unsaid.OTHER


def _sharding(note: str) -> Any:
    def source(reader: Reader) -> Default:
        fsdp = reader.job.parallelism.fsdp
        return Default("hybrid_shard" if fsdp is not None and fsdp.shard_size else "full_shard", note)

    return source


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


class Section(Arguments):
    """An FSDP mapping and its dotted place; keys may carry the `fsdp_` prefix, and null is as good as absent.

    `known` are the keys that its tool does not drop; None where all reach accelerate.
    """

    __slots__ = ("known", "node")

    def __init__(self, node: Node | None, prefix: str, known: frozenset[str] | None = None) -> None:
        super().__init__(node, prefix)
        self.node = node
        self.known = known

    def raw(self, *names: str) -> Given | None:
        """The first of the names that is there, with or without prefix."""
        for name in names:
            for key in (name, f"fsdp_{name}") if self.known is None or name in self.known else ():
                given = super().raw(key)
                if given is not None and given.value is not None:
                    return given
        return None


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
    reader = Reader.over(builder, builder.document, section, defaults.upstream)
    reader.defaults = {**defaults._asdict(), "mixed_precision": mixed_precision}
    if version is not None:
        reader.from_entry(f"{FSDP}version", *version)
    reader.bind(PLUGIN)


def is_first(job: Job) -> bool:
    """Whether FSDP 1 shards, which has strategies."""
    return bool(job.get(f"{FSDP}version") == 1)


def is_second(job: Job) -> bool:
    """Whether FSDP 2 shards, which knows `reshard_after_forward` only."""
    return bool(job.get(f"{FSDP}version") == 2)


STRATEGIES = ("full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2")
"""FSDP1's strategies in the order of torch's `ShardingStrategy`, which a config may name by number from 1."""


def _strategy(value: Any) -> Any:
    number = INTEGER.read(value)
    if number in range(1, len(STRATEGIES) + 1):
        return STRATEGIES[number - 1]
    return str(value).lower() if str(value).lower() in STRATEGIES else Unsaid.WRONG


def _reshards(value: Any) -> Any:
    flag = FLAG.read(value)
    return _strategy(value) not in ("shard_grad_op", "hybrid_shard_zero2") if flag is Unsaid.WRONG else flag


STRATEGY = Kind("a strategy of FSDP 1", _strategy, str.upper, samples=STRATEGIES)
_RESHARDING = Kind("true or false", _reshards, samples=(True, False))
_VERSION = Kind(
    "1 or 2", lambda value: INTEGER.read(value) if INTEGER.read(value) in (1, 2) else Unsaid.WRONG, samples=(1, 2)
)


_POLICY = dtype(refuses=DTYPES.keys() - SHORT | {"fp64"}, own={"fp8": "bfloat16"}, written={"bfloat16": "bf16"})
"""`set_mixed_precision` of the plugin."""


def _as_strategy(reader: Reader) -> Any:
    """Whether a strategy that is stated lets weights go after the forward pass."""
    strategy = reader.job.get(f"{FSDP}sharding")
    if reader.job.origins[f"{FSDP}sharding"].kind == "default":
        return True
    kept = ("shard_grad_op", "hybrid_shard_zero2", "no_shard")
    return Derived(strategy not in kept, f"what {strategy} does", f"{FSDP}sharding")


def _dicts(reader: Reader) -> Any:
    usual = "SHARDED_STATE_DICT" if is_second(reader.job) else "FULL_STATE_DICT"
    return reader.defaults["state_dict_type"] or usual


def _mixed(reader: Reader) -> Any:
    word = reader.defaults["mixed_precision"]
    half = _POLICY.read(word)
    return LEAVE if isinstance(half, Unsaid) else Derived(half, f"mixed precision {word}", "precision.autocast")


def _upcast(reader: Reader) -> Any:
    note = "accelerate upcasts trainable parameters to float32 under FSDP mixed precision"
    off = reader.defaults["mixed_precision"] in (None, "no")
    return LEAVE if off else Derived(True, note, "precision.autocast")


def _set_twice(reader: Reader) -> None:
    """The Trainer's own checkpointing, stated or on by default, was read before, whatever file says it."""
    given = reader.given(FLAG, "activation_checkpointing")
    if given is not None and given.value and reader.under and reader.job.activation_checkpointing != "none":
        reader.set(f"{FSDP}checkpoints_twice", given, True, "the Trainer checkpoints, too")


def _set_inside(reader: Reader) -> None:
    given, offload = (
        reader.given(FLAG, "activation_checkpointing"),
        reader.given(FLAG, "activation_checkpointing_offload"),
    )
    if given is None or not given.value:
        return
    note = "accelerate puts torch's checkpoint wrapper into its units, without reentry (accelerator.py 1.15)"
    reader.derived(f"{FSDP}checkpoints_inside", True, note, "activation_checkpointing")
    reader.derived("reentrant", False, note, "activation_checkpointing")
    if offload is not None and offload.value and is_second(reader.job):
        reader.set("activation_checkpointing", offload, "offload")


PLUGIN: tuple[Row, ...] = (
    Key(f"{FSDP}version", "version", _VERSION, by_program("version"), back=NEVER),
    *only(
        is_second,
        Key(f"{FSDP}reshard_after_forward", "reshard_after_forward", _RESHARDING, by_program("reshards")),
        Key(
            f"{FSDP}sharding", "reshard_after_forward", _RESHARDING,
            lambda reader: "full_shard" if reader.defaults["reshards"] else "shard_grad_op",
            {True: "full_shard", False: "shard_grad_op"}, note="what FSDP1 calls it",
        ),
    ),
    *only(
        is_first,
        Key(f"{FSDP}sharding", "sharding_strategy", STRATEGY),
        Key(f"{FSDP}sharding", "reshard_after_forward", STRATEGY, "full_shard", adds=False),
        Fixed(f"{FSDP}reshard_after_forward", _as_strategy),
    ),
    Key(
        f"{FSDP}wrap", "auto_wrap_policy", WORD, by_program("wrap"),
        {"transformer_based_wrap": "transformer", "size_based_wrap": "size", "no_wrap": "none"}, NEVER,
    ),
    Key(
        f"{FSDP}layer_classes", ("transformer_layer_cls_to_wrap", "transformer_cls_names_to_wrap"), WORDS, back=NEVER
    ),
    Key(f"{FSDP}min_num_params", "min_num_params", POSITIVE, back=NEVER),
    Key(f"{FSDP}offload", ("offload_params", "cpu_offload", "offload"), FLAG, default=False),
    Key(f"{FSDP}use_orig_params", "use_orig_params", FLAG, by_program("use_orig_params"), back=NEVER),
    Key(f"{FSDP}forward_prefetch", "forward_prefetch", FLAG, default=False, back=NEVER),
    Key(
        f"{FSDP}cpu_ram_efficient_loading", "cpu_ram_efficient_loading", FLAG, by_program("cpu_ram_efficient_loading"),
        back=NEVER,
    ),
    Key(
        f"{FSDP}backward_prefetch", "backward_prefetch", TEXT,
        lambda reader: LEAVE if is_second(reader.job) else reader.defaults["backward_prefetch"], back=NEVER,
    ),
    Key(f"{FSDP}state_dict_type", "state_dict_type", TEXT, _dicts, back=NEVER),
    *(
        Key(
            f"{FSDP}mixed_precision.{part}_dtype", ("mixed_precision_policy", "mixed_precision"), _POLICY, _mixed,
            back=NEVER, when=is_first if part == "buffer" else None,
        )
        for part in ("param", "reduce", "buffer")
    ),
    Fixed(f"{FSDP}upcast_trainable", _upcast),
    _set_twice,
    Key(
        "activation_checkpointing", "activation_checkpointing", FLAG, to={True: "full"},
        back={"full": True, "none": False},
    ),
    _set_inside,
)  # fmt: skip
"""The section's keys without their prefix."""
