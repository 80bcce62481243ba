"""verl."""

from __future__ import annotations

from ..behaviour import Behaviour, Default

NAME = "verl"

BATCHES_IN_TURN = Behaviour(
    NAME,
    "takes a micro batch of Transformers' models to the GPU when its turn comes",
    "workers/engine/fsdp/transformer_impl.py",
)

DEFERS_GRADIENTS = Behaviour(
    NAME,
    "reduces gradients once a step and keeps them whole until then, where its engine runs the micro batches",
    "workers/engine/fsdp/transformer_impl.py (#7095), which 0.8.0 has not; 0.9.1 does so only where "
    "`use_no_sync_for_gradient_accumulation` says so, which trainer/config/engine/fsdp.yaml has as false",
    since="0.9",
    until="0.9.1",
)

WHOLE_MINI_BATCHES = Behaviour(
    NAME,
    "asserts that each rank has whole rows of a mini batch, and the batch whole mini batches",
    "workers/engine_workers.py `train_mini_batch`, utils/tensordict_utils.py `make_iterator`; workers before rounded",
    since="0.8",
)

_CONFIGS = "trainer/config of the wheels 0.2 to 0.9.1"

DEFAULTS = (Default(NAME, "actor_rollout_ref.model.use_remove_padding", False, _CONFIGS, until="0.7"),)

SFT_DEFAULTS = (
    Default(NAME, "fsdp_version", 1, f"{_CONFIGS}, that of its SFT trainer", until="0.4"),
    Default(NAME, "enable_gradient_checkpointing", False, f"{_CONFIGS}, that of its SFT trainer", until="0.4.1"),
)
