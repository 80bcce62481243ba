"""PyTorch, and the CUDA and NCCL that its wheels bring."""

from __future__ import annotations

from .behaviour import Behaviour

NAME = "torch"

SAVES_SOFTMAX_INPUT = Behaviour(
    NAME,
    "saves the input of a softmax for backward, beside its output",
    "tools/autograd/derivatives.yaml `_softmax` of 1.10 and 1.11",
    until="1.11",
)
LAZY_LOADING = Behaviour(
    NAME,
    "asks CUDA to load kernels when they are first used",
    "torch/cuda/__init__.py `_lazy_init`: since 1.13, whose CUDA 11.7 is the first to (pytorch/pytorch#85692)",
    since="1.13",
)
FOREACH = Behaviour(
    NAME,
    "has optimizers take their foreach path by default on CUDA; in 1.13 None means the loop over tensors",
    "torch/optim/adamw.py, optimizer.py `_default_to_fused_or_foreach`",
    since="2.0",
)
ZEROED_GRADIENTS = Behaviour(
    NAME,
    "has `zero_grad` fill gradients with zeros instead of freeing them, unless asked (`set_to_none`)",
    "torch/optim/optimizer.py and torch/nn/modules/module.py",
    until="2.0",
)
SPARING_FOREACH = Behaviour(
    NAME,
    "has foreach steps make as few copies as they can",
    "pytorch/pytorch#104780, #104898, #105193",
    since="2.1",
)
SDPA_OF_TRANSFORMERS = Behaviour(
    NAME,
    "has the scaled_dot_product_attention that Transformers 4 asks for",
    "transformers utils/import_utils.py `is_torch_sdpa_available`",
    since="2.1.1",
)
WIDE_COMPOSITE_ATTENTION = Behaviour(
    NAME,
    "runs the composite attention of 16-bit operands in float32",
    "aten native/transformers/attention.cpp: `allowFP16BF16ReductionMathSDP` came with 2.5",
    since="2.5",
)
FLEX_ATTENTION = Behaviour(
    NAME,
    "has flex attention, which takes soft-capped scores and has masks of blocks",
    "torch/nn/attention/flex_attention.py; unsloth kernels/flex_attention.py",
    since="2.5",
)
CUDA_12_2 = Behaviour(
    NAME,
    "brings a CUDA that loads kernels lazily by itself, whatever started the driver",
    "CUDA programming guide 4.7.2: from 12.2, which PyTorch's wheels bring from 2.5",
    since="2.5",
)
COPIES_IN = Behaviour(
    NAME,
    "makes the input of FSDP 2's reduce-scatter among the computation's blocks; before, on the reduction's stream",
    "pytorch/pytorch#129721 (June 2024)",
    since="2.5",
)
NCCL_2_22 = Behaviour(
    NAME,
    "brings an NCCL that connects an algorithm with its first use",
    "NCCL 2.22 release notes; it comes with torch 2.7",
    since="2.7",
)
LAUNCHES_ON_CALLER = Behaviour(
    NAME,
    "launches a collective that nobody waits for later on the stream that asks for it; before, it had a stream of its"
    " own, and `record_stream` held the input until the collective was done",
    "pytorch/pytorch#148590 (March 2025)",
    since="2.8",
)
INDUCTOR_AS_READ = Behaviour(
    NAME,
    "has the Inductor whose kernels of compiled optimizer steps and losses were read",
    "benchmarks of 2.13: optimizers.json `compiled`, losses of Megatron",
    since="2.13",
)
