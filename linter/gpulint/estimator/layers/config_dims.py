"""Dims that follow from a model's config, its shape and its architecture alone, whatever job runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ...models.adapter_types import prefix_tokens
from ...models.model import text_config
from ...upstream.stack import Stack
from ..estimate import NotEstimable
from ..frameworks.frameworks import framework
from ..frameworks.release import REMOTE, arch_at, release
from ..inputs.image_inputs import image_inputs
from ..inputs.objectives import frames, objective, spoken
from .dims import DropoutDims

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...job.job import Job
    from ...models.arch_spec import ArchSpec
    from ...models.model import Model, Shape
    from ..frameworks.frameworks import Framework
    from ..frameworks.release import Release
    from ..inputs.image_inputs import ImageInputs
    from ..inputs.objectives import Objective
    from ..states.parameter import Parameter
    from .dims import AttentionDims
    from .weights import ModelWeights


RECURRENT = "linear_attention"
"""The type of layers whose projections to queries, keys and values are not attention's."""

ACTIVATION_FIELDS = ("hidden_activation", "hidden_act", "activation_function", "activation")
GROUP_FIELDS = ("n_groups", "mamba_n_groups", "mamba_ngroups")
CHUNK_FIELDS = ("chunk_size", "mamba_chunk_size")

INDEX_TOP_K = 2048
"""DeepseekV32Config.index_topk"""

BLOCK = 256
"""MiniMaxConfig.block_size"""

NOPE_INTERVAL = 4
"""Every fourth layer has no rotary embedding where a config names neither layers nor an interval (Llama 4, SmolLM3)."""


def first_of(config: dict[str, Any], names: Sequence[str], default: int) -> int:
    """The first of the fields that the config states, else the class's default."""
    return next((int(config[name]) for name in names if config.get(name)), default)


def activation(config: dict[str, Any]) -> str:
    """The MLP's activation function, "" where the config names none; T5 says by one field that there is a gate too."""
    stated = str(config.get("feed_forward_proj") or "")
    gated = stated.rpartition("gated-")[2]
    if gated:
        return "gelu_new" if gated == "gelu" and stated != gated else gated
    return next((str(config[name]) for name in ACTIVATION_FIELDS if config.get(name)), "")


def dropout(arch: ArchSpec, config: dict[str, Any], own: str) -> DropoutDims:
    """The config's probabilities, else the class's; a framework may have a field of its `own` for the branches."""

    def stated(field: tuple[str, float]) -> float:
        return float((config.get(field[0], field[1]) if field[0] else 0.0) or 0.0)

    residual = stated((own, 0.0) if own else arch.residual_dropout)
    return DropoutDims(
        attention=stated(arch.attention_dropout),
        residual=residual,
        embedding=stated((own, 0.0) if own else arch.embedding_dropout),
        activation=stated(arch.activation_dropout),
        mlp=stated(arch.mlp_dropout),
        head=stated(arch.head_dropout) if arch.head_dropout[0] else residual,
        features=stated(("feat_proj_dropout", 0.0)),
    )


def stack_of(items: Sequence[Parameter]) -> str:
    """The name of the decoder's stack of layers, before the index."""
    for roles in (("q", "qkv", "mla"), ("ssm", "gate", "up", "gate_up", "expert_gate_up")):
        for item in items:
            if item.layers is not None and item.role in roles and item.part == "base":
                return item.name.partition("{0}")[0]
    return ""


def vocabulary_rows(items: Sequence[Parameter]) -> int:
    """Rows of the embedding table on this rank; 0 where it has none."""
    return next((item.shape[0] for item in items if item.role == "embedding" and item.layers is None), 0)


