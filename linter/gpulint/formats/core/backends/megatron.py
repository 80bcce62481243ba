"""Megatron's arguments, under whatever section a tool has them: degrees, 16-bit weights, its optimizer, recomputation.

Facts from Megatron-LM core 0.20.0 at d98e8a64dd (megatron/training/arguments.py, megatron/core), read statically.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from ....upstream import megatron as upstream
from ....upstream.stack import Stack
from ..bindings.kinds import ANYTHING, FLAG, NUMBER, POSITIVE, TEXT, Unsaid, integer
from ..bindings.rows import LEAVE, NEVER, Default, Derived, Fixed, Key, Written, only
from ..bindings.spelling import ATTENTION, OPTIMIZERS, attention, dtype, optimizer
from ..world_size import set_hardware
from .fsdp import FSDP
from .gpus import model_ranks

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ....job.job import Job
    from ....job.sharding import Parallelism
    from ..arguments import Given
    from ..bindings.reader import Reader
    from ..bindings.rows import Row, Say, Source, Step
    from ..format import Reading
    from ..key_changes import Keys
    from ..world_size import Stated

ZERO = "parallelism.zero."
OFFLOAD = f"{ZERO}offload_optimizer."
DEGREES = {
    "parallelism.tensor": "tensor_model_parallel_size",
    "parallelism.pipeline": "pipeline_model_parallel_size",
    "parallelism.context": "context_parallel_size",
    "parallelism.expert": "expert_model_parallel_size",
    "parallelism.expert_tensor": "expert_tensor_parallel_size",
}
"""Job field -> Megatron's name of the degree."""

OPTIMIZER = optimizer(
    refuses=OPTIMIZERS,
    own={"adam": "adamw_torch_fused", "sgd": "sgd", "muon": "muon", "dist_muon": "muon", "lion": "lion_pytorch"},
    written={"muon": "muon"},
)
"""`optimizer`; Transformer Engine's Adam, or apex', is a fused AdamW."""

BACKEND = attention(
    refuses=ATTENTION,
    own={
        "flash": "flash_attention_2", "fused": "flash_attention_2", "auto": "flash_attention_2",
        "unfused": "eager", "local": "eager",
    },
    written={"flash_attention_2": "flash", "eager": "unfused"},
)  # fmt: skip
"""`attention_backend`."""

STRATEGIES = {"no_shard": "no_shard", "optim_grads": "shard_grad_op", "optim_grads_params": "full_shard"}
"""What Megatron-FSDP calls what it divides; `optim` alone divides no more than the distributed optimizer."""

_MOMENT = dtype(refuses=frozenset(), own={"uint8": "float8"})
"""`exp_avg_dtype`, as a flag and as a dtype of torch; uint8 is the store of fp8 moments."""


def is_megatron(job: Job) -> bool:
    """Whether Megatron's model code trains."""
    return Stack(job).runs(upstream.NAME)


def at(section: str, name: str) -> str:
    """The dotted key of an argument in a section, "" for the top."""
    return f"{section}.{name}" if section else name


# degrees of parallelism


def degrees(section: str, back: Any = None, *, silent: Any = 1) -> tuple[Row, ...]:
    """The degrees of parallelism under Megatron's names; that of the experts' tensors is the rest's where silent.

    `silent` is what holds for the others, LEAVE for no word of it.
    """
    usual = {"parallelism.expert_tensor": None} if silent is not LEAVE else {}
    return tuple(
        Key(field, at(section, name), POSITIVE, usual.get(field, silent), back=back) for field, name in DEGREES.items()
    )


FLAGS_OF_ENDS = ("decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers")
FIELDS_OF_ENDS = ("num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage")
"""The layers of the first and the last stage, as flags of Megatron-LM and as fields of its TransformerConfig."""


def layout(section: str = "", *, ends: tuple[str, str] = FLAGS_OF_ENDS) -> tuple[Row, ...]:
    """How Megatron lays a model over the ranks: degrees, sequence parallelism, layers of the stages at the ends."""
    return (
        *degrees(section, silent=LEAVE),
        Key(
            "parallelism.sequence", at(section, "sequence_parallel"), FLAG, when=lambda job: job.parallelism.tensor > 1
        ),
        _ends(section),
        Key("parallelism.first_stage_layers", at(section, ends[0]), POSITIVE),
        Key("parallelism.last_stage_layers", at(section, ends[1]), POSITIVE),
    )


