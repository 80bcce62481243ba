"""nanotron (Hugging Face): the YAML of run_train.py.

Facts from nanotron at its newest commit (config/*.py, optim/, parallel/), read statically. 16-bit weights, float32
gradient accumulators and main parameters with `accumulate_grad_in_fp32`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.backends.plain import size
from ..core.backends.training_loop import USUAL, pretrains, runs_on
from ..core.bindings.kinds import FLAG, NATURAL, POSITIVE, WORD, integer
from ..core.bindings.reader import Reader
from ..core.bindings.rows import NEVER, Default, Derived, Fixed, Key, Table, among, within
from ..core.bindings.spelling import DTYPE
from ..core.decoder_config import decoder, multiple
from ..core.format import Format, Reading
from ..core.keys import key_problems
from ..core.world_size import Stated, set_hardware

if TYPE_CHECKING:
    from ...job.job import Job
    from ...source.document import Document
    from ..core.format import Project

NAME = "nanotron"
UPSTREAM = "nanotron 0.4"


def read(document: Document, project: Project) -> Reading:
    """The Job of a pretraining run."""
    reader = Reader(document, project, NAME, UPSTREAM)
    reader.bind(TABLE.rows)
    reader.reading.problems = key_problems(document, NAME)
    return reader.reading


def _set_gpus(reader: Reader) -> None:
    plan, data = reader.job.parallelism, reader.given(POSITIVE, "parallelism.dp")
    product = plan.tensor * plan.pipeline * plan.context
    stated = Stated(data.value * product, data.entry, data.key, "dp x tp x pp") if data else None
    set_hardware(reader, reader.project, stated, sharded=True)


def _set_model(reader: Reader) -> None:
    """`model_config` has Transformers' names; its rows are padded to `make_vocab_size_divisible_by` x tp."""
    model = reader.section("model").section("model_config")
    rows, layers = model.value(POSITIVE, "vocab_size"), model.value(POSITIVE, "num_hidden_layers")
    given = model.given(POSITIVE, "hidden_size", "d_model")
    if rows is None or given is None or layers is None:
        reader.assumed("model", None, "model_config is filled in elsewhere")
        return
    step = reader.value(POSITIVE, "model.make_vocab_size_divisible_by", default=1)
    vocabulary, hidden = multiple(rows, step * reader.job.parallelism.tensor), given.value
    name = f"nanotron-{layers}x{hidden}"
    if model.value(FLAG, "is_mamba_config"):
        found: dict[str, Any] = {
            "model_type": "mamba", "_name_or_path": name, "hidden_size": hidden, "num_hidden_layers": layers,
            "vocab_size": vocabulary, "state_size": 16, "expand": 2, "conv_kernel": 4,
        }  # fmt: skip
    else:
        kind, more = _experts(model)
        found = decoder(
            name, kind, hidden=hidden, layers=layers, heads=model.value(POSITIVE, "num_attention_heads", default=1),
            kv_heads=model.value(POSITIVE, "num_key_value_heads"), vocabulary=vocabulary,
            intermediate=model.value(POSITIVE, "intermediate_size", default=4 * hidden),
            tie_word_embeddings=model.value(FLAG, "tie_word_embeddings", default=False), **more,
        )  # fmt: skip
    reader.set("model", given, found, f"the stated dimensions, as a {found['model_type']} of Transformers")


def _experts(model: Reader) -> tuple[str, dict[str, Any]]:
    """The model type, and what a mixture of experts has beside a dense model's dimensions."""
    count = model.value(integer(2), "moe_num_experts", "moe_config.num_experts")
    each = model.value(POSITIVE, "num_experts_per_tok", "moe_config.top_k", default=1)
    width = model.value(POSITIVE, "moe_config.moe_intermediate_size")
    if not count:
        return "llama", {}
    if not width:
        return "mixtral", {"num_local_experts": count, "num_experts_per_tok": each}
    shared = model.value(POSITIVE, "moe_config.shared_expert_intermediate_size", default=width)
    sizes = {"moe_intermediate_size": width, "shared_expert_intermediate_size": shared}
    return "qwen2_moe", {"num_experts": count, "num_experts_per_tok": each, **sizes}


def _has_masters(on: bool, job: Job) -> bool:
    return on and job.weights.dtype != "float32"


def _accumulator(reader: Reader) -> Derived:
    dtype = "float32" if reader.job.precision.master_weights else None
    return Derived(dtype, "the accumulator's", "precision.master_weights")


_FACTORY = "optimizer.optimizer_factory"

TABLE = Table(
    (
        *runs_on(),
        *pretrains("nanotron", "a run of run_train.py"),
        *within(
            "parallelism",
            Key("parallelism.tensor", "tp", POSITIVE),
            Key("parallelism.pipeline", "pp", POSITIVE),
            Key("parallelism.context", "context_parallel_size", POSITIVE),
            Key("parallelism.expert", "expert_parallel_size", integer(2)),
            Key(
                "parallelism.sequence", "tp_mode", WORD, to={"reduce_scatter": True}, back=NEVER,
                when=lambda job: job.parallelism.tensor > 1,
            ),
            Key("activation_checkpointing", "recompute_layer", FLAG, to={True: "full", False: "none"}),
        ),
        _set_gpus,
        _set_model,
        size("micro_batch_size", "tokens.micro_batch_size"),
        size("sequence_length", "tokens.sequence_length"),
        size("gradient_accumulation_steps", "tokens.batch_accumulation_per_replica", 1),
        Key(
            "weights.dtype", "model.dtype", DTYPE, "bfloat16", back=among("bfloat16", "float32"), other="float32",
        ),
        Key(
            "precision.master_weights", "optimizer.accumulate_grad_in_fp32", FLAG, to=_has_masters, back=NEVER,
            note="the gradient accumulator keeps fp32 parameters",
        ),
        Fixed("precision.gradients", _accumulator, when=lambda job: "precision.master_weights" in job.origins),
        # nanotron divides optimizer states, and no more
        Key(
            "parallelism.zero.stage", "optimizer.zero_stage", NATURAL, to=lambda stage, _: min(stage, 1),
            back=among(0, 1),
        ),
        Fixed(
            "parallelism.zero.library", Derived("megatron", "a gradient buffer of its own", "parallelism.zero.stage"),
            when=lambda job: job.parallelism.zero is not None,
        ),
        Key("optimizer.name", f"{_FACTORY}.name", WORD, to={"sgd": "sgd"}, back=NEVER),
        Key(
            "optimizer.name", f"{_FACTORY}.torch_adam_is_fused", FLAG,
            to={True: "adamw_torch_fused", False: "adamw_torch"}, back=NEVER,
        ),
        Key(
            "optimizer.name", f"{_FACTORY}.name", WORD, "adamw_torch_fused", lambda _, __: "adamw_torch", NEVER,
        ),
        Fixed("attention", Default("flash_attention_2", "nanotron's models call flash attention")),
        *USUAL,
    ),
)  # fmt: skip

FORMAT = Format.of_table(NAME, "nanotron config", UPSTREAM, read, TABLE, "dp x tp x pp")
