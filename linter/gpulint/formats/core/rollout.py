"""A generation run by vLLM that a training tool's config describes: verl's generation.yaml, NeMo RL's evals."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .native import DTYPES
from .placeholders import is_blank
from .world_size import Stated, set_hardware

if TYPE_CHECKING:
    from .format import Project
    from .sections import Filling, Sections


class RolloutKeys(NamedTuple):
    """The dotted keys that say it: of the model, of the engine's section, and of the GPUs."""

    model: str
    section: str
    tensor: str
    dtype: str
    gpus: str
    nodes: str


def set_rollout_job(filling: Filling, values: Sections, project: Project, keys: RolloutKeys) -> None:
    """Fill an inference Job with what vLLM is given; lengths of prompt and response make its longest sequence."""
    builder, section = filling.builder, keys.section
    builder.derived("kind", "inference", "generates and trains nothing")
    builder.derived("inference.engine", "vllm", "the engine of the rollout", "kind")
    model = values.text(keys.model)
    if model and not is_blank(model.value):
        filling.put("model", model)
    else:
        builder.assumed("model", None, "the model is to be filled in")
    each, nodes = values.integer(keys.gpus, least=1), values.integer(keys.nodes, least=1)
    count = nodes.value if nodes else 1
    stated = Stated(each.value * count, each.entry, each.key, f"GPUs x {count} nodes") if each else None
    set_hardware(builder, project, stated, sharded=False)
    filling.fill("parallelism.tensor", values.integer(f"{section}.{keys.tensor}", least=1), 1)
    filling.fill("parallelism.pipeline", values.integer(f"{section}.pipeline_parallel_size", least=1), 1)
    dtype = values.text(f"{section}.{keys.dtype}")
    if dtype and dtype.value in DTYPES:
        filling.put("weights.dtype", dtype, DTYPES[dtype.value])
    else:
        builder.default("weights.dtype", None, "the checkpoint's own")
    builder.default("weights.quantization", None)
    length = values.integer(f"{section}.max_model_len", least=1)
    prompt, response = (values.integer(f"{section}.{name}_length", least=1) for name in ("prompt", "response"))
    if length:
        filling.put("inference.max_model_len", length)
    elif prompt and response:
        filling.put("inference.max_model_len", response, prompt.value + response.value, "prompt and response")
    filling.fill("inference.gpu_memory_utilization", values.number(f"{section}.gpu_memory_utilization"), 0.9)
    filling.fill("inference.enforce_eager", values.flag(f"{section}.enforce_eager"), False)
    for name in ("max_num_seqs", "max_num_batched_tokens"):
        filling.fill(f"inference.{name}", values.integer(f"{section}.{name}", least=1), None)
    builder.default("inference.kv_cache_dtype", "auto")