def _ends(section: str) -> Step:
    """The layers of the first and the last stage where the embedding and the loss count as a layer each.

    A flag for each (Megatron-LM transformer_block.py `get_num_layers_to_build`), or one expression for both
    (Megatron-DeepSpeed gpt_model.py, whose head is a second embedding). All stages are as long then; where they cannot
    be, Megatron-LM stops, and which stages DeepSpeed makes shorter (`partition_balanced`) is not followed.
    """

    def step(reader: Reader) -> None:
        layers, stages = reader.value(POSITIVE, at(section, "num_layers")), reader.job.parallelism.pipeline
        if layers is None or stages <= 1:
            return
        method = reader.given(TEXT, at(section, "pp_partition_method"))
        both = method if method and {*_COUNTED.findall(method.value.lower())} == {"transformer", "embedding"} else None
        given = {
            "parallelism.first_stage_layers": both
            or reader.given(FLAG, at(section, "account_for_embedding_in_pipeline_split")),
            "parallelism.last_stage_layers": both
            or reader.given(FLAG, at(section, "account_for_loss_in_pipeline_split")),
        }
        counted = {path: item for path, item in given.items() if item is not None and item.value}
        each, rest = divmod(layers + len(counted), stages)
        if each > 1 and not rest:
            for path, item in counted.items():
                reader.set(path, item, each - 1, "what is no layer counts as one")

    return step


_COUNTED = re.compile(r"transformer|embedding")
"""What `--pp-partition-method type:...` may count: a search in the names of the classes (deepspeed pipe/module.py)."""


def chunks(key: str) -> Key:
    """The model chunks of a rank under the interleaved schedule."""
    return Key("parallelism.virtual_stages", key, integer(2), when=lambda job: job.parallelism.pipeline > 1)


def gpus(stated: Callable[[Reader], Stated | None] = lambda _: None) -> Step:
    """`hardware`: what is stated, else one model replica."""

    def step(reader: Reader) -> None:
        found = stated(reader)
        set_hardware(reader, reader.project, found, sharded=False)
        if found is None and reader.project.gpus is None:
            note = "one model replica: the parallel degrees; the data parallel degree is up to the launch"
            reader.assumed("hardware.gpus", _least(reader.job.parallelism), note)

    return step


def _least(plan: Parallelism) -> int:
    """The fewest GPUs on which both the dense layers and the experts have whole groups (mcore parallel_state.py).

    Experts are split over `expert_tensor_parallel_size` ranks, those of the dense layers where it is not stated.
    """
    experts = plan.expert * (plan.expert_tensor or plan.tensor) if plan.expert > 1 else 1
    return plan.pipeline * math.lcm(plan.tensor * plan.context, experts)


# batches


def set_accumulation(reader: Reader, given: Given | None, *, certain: bool = True) -> None:
    """Micro batches of a step: the global batch over the data parallel ranks and micro batches.

    `certain` is whether the file states the degrees, so that a global batch that does not divide is a contradiction.
    """
    job, micro, ranks = reader.job, reader.job.micro_batch_size or 1, model_ranks(reader.job)
    if given is None:
        reader.default("gradient_accumulation_steps", 1, "global batch: one micro batch of every rank")
        return
    steps, rest = divmod(int(given.value), micro * ranks)
    reader.set("gradient_accumulation_steps", given, max(1, steps), f"over {ranks} data parallel ranks")
    if certain and (rest or not steps) and job.origins["hardware.gpus"].kind != "assumed":
        other = f"micro batch {micro} x {ranks} data parallel ranks do not divide it"
        reader.contradiction(given, other, "Megatron stops: the global batch must be whole micro batches of all ranks")


def accumulation(*names: str) -> Step:
    """`gradient_accumulation_steps` by the global batch."""
    return lambda reader: set_accumulation(reader, reader.given(POSITIVE, *names))


# dtypes


def gradients_of_flags(reader: Reader) -> str:
    """The dtype that gradients are added up in: float32 for bfloat16 weights, else their own, unless a flag differs."""
    if reader.job.weights.dtype == "bfloat16":
        low = reader.value(TEXT, "main_grads_dtype") == "bf16" or reader.value(FLAG, "grad_reduce_in_bf16")
        return "bfloat16" if low else "float32"
    return "float32" if reader.value(FLAG, "accumulate_allreduce_grads_in_fp32") else "float16"


