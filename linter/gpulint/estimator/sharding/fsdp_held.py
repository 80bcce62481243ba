"""What layers under FSDP's wrapping leave alive that plain ones do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...upstream.stack import Stack
from ...upstream.transformers import LAYERS_RETURN_CACHE
from ..frameworks.release import reentrant
from ..inputs.virtual_tokens import lengthened
from ..states.parameters import base_dtype, gathered_dtype
from ..states.storage import dtype_bytes

if TYPE_CHECKING:
    from ...job.job import Fsdp, Job
    from ...models.model import Model


def kept(job: Job, fsdp: Fsdp, model: Model) -> int:
    """2 x e T h that every finished layer keeps when version 1 wraps frozen layers under reentrant checkpointing.

    For a flat parameter without gradients FSDP hangs its reshard on the layer's inputs with `register_multi_grad_hook`
    (`_register_post_backward_reshard_only_hook`), whose handle lives until the end of the backward pass and holds the
    detached input that the recomputation made, together with its `.grad`: T x h elements each. The `.grad` is also
    what the layer below is handed. Where the unit holds the checkpoint, its inputs are those of the forward pass, which
    are no leaves and hold no gradient.
    """
    checkpointed = job.activation_checkpointing == "full" and reentrant(job) and not fsdp.checkpoints_inside
    if fsdp.wrap != "transformer" or not checkpointed:
        return 0
    dtype = gathered_dtype(job) or base_dtype(job, model)
    return int(2 * dtype_bytes(dtype) * _rows(job) * model.shape.hidden)


def cached(job: Job, fsdp: Fsdp, model: Model) -> int:
    """2 x e T k: the keys and values that a layer returns in training, as `use_cache` stays on.

    Transformers' own checkpointing turns it off; torch's checkpoint wrapper, put into FSDP's units, does not
    (transformers 4.31 models/llama/modeling_llama.py `LlamaModel.forward`).
    """
    stack = Stack(job)
    wrapped = fsdp.checkpoints_inside and job.activation_checkpointing == "full" and not stack.native
    if not wrapped or not stack.does(LAYERS_RETURN_CACHE):
        return 0
    if model.config.get("use_cache") is False:
        return 0
    shape, dtype = model.shape, gathered_dtype(job) or base_dtype(job, model)
    return int(2 * dtype_bytes(dtype) * _rows(job) * shape.kv_heads * shape.head_dim)


def _rows(job: Job) -> int:
    """T: the tokens of a micro batch on a rank, virtual ones among them."""
    return (job.micro_batch_size or 0) * (lengthened(job).sequence_length or 0) // max(1, job.parallelism.context)
