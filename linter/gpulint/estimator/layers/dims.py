"""Sizes, widths and switches of one micro step on one rank: what the layers compute with, and nothing that they decide.

Frozen data: `resolve.py` works all of it out of a job, its model and its libraries before the first layer runs.
Lengths are positions, sizes elements, widths (`e`, `autocast`) bytes of an element. A layer is named by its number.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...job.job import Job
    from ...models.arch_spec import ArchSpec
    from ...upstream.stack import Stack


@dataclass(frozen=True, slots=True)
class AttentionDims:
    """Self-attention on one rank.

    implementation   `eager`, `sdpa`, `flash_attention_2`, `xformers`, `softcapped` ... (frameworks/attention.py)
    sdpa             the best of torch's kernels for 16-bit operands: flash, efficient, math or narrow math
    heads, kv_heads  query heads and key heads;  groups  key heads in the rows of a projection of all three
    head_dim, value_dim, rope_dim   features of a head: of queries and keys, of values, and those of MLA that rotate
    by_layer         (head_dim, kv_heads, heads) of each layer where they differ; () where all layers are alike
    latent           queries and keys go through low-rank projections (MLA);  q_lora_rank  the rank of the queries'
    scores           how eager attention keeps its scores (`kernels.eager`);  softcap  whether it caps them
    float16          whether scores are float16, whose softmax in float32 needs no copy
    grouped_keys     sdpa is told to group keys;  contiguous  its operands are laid out anew
    repeats_keys     keys and values are repeated for every query head before the kernel
    sequence_first   the kernel's output is laid out anew as [s, b, heads, d]
    recomputes_core  queries, keys and values are saved, and what is between them and the output is made again
    caches_keys      keys and values live on with the model's outputs in training
    clips            queries, keys and values are clamped (`clip_qkv`)
    index_top_k      tokens that sparse attention's indexer chooses for each token
    """

    implementation: str
    sdpa: str
    heads: int
    kv_heads: int
    groups: int
    head_dim: int
    value_dim: int
    rope_dim: int
    by_layer: tuple[tuple[int, int, int], ...]
    latent: bool
    q_lora_rank: int
    scores: str
    softcap: bool
    float16: bool
    grouped_keys: bool
    contiguous: bool
    repeats_keys: bool
    sequence_first: bool
    recomputes_core: bool
    caches_keys: bool
    clips: bool
    index_top_k: int


@dataclass(frozen=True, slots=True)
class DropoutDims:
    """Probabilities of dropout, all 0 outside of training.

    attention   of attention's probabilities;  residual  behind both branches;  embedding  behind the embeddings
    activation  behind the MLP's activation;  mlp  of its gated product;  head  before a classifier
    features    behind the projection of sound's features
    """

    attention: float = 0.0
    residual: float = 0.0
    embedding: float = 0.0
    activation: float = 0.0
    mlp: float = 0.0
    head: float = 0.0
    features: float = 0.0


@dataclass(frozen=True, slots=True)
class ExpertDims:
    """A mixture of experts.

    top_k           experts that take each token
    routes_rows     experts get only the rows that are routed to them, whatever the model type's own code does
    grouped         they run as grouped matmuls; else one after the other as plain Linear layers
    indexed, copied    each expert is taken out of the fused weight (gpt_oss), and copied as it is
    token_choice    they are torchtitan's or prime-rl's (token_choice.py)
    weighted_in_graph  the compiled graph weights their outputs too
    divided         ranks divide them (expert parallelism)
    """

    top_k: int
    routes_rows: bool
    grouped: bool
    indexed: bool
    copied: bool
    token_choice: bool
    weighted_in_graph: bool
    divided: bool


@dataclass(frozen=True, slots=True)
class MixerDims:
    """Layers that mix tokens without attention.

    kernels           their library's kernels take the place of the composite path
    state             elements of the largest recurrent state of a sequence, over all ranks
    groups, chunk     groups of B and C, and tokens of a chunk, of a state space
    block             tokens of a block of lightning attention
    negative          beta of a delta rule may reach 2 (`linear_allow_neg_eigval`)
    bounded_decay     Kimi delta attention bounds its decays (`kda_safe_gate`)
    """

    kernels: bool
    state: int
    groups: int
    chunk: int
    block: int
    negative: bool
    bounded_decay: bool


@dataclass(frozen=True, slots=True)
class CheckpointDims:
    """Activation checkpointing.

    mode       what the job asks for: none, full, selective or offload
    layers     what of each layer is made again in backward: a mode of `Tape.checkpoint`, or none
    reentrant  whether checkpoints are reentrant
    """

    mode: str
    layers: tuple[str, ...]
    reentrant: bool


@dataclass(frozen=True, slots=True)
class LossDims:
    """The output head and the loss.

    kernel           the loss kernel that runs (`Loss.kernel`);  own  the framework's own loss, "" for none
    task             cross_entropy, log_probabilities, score, or the name of a task
    upcast           where 16-bit logits become float32: in the `loss`, in the `model`, or `never`
    never_upcast     the job itself says never
    shifted          logits are copied to drop each sequence's last token; else labels are padded
    compiled         torch.compile is over upcast and cross entropy
    copies_logits    the framework's loss makes a float32 copy beside float32 logits
    softcap          logits are capped behind the head;  normed_head  the head's rows are normalised in every pass
    gathers_logits   every rank gathers the logits of the whole vocabulary
    kept             how long the training loop names the logits: to the end of its `step`, until the `next` step's are
                     there, or not at all
    keeps_graph      and with them the graph of the step before
    temperature, entropies, means   what TRL makes of whole logits (frameworks/trl.py)
    reference        passes of a reference model without gradients before backward
    reference_requires_grad   weights of a reference that is a model of its own want gradients
    unsloth_bytes    bytes that a chunk's float32 logits may take in Unsloth's loss, None for all of them at once
    unsloth_nearest  chunks are rounded to the nearest multiple, and not up
    scales_in_place, needless_gradients   of prime-rl's head: logits are scaled in their own bytes; gradients are made
                     that nobody asks for
    """

    kernel: str
    own: str
    task: str
    upcast: str
    never_upcast: bool
    shifted: bool
    compiled: bool
    copies_logits: bool
    softcap: bool
    normed_head: bool
    gathers_logits: bool
    kept: str
    keeps_graph: bool
    temperature: str
    entropies: bool
    means: bool
    reference: int
    reference_requires_grad: bool
    unsloth_bytes: int | None
    unsloth_nearest: bool
    scales_in_place: bool
    needless_gradients: bool


@dataclass(frozen=True, slots=True)
class PromptDims:
    """Prompt learning.

    virtual_tokens  embeddings before those of the text;  prefix_tokens  keys and values before those of each layer
    projected       the prefix comes from a projection;  adapted  whether the job trains an adapter at all
    kind            the adapter's type, "" without one
    lora_parts      which of queries, keys and values the targets name, where one projection makes all three
    """

    virtual_tokens: int
    prefix_tokens: int
    projected: bool
    adapted: bool
    kind: str
    lora_parts: tuple[bool, bool, bool]


@dataclass(frozen=True, slots=True)
class ImageDims:
    """What the text decoder sees of images.

    read         the model reads images;  masks  layers that have a mask since images see all of themselves: `all`,
                 `sliding` ones, or none
    deepstack    how many of the first layers get features of further layers of the vision encoder
    cross_layers the layers that attend to images
    """

    read: bool
    masks: str
    deepstack: int
    cross_layers: frozenset[int]


@dataclass(frozen=True, slots=True)
class SoundDims:
    """Samples of sound.

    samples  of a sequence;  frames  positions behind each convolution
    grouped  norms behind the convolutions are over time, in groups of one channel
    """

    samples: int
    frames: tuple[int, ...]
    grouped: bool


@dataclass(frozen=True, slots=True)
class LayerDims:
    """One micro step on one rank.

    job          for what is computed just as it is stated: a size, a switch, the name of a way; what follows from that
                 and a release, a framework or the model is one of the dims
    stack        for what a release does at one place: `dims.stack.does(row)`
    model_id     the model, for messages
    arch         how the architecture's layers are written;  block  the framework's decoder layer, "" for the arch's
    batch        sequences;  length  positions of each on this rank: context parallelism divides them
    rows         tokens, batch x length;  keys  positions that a sequence attends to: with a prefix more than its own
    scored       tokens that get logits
    stream_rows  tokens of the residual stream between layers, which sequence parallelism divides over
    sequence_shards  ranks
    hidden       width of the residual stream;  vocabulary  words of the whole model, of which this
                 rank's embedding table has vocabulary_rows;  embedding_e  bytes of an element of it
    layers       decoder layers;  windows  positions that each attends to, None for all;  layer_types  their types
    rope_types   the rotary embedding of each layer (`rope.ROPES`);  rotary  (rotated features, features) of a head in
                 the tables of full-attention layers and, where they have their own, of sliding ones
    shared_keys  layers whose keys and values later ones read;  sparse_gates  layers whose gate keeps its largest values
    activation   the MLP's activation function;  gate_apart  it is a tensor of its own though layers are fused
    autocast     bytes of an element under autocast, 0 without
    attends      any layer has keys
    compiled     torch.compile, or a framework's own kernels, fuse pointwise operations
    fused        what Liger's kernels replace;  xielu_kernel  xIELU has a kernel
    float_residual   the residual stream is float32
    inputs_require_grad  the layers' inputs want a gradient whatever they come from
    streams, scales_output   AltUp's copies of the residual stream; whether it scales the first one
    """

    job: Job
    stack: Stack
    model_id: str
    arch: ArchSpec
    block: str
    batch: int
    length: int
    rows: int
    keys: int
    scored: int
    stream_rows: int
    sequence_shards: int
    hidden: int
    vocabulary: int
    vocabulary_rows: int
    embedding_e: int
    layers: int
    windows: tuple[int | None, ...]
    layer_types: tuple[str, ...]
    rope_types: tuple[str, ...]
    rotary: tuple[tuple[int, int], ...]
    shared_keys: frozenset[int]
    sparse_gates: frozenset[int]
    activation: str
    gate_apart: bool
    autocast: int
    attends: bool
    compiled: bool
    fused: frozenset[str]
    xielu_kernel: bool
    float_residual: bool
    inputs_require_grad: bool
    streams: int
    scales_output: bool
    attention: AttentionDims
    dropout: DropoutDims
    experts: ExpertDims
    mixer: MixerDims
    checkpoint: CheckpointDims
    loss: LossDims
    prompt: PromptDims
    images: ImageDims
    sound: SoundDims

    def without_dropout(self) -> LayerDims:
        """Outside of training dropout does nothing; that of sound's features is still counted."""
        return replace(self, dropout=DropoutDims(features=self.dropout.features))
