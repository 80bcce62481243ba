"""A job, its model and its libraries -> the dims of its layers and the weights that make them up.

Of the layers this module and `facts.py` alone ask frameworks, inputs and states: what the others read is named here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...models.adapter_types import PROMPTS, kind_of, option, prefix_tokens, virtual_tokens
from ...models.remote import normed_head
from ...upstream import torch, torchtitan
from ...upstream import unsloth as upstream_unsloth
from ...upstream.rl import prime_rl as upstream_prime_rl
from ...upstream.stack import Stack
from ...upstream.transformers_models import REPEATED_KEYS
from ..adapters.lora_kernels import lora_kernels
from ..adapters.modules import ModuleOptions, Packing
from ..estimate import NotEstimable
from ..frameworks import attention, unsloth
from ..frameworks.attention import remade_attention, traced
from ..frameworks.frameworks import ACTIVATION_PACKAGES, MIXER_PACKAGES, framework, of_transformers, runs_own_model
from ..frameworks.release import checkpoints, packed, reentrant, trl
from ..inputs.image_inputs import deep_layers, vision_spec
from ..inputs.objectives import UNPAIRED, frames, lengthened
from ..states import low_precision
from ..states.gradients import accumulating, units_reduce
from ..states.parameters import parameters
from ..states.quantization import effective_quantization
from ..states.reference import wants_gradients
from ..tape.options import Options
from . import config_dims
from .config_dims import Facts, facts_of
from .dims import (
    AttentionDims,
    CheckpointDims,
    ExpertDims,
    ImageDims,
    LayerDims,
    LossDims,
    MixerDims,
    PromptDims,
    SoundDims,
)
from .weights import ModelWeights

if TYPE_CHECKING:
    from ...job.job import Job
    from ...models.model import Model
    from ..inputs.image_inputs import ImageInputs

LORA_PARTS = ("q_proj", "k_proj", "v_proj")


class Resolved(NamedTuple):
    """What a replay needs to know before it begins.

    options  of the tape;  images  of the micro batch, None for text alone
    """

    dims: LayerDims
    weights: ModelWeights
    options: Options
    images: ImageInputs | None


def resolve(job: Job, model: Model, stack: str = "") -> Resolved:
    """The dims, weights and tape options of a job; `stack` names the layers where they are not the decoder's.

    Raises NotEstimable for what is not read: objectives, prompts, experts, quantisations.
    """
    facts = facts_of(lengthened(job), model)
    _refuse_prompts(facts)
    if model.shape.experts and not model.shape.experts_per_token:
        raise NotEstimable(f"the config of {model.id} does not say how many experts take each token")
    own = attention.attention_implementation(facts.job, model, facts.arch, facts.config)
    facts = facts._replace(items=parameters(facts.job, model))
    weights = _weights(facts, stack)
    dims = _dims(facts, weights, own)
    return Resolved(dims, weights, _options(facts.job), facts.images)


def _refuse_prompts(facts: Facts) -> None:
    """What stands before the text is read for decoders of Transformers with plain attention. Raises NotEstimable."""
    adapter, shape, arch = facts.job.adapter, facts.model.shape, facts.arch
    if adapter is None or kind_of(adapter) not in PROMPTS:
        return
    other = arch.encoder or shape.encoder_layers or not of_transformers(facts.job)
    recurrent = config_dims.RECURRENT in shape.layer_types or any(shape.recurrent_states)
    apart = bool(shape.kv_lora_rank) or recurrent
    if other or (apart and facts.keys > facts.length) or arch.order in ("altup", "shared", "zamba"):
        raise NotEstimable(f"adapters of type {adapter.type} are not modelled on {facts.model.model_type} models")


def _weights(facts: Facts, stack: str) -> ModelWeights:
    job, model, arch, config = facts.job, facts.model, facts.arch, facts.config
    found = effective_quantization(job, model)
    # int8 saves its input; what other methods pack is multiplied as 4 bits are
    kind = "int8" if found is not None and found.method == "bnb-int8" else "4bit"
    packing = Packing(kind, 2 if facts.framework.unpacks_twice else 1, model.model_type == "falcon")
    options = ModuleOptions(_sharded_width(job), job.adapter, packing, low_precision.foreign(job), lora_kernels(job))
    groups = max(1, int(config.get("num_hidden_groups") or 1)) if arch.reused else 0
    hybrid: tuple[int, ...] = ()
    if arch.order == "zamba":
        hybrid = tuple(i for i, kind in enumerate(model.shape.layer_types) if kind == "hybrid")
    blocks = max(1, int(config.get("num_mem_blocks") or 1)) if hybrid else 1
    name = stack or config_dims.stack_of(facts.items)
    return ModelWeights(facts.items, options, name, model.shape.layers, groups, hybrid, blocks)


def _sharded_width(job: Job) -> int | None:
    """FSDP's mixed precision hands the modules 16-bit parameters whatever their stored width is."""
    fsdp = job.parallelism.fsdp
    if fsdp is None:
        return None
    stated = fsdp.mixed_precision.param_dtype or job.precision.autocast
    return 2 if stated in ("bfloat16", "float16") else None


