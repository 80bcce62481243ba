"""DeepSpeed."""

from __future__ import annotations

from .behaviour import Behaviour, Default

NAME = "deepspeed"

TESTS_EVERY_DTYPE = Behaviour(
    NAME,
    "has stage 3 test gradients for overflow in every dtype; since, in float16 alone",
    "runtime/zero/stage3.py `_overflow_check_and_loss_scale_update`, `has_overflow`",
    until="0.12.3",
)
LAST_TO_TEST_EVERY_DTYPE = "0.12.2"
"""The release before that one."""

FREES_IN_STEP = Behaviour(
    NAME,
    "has stage 1 free the 16-bit gradients after a step",
    "runtime/bf16_optimizer.py (0.16.5)",
    since="0.16.5",
)
BUCKETS_WITH_GRADIENT = Behaviour(
    NAME,
    "makes the buckets with the first gradient; before, `backward` made them ahead of the pass",
    "runtime/zero/stage_1_and_2.py `process_gradients` calls `setup_buckets`",
    since="0.18.3",
)
FREES_ADDED_GRADIENTS = Behaviour(
    NAME,
    "frees a 16-bit gradient as it is added, with `immediate_grad_update`",
    "runtime/bf16_optimizer.py (0.19.8)",
    since="0.19.8",
)

DEFAULTS = (
    Default(NAME, "pin_memory", False, "runtime/zero/offload_config.py of the sdists 0.9.0 to 0.19.8", until="0.19.5"),
)
