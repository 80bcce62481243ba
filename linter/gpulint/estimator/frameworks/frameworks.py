"""How frameworks that bring their own model code and training loop differ from Transformers.

`frameworks.json` holds one object per framework, read from its source; what moved with a release stands in `upstream`.
A job without a framework runs Transformers' modelling code.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ...source.tables import read_table
from ...upstream import megatron, torchtune
from ...upstream.rl.prime_rl import OWN_MODELS
from ...upstream.stack import Stack

if TYPE_CHECKING:
    from ...job.job import Job


_TABLE: dict[str, dict[str, Any]] = read_table(__file__, "frameworks.json")


class Framework(NamedTuple):
    """What a framework's own code does.

    block            a name of `blocks.BLOCKS`: its decoder layer; "" for that of the model type
    norm             a name of `norms.NORMS` in the place of Llama's RMSNorm; "" for that of the model type
    loss             a name of `native.LOSSES`: head and loss; "" for the objective's and the kernel's
    rope             a name of `rope.ROPES` in the place of the model type's
    dropout          the config field of the dropout behind embedding and branches; "" for that of the model type
    scores           how unfused attention keeps scores in the place of the model type's way (`kernels.eager`); ""
    repeats_keys     keys and values are repeated for every query head before attention
    fuses_layers     norms, rotary embedding and gated activations are fused kernels, as those of `compiled`
    routes_rows      its own experts get only the rows that are routed to them, whatever the model type's code does
    of_transformers  its models, and how they are loaded, are those of Transformers
    keeps_logits     the loop holds the float32 logits, and the graph, until the next forward pass has made new ones
    packs_head       bitsandbytes replaces the output head too
    unpacks_twice    4-bit weights are unpacked to float16, then cast to the compute dtype
    adapters_inside  FSDP 1 puts a layer's adapters into its own flat parameter, frozen weights included
    checkpoint_policy  what selective checkpointing keeps by default
    copies_logits    the loss makes a float32 copy of the float32 logits, beside them
    gates_apart      silu(gate) is a tensor of its own, also where layers are fused otherwise
    """

    block: str = ""
    norm: str = ""
    loss: str = ""
    rope: str = ""
    dropout: str = ""
    scores: str = ""
    repeats_keys: bool = False
    routes_rows: bool = False
    fuses_layers: bool = False
    keeps_logits: bool = False
    packs_head: bool = False
    unpacks_twice: bool = False
    of_transformers: bool = False
    adapters_inside: bool = False
    copies_logits: bool = False
    checkpoint_policy: str = "attention"
    gates_apart: bool = False


TRANSFORMERS = Framework(of_transformers=True)


def framework(job: Job) -> Framework:
    """The traits of the job's framework at its release; those of Transformers where none is native."""
    stack = Stack(job)
    if not stack.native:
        return TRANSFORMERS
    found = Framework(**_TABLE[job.framework or ""])
    return found._replace(
        copies_logits=stack.does(megatron.COPIES_LOGITS),
        gates_apart=stack.does(megatron.GATES_APART),
        norm="rms_wide" if stack.does(torchtune.WIDE_NORM) else found.norm,
    )


def of_transformers(job: Job) -> bool:
    """Whether the models are Transformers' own."""
    return framework(job).of_transformers


def without_unknown(job: Job) -> Job:
    """The job without a framework that nobody knows: what runs is Transformers' models and training loop."""
    return replace(job, framework=None) if job.framework and not Stack(job).framework else job


MIXER_PACKAGES = {
    "delta": "flash-linear-attention",
    "kimi_delta": "flash-linear-attention",
    "mamba": "mamba-ssm",
    "mamba2": "mamba-ssm",
    "mamba2_scaled": "mamba-ssm",
}
"""By the mixer of layers that do not attend (`mixer.MIXERS`)."""

ACTIVATION_PACKAGES = {"xielu": "xielu"}
"""By the activation function (transformers 5.23 activations.py XIELUActivation)."""


def runs_own_model(job: Job, model_type: str) -> bool:
    """Whether prime-rl runs its own code of a model (`impl` auto) and not that of Transformers."""
    return Stack(job).does(OWN_MODELS, model_type)
