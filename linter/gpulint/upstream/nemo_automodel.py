"""NeMo AutoModel."""

from __future__ import annotations

from .behaviour import Behaviour, Default

NAME = "nemo-automodel"

REDUCES_FLOAT32 = Behaviour(
    NAME,
    "has FSDP2Config reduce gradients in float32; before, in bfloat16",
    "components/distributed/config.py of the wheels 0.3.0 to 0.5.0",
    since="0.5.0",
)
CHECKPOINT_WRAPPER = Behaviour(
    NAME,
    "checkpoints layers by PyTorch's wrapper, whatever the model's class calls",
    "components/distributed/parallelizer.py `checkpoint_wrapper`",
)
OWN_LORA = Behaviour(
    NAME,
    "has LoRA of its own, which wraps every module that matches, also those that PEFT rejects",
    "components/_peft/lora.py",
)
BATCHES_IN_TURN = Behaviour(
    NAME,
    "takes a micro batch to the GPU when its turn comes",
    "recipes/vlm/finetune.py `_forward_backward_step`",
)
DEQUANTIZES = Behaviour(
    NAME,
    "makes a checkpoint of FP8 weights 16 bits as it loads it",
    "components/models/deepseek_v3/state_dict_adapter.py",
)

_CHUNKED = "components/loss/chunked_ce.py of the wheels 0.2.0 to 0.7.0; None: whole logits in autograd"

DEFAULTS = (
    Default(NAME, "chunked_loss_logits", None, _CHUNKED, until="0.6"),
    Default(NAME, "chunked_loss_logits", "whole", _CHUNKED, since="0.6", until="0.7"),
    Default(NAME, "chunk_len", 32, _CHUNKED, until="0.7"),
)
