"""torchtitan."""

from __future__ import annotations

from .behaviour import Behaviour

NAME = "torchtitan"

ATTENTION_AGAIN_ON_BLACKWELL = Behaviour(
    NAME,
    "takes cuDNN's attention first on Blackwell, which its policy by operator does not list and so makes again",
    "models/attention.py `ScaledDotProductAttention` of v0.1.0 (`has_cuda_capability(10, 0)`)",
    since="0.1",
    until="0.2.1",
)
ATTENTION_AGAIN = Behaviour(
    NAME,
    "takes cuDNN's attention first everywhere, which its policy by operator does not list and so makes again",
    "models/*/infra/parallelize.py `_op_sac_save_list`; listed by commit b39377f9f",
    since="0.2",
    until="0.2.1",
)
WHOLE_BLOCKS = Behaviour(
    NAME,
    "compiles whole blocks, whose graph breaks at FSDP's hooks around experts",
    "pytorch/torchtitan#1895",
    until="0.2.1",
)
KEEPS_STAGE_OUTPUTS = Behaviour(
    NAME,
    "has the last pipeline stage keep the outputs of every micro batch to the end of the step",
    "torch pipelining/stage.py `output_chunks`; since, train.py `return_outputs=False` (pytorch/torchtitan#1922)",
    until="0.2.1",
)
