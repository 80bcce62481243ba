"""nanotron (Hugging Face): the YAML of run_train.py.

Facts from nanotron at its newest commit (config/*.py, optim/, parallel/), read statically. 16-bit weights, float32
gradient accumulators and main parameters with `accumulate_grad_in_fp32`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.format import Format, Reading, written_by
from ..core.keys import key_problems
from ..core.native import DTYPES, NativeConfig, decoder, multiple
from ..core.world_size import Stated, set_hardware

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.format import Project

NAME = "nanotron"
UPSTREAM = "nanotron 0.4"

_DEGREES = {"parallelism.tensor": "tp", "parallelism.pipeline": "pp", "parallelism.context": "context_parallel_size"}


def recognise(document: Document) -> bool:
    """`parallelism` with dp beside `tokens` and `model.model_config`."""
    root = document.root
    parallel = root.get("parallelism")
    if document.syntax != "yaml" or parallel is None or not parallel.is_mapping:
        return False
    return root.get("tokens") is not None and root.find("model.model_config") is not None and "dp" in parallel.keys()  # noqa: SIM118


def read(document: Document, project: Project) -> Reading:
    """The Job of a pretraining run."""
    config = NativeConfig(NAME, UPSTREAM, document, project, None)
    builder, keys = config.builder, config.keys
    builder.derived("kind", "training", "a run of run_train.py")
    builder.derived("objective", "pretrain", "nanotron pretrains")
    builder.derived("packing", True, "rows are cut out of a stream of tokens", "objective")
    parallel = keys.mapping("parallelism")
    product = 1
    for path, key in _DEGREES.items():
        given = parallel.integer(key, least=1)
        if given:
            config.put(path, given)
            product *= given.value
    expert = parallel.integer("expert_parallel_size", least=2)
    if expert:
        config.put("parallelism.expert", expert)
    mode = parallel.text("tp_mode")
    if mode and mode.value.lower() == "reduce_scatter" and builder.job.parallelism.tensor > 1:
        config.put("parallelism.sequence", mode, True)
    data = parallel.integer("dp", least=1)
    stated = Stated(data.value * product, data.entry, data.key, "dp x tp x pp") if data else None
    set_hardware(builder, project, stated, sharded=True)
    _set_model(config)
    tokens = keys.mapping("tokens")
    for field in ("micro_batch_size", "sequence_length"):
        config.count(field, tokens.integer(field, least=1), None, tokens.blank(field))
    steps = tokens.integer("batch_accumulation_per_replica", least=1)
    config.count("gradient_accumulation_steps", steps, 1, tokens.blank("batch_accumulation_per_replica"))
    _set_precision(config)
    recompute = parallel.flag("recompute_layer")
    if recompute:
        config.put("activation_checkpointing", recompute, "full" if recompute.value else "none")
    builder.default("attention", "flash_attention_2", "nanotron's models call flash attention")
    config.fill()
    config.reading.problems[:0] = key_problems(document, NAME)
    return config.reading


def _set_model(config: NativeConfig) -> None:
    """`model_config` has Transformers' names; its rows are padded to `make_vocab_size_divisible_by` x tp."""
    builder, model = config.builder, config.keys.mapping("model")
    section, step = model.mapping("model_config"), model.integer("make_vocab_size_divisible_by", least=1)
    rows = section.integer("vocab_size", least=1)
    size, layers = section.integer("hidden_size", "d_model", least=1), section.integer("num_hidden_layers", least=1)
    if rows is None or size is None or layers is None:
        builder.assumed("model", None, "model_config is filled in elsewhere")
        return
    vocabulary = multiple(rows.value, (step.value if step else 1) * builder.job.parallelism.tensor)
    name = f"nanotron-{layers.value}x{size.value}"
    if section.is_on("is_mamba_config"):
        found: dict[str, Any] = {
            "model_type": "mamba", "_name_or_path": name, "hidden_size": size.value,
            "num_hidden_layers": layers.value, "vocab_size": vocabulary, "state_size": 16, "expand": 2,
            "conv_kernel": 4,
        }  # fmt: skip
        config.put("model", size, found, "the stated dimensions, as a mamba of Transformers")
        return
    heads, groups = section.integer("num_attention_heads", least=1), section.integer("num_key_value_heads", least=1)
    width, tied = section.integer("intermediate_size", least=1), section.flag("tie_word_embeddings")
    experts = section.mapping("moe_config")
    count = section.integer("moe_num_experts", least=2) or experts.integer("num_experts", least=2)
    topk = section.integer("num_experts_per_tok", least=1) or experts.integer("top_k", least=1)
    expert_width = experts.integer("moe_intermediate_size", least=1)
    shared = experts.integer("shared_expert_intermediate_size", least=1)
    more: dict[str, Any] = {"tie_word_embeddings": bool(tied.value) if tied else False}
    kind = "llama"
    if count and expert_width:
        kind = "qwen2_moe"
        more |= {"num_experts": count.value, "num_experts_per_tok": topk.value if topk else 1}
        more |= {"moe_intermediate_size": expert_width.value}
        more |= {"shared_expert_intermediate_size": shared.value if shared else expert_width.value}
    elif count:
        kind = "mixtral"
        more |= {"num_local_experts": count.value, "num_experts_per_tok": topk.value if topk else 1}
    found = decoder(
        name, kind, hidden=size.value, layers=layers.value, heads=heads.value if heads else 1, vocabulary=vocabulary,
        kv_heads=groups.value if groups else None, intermediate=width.value if width else 4 * size.value, **more,
    )  # fmt: skip
    config.put("model", size, found, f"the stated dimensions, as a {kind} of Transformers")


def _set_precision(config: NativeConfig) -> None:
    builder, optimizer = config.builder, config.keys.mapping("optimizer")
    dtype = config.keys.mapping("model").text("dtype")
    name = DTYPES.get(dtype.value, "float32") if dtype else "bfloat16"
    if dtype:
        config.put("weights.dtype", dtype, name)
    else:
        builder.default("weights.dtype", name)
    whole = optimizer.flag("accumulate_grad_in_fp32")
    masters = bool(whole and whole.value) and name != "float32"
    if whole:
        config.put("precision.master_weights", whole, masters, "the gradient accumulator keeps fp32 parameters")
        dtype_ = "float32" if masters else None
        builder.derived("precision.gradients", dtype_, "the accumulator's", "precision.master_weights")
    stage = optimizer.integer("zero_stage", least=0)
    if stage:
        config.put("parallelism.zero.stage", stage, min(int(stage.value), 1))
        note = "a gradient buffer of its own"
        builder.derived("parallelism.zero.library", "megatron", note, "parallelism.zero.stage")
    factory = optimizer.mapping("optimizer_factory")
    fused, kind = factory.flag("torch_adam_is_fused"), factory.text("name")
    if kind and kind.value.lower() == "sgd":
        config.put("optimizer.name", kind, "sgd")
    elif fused or kind:
        given = fused or kind
        assert given is not None
        config.put("optimizer.name", given, "adamw_torch_fused" if fused and fused.value else "adamw_torch")
    else:
        builder.default("optimizer.name", "adamw_torch_fused")


describe, edits = written_by("native.nanotron_edits")


FORMAT = Format(NAME, "nanotron config", UPSTREAM, recognise, read, describe, edits, "dp x tp x pp")
