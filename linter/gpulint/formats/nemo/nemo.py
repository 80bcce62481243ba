"""NeMo 1.x: hydra configs of megatron_gpt_pretraining.py and its kin, as NeMo, its Launcher and its Aligner ship them.

Facts from NeMo 1.23 and 2.0 (nemo/collections/nlp/modules/common/megatron, core/optim/distributed_adam.py), read
statically. With `megatron_amp_O2` weights have 16 bits, gradients and main parameters 32; without, weights are float32
under autocast.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from ..core.format import Format, NoJobError, Reading, written_by
from ..core.interpolation import interpolated
from ..core.keys import key_problems
from ..core.model_facts import find_model
from ..core.native import NativeConfig
from ..core.placeholders import is_blank
from ..core.world_size import Stated
from ..hf_trainer.peft_types import is_pair
from ..megatron.model import GPT2_VOCABULARY, VOCABULARIES, Sizes, config_of, dropped, feed_forward, padded
from ..megatron.plan import (
    set_accumulation,
    set_chunks,
    set_core,
    set_degrees,
    set_gpus,
    set_recomputation,
    set_sixteen_bits,
)

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.arguments import Arguments
    from ..core.format import Project

NAME = "nemo"
UPSTREAM = "NeMo 1.23"
CORE_OF_UPSTREAM = "0.5.0"
"""The megatron_core that it requires (requirements/requirements_nlp.txt of 1.23.0)."""

_SIGNS = frozenset(
    {
        "tensor_model_parallel_size", "megatron_amp_O2", "mcore_gpt", "restore_from_path", "unet_config", "mm_cfg",
        "encoder_seq_length", "inductor", "first_stage_key", "vision", "patch_dim", "nemo_model", "checkpoint_folder",
        "language_model_path", "hparams_file",
    }
)  # fmt: skip
"""Keys of NeMo's `model`."""

_OTHERS = (
    (("mm_cfg",), "a multimodal model: gpulint does not know NeMo's towers"),
    (("unet_config", "unet", "first_stage_key", "noise_scheduler"), "a diffusion model"),
    (("vision", "patch_dim"), "a vision model"),
    (("encoder", "decoder"), "a model with an encoder and a decoder"),
    (("retro",), "a RETRO model"),
    (("language_model_path",), "prompt learning over a checkpoint that is elsewhere"),
)
"""Keys of `model` -> what it is, where a Job cannot say it."""

_ONLINE = ("ppo", "rs", "reinforce", "spin", "generation")
_OBJECTIVES = {"dpo": "dpo", "kto": "kto", "rm": "reward", "sft": "sft"}
_GATED = ("swiglu", "geglu", "reglu")
_DISTRIBUTED = ("distributed_fused_adam", "mcore_distributed_optim")
_GPUS = re.compile(r"(?<![0-9])(\d{1,5})gpus", re.IGNORECASE)
_OPTIMIZERS = {
    "distributed_fused_adam": "adamw_torch_fused", "mcore_distributed_optim": "adamw_torch_fused",
    "fused_adam": "adamw_torch_fused", "adamw": "adamw_torch", "adam": "adamw_torch", "sgd": "sgd",
}  # fmt: skip
_LORA = {
    "attention_qkv": ["q_proj", "k_proj", "v_proj"],
    "attention_dense": ["o_proj"],
    "mlp_fc1": ["gate_proj", "up_proj"],
    "mlp_fc2": ["down_proj"],
}
_GROUPS = {"attention": ("attention_qkv", "attention_dense"), "mlp": ("mlp_fc1", "mlp_fc2"), "all": tuple(_LORA)}


def recognise(document: Document) -> bool:
    """`model` with Megatron's keys in NeMo's spelling beside a `trainer`, or a launcher's `run`."""
    root = document.root
    model = root.get("model")
    if document.syntax != "yaml":
        return False
    if model is None:
        return _is_stage(document)
    if not model.is_mapping:
        return False
    keys = set(model.keys())
    trainer = root.get("trainer")
    trains = trainer is not None and trainer.is_mapping and trainer.get("devices") is not None
    nested = any(root.find(f"{name}.trainer") is not None for name in ("critic", "actor"))
    return bool((trains or root.get("run") is not None or nested) and keys & (_SIGNS | {"precision"}))