def groups(weights: ModelWeights, layer_types: Sequence[str], heads: int, head_dim: int) -> int:
    """Key heads of one projection for all three: what its rows leave beside the query heads; 0 without such a one."""
    for item in weights.items:
        if item.role != "qkv" or not item.layers or not item.name.startswith(weights.stack):
            continue
        if not layer_types or layer_types[item.layers[0]] != RECURRENT:
            return max(1, (item.shape[0] // head_dim - heads) // 2)
    return 0


def by_layer(shape: Shape, tensor: int) -> tuple[tuple[int, int, int], ...]:
    """(head_dim, key heads, query heads) of each layer on this rank, where layers that attend differ in them."""
    found = (shape.layer_head_dims, shape.layer_kv_heads, shape.layer_heads)
    if not any(len(set(each) - {0}) > 1 for each in found):
        return ()
    return tuple((d, -(-keys // tensor), -(-queries // tensor)) for d, keys, queries in zip(*found, strict=True))


def rope_types(arch: ArchSpec, shape: Shape, config: dict[str, Any]) -> tuple[str, ...]:
    """The rotary embedding of each layer; some models leave it out of some (`nope_layers`)."""
    slides = any(window is not None for window in shape.windows)

    def rope_type(layer: int) -> str:
        listed = arch.nope_layers == "list" and not _rotates(config, layer)
        full = arch.nope_layers == "full" and slides and shape.windows[layer] is None
        return "none" if listed or full else arch.rope

    return tuple(rope_type(layer) for layer in range(shape.layers))


def _rotates(config: dict[str, Any], layer: int) -> bool:
    """Llama 4 and SmolLM3: `no_rope_layers` has a 0 for layers without, by default one in every interval."""
    stated = config.get("no_rope_layers")
    if isinstance(stated, list) and layer < len(stated):
        return bool(stated[layer])
    return (layer + 1) % int(config.get("no_rope_layer_interval") or NOPE_INTERVAL) != 0


def rotary(arch: ArchSpec, shape: Shape, config: dict[str, Any], heads: AttentionDims) -> tuple[tuple[int, int], ...]:
    """(rotated features, features) of a head in each table: of all layers, or of full-attention and of sliding ones."""
    if not arch.tables:
        return (_rotated(arch, config, heads, heads.head_dim, "full_attention"),)
    sizes = {}
    if heads.by_layer:
        slides = (window is not None for window in shape.windows)
        sizes = {slide: own[0] for own, slide in zip(heads.by_layer, slides, strict=True)}
    kinds = ((False, "full_attention"), (True, "sliding_attention"))
    return tuple(_rotated(arch, config, heads, sizes.get(slide, heads.head_dim), kind) for slide, kind in kinds)


def _rotated(arch: ArchSpec, config: dict[str, Any], heads: AttentionDims, head_dim: int, kind: str) -> tuple[int, int]:
    """Features of a head that the rotary embedding turns, where `rope_parameters` say so in layers of a kind."""
    if arch.rope == "none":
        return 0, head_dim
    if heads.latent:
        return heads.rope_dim // 2 if arch.rope == "pairs" else heads.rope_dim, head_dim
    nested = config.get("rope_parameters")
    stated = config.get("partial_rotary_factor") or config.get("rotary_pct")
    own = nested.get(kind) if isinstance(nested, dict) else None
    if stated is None and isinstance(nested, dict):
        stated = (own if isinstance(own, dict) else nested).get("partial_rotary_factor")
    if stated is None and config.get("rotary_dim"):
        stated = config["rotary_dim"] / head_dim
    if stated is None:
        local = arch.local_rotary if kind == "sliding_attention" else 0.0
        stated = local or arch.rotary
    rotated = int(head_dim * float(stated))
    return rotated // 2 if arch.rope == "chunks" else rotated, head_dim


def shared_keys(shape: Shape, config: dict[str, Any]) -> frozenset[int]:
    """Layers whose keys and values later ones read: the last of its type before those that share."""
    shared = int(config.get("num_kv_shared_layers") or 0)
    if not shared or not shape.layer_types:
        return frozenset()
    own = range(shape.layers - shared)
    return frozenset(i for i in own if shape.layer_types[i] not in shape.layer_types[i + 1 : own.stop])


def sparse_gates(shape: Shape, config: dict[str, Any]) -> frozenset[int]:
    """Layers whose gate Gemma 3n cuts down to its largest values."""
    pattern = config.get("activation_sparsity_pattern")
    if not isinstance(pattern, list):
        return frozenset()
    return frozenset(i for i in range(min(shape.layers, len(pattern))) if pattern[i])


class Facts(NamedTuple):
    """What several dims follow from."""

    job: Job
    stack: Stack
    model: Model
    config: dict[str, Any]
    arch: ArchSpec
    framework: Framework
    release: Release
    objective: Objective
    images: ImageInputs | None
    batch: int
    length: int
    samples: int
    items: tuple[Parameter, ...] = ()

    @property
    def keys(self) -> int:
        """Positions that a sequence attends to."""
        return self.length + prefix_tokens(self.job.adapter)


def facts_of(job: Job, model: Model) -> Facts:
    """The facts of a job. Raises NotEstimable for an objective without a head, and for what PEFT refuses."""
    config = {**model.defaults, **text_config(model.config)}
    arch, own, context = arch_at(job, model), framework(job), max(1, job.parallelism.context)
    if own.norm and arch.norm in ("rms", "gemma"):
        arch = arch._replace(norm=own.norm)
    if own.rope and arch.rope != "none":
        arch = arch._replace(rope=own.rope)
    found = objective(job)
    batch = (job.micro_batch_size or 1) * found.sequences
    length = samples = -(-max(1, found.length) // context)
    if arch.waves:
        found, length = spoken(found, model), frames(config, samples)[-1]
    elif found.loss == "ctc":
        raise NotEstimable(f"{model.id} has no head for the ctc objective")
    if prefix_tokens(job.adapter) and job.activation_checkpointing != "none":
        raise NotEstimable("PEFT refuses prefix tuning with gradient checkpointing")
    first_qwen = "kv_channels" in config and "no_bias" in config  # its own code, whatever model type stands for it
    version = release(job, REMOTE if first_qwen else model.model_type)
    if own.repeats_keys:
        version = version._replace(grouped_keys=False, contiguous=False)
    return Facts(
        job,
        Stack(job),
        model,
        config,
        arch,
        own,
        version,
        found,
        image_inputs(job, model, batch),
        batch,
        length,
        samples,
    )
