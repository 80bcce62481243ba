"""What the tape needs to know of a job and its model, resolved once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ...models.adapter_types import prefix_tokens
from ...models.model import text_config
from ...models.remote import normed_head
from ...versions import older
from ..adapters import fused_lora
from ..adapters.modules import Modules, Packing
from ..adapters.virtual_tokens import refuse_prompts
from ..estimate import NotEstimable
from ..frameworks.attention import attention_implementation, fused_operations, loss_kernel, sdpa_kernels, sequence_first
from ..frameworks.compiling import remade_attention, traced
from ..frameworks.frameworks import framework, of_transformers
from ..frameworks.modeling import arch_at, still
from ..frameworks.release import REMOTE, checkpoints, packed, release
from ..frameworks.unsloth import takes_xformers
from ..inputs.image_inputs import deep_layers, pictures, reader
from ..inputs.objectives import objective
from ..inputs.speech import frames, spoken
from ..inputs.virtual_tokens import lengthened
from ..states import low_precision
from ..states.gradients import accumulating, units_reduce
from ..states.parameters import parameters
from ..states.quantization import effective_quantization
from ..states.trained_layers import signatures
from ..tape.tape import Tape
from .attention.kernels import Heads
from .groups import around, block, shared_modules

if TYPE_CHECKING:
    from collections.abc import Collection

    from ...job.job import Job
    from ...models.model import Model, Shape
    from ..states.parameters import Parameter
    from ..tape.tensor import Storage, Tensor

AnyTape = TypeVar("AnyTape", bound=Tape)

POLICIES = {"torchtitan": "every_second_matmul", "torchtune": "every_second_matmul", "megatron": "core_attention"}
"""What selective checkpointing keeps by default (torchtitan activation_checkpoint.py, Megatron's recompute modules)."""

RECURRENT = "linear_attention"
"""The kind of layer whose projections to queries, keys and values are not attention's."""

ACTIVATION_FIELDS = ("hidden_activation", "hidden_act", "activation_function", "activation")


class Setting:
    """Sizes, widths and switches of one micro step on one rank.

    `rows` are the tokens of a micro batch on this rank: context parallelism divides the sequence. `keys` are the
    positions that a sequence attends to: with prefix tuning more than its own. `cache` is what a model that caches keys
    in training holds until its loss is there; `outputs` the logits that the training loop holds, `returned` those that
    the forward function hands to it, `named` those that the loss's function holds; `whole`: it returned no loss.
    `cached_keys` are bytes that a layer's cached keys keep alive, `widened_keys` those of their float32 copies.
    """

    def __init__(self, job: Job, model: Model, stack: str = "") -> None:
        shape = model.shape
        plan = job.parallelism
        job = lengthened(job)
        self.job = job
        self.model = model
        self.config = {**model.defaults, **text_config(model.config)}
        self.traits = arch_at(job, model)
        self.framework = framework(job)
        if self.framework.norm and self.traits.norm in ("rms", "gemma"):
            self.traits = self.traits._replace(norm=self.framework.norm)
        if self.framework.rope and self.traits.rope != "none":
            self.traits = self.traits._replace(rope=self.framework.rope)
        self.objective = objective(job)
        self.batch = (job.micro_batch_size or 1) * self.objective.sequences
        self.length = -(-max(1, self.objective.length) // max(1, plan.context))
        self.samples = self.length
        if self.traits.waves:
            self.objective = spoken(self.objective, model)
            self.length = frames(self.config, self.samples)[-1]
        elif self.objective.loss == "ctc":
            raise NotEstimable(f"{model.id} has no head for the ctc objective")
        self.rows = self.batch * self.length
        self.keys = self.length + prefix_tokens(job.adapter)
        if self.keys > self.length and job.activation_checkpointing != "none":
            raise NotEstimable("PEFT refuses prefix tuning with gradient checkpointing")
        self.reader = reader(model)
        self.pictures = pictures(job, model, self.batch)
        self.deep = len(deep_layers(model)) if self.pictures is not None else 0
        crosses = self.reader is not None and self.reader.crosses and of_transformers(job)
        self.crossing = frozenset(model.shape.cross_layers if crosses else ())
        self.scored = self.batch * -(-max(1, self.objective.scored) // max(1, plan.context))
        self.autocast = 2 if job.precision.autocast else 0
        self.foreign = low_precision.foreign(job)
        self.fp16 = "float16" in (job.precision.autocast, job.weights.dtype)
        self.heads = -(-shape.heads // plan.tensor)
        self.kv_heads = -(-shape.kv_heads // plan.tensor)
        self.latent = bool(shape.kv_lora_rank)
        self.rope_dim = shape.qk_rope_head_dim
        self.head_dim = shape.qk_nope_head_dim + self.rope_dim if self.latent else shape.head_dim
        self.value_dim = shape.v_head_dim or shape.head_dim
        self.order = self.traits.order
        refuse_prompts(self, recurrent=RECURRENT in shape.layer_types)
        self.release = release(job, REMOTE if _first_qwen(self.config) else model.model_type)
        if self.framework.repeats_keys:
            self.release = self.release._replace(grouped_keys=False, contiguous=False)
        self.normed_head = job.kind == "training" and normed_head(model.config, model.id)
        repeated = job.framework is None and still("repeated_keys", job, model)
        self.repeats_keys = job.local_layers or repeated or takes_xformers(job, model)
        self.upcast = job.loss.upcast or self.release.upcast
        self.compiled = traced(job, model) or self.framework.fuses_layers
        self.compiled_loss = job.compile if job.loss.compiled is None else job.loss.compiled
        self.cache: list[Storage] = []
        self.outputs: list[Storage] = []
        self.returned: list[Tensor] = []
        self.widened_keys = self.cached_keys = 0
        self.named: list[Storage] = []
        self.whole = False
        self.pixels: list[Storage] = []
        self.loss = loss_kernel(job.loss.kernel, self.traits)
        self.fused = fused_operations(job, self.traits)
        self.fused_lora, self.fused_lora_style = fused_lora.parts(job), fused_lora.style(job)
        self.hidden = shape.hidden
        self.top_k = shape.experts_per_token
        if shape.experts and not self.top_k:
            raise NotEstimable(f"the config of {model.id} does not say how many experts take each token")
        self.windows = shape.windows
        self.sparse = frozenset(shape.sparse_layers)
        self.layer_types = shape.layer_types
        self.state = max(shape.recurrent_states, default=0)
        self.attention = attention_implementation(job, model, self.traits, self.config)
        self.sequence_first, self.sdpa = sequence_first(job), sdpa_kernels(job)
        self.activation = self._activation() or self.traits.activation or shape.activation
        self.attention_dropout = self.dropout(self.traits.attention_dropout)
        own = (self.framework.dropout, 0.0) if self.framework.dropout else None
        self.residual_dropout = self.dropout(own or self.traits.residual_dropout)
        self.embedding_dropout = self.dropout(own or self.traits.embedding_dropout)
        self.activation_dropout = self.dropout(self.traits.activation_dropout)
        self.mlp_dropout = self.dropout(self.traits.mlp_dropout)
        own = self.traits.head_dropout
        self.head_dropout = self.dropout(own) if own[0] else self.residual_dropout
        self.residual_float = self.traits.residual_float and bool(self.config.get("residual_in_fp32", True))
        self.softcap = bool(self.traits.softcap and self.config.get(self.traits.softcap, True))
        self.dtype_width = _sharded_width(job)
        self.items = parameters(job, model)
        self.packing = _packing(job, model)
        self.leaf_inputs = (
            job.adapter is not None and job.activation_checkpointing != "none"
        ) or self._fed_by_trained()
        self.shards = plan.tensor if plan.sequence else 1
        self.stream = -(-self.rows // self.shards)
        self.trainable = sum(item.elements for item in self.items if item.graded)
        self.prefix = stack or _prefix(self.items)
        self.groups = self._groups()
        self.kv_heads = self.heads if self.traits.qkv == "grouped" else self.groups
        self.layers = shape.layers
        self.total_layers = shape.layers
        self._varied = _varied(shape)
        self.grouped: dict[int, Modules] = {}
        self._signatures = signatures(self)

    def _fed_by_trained(self) -> bool:
        """Whether what makes the layers' inputs is trained: a tower, a projector, a part that the inventory lacks."""
        graded = [item for item in self.items if item.graded]
        outside = self.job.trainable is not None and not graded
        return outside or (self.pictures is None and any(item.role in ("vision", "projector") for item in graded))

    def _activation(self) -> str:
        gated = str(self.config.get("feed_forward_proj") or "").rpartition("gated-")[2]
        if gated:
            return "gelu_new" if gated == "gelu" and self.config["feed_forward_proj"] != gated else gated
        stated = (self.config.get(name) for name in ACTIVATION_FIELDS)
        return next((str(name) for name in stated if name), "")

    def _groups(self) -> int:
        """Key heads: of one projection for all three, what its rows leave beside the query heads."""
        for item in self.items:
            if item.role != "qkv" or not item.layers or not item.name.startswith(self.prefix):
                continue
            if not self.layer_types or self.layer_types[item.layers[0]] != RECURRENT:
                return max(1, (item.shape[0] // self.head_dim - self.heads) // 2)
        return self.kv_heads

    def dropout(self, field: tuple[str, float]) -> float:
        """A dropout probability: the config's, else the class's default."""
        value = self.config.get(field[0], field[1]) if field[0] else 0.0
        return float(value or 0.0)

    def still(self) -> None:
        """Without dropout: outside of training it does nothing."""
        self.attention_dropout = self.residual_dropout = self.embedding_dropout = 0.0
        self.activation_dropout = self.mlp_dropout = self.head_dropout = 0.0

    def at(self, layer: int) -> Heads:
        """The sizes of a layer's attention call."""
        heads, kv_heads, head_dim, value_dim = self.heads, self.kv_heads, self.head_dim, self.value_dim
        if self._varied:
            same, tensor = value_dim == head_dim, self.job.parallelism.tensor
            head_dim = self._varied[0][layer]
            value_dim = head_dim if same else value_dim
            kv_heads = -(-self._varied[1][layer] // tensor)
            heads = -(-self._varied[2][layer] // tensor)
        return Heads(
            self.batch,
            self.length,
            heads,
            kv_heads,
            head_dim,
            value_dim,
            self.attention_dropout,
            self.softcap,
            self.framework.scores or self.traits.scores,
            self.traits.direct,
            None,
            self.release.grouped_keys,
            self.release.contiguous,
            self.fp16,
            repeats=self.repeats_keys,
            held=self.traits.held,
            bounded=self.traits.bounded,
            sequence_first=self.sequence_first,
            sdpa=self.sdpa,
        )

    def table_dims(self) -> tuple[int, ...]:
        """Head dimensions of the rotary tables: one, or that of full-attention layers and that of sliding ones."""
        if not self.traits.tables:
            return (self.head_dim,)
        if not self._varied:
            return (self.head_dim, self.head_dim)
        dims = {slides: d for d, slides in zip(self._varied[0], (w is not None for w in self.windows), strict=True)}
        return (dims.get(False, self.head_dim), dims.get(True, self.head_dim))

    @property
    def dtype_bytes(self) -> int:
        """Bytes of an element of the embeddings."""
        return self.modules(None).need("embedding").weight.e

    def remember(self, logits: list[Tensor]) -> None:
        """The training loop's name for the logits goes over to new ones."""
        self.outputs.clear()
        if self.job.loss.kept:
            self.outputs.extend(x.storage for x in logits)

    def tape(self) -> Tape:
        """An empty tape under this job's autocast."""
        return self.prepared(Tape())

    def prepared(self, tape: AnyTape) -> AnyTape:
        """A tape put under this job's autocast and accumulation; DataParallel's own gradients are new in each pass."""
        tape.autocast = self.autocast
        tape.operands = low_precision.saved(self.job)
        tape.packed = packed(self.job)
        tape.inputs_of_softmax = older(self.job.versions.get("torch"), "1.11")
        tape.attention_again = remade_attention(self.job)
        tape.loss_parallel = self.job.parallelism.tensor > 1 and self.job.loss.parallel
        tape.accumulated = accumulating(self.job) and not units_reduce(self.job)
        tape.accumulated = tape.accumulated and not self.job.longest_first and not self.job.parallelism.one_process
        return tape

    def modules(self, layer: int | None) -> Modules:
        """The modules of one decoder layer, or those outside every stack."""
        if layer is None:
            items = [item for item in self.items if item.layers is None and item.part != "buffer"]
        elif self.traits.reused:
            return shared_modules(self, layer)
        else:
            items = [item for item in self.items if self.holds(item, layer)]
        shared, last = block(self, layer)
        items += [item for item in shared if item not in items]
        return self.modules_of(items, () if last else shared)

    def part(self, stack: str, layer: int) -> Modules:
        """The modules of a layer of another stack than the decoder's."""
        items = [
            item
            for item in self.items
            if item.layers is not None
            and layer in item.layers
            and item.name.startswith(stack)
            and item.part != "buffer"
        ]
        return self.modules_of(items)

    def towers(self) -> Modules:
        """The modules of towers and projectors outside their stacks."""
        return self.modules_of(
            [item for item in self.items if item.layers is None and item.role in ("vision", "projector")]
        )

    def modules_of(self, items: list[Parameter], summed: Collection[Parameter] = ()) -> Modules:
        """What parameters make up; `summed` as in Modules."""
        return Modules(items, self.dtype_width, self.job.adapter, self.packing, summed, self.foreign)

    def turn(self, layer: int) -> str:
        """The rotary embedding of a layer; some models leave it out of full-attention layers."""
        if self.traits.unturned == "list" and not self._turned(layer):
            return "none"
        slides = any(window is not None for window in self.windows)
        if self.traits.unturned == "full" and slides and self.windows[layer] is None:
            return "none"
        return self.traits.rope

    def _turned(self, layer: int) -> bool:
        """Llama 4 and SmolLM3: `no_rope_layers` has a 0 for layers without, by default every fourth."""
        stated = self.config.get("no_rope_layers")
        if isinstance(stated, list) and layer < len(stated):
            return bool(stated[layer])
        return (layer + 1) % int(self.config.get("no_rope_layer_interval") or 4) != 0

    def kind(self, layer: int) -> object:
        """What tells layers apart: the kind of attention and MLP, and which of its weights are trained or adapted."""
        signature = self._signatures.get(layer)
        kind = self.layer_types[layer] if self.layer_types else ""
        return (
            self.windows[layer],
            kind,
            signature,
            self.turn(layer),
            self.stores(layer),
            self.checkpointing(layer),
            self.sparsity(layer),
            block(self, layer)[1] if not self.traits.reused else around(self, layer),
            layer if layer < self.deep else -1,
            layer == max(self.crossing, default=-1),
        )

    def sparsity(self, layer: int) -> bool:
        """Whether Gemma 3n cuts the layer's gate down to its largest values."""
        pattern = self.config.get("activation_sparsity_pattern")
        return isinstance(pattern, list) and layer < len(pattern) and bool(pattern[layer])

    def stores(self, layer: int) -> bool:
        """Whether later layers read this one's keys and values: the last of its type before those that share."""
        shared = int(self.config.get("num_kv_shared_layers") or 0)
        own = self.total_layers - shared
        return (
            bool(shared and self.layer_types)
            and layer < own
            and self.layer_types[layer] not in self.layer_types[layer + 1 : own]
        )

    def checkpointing(self, layer: int) -> str:
        """What of a layer is made again in backward: a mode of `Tape.checkpoint`, or `none`.

        Fused attention kernels make their inside again by themselves, so that recomputing it alone changes nothing.
        """
        job = self.job
        if (layer + 1) % max(1, job.checkpoint_every) or not checkpoints(job, self.model.model_type):
            return "none"
        if job.activation_checkpointing != "selective":
            return job.activation_checkpointing
        policy = job.checkpoint_policy or POLICIES.get(job.framework or "", "attention")
        return "none" if policy == "core_attention" else policy

    def holds(self, item: Parameter, layer: int) -> bool:
        """Whether a parameter is one of a decoder layer's."""
        own = item.layers is not None and item.part != "buffer" and layer in item.layers
        return own and item.name.startswith(self.prefix)


def _first_qwen(config: dict[str, Any]) -> bool:
    """Whether a config has the field names of Qwen's own code, whatever model type stands for it."""
    return "kv_channels" in config and "no_bias" in config


def _varied(shape: Shape) -> tuple[tuple[int, ...], ...] | None:
    """Head dimensions, key heads and query heads by layer, where layers that attend differ in them."""
    found = (shape.layer_head_dims, shape.layer_kv_heads, shape.layer_heads)
    return found if any(len(set(each) - {0}) > 1 for each in found) else None


def _sharded_width(job: Job) -> int | None:
    """FSDP's mixed precision hands the modules 16-bit parameters whatever their stored width is."""
    fsdp = job.parallelism.fsdp
    if fsdp is None:
        return None
    stated = fsdp.mixed_precision.param_dtype or job.precision.autocast
    return 2 if stated in ("bfloat16", "float16") else None


def _packing(job: Job, model: Model) -> Packing:
    """The kind of packed matmul: `int8` saves its input, everything else is taken for 4 bits."""
    found = effective_quantization(job, model)
    kind = "int8" if found is not None and found.method == "bnb-int8" else "4bit"
    return Packing(kind, 2 if framework(job).unpacks_twice else 1, model.model_type == "falcon")


def _prefix(items: tuple[Parameter, ...]) -> str:
    """The name of the decoder's stack of layers, before the index."""
    for roles in (("q", "qkv", "mla"), ("ssm", "gate", "up", "gate_up", "expert_gate_up")):
        for item in items:
            if item.layers is not None and item.role in roles and item.part == "base":
                return item.name.partition("{0}")[0]
    return ""
