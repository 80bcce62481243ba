"""The most that parts may keep whose operations are not replayed: a teacher's divergence, a vision tower."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .states.parameters import base_dtype

if TYPE_CHECKING:
    from ..job.job import Job
    from ..models.model import Model

DISTRIBUTIONS = 16
"""Tensors of tokens x vocabulary of a generalized Jensen-Shannon divergence beside the student's loss: both models'
logits, the scored rows of each, both over the temperature, their log-probabilities, the stack of two that the mixture
is the logsumexp of with its exponentials, the mixture, two divergences and an exponential, and the sum's gradient
(trl/experimental/gkd/gkd_trainer.py `generalized_jsd_loss`; ms-swift 3.6 trainers/rlhf_trainer/gkd_trainer.py)."""


def divergence(job: Job, model: Model) -> int:
    """Bytes that distillation keeps at most: DISTRIBUTIONS tensors in the width of the logits."""
    tokens = (job.micro_batch_size or 0) * (job.sequence_length or 0) // max(1, job.parallelism.context)
    width = 4 if base_dtype(job, model) == "float32" and job.precision.autocast is None else 2
    return DISTRIBUTIONS * width * tokens * -(-model.shape.vocabulary // job.parallelism.tensor)


MERGED = 2
"""Patches along each side of what makes one token, where a config does not say: the default of Qwen's towers
(transformers 5.23 configuration_qwen2_5_vl.py); towers that merge none keep less."""


def tower(job: Job, model: Model) -> int:
    """Bytes that a vision tower keeps where all tokens of a batch are an image's; 0 where its config names no widths.

    P patches, m x m of which make one token, h and f the widths, n layers, e bytes an element: with checkpointing
    e P n h of layer inputs and one layer, e P (8 h + 3 f); without it n such layers where the tower is trained, else
    one. A frozen tower keeps them too where its input is made to require gradients (ms-swift's
    `vit_gradient_checkpointing`, transformers `enable_input_require_grads`).
    """
    config = model.config.get("vision_config")
    if not isinstance(config, dict) or not job.micro_batch_size or not job.sequence_length:
        return 0
    hidden, layers = _stack(config)
    inner = _width(config, "intermediate_size") or 4 * hidden
    merged = (_width(config, "spatial_merge_size") or MERGED) ** 2
    patches = job.micro_batch_size * job.sequence_length * merged // max(1, job.parallelism.context)
    layer = patches * (8 * hidden + 3 * inner)
    if job.activation_checkpointing == "none" and job.method == "full":
        return 2 * layers * layer
    return 2 * (patches * layers * hidden + layer)


def tower_outputs(model: Model, patches: int, element: float) -> int:
    """Bytes of the outputs of all layers of a vision tower: element x patches x layers x width."""
    config = model.config.get("vision_config")
    hidden, layers = _stack(config) if isinstance(config, dict) else (0, 0)
    return round(element * patches * layers * hidden)


def _stack(config: dict[str, Any]) -> tuple[int, int]:
    """A tower's width, and how many layers it has."""
    hidden = _width(config, "embed_dim") if "embed_dim" in config else _width(config, "hidden_size")
    return hidden, _width(config, "depth") or _width(config, "num_hidden_layers")


def _width(config: dict[str, Any], name: str) -> int:
    value = config.get(name)
    return value if isinstance(value, int) else 0