def _dims(facts: Facts, weights: ModelWeights, implementation: str) -> LayerDims:
    job, model, config, arch = facts.job, facts.model, facts.config, facts.arch
    shape, plan = model.shape, job.parallelism
    rows, shards = facts.batch * facts.length, plan.tensor if plan.sequence else 1
    compiled = traced(job, model) or facts.framework.fuses_layers
    words = weights.outside().role("embedding")
    heads = _attention(facts, weights, implementation)
    return LayerDims(
        job=job,
        stack=facts.stack,
        model_id=model.id,
        arch=arch,
        block=facts.framework.block,
        batch=facts.batch,
        length=facts.length,
        rows=rows,
        keys=facts.keys,
        scored=facts.batch * -(-max(1, facts.objective.scored) // max(1, plan.context)),
        stream_rows=-(-rows // shards),
        sequence_shards=shards,
        hidden=shape.hidden,
        vocabulary=shape.vocabulary,
        vocabulary_rows=config_dims.vocabulary_rows(facts.items),
        embedding_e=words.weight.e if words is not None else 0,
        layers=shape.layers,
        windows=shape.windows,
        layer_types=shape.layer_types,
        rope_types=config_dims.rope_types(arch, shape, config),
        rotary=config_dims.rotary(arch, shape, config, heads),
        shared_keys=config_dims.shared_keys(shape, config),
        sparse_gates=config_dims.sparse_gates(shape, config),
        activation=config_dims.activation(config) or arch.activation or shape.activation,
        gate_apart=facts.framework.gates_apart,
        autocast=2 if job.precision.autocast else 0,
        attends=not shape.layer_kv_heads or any(shape.layer_kv_heads),
        compiled=compiled,
        fused=attention.fused_operations(job, arch),
        xielu_kernel=facts.stack.runs(ACTIVATION_PACKAGES["xielu"]),
        float_residual=arch.residual_float and bool(config.get("residual_in_fp32", True)),
        inputs_require_grad=_inputs_require_grad(facts),
        streams=int(config.get("altup_num_inputs") or 4) if arch.order == "altup" else 1,
        scales_output=bool(config.get("altup_correct_scale", True)),
        attention=heads,
        dropout=config_dims.dropout(arch, config, facts.framework.dropout),
        experts=_experts(facts, compiled),
        mixer=_mixer(facts),
        checkpoint=_checkpoint(job, model),
        loss=_loss(facts),
        prompt=_prompt(job),
        images=_images(facts),
        sound=SoundDims(
            facts.samples,
            tuple(frames(config, facts.samples)) if arch.waves else (),
            config.get("feat_extract_norm", "group") == "group",
        ),
    )


def _attention(facts: Facts, weights: ModelWeights, implementation: str) -> AttentionDims:
    job, model, config, arch = facts.job, facts.model, facts.config, facts.arch
    shape, tensor = model.shape, job.parallelism.tensor
    latent = bool(shape.kv_lora_rank)
    rope_dim = shape.qk_rope_head_dim
    head_dim = shape.qk_nope_head_dim + rope_dim if latent else shape.head_dim
    heads = -(-shape.heads // tensor)
    groups = config_dims.groups(weights, shape.layer_types, heads, head_dim) or -(-shape.kv_heads // tensor)
    repeated = not facts.stack.native and facts.stack.does(REPEATED_KEYS, model.model_type)
    return AttentionDims(
        implementation=implementation,
        sdpa=attention.sdpa_kernels(job),
        heads=heads,
        kv_heads=heads if arch.qkv == "grouped" else groups,
        groups=groups,
        head_dim=head_dim,
        value_dim=shape.v_head_dim or shape.head_dim,
        rope_dim=rope_dim,
        by_layer=config_dims.by_layer(shape, tensor),
        latent=latent,
        q_lora_rank=shape.q_lora_rank,
        scores=facts.framework.scores or arch.scores,
        softcap=bool(arch.softcap and config.get(arch.softcap, True)),
        float16="float16" in (job.precision.autocast, job.weights.dtype),
        grouped_keys=facts.release.grouped_keys,
        contiguous=facts.release.contiguous,
        repeats_keys=job.without_transformer_engine or repeated or unsloth.takes_xformers(job, model),
        sequence_first=attention.sequence_first(job),
        recomputes_core=attention.remakes_scores(job, implementation),
        caches_keys=facts.release.caches,
        clips=bool(config.get("clip_qkv")),
        index_top_k=int(config.get("index_topk") or config_dims.INDEX_TOP_K) if arch.indexer else 0,
    )


def _experts(facts: Facts, compiled: bool) -> ExpertDims:
    job, model, version = facts.job, facts.model, facts.release
    gated = facts.arch.gate not in ("dense", "clamped", "plain")
    return ExpertDims(
        top_k=model.shape.experts_per_token,
        routes_rows=facts.framework.routes_rows,
        grouped=version.grouped_experts,
        indexed=version.indexed_experts,
        copied=version.copied_experts,
        token_choice=gated and (facts.stack.runs(torchtitan.NAME) or runs_own_model(job, model.model_type)),
        # torchtitan compiled whole blocks before 0.2.1 (#1895)
        weighted_in_graph=compiled and facts.stack.does(torchtitan.WHOLE_BLOCKS),
        divided=job.parallelism.expert > 1,
    )


def _mixer(facts: Facts) -> MixerDims:
    config, arch, stack = facts.config, facts.arch, facts.stack
    scans, package = arch.mixer.startswith("mamba2"), MIXER_PACKAGES.get(arch.mixer)
    return MixerDims(
        kernels=package is not None and stack.runs(package),
        state=max(facts.model.shape.recurrent_states, default=0),
        groups=config_dims.first_of(config, config_dims.GROUP_FIELDS, arch.scan_groups) if scans else 0,
        chunk=config_dims.first_of(config, config_dims.CHUNK_FIELDS, arch.scan_chunk) if scans else 0,
        block=int(config.get("block_size") or config_dims.BLOCK) if arch.mixer == "lightning" else 0,
        negative=bool(config.get("linear_allow_neg_eigval", True)),
        bounded_decay=bool(config.get("kda_safe_gate", True)),
    )


def _checkpoint(job: Job, model: Model) -> CheckpointDims:
    """Fused attention kernels make their inside again by themselves, so that recomputing it alone changes nothing."""
    mode = job.activation_checkpointing
    if mode == "selective":
        policy = job.checkpoint_policy or framework(job).checkpoint_policy
        own = "none" if policy == "core_attention" else policy
    else:
        own = mode
    every, there = max(1, job.checkpoint_every), checkpoints(job, model.model_type)
    layers = range(model.shape.layers)
    modes = tuple("none" if (layer + 1) % every or not there else own for layer in layers)
    return CheckpointDims(mode, modes, reentrant(job))


def _loss(facts: Facts) -> LossDims:
    job, model, arch = facts.job, facts.model, facts.arch
    own, release_of_trl, version = job.loss, trl(job), job.versions.get(upstream_prime_rl.NAME)
    kernel, never = attention.loss_kernel(own.kernel, arch), own.upcast == "never"
    # Unsloth's cross entropy caps what it reads (kernels/cross_entropy_loss.py, from Gemma 2's first day on)
    caps = kernel == "unsloth_cross_entropy" and facts.stack.runs(upstream_unsloth.NAME)
    again = own.log_softmax == "float32" and job.objective in UNPAIRED
    chunk_bytes, nearest = unsloth.chunk_bytes(job)
    return LossDims(
        kernel=kernel,
        own="" if never else facts.framework.loss,  # which takes float32 logits
        task=facts.objective.loss,
        upcast=own.upcast or facts.release.upcast,
        never_upcast=never,
        shifted=facts.release.shifted,
        compiled=job.compile if own.compiled is None else own.compiled,
        copies_logits=facts.framework.copies_logits,
        softcap=bool(facts.config.get("final_logit_softcapping", arch.logits_softcap)) and not caps,
        normed_head=job.kind == "training" and normed_head(model.config, model.repository),
        gathers_logits=job.parallelism.tensor > 1 and not own.parallel,
        kept={True: "next", "step": "step"}.get(own.kept, ""),
        keeps_graph=facts.framework.keeps_logits and not job.longest_batch_first,
        temperature=release_of_trl.temperature,
        entropies=release_of_trl.entropies,
        means=release_of_trl.means,
        reference=(2 if again else 1) if facts.objective.reference else 0,
        reference_requires_grad=wants_gradients(job),
        unsloth_bytes=chunk_bytes,
        unsloth_nearest=nearest,
        scales_in_place=not upstream_prime_rl.TEMPERATURE_A_TOKEN.at(version),
        needless_gradients=not upstream_prime_rl.SKIPS_UNNEEDED.at(version),
    )


def _prompt(job: Job) -> PromptDims:
    adapter = job.adapter
    targets = (adapter.targets if adapter is not None else None) or ()
    first, second, third = (name in targets for name in LORA_PARTS)
    return PromptDims(
        virtual_tokens=virtual_tokens(adapter),
        prefix_tokens=prefix_tokens(adapter),
        projected=adapter is not None and bool(option(adapter, "prefix_projection")),
        adapted=adapter is not None,
        kind=kind_of(adapter) if adapter is not None else "",
        lora_parts=(first, second, third),
    )


def _images(facts: Facts) -> ImageDims:
    model, found = facts.model, vision_spec(facts.model)
    masks = found.masks if found is not None and facts.images is not None else ""
    if masks == "sliding" and facts.config.get("use_bidirectional_attention") != "vision":
        masks = ""
    crosses = found is not None and found.crosses and of_transformers(facts.job)
    deep = len(deep_layers(model)) if facts.images is not None else 0
    return ImageDims(found is not None, masks, deep, frozenset(model.shape.cross_layers if crosses else ()))


def _inputs_require_grad(facts: Facts) -> bool:
    """With an adapter over a checkpointed base, and where what makes the layers' inputs is trained.

    That is a vision encoder, a projector, or a part that the inventory lacks.
    """
    job = facts.job
    graded = [item for item in facts.items if item.graded]
    outside = job.trainable is not None and not graded
    made = facts.images is None and any(item.role in ("vision", "projector") for item in graded)
    return (job.adapter is not None and job.activation_checkpointing != "none") or outside or made


def _options(job: Job) -> Options:
    """DataParallel's own gradients are new in each pass, and so are those of the longest batch that comes first."""
    plan = job.parallelism
    accumulated = accumulating(job) and not units_reduce(job)
    return Options(
        autocast=2 if job.precision.autocast else 0,
        operands=low_precision.saved(job),
        packed=packed(job),
        inputs_of_softmax=Stack(job).does(torch.SAVES_SOFTMAX_INPUT),
        attention_again=remade_attention(job),
        loss_parallel=plan.tensor > 1 and job.loss.parallel,
        accumulated=accumulated and not job.longest_batch_first and not plan.one_process,
    )
