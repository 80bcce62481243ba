"""A generation run by vLLM that a training tool's config describes: verl's generation.yaml, NeMo RL's evals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..bindings.kinds import FLAG, NUMBER, POSITIVE, WHOLE_TEXT
from ..bindings.rows import NEVER, Assumed, Default, Derived, Fixed, Key, within
from ..bindings.spelling import DTYPE
from .gpus import gpus_of_nodes

if TYPE_CHECKING:
    from ..bindings.reader import Reader
    from ..bindings.rows import Row


VALIDATION_GENERATES = Fixed(
    "evaluation.micro_batch_size", Default(None, "validation generates; it keeps nothing for a backward pass")
)
"""Evaluation of a tool whose validation is a rollout."""


def generation(*, model: str, engine: str, tensor: str, dtype: str, gpus: str, nodes: str) -> tuple[Row, ...]:
    """What vLLM is given; lengths of prompt and response make its longest sequence.

    The arguments are the tool's keys: of the model, of the engine's section and of two keys in it, of the GPUs.
    """

    def set_length(reader: Reader) -> None:
        prompt, response = (reader.given(POSITIVE, f"{engine}.{name}_length") for name in ("prompt", "response"))
        if prompt and response and reader.given(POSITIVE, f"{engine}.max_model_len") is None:
            reader.set("inference.max_model_len", response, prompt.value + response.value, "prompt and response")

    return (
        Fixed("kind", Derived("inference", "generates and trains nothing")),
        Fixed("inference.engine", Derived("vllm", "the engine of the rollout", "kind")),
        Key("model", model, WHOLE_TEXT, Assumed(None, "the model is to be filled in"), back=NEVER),
        gpus_of_nodes(gpus, nodes)[0],
        set_length,
        *within(
            engine,
            Key("parallelism.tensor", tensor, POSITIVE, 1),
            Key("parallelism.pipeline", "pipeline_parallel_size", POSITIVE, 1),
            Key("weights.dtype", dtype, DTYPE, Default(None, "the checkpoint's own"), back=NEVER),
            Fixed("weights.quantization", None),
            Key("inference.max_model_len", "max_model_len", POSITIVE),
            Key("inference.gpu_memory_utilization", "gpu_memory_utilization", NUMBER, 0.9),
            Key("inference.enforce_eager", "enforce_eager", FLAG, default=False),
            Key("inference.max_num_seqs", "max_num_seqs", POSITIVE, None),
            Key("inference.max_num_batched_tokens", "max_num_batched_tokens", POSITIVE, None),
            Fixed("inference.kv_cache_dtype", "auto"),
        ),
    )