def _is_stage(document: Document) -> bool:
    """A stage of the Launcher or a service without a model of its own: a `run` or a `trainer` beside parallel sizes."""
    root = document.root
    staged = root.get("run") is not None or root.find("trainer.devices") is not None
    actor = any(root.find(f"{name}.trainer") is not None for name in ("critic", "actor"))
    return staged and (actor or root.get("tensor_model_parallel_size") is not None)


def read(document: Document, project: Project) -> Reading:
    """The Job of a training run. Raises NoJobError for what trains no language model that a Job can say."""
    whole = interpolated(document)
    _refuse(whole)
    config = NativeConfig(NAME, UPSTREAM, whole, project, "megatron")
    set_core(config, CORE_OF_UPSTREAM, f"what {UPSTREAM} requires")
    config.reading.config = document
    builder, model = config.builder, config.keys.mapping("model")
    builder.derived("kind", "training", "a training script of NeMo")
    trainer = config.keys.mapping("trainer")
    named = next((name for name in _OBJECTIVES if name in trainer), None)
    tuned = model.raw("restore_from_path") is not None or config.keys.raw("pretrained_checkpoint") is not None
    objective = _OBJECTIVES[named] if named else "sft" if tuned else "pretrain"
    builder.derived("objective", objective, f"trainer.{named}" if named else "the config's checkpoint or its sizes")
    builder.derived("packing", objective == "pretrain", "pretraining cuts rows out of a stream", "objective")
    if objective in ("dpo", "kto"):
        builder.default("rl.reference_model", True, "the reference policy's weights are kept")
    replica = set_degrees(config, model)
    _set_model(config, model)
    ranks = set_gpus(config, replica, _stated(config, trainer))
    train = model.mapping("data").mapping("train_ds")
    micro = model.integer("micro_batch_size", least=1) or train.integer("micro_batch_size", least=1)
    config.count("micro_batch_size", micro, None, model.blank("micro_batch_size"))
    # the data set cuts its rows to data.seq_length; the encoder's is the most that the model takes
    length = model.mapping("data").integer("seq_length", least=1) or model.integer("encoder_seq_length", least=1)
    length = length or train.integer("max_seq_length", least=1)
    config.count("sequence_length", length, None, model.blank("encoder_seq_length"))
    whole_batch = model.integer("global_batch_size", least=1) or train.integer("global_batch_size", least=1)
    # a checkpoint brings its own degrees where the file has none (NeMo-Aligner's load_and_override_model_config)
    certain = not tuned or model.raw("tensor_model_parallel_size") is not None
    set_accumulation(config, whole_batch, ranks, certain=certain)
    virtual = model.integer("virtual_pipeline_model_parallel_size", least=1)
    set_chunks(config, virtual, int(virtual.value) if virtual else 1)
    _set_precision(config, trainer, model)
    _set_optimizer(config, model)
    set_recomputation(config, model, "activations_checkpoint_")
    builder.default("attention", "flash_attention_2", "Transformer Engine's fused attention")
    config.fill()
    config.reading.problems[:0] = key_problems(document, NAME)
    return config.reading


def _refuse(document: Document) -> None:
    root = document.root
    model = root.get("model")
    keys = set(model.keys()) if model is not None else set()
    trainer = root.get("trainer")
    reason = next((why for signs, why in _OTHERS if keys.intersection(signs)), "")
    if trainer is None or trainer.get("devices") is None:
        reason = reason or "no trainer: a conversion, evaluation or export job of the NeMo Launcher"
    elif trainer.get("devices") is not None and any(name in trainer.keys() for name in _ONLINE):  # noqa: SIM118
        reason = reason or "online reinforcement learning of NeMo-Aligner: gpulint does not know its phases"
    if not reason and root.find("run.huggingface_ckpt_path") is not None:
        reason = "a conversion job of the NeMo Launcher"
    if not reason and model is not None and model.get("optim") is None:
        reason = "trains nothing: an evaluation, inference or conversion job of NeMo"
    kind = root.find("model.tokenizer.type")
    if not reason and kind is not None and str(kind.value.value).startswith("Bert"):
        reason = "a BERT model"
    if not reason and root.find("trainer.knowledge_distillation") is not None:
        reason = "knowledge distillation: gpulint has no teacher models"
    if reason:
        raise NoJobError(document.path, reason)