def mixed_precision(gradients: Callable[[Reader], str] = gradients_of_flags) -> tuple[Row, ...]:
    """What Megatron does with 16-bit weights, after `weights.dtype`: fp32 main parameters, gradients in a buffer."""
    rows: tuple[tuple[str, Callable[[Reader], Any], str], ...] = (
        ("precision.master_weights", lambda _: True, "Megatron keeps fp32 main parameters"),
        ("precision.gradients", gradients, "the dtype of Megatron's gradient buffer"),
        ("precision.autocast", lambda _: None, "Megatron casts its weights instead"),
    )
    return only(_has_half, *(Fixed(field, _like_weights(value, note)) for field, value, note in rows))


def _has_half(job: Job) -> bool:
    return job.weights.dtype in ("bfloat16", "float16")


def _like_weights(value: Callable[[Reader], Any], note: str) -> Callable[[Reader], Source]:
    def source(reader: Reader) -> Source:
        if reader.job.origins["weights.dtype"].kind != "file":
            return Default(value(reader), note)
        return Derived(value(reader), note, "weights.dtype")

    return source


# the optimizer


def optimizer_states(section: str = "") -> Step:
    """The precision-aware optimizer keeps its two moments in the dtypes that are asked for; without it in fp32."""

    def step(reader: Reader) -> None:
        if not reader.value(FLAG, at(section, "use_precision_aware_optimizer")):
            return
        first, second = (reader.ask(_MOMENT, at(section, name)) for name in ("exp_avg_dtype", "exp_avg_sq_dtype"))
        stated = {item.value if item.says or item.value is Unsaid.OTHER else "float32" for item in (first, second)}
        if first.says and len(stated) == 1:
            reader.set("optimizer.state_dtype", first.given)

    return step


def megatron_optimizer(*, distributed: str = "", reduce: str = "", narrow: str = "bfloat16") -> tuple[Row, ...]:
    """Megatron's mixed precision optimizer, whose states and main weights are divided over the data parallel ranks.

    `distributed` is the tool's key of `use_distributed_optimizer`, `reduce` that of `grad_reduce_in_fp32`, without
    which gradients are reduced in `narrow`.
    """
    zero = f"{ZERO}stage"
    return (
        Fixed("precision.autocast", None),
        Fixed("precision.master_weights", Default(True, "Megatron's mixed-precision optimizer")),
        *((Key("precision.gradients", reduce, FLAG, "float32", {True: "float32", False: narrow}),) if reduce else ()),
        Fixed("parallelism.fsdp", None),
        Fixed(f"{ZERO}library", "megatron"),
        Key(zero, distributed, FLAG, default=1, to={True: 1, False: 0})
        if distributed
        else Fixed(zero, Default(1, "use_distributed_optimizer")),
    )


def divides_states(distributed: str, default: Default) -> tuple[Row, ...]:
    """Where nothing else divides the model: the distributed optimizer, in Megatron's gradient buffer."""
    return only(
        lambda job: job.parallelism.fsdp is None,
        Key(f"{ZERO}stage", distributed, FLAG, default, _divided, {1: True}),
        Fixed(f"{ZERO}library", Derived("megatron", "Megatron's gradient buffer", f"{ZERO}stage")),
    )


def _divided(on: bool, _job: Job) -> Written:
    return Written(1, "states divided like ZeRO-1") if on else Written(0, "no distributed optimizer")


def megatron_fsdp(*switches: str) -> tuple[Row, ...]:
    """`switches` that turn FSDP on, the first of them that does; torch's own goes by no strategy of Megatron's."""
    return (
        *(Key(f"{FSDP}version", switch, FLAG, to={True: 2}) for switch in switches),
        *only(
            lambda job: job.parallelism.fsdp is not None,
            Fixed(f"{FSDP}wrap", Derived("transformer", "one unit a layer", f"{FSDP}version")),
            Key(
                f"{FSDP}sharding", "data_parallel_sharding_strategy", TEXT, to=STRATEGIES, back=NEVER,
                when=_is_megatrons,
            ),
        ),
    )  # fmt: skip


def _is_megatrons(job: Job) -> bool:
    origin = job.origins.get(f"{FSDP}version")
    return origin is None or "torch" not in (origin.key or "")


