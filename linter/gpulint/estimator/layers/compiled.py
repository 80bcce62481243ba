"""What torch.compile's partitioner saves of a decoder layer's pointwise operations.

`min_cut_rematerialization_partition` (torch/_functorch/partitioners.py) cuts the graph of a layer between matrix
products: it keeps their operands, the outputs of attention kernels and of products, and one number a row of a
reduction, and makes pointwise operations again inside backward's kernels. Read off its partition of a Llama layer
(torch 2.13): bf16 without autocast 8 T h of norms and residual stream, 6 T f of gate, up and product, where eager keeps
16 T h and 8 T f.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...versions import older
from ..frameworks import prime_rl
from ..frameworks.frameworks import of_transformers
from ..tape.labels import labelled
from .attention.implementation import on_blackwell

if TYPE_CHECKING:
    from ...job.job import Job
    from ...models.model import Model
    from ..tape.tensor import Tensor
    from .attention.rope import Table
    from .modules import Linear


def traced(job: Job, model: Model) -> bool:
    """Whether torch.compile gets graphs of a decoder layer.

    What runs inside `torch.utils.checkpoint` is traced as a whole or not at all: at a graph break Dynamo leaves the
    call to eager, and `checkpoint` keeps it from the frames within (`_disable_dynamo`, torch/utils/checkpoint.py).
    Transformers' flash attention branches on the values of `position_ids` where there is one row
    (modeling_flash_attention_utils.py `_is_packed_sequence`), which no graph holds: a checkpointed layer stays eager.
    So does one with experts that are divided over ranks in torchtitan before 0.2.1, where FSDP's hooks around them are
    the break (torchtitan#1895), and one of prime-rl's own with experts, whose adapters are chosen by a number that is
    read from the GPU (trainer/models/layers/lora/multi_moe.py; without adapters it is not known, and counted the same)
    or with FlashAttention 4, which it keeps Dynamo from (trainer/models/layers/attn.py).
    """
    if not job.compile:
        return False
    version, divided = job.versions.get("torchtitan"), job.parallelism.expert > 1
    if job.framework == "torchtitan" and model.shape.experts and divided and older(version, "0.2.1"):
        return job.activation_checkpointing == "none" or job.checkpoint_every > 1
    whole = job.activation_checkpointing in ("full", "offload") and job.checkpoint_every <= 1
    if not whole or not of_transformers(job):
        return True
    if prime_rl.own(job, model.model_type):
        return not model.shape.experts and job.attention != "flash_attention_4"
    return not job.attention.startswith("flash") or (job.micro_batch_size or 1) > 1


def remade_attention(job: Job) -> bool:
    """Whether torchtitan's policy by operator makes attention again: cuDNN comes first, and its operator is not listed.

    In 0.2.0 everywhere, in 0.1 on Blackwell only (models/attention.py `ScaledDotProductAttention` of v0.1.0:
    `has_cuda_capability(10, 0)`), and 0.2.1 lists it (models/*/infra/parallelize.py `_op_sac_save_list`, commit
    b39377f9f).
    """
    version = job.versions.get("torchtitan")
    known = job.framework == "torchtitan" and job.attention == "sdpa" and bool(version)
    if not known or older(version, "0.1") or not older(version, "0.2.1"):
        return False
    return not older(version, "0.2") or on_blackwell(job)


@labelled("output and statistics")
def norm(x: Tensor, module: Linear | None, rows: int) -> Tensor:
    """A norm with the casts around it: saves x itself and 4 bytes a row; its result has the width of the next product.

    A LayerNorm saves the mean too.
    """
    tape, n, e = x.storage.tape, x.n, x.e
    weight = None if module is None else module.weight
    bias = None if module is None else module.bias
    y = tape.new(n, tape.autocast or e)
    kept = (x.storage, tape.new(rows * (2 if bias is not None else 1), 4))

    def back(_: Tensor, _kept: object = kept) -> tuple[Tensor | None, ...]:
        gx = tape.new(n, e)
        gw = tape.new(weight.n, weight.e) if weight is not None and weight.trainable else None
        return gx, gw, tape.new(bias.n, bias.e) if bias is not None and bias.trainable else None

    y.node = tape.node((x, weight, bias), back)
    return y


def gated(gate: Tensor, up: Tensor) -> Tensor:
    """act(gate) * up as one kernel: saves both; backward makes both gradients at once."""
    tape, n, e = gate.storage.tape, gate.n, gate.e
    y = tape.new(n, e)

    def back(_: Tensor, _kept: object = (gate.storage, up.storage)) -> tuple[Tensor, Tensor]:
        return tape.new(n, e), tape.new(n, e)

    y.node = tape.node((gate, up), back)
    return y


def activation(x: Tensor) -> Tensor:
    """Any activation function as one kernel: saves x."""
    tape, n, e = x.storage.tape, x.n, x.e
    y = tape.new(n, e)

    def back(_: Tensor, _kept: object = x.storage) -> tuple[Tensor]:
        return (tape.new(n, e),)

    y.node = tape.node((x,), back)
    return y


def rope(q: Tensor, k: Tensor, table: Table) -> tuple[Tensor, Tensor]:
    """Queries and keys turned by a kernel each; saved are cos and sin."""
    return _turned(q, table), _turned(k, table)


def _turned(x: Tensor, table: Table) -> Tensor:
    tape, n, e = x.storage.tape, x.n, x.e
    y = tape.new(n, e)

    def back(_: Tensor, _kept: object = (table.cos, table.sin)) -> tuple[Tensor]:
        return (tape.new(n, e),)

    y.node = tape.node((x,), back)
    return y