def _stated(config: NativeConfig, trainer: Arguments) -> Stated | None:
    """devices x num_nodes; without nodes, the GPUs that the file's name says, as published recipes spell them."""
    devices, nodes = trainer.integer("devices", least=1), trainer.integer("num_nodes", least=1)
    if devices is None:
        return None
    name = _GPUS.search(os.path.basename(config.document.path))
    if nodes is None and name is not None:
        return Stated(int(name[1]), devices.entry, devices.key, "the name of the file; trainer.num_nodes is not stated")
    if nodes is not None and config.project.nodes is None:
        config.put("hardware.nodes", nodes)
    return Stated(devices.value * (nodes.value if nodes else 1), devices.entry, devices.key, "devices x num_nodes")


def _set_model(config: NativeConfig, model: Arguments) -> None:
    builder = config.builder
    numbers = {name: model.integer(name, least=1) for name in ("num_layers", "hidden_size", "num_attention_heads")}
    layers, hidden, heads = numbers.values()
    if layers is None or hidden is None or heads is None:
        builder.assumed("model", None, "the checkpoint that the config restores says the sizes")
        _set_adapter(config, model)
        return
    vocabulary, known = vocabulary_of(config, model)
    note = "" if known else "; nothing that gpulint can read states the vocabulary: that of GPT-2 is assumed"
    found = config_of(f"nemo-{layers.value}x{hidden.value}", sizes_of(model, vocabulary))
    config.put("model", layers, found, f"the stated dimensions, as a {found['model_type']} of Transformers{note}")
    _set_adapter(config, model)


def sizes_of(model: Arguments, vocabulary: int) -> Sizes:
    """The dimensions of a `model` section that states them; `vocabulary` is padded."""
    hidden, heads = model.integer("hidden_size", least=1), model.integer("num_attention_heads", least=1)
    layers = model.integer("num_layers", least=1)
    activation = model.text("activation")
    gated = activation is not None and activation.value.removeprefix("fast-") in _GATED
    width, groups = model.integer("ffn_hidden_size", least=1), model.integer("num_query_groups", least=1)
    channels, experts = model.integer("kv_channels", least=1), model.integer("num_moe_experts", least=2)
    topk, shared = model.integer("moe_router_topk", least=1), model.flag("share_embeddings_and_output_weights")
    kind, positions = model.text("position_embedding_type"), model.integer("max_position_embeddings", least=1)
    learned = kind is None or kind.value == "learned_absolute"
    size, number = (hidden.value if hidden else 0), (heads.value if heads else 1)
    intermediate = int(width.value) if width else feed_forward(size, gated=gated)
    own = channels is not None and channels.value * number != size
    sizes = Sizes(
        size, layers.value if layers else 0, number, vocabulary, intermediate,
        groups=groups.value if groups else None, head_dim=channels.value if own and channels else None, gated=gated,
        tied=bool(shared.value) if shared else True, learned_positions=positions.value if learned and positions else 0,
        experts=experts.value if experts else 0, topk=topk.value if topk else 2, expert_hidden=intermediate,
    )  # fmt: skip
    return dropped(sizes, model, 0.1)