def offloaded_optimizer(cpu: str, fraction: str, *, usual: float) -> Step:
    """The optimizer in main memory, whole or by its share (`usual` where the file says none)."""

    def step(reader: Reader) -> None:
        on, share = reader.given(FLAG, cpu), reader.given(NUMBER, fraction)
        if on and on.value and (share.value if share else usual) > 0:
            reader.set(f"{OFFLOAD}device", on, "cpu")
            if share:
                reader.set(f"{OFFLOAD}ratio", share, float(min(1, share.value)))

    return step


# what is kept for the backward pass


_KEPT = Default("core_attention", "recompute_modules core_attn")


def recompute(
    key: str, *, default: Any, silent: Any = LEAVE, words: tuple[str, ...] = ("full", "selective"),
    policy: Source = _KEPT, under: tuple[str, ...] = ("selective",),
) -> tuple[Row, ...]:  # fmt: skip
    """`recompute_granularity`: whole layers, or what lies inside attention; `silent` is for another word or a null.

    words   what the tool takes
    policy  what `selective` makes again, said of a Job whose checkpointing is one of `under`
    """
    none = silent if silent is LEAVE else Written(silent)
    return (
        Key("activation_checkpointing", key, TEXT, default, {word: word for word in words}, other=none, null=none),
        Fixed("checkpoint_policy", policy, when=lambda job: job.activation_checkpointing in under),
    )


def granularity(key: str) -> tuple[Row, ...]:
    """The same in Megatron's own words, which whole layers leave ready for a change to `selective`."""
    policy = Derived("core_attention", "Megatron's selective part", "activation_checkpointing")
    return recompute(key, default="none", policy=policy, under=("full", "selective"))


def recompute_keys(prefix: str, *former: str, none: str | None = None) -> Say:
    """What says activation checkpointing: granularity, and the method of whole layers, below a prefix of their names.

    `former` are other keys that turn it on, which go; `none` is the word of no checkpointing, None for no key at all.
    """
    names = tuple(f"{prefix}{name}" for name in ("granularity", "method", "num_layers"))
    words = {"full": ("full", "uniform", 1), "selective": ("selective", None, None), "none": (none, None, None)}

    def say(_reading: Reading, value: str) -> Keys | None:
        return {**dict(zip(names, words[value], strict=True)), **dict.fromkeys(former)} if value in words else None

    return say


def recomputed_modules(section: str = "") -> Step:
    """Modules besides attention's inside that are made again, and modules whose activations wait in main memory.

    How much each saves is not derived: the interval reaches down to a run that makes whole layers again, and whose
    inputs wait in main memory, too.
    """

    def step(reader: Reader) -> None:
        listed = str(reader.value(ANYTHING, at(section, "recompute_modules")) or "")
        modules = set(re.findall(r"[a-z_]+", listed)) - {"core_attn"}
        selective = reader.job.activation_checkpointing == "selective"
        if (modules and selective) or reader.value(FLAG, at(section, "fine_grained_activation_offloading")):
            reader.job.unstated.append("checkpoint_policy")

    return step


def fused_loss(usual: Callable[[Reader], bool], form: Callable[[Reader], str] = lambda _: "native") -> Step:
    """`cross_entropy_loss_fusion`: compiled in its `native` form, a kernel of Transformer Engine's in its `te` one."""

    def step(reader: Reader) -> None:
        fusion, stated = (
            reader.given(FLAG, "cross_entropy_loss_fusion"),
            reader.given(TEXT, "cross_entropy_fusion_impl"),
        )
        on = fusion.value if fusion else usual(reader)
        if on and (stated.value if stated else form(reader)) == "te":
            note = "Transformer Engine's kernel"
            reader.set("loss.kernel", stated, "te_cross_entropy", note)
            reader.derived("loss.compiled", False, note, "loss.kernel")
        else:
            reader.set("loss.compiled", fusion, on, "" if fusion else f"cross_entropy_loss_fusion {str(on).lower()}")

    return step


def core(release: str, note: str, when: Callable[[Reader], bool] = lambda _: True) -> Step:
    """The release of Megatron Core that a framework brings along, unless the run states another."""

    def step(reader: Reader) -> None:
        if not reader.project.versions.get(upstream.NAME) and when(reader):
            reader.derived(f"versions.{upstream.NAME}", release, note)

    return step
