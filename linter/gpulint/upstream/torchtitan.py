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
ROOTED = Behaviour(
    NAME,
    "leaves embedding and head in FSDP's root, and the last layer gathered for its backward",
    "models/llama3/parallelize_llama.py `apply_fsdp` of 0.1.0; apart since pytorch/torchtitan#1094 of July 2025",
    until="0.2",
)
FOREACH = Behaviour(
    NAME,
    "takes AdamW's foreach implementation unless `optimizer.fused` is on",
    "optimizer.py of 0.0.2 at 6a6f755d2; `implementation` of 0.1.0 is fused",
    until="0.1",
)
ONE_BATCH_A_STEP = Behaviour(
    NAME,
    "has no accumulation: a step is one local batch of every rank",
    "train.py of 0.0.2 at 6a6f755d2",
    until="0.1",
)
