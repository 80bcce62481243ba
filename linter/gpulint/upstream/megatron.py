"""Megatron-LM and its core."""

from __future__ import annotations

from .behaviour import Behaviour

NAME = "megatron-core"

GATES_APART = Behaviour(
    NAME,
    "has silu(gate) be a tensor of its own",
    "core/transformer/mlp.py before 0.5, whose fused `bias_swiglu` came then",
    until="0.5",
)
TRANSFORMER_ENGINE = Behaviour(
    NAME,
    "takes Transformer Engine's layers where nothing says `transformer_impl`",
    "megatron/training/arguments.py",
    since="0.6",
)
COPIES_LOGITS = Behaviour(
    NAME,
    "makes a float32 copy of the float32 logits in its loss",
    "core/tensor_parallel/cross_entropy.py",
    until="0.8",
)
CORE_MODELS = Behaviour(
    NAME,
    "runs the core's models unless `use_legacy_models` says otherwise; before, `use_mcore_models` had to",
    "megatron/training/arguments.py",
    since="0.8",
)
