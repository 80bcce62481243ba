"""NeMo 1.x: hydra configs of megatron_gpt_pretraining.py and its kin, as NeMo, its Launcher and its Aligner ship them.

Facts from NeMo 1.23 and 2.0 (nemo/collections/nlp/modules/common/megatron, core/optim/distributed_adam.py), read
statically. With `megatron_amp_O2` weights have 16 bits, gradients and main parameters 32; without, weights are float32
under autocast.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from ..core.backends.fsdp import FSDP
from ..core.backends.megatron import (
    FIELDS_OF_ENDS,
    ZERO,
    chunks,
    core,
    gpus,
    granularity,
    layout,
    mixed_precision,
    recompute_keys,
    recomputed_modules,
    set_accumulation,
)
from ..core.backends.plain import size
from ..core.backends.training_loop import USUAL, runs_on
from ..core.bindings.kinds import FLAG, POSITIVE, TEXT, WORDS, Unsaid
from ..core.bindings.reader import Reader
from ..core.bindings.rows import NEVER, Default, Derived, Fixed, Key, Table, only
from ..core.bindings.spelling import OPTIMIZERS, optimizer
from ..core.format import Format, NoJobError, Reading
from ..core.interpolation import interpolated
from ..core.keys import key_problems
from ..core.model_facts import find_model
from ..core.placeholders import is_blank
from ..core.world_size import Stated
from ..hf_trainer.peft_types import is_pair
from ..megatron.model import GPT2_VOCABULARY, VOCABULARIES, Sizes, padded, set_model, sizes_of

if TYPE_CHECKING:
    from typing import Any

    from ...job.job import Job
    from ...source.document import Document
    from ..core.format import Project
    from ..core.key_changes import Keys

NAME = "nemo"
UPSTREAM = "NeMo 1.23"
CORE_OF_UPSTREAM = "0.5.0"
"""The megatron_core that it requires (requirements/requirements_nlp.txt of 1.23.0)."""

_UNREAD = (
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
_OPTIMIZER = optimizer(
    refuses=OPTIMIZERS, any_other=True,
    own={
        **dict.fromkeys((*_DISTRIBUTED, "fused_adam"), "adamw_torch_fused"),
        "adamw": "adamw_torch", "adam": "adamw_torch", "sgd": "sgd",
    },
)  # fmt: skip
_LORA = {
    "attention_qkv": ["q_proj", "k_proj", "v_proj"],
    "attention_dense": ["o_proj"],
    "mlp_fc1": ["gate_proj", "up_proj"],
    "mlp_fc2": ["down_proj"],
}
_GROUPS = {"attention": ("attention_qkv", "attention_dense"), "mlp": ("mlp_fc1", "mlp_fc2"), "all": tuple(_LORA)}


def read(document: Document, project: Project) -> Reading:
    """The Job of a training run. Raises NoJobError for what trains no language model that a Job can say."""
    whole = interpolated(document)
    _refuse(whole)
    reader = Reader(whole, project, NAME, UPSTREAM, checked=document)
    reader.bind(TABLE.rows)
    reader.reading.problems[:0] = key_problems(document, NAME)
    return reader.reading


def _refuse(document: Document) -> None:
    root = document.root
    model = root.get("model")
    keys = set(model.keys()) if model is not None else set()
    trainer = root.get("trainer")
    reason = next((why for signs, why in _UNREAD if keys.intersection(signs)), "")
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


def _is_tuned(reader: Reader) -> bool:
    return any(reader.keys.raw(name) is not None for name in ("model.restore_from_path", "pretrained_checkpoint"))


def _set_objective(reader: Reader) -> None:
    """By the section that the trainer has for it, else by whether a checkpoint is trained on."""
    named = next((name for name in _OBJECTIVES if reader.keys.raw(f"trainer.{name}") is not None), None)
    objective = _OBJECTIVES[named] if named else "sft" if _is_tuned(reader) else "pretrain"
    reader.derived("objective", objective, f"trainer.{named}" if named else "the config's checkpoint or its sizes")
    reader.derived("packing", objective == "pretrain", "pretraining cuts rows out of a stream", "objective")


def _stated(reader: Reader) -> Stated | None:
    """devices x num_nodes; without nodes, the GPUs that the file's name says, as published recipes spell them, or
    nothing where one replica takes more than a node: the start then says the nodes."""
    devices, nodes = reader.given(POSITIVE, "trainer.devices"), reader.value(POSITIVE, "trainer.num_nodes")
    if devices is None:
        return None
    name = _GPUS.search(os.path.basename(reader.document.path))
    if nodes is None and name is not None:
        return Stated(int(name[1]), devices.entry, devices.key, "the name of the file; trainer.num_nodes is not stated")
    if nodes is None and reader.job.model_shards > devices.value:
        return None
    return Stated(devices.value * (nodes or 1), devices.entry, devices.key, "devices x num_nodes")


def stated_sizes(reader: Reader, vocabulary: int) -> Sizes | None:
    """The dimensions of a `model` section that states them; `vocabulary` is padded."""
    activation = reader.value(TEXT, "model.activation", default="").removeprefix("fast-")
    kind = reader.value(TEXT, "model.position_embedding_type", default="learned_absolute")
    return sizes_of(
        reader, "model", gated=activation in _GATED, learned=kind == "learned_absolute", vocabulary=vocabulary,
        tied=reader.value(FLAG, "model.share_embeddings_and_output_weights", default=True),
    )  # fmt: skip


def _set_model(reader: Reader) -> None:
    vocabulary, known = _vocabulary(reader)
    missing = "the checkpoint that the config restores says the sizes"
    unknown = "; nothing that gpulint can read states the vocabulary: that of GPT-2 is assumed"
    sizes = stated_sizes(reader, vocabulary)
    set_model(reader, "model.num_layers", "nemo", sizes, missing, "" if known else unknown)


def _vocabulary(reader: Reader) -> tuple[int, bool]:
    """The padded vocabulary, and whether the file says whose it is."""
    rows = reader.value(POSITIVE, "model.override_vocab_size", default=0)
    kind = reader.value(TEXT, "model.tokenizer.type", default="")
    if not rows and kind and not is_blank(kind):
        found = find_model(kind, reader.document.path, reader.project.root) if "/" in kind else None
        rows = found.config.get("vocab_size") or 0 if found else VOCABULARIES.get(kind, 0)
    if not rows and "llama_tokenizer" in reader.value(TEXT, "model.tokenizer.model", default=""):
        rows = 32000
    divisor = reader.value(POSITIVE, "model.make_vocab_size_divisible_by", default=128)
    return padded(rows or GPT2_VOCABULARY, divisor, reader.job.parallelism.tensor), bool(rows)


def _set_accumulation(reader: Reader) -> None:
    """A checkpoint brings its own degrees where the file has none (NeMo-Aligner's load_and_override_model_config)."""
    certain = not _is_tuned(reader) or reader.keys.raw("model.tensor_model_parallel_size") is not None
    names = ("model.global_batch_size", "model.data.train_ds.global_batch_size")
    set_accumulation(reader, reader.given(POSITIVE, *names), certain=certain)


def _targets(reader: Reader) -> Derived:
    """The fused query, key and value projection unless the file says otherwise."""
    named = reader.value(WORDS, "model.peft.lora_tuning.target_modules", default=["attention_qkv"])
    modules = [part for name in named for part in _GROUPS.get(name, (name,))]
    targets = [target for module in modules for target in _LORA.get(module, ())]
    return Derived(targets, "target_modules: attention_qkv unless stated", "method")


def _set_weights(reader: Reader) -> None:
    """16-bit weights with `megatron_amp_O2`, else float32 ones under autocast."""
    given = reader.keys.raw("trainer.precision")
    if given is None:
        reader.assumed("weights.dtype", "float32", "trainer.precision is not stated")
        return
    word = str(given.value).lower()
    half = "bfloat16" if "bf16" in word else "float16" if "16" in word else None
    if half and reader.value(FLAG, "model.megatron_amp_O2", "model.megatron_amp_o2"):
        reader.set("weights.dtype", given, half)
    else:
        note = "without megatron_amp_O2 weights are float32 under autocast"
        reader.set("weights.dtype", given, "float32", note)
        reader.set("precision.autocast", given, half)


def _gradients(reader: Reader) -> str:
    low = "16" in reader.value(TEXT, "model.optim.grad_sync_dtype", default="")
    return str(reader.job.weights.dtype) if low else "float32"


def _has_adapter(job: Job) -> bool:
    return job.method == "lora"


_ADAPTER = (
    Key(
        "method", "model.peft.peft_scheme", TEXT, Default("full", "no peft_scheme"),
        lambda word, _: Unsaid.OTHER if word in ("none", "null") else "lora",
    ),
    *only(
        _has_adapter,
        Key(
            "adapter.type", "model.peft.peft_scheme", TEXT,
            to=lambda word, _: "lora" if is_pair(word) else f"{word} of NeMo",
        ),
        Key("adapter.r", "model.peft.lora_tuning.adapter_dim", POSITIVE, 32),
        Fixed("adapter.targets", _targets),
    ),
)  # fmt: skip


def _distributed(stage: int, job: Job) -> Any:
    """NeMo's distributed Adam divides float32 states, as ZeRO-1 does."""
    return _DISTRIBUTED[0] if stage == 1 and job.precision.master_weights else Unsaid.OTHER


_OPTIMIZER_ROWS = (
    Key("optimizer.name", "model.optim.name", _OPTIMIZER, "adamw_torch_fused", back=NEVER),
    Key(f"{FSDP}version", "model.fsdp", FLAG, to={True: 1}, back=NEVER),
    Fixed(
        f"{FSDP}wrap", Derived("transformer", "one unit a layer", f"{FSDP}version"),
        when=lambda job: job.parallelism.fsdp is not None,
    ),
    *only(
        lambda job: job.parallelism.fsdp is None,
        Key(
            f"{ZERO}stage", "model.optim.name", TEXT, Default(0, "no distributed optimizer"),
            dict.fromkeys(_DISTRIBUTED, 1), _distributed, note="states divided like ZeRO-1",
        ),
        Fixed(f"{ZERO}library", Derived("megatron", "Megatron's gradient buffer", f"{ZERO}stage")),
    ),
)  # fmt: skip
"""The distributed optimizers divide states over the data parallel ranks."""


def _length_keys(reading: Reading, value: int) -> Keys | None:
    data = reading.config.root.find("model.data.seq_length") is not None
    return {"model.encoder_seq_length": value, **({"model.data.seq_length": value} if data else {})}


TABLE = Table(
    (
        *runs_on("megatron"),
        core(CORE_OF_UPSTREAM, f"what {UPSTREAM} requires"),
        Fixed("kind", Derived("training", "a training script of NeMo")),
        _set_objective,
        Fixed(
            "rl.reference_model", Default(True, "the reference policy's weights are kept"),
            when=lambda job: job.objective in ("dpo", "kto"),
        ),
        *layout("model", ends=FIELDS_OF_ENDS),
        _set_model,
        *_ADAPTER,
        gpus(_stated),
        Key("hardware.nodes", "trainer.num_nodes", POSITIVE, back=NEVER),
        size("micro_batch_size", ("model.micro_batch_size", "model.data.train_ds.micro_batch_size")),
        # the data set cuts its rows to data.seq_length; the encoder's is the most that the model takes
        size(
            "sequence_length",
            ("model.data.seq_length", "model.encoder_seq_length", "model.data.train_ds.max_seq_length"),
        ),
        _set_accumulation,
        chunks("model.virtual_pipeline_model_parallel_size"),
        _set_weights,
        *mixed_precision(_gradients),
        Key("precision.compute", "model.fp8", FLAG, to={True: "float8-te"}, back=NEVER),
        *_OPTIMIZER_ROWS,
        *granularity("model.activations_checkpoint_granularity"),
        recomputed_modules("model"),
        Fixed("attention", Default("flash_attention_2", "Transformer Engine's fused attention")),
        *USUAL,
    ),
    says={
        "sequence_length": _length_keys,
        "activation_checkpointing": recompute_keys("model.activations_checkpoint_"),
    },
    total="model.global_batch_size",
    ignored=frozenset({"checkpoint_policy"}),
)  # fmt: skip

FORMAT = Format.of_table(NAME, "NeMo 1.x config", UPSTREAM, read, TABLE, "trainer.devices x num_nodes")