def vocabulary_of(config: NativeConfig, model: Arguments) -> tuple[int, bool]:
    """The padded vocabulary, and whether the file says whose it is."""
    stated = model.integer("override_vocab_size", least=1)
    tokenizer = model.mapping("tokenizer")
    kind, file = tokenizer.text("type"), tokenizer.text("model")
    rows = int(stated.value) if stated else 0
    if not rows and kind and not is_blank(kind.value):
        found = None
        if "/" in kind.value:
            found = find_model(kind.value, config.document.path, config.project.root)
        rows = found.config.get("vocab_size") or 0 if found else VOCABULARIES.get(kind.value, 0)
    if not rows and file and "llama_tokenizer" in file.value:
        rows = 32000
    divisor = model.integer("make_vocab_size_divisible_by", least=1)
    tensor = config.builder.job.parallelism.tensor
    return padded(rows or GPT2_VOCABULARY, divisor.value if divisor else 128, tensor), bool(rows)


def _set_adapter(config: NativeConfig, model: Arguments) -> None:
    """`peft.peft_scheme: lora` on the fused query, key and value projection unless it says otherwise."""
    builder, peft = config.builder, model.mapping("peft")
    scheme = peft.text("peft_scheme")
    if scheme is None or scheme.value in ("none", "null"):
        builder.default("method", "full", "no peft_scheme")
        return
    config.put("method", scheme, "lora")
    lora = peft.mapping("lora_tuning")
    rank = lora.integer("adapter_dim", least=1)
    if is_pair(scheme.value):
        config.put("adapter.type", scheme, "lora")
    else:
        config.put("adapter.type", scheme, f"{scheme.value} of NeMo")
    if rank:
        config.put("adapter.r", rank)
    else:
        builder.default("adapter.r", 32)
    named = lora.words("target_modules")
    modules = [part for name in (named.value if named else ["attention_qkv"]) for part in _GROUPS.get(name, (name,))]
    targets = [target for module in modules for target in _LORA.get(module, ())]
    builder.derived("adapter.targets", targets, "target_modules: attention_qkv unless stated", "method")


def _set_precision(config: NativeConfig, trainer: Arguments, model: Arguments) -> None:
    builder = config.builder
    given = trainer.raw("precision")
    word = str(given.value).lower() if given else ""
    dtype = "bfloat16" if "bf16" in word else "float16" if "16" in word else "float32"
    whole = model.flag("megatron_amp_O2", "megatron_amp_o2")
    synced = model.mapping("optim").text("grad_sync_dtype")
    low = synced is not None and "16" in synced.value
    if given and dtype != "float32" and whole and whole.value:
        set_sixteen_bits(config, given, dtype, dtype if low else "float32")
    elif given:
        config.put("weights.dtype", given, "float32", "without megatron_amp_O2 weights are float32 under autocast")
        config.put("precision.autocast", given, None if dtype == "float32" else dtype)
    else:
        builder.assumed("weights.dtype", "float32", "trainer.precision is not stated")
    fp8 = model.flag("fp8")
    if fp8 and fp8.value:
        config.put("precision.compute", fp8, "float8-te")


def _set_optimizer(config: NativeConfig, model: Arguments) -> None:
    """The distributed optimizers divide states over the data parallel ranks."""
    builder = config.builder
    given = model.mapping("optim").text("name")
    if given:
        config.put("optimizer.name", given, _OPTIMIZERS.get(given.value, given.value))
    else:
        builder.default("optimizer.name", "adamw_torch_fused")
    fsdp = model.flag("fsdp")
    if fsdp and fsdp.value:
        config.put("parallelism.fsdp.version", fsdp, 1)
        builder.derived("parallelism.fsdp.wrap", "transformer", "one unit a layer", "parallelism.fsdp.version")
        return
    if given and given.value in _DISTRIBUTED:
        config.put("parallelism.zero.stage", given, 1, "states divided like ZeRO-1")
    else:
        builder.default("parallelism.zero.stage", 0, "no distributed optimizer")
    builder.derived("parallelism.zero.library", "megatron", "Megatron's gradient buffer", "parallelism.zero.stage")


describe, edits = written_by("nemo.nemo_edits")


FORMAT = Format(NAME, "NeMo 1.x config", UPSTREAM, recognise, read, describe, edits, "trainer.devices x num_nodes")
