"""What differs between releases of transformers, read from the releases' own code."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...versions import older
from ..tape.options import Packed
from .frameworks import of_transformers

if TYPE_CHECKING:
    from ...job.job import Job


class Release(NamedTuple):
    """Switches of one release; a job that states none has the newest, 5.23.

    upcast          where logits become float32: in the `loss` function, in the `model` before it, or `never`
    shifted         the logits are copied to drop each sequence's last; else labels are padded
    caches          `use_cache` stays on in training, so that keys and values live on with the outputs; they are a view
                    of the projection they were taken from (gpt_bigcode before 4.53)
    grouped_keys    sdpa is told to group keys (4.54 on); before, keys and values are repeated
    contiguous      sdpa's operands are laid out anew (4.48 to 4.55)
    grouped_experts experts run as grouped matmuls (5.0 on); before, one after the other as plain Linear layers
    indexed_experts gpt_oss took each expert out of the fused weight in training (before 5.0): each one's gradient is as
                    large as all of them, zeros for the others
    copied_experts  and made a copy of each, which its products save (4.55, where the index has a dimension)
    """

    upcast: str
    shifted: bool
    caches: bool
    grouped_keys: bool
    contiguous: bool
    grouped_experts: bool
    indexed_experts: bool
    copied_experts: bool


NARROW = frozenset(
    {
        "bloom",
        "codegen",
        "dbrx",
        "falcon",
        "gpt2",
        "gpt_bigcode",
        "gpt_neox",
        "gptj",
        "mpt",
        "opt",
        "persimmon",
        "stablelm",
    }
)
"""Families whose own loss took the logits in the width they had, before they called the shared one (4.48.3)."""

TUPLES_BEFORE = "4.46"
"""The release from which on keys and values are returned as a cache object and not as tuples."""

REMOTE = "qwen"
"""The first Qwen's own code (modeling_qwen.py), which every release runs: shifted logits in the width they have."""

OWN = frozenset({"qwen2_audio"})
"""Families whose class still shifts a copy of the logits and takes them in the width they have (5.23)."""

SHARED_FROM = {
    **dict.fromkeys(NARROW, "4.48.3"), "falcon_mamba": "5.0", "gpt_neo": "4.48.3", "gpt_neox": "4.49",
    "granite": "4.48", "granitemoe": "4.48.3", "jetmoe": "4.49", "mamba": "5.0", "mistral": "4.48",
    "recurrent_gemma": "4.48.3", "starcoder2": "4.47",
}  # fmt: skip
"""When a family came to call the shared loss, where that was after 4.46 (read in each release's modelling code)."""

_NO_CHECKPOINTS = {"starcoder2": ("4.48", "4.52")}
"""Families whose layers were not checkpointed, whatever was asked for, from one release to another: their model did
not call `_gradient_checkpointing_func` (modeling_starcoder2.py)."""


def release(job: Job, model_type: str = "") -> Release:
    """The switches of the job's `versions.transformers` for a model type.

    The shared loss (`ForCausalLMLoss`) makes 16-bit logits float32; it shifted a copy of them until 4.49. Before it
    the model made them float32 (`logits = logits.float()`), or its family never did. Models that Unsloth loads shift
    the labels and leave the logits as they are (unsloth models/llama.py `CausalLM_fast_forward`).
    """
    version = job.versions.get("transformers")
    always = model_type == REMOTE or model_type in OWN
    narrow = model_type in NARROW or always
    own = always or older(version, SHARED_FROM.get(model_type, "4.46"))
    upcast = "loss" if not own else "never" if narrow else "model"
    contiguous = older(version, "4.56") and not older(version, "4.48")
    shifted = own or older(version, "4.49")
    if job.loss.kernel == "unsloth_cross_entropy" and "unsloth" in job.versions:
        upcast, shifted = "never", False
    caches = model_type == "gpt_bigcode" and older(version, "4.53")
    grouped_keys, grouped_experts = not older(version, "4.54"), not older(version, "5.0")
    indexed = model_type == "gpt_oss" and not grouped_experts
    copied = indexed and older(version, "4.56")
    return Release(upcast, shifted, caches, grouped_keys, contiguous, grouped_experts, indexed, copied)


def checkpoints(job: Job, model_type: str) -> bool:
    """Whether a job's layers are checkpointed in its release, if it asks for it: by the model's class, or from outside.

    PyTorch's wrapper does so whatever the class calls; FSDP's plugin and AutoModel use it.
    """
    fsdp = job.parallelism.fsdp
    wrapped = (fsdp is not None and fsdp.checkpoints_inside) or "nemo-automodel" in job.versions
    if wrapped or not of_transformers(job):
        return True
    version = job.versions.get("transformers")
    begin, end = _NO_CHECKPOINTS.get(model_type, ("0", "0"))
    return older(version, begin) or not older(version, end)


def packed(job: Job) -> Packed:
    """The switches of the job's `versions.bitsandbytes`.

    What others pack is multiplied by torch.matmul once it is unpacked, or by a function that saves the packed weight
    (auto_gptq nn_modules/qlinear/qlinear_cuda_old.py, triton_utils/kernels.py): no input stays on a context.
    bitsandbytes' own product kept its input there up to 0.43.1 (autograd/_functions.py `MatMul4Bit`, `ctx.tensors`).
    """
    version = job.versions.get("bitsandbytes")
    quantization = job.weights.quantization
    own = quantization is None or quantization.method.startswith("bnb")
    return Packed(own and older(version, "0.43.2"), older(version, "0.50"), older(version, "0.45"), _bfloat16(job))


def _bfloat16(job: Job) -> bool:
    return (job.precision.autocast or job.weights.dtype) == "bfloat16"


def reentrant(job: Job) -> bool:
    """Whether checkpoints are reentrant: Trainers of transformers 4 make them so, of 5 not (modeling_utils.py 5.23).

    The first Qwen's finetune.py runs such a Trainer, and its modeling_qwen.py calls torch's checkpoint as it comes.
    """
    if job.reentrant is not None:
        return job.reentrant
    return job.framework in (None, REMOTE) and older(job.versions.get("transformers"), "5")
