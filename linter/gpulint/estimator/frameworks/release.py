"""What differs between releases of transformers, read from the releases' own code."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...models.arch_spec import arch_spec
from ...models.model import text_config
from ...upstream import axolotl, bitsandbytes, nemo_automodel, transformers, transformers_models, unsloth
from ...upstream.stack import QWEN, Stack
from ...upstream.transformers_models import BOUNDED_SCORES, NATIVE_SCORES, WIDE_NATIVE_SCORES
from ...upstream.trl import DIVIDES_IN_PLACE, ENTROPIES, KERNEL, NAME, NAMES_LOGITS, TEMPERATURE, TILES
from ..tape.options import Packed
from .frameworks import of_transformers

if TYPE_CHECKING:
    from ...job.job import Job
    from ...models.arch_spec import ArchSpec
    from ...models.model import Model


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


REMOTE = QWEN
"""The model type of the first Qwen, whose own code (modeling_qwen.py) every release runs."""


def release(job: Job, model_type: str = "") -> Release:
    """The switches of the job's `versions.transformers` for a model type.

    The shared loss (`ForCausalLMLoss`) makes 16-bit logits float32; it shifted a copy of them until 4.49. Before it
    the model made them float32 (`logits = logits.float()`), or its family never did. Models that Unsloth loads shift
    the labels and leave the logits as they are (unsloth models/llama.py `CausalLM_fast_forward`).
    """
    stack = Stack(job)
    own = not stack.does(transformers_models.SHARED_LOSS, model_type)
    narrow = stack.does(transformers_models.NARROW_LOSS, model_type)
    upcast = "loss" if not own else "never" if narrow else "model"
    shifted = own or not stack.does(transformers.PADDED_LABELS)
    if job.loss.kernel == "unsloth_cross_entropy" and stack.does(unsloth.PADDED_LABELS):
        upcast, shifted = "never", False
    grouped_experts = stack.does(transformers.GROUPED_EXPERTS)
    indexed = model_type == "gpt_oss" and not grouped_experts
    return Release(
        upcast,
        shifted,
        caches=stack.does(transformers_models.KEEPS_CACHE, model_type),
        grouped_keys=stack.does(transformers.GROUPED_KEYS),
        contiguous=stack.does(transformers.CONTIGUOUS_OPERANDS),
        grouped_experts=grouped_experts,
        indexed_experts=indexed,
        copied_experts=indexed and stack.does(transformers.INDEXES_BY_LIST),
    )


def checkpoints(job: Job, model_type: str) -> bool:
    """Whether a job's layers are checkpointed in its release, if it asks for it: by the model's class, or from outside.

    PyTorch's wrapper does so whatever the class calls; FSDP's plugin and AutoModel use it.
    """
    fsdp, stack = job.parallelism.fsdp, Stack(job)
    wrapped = (fsdp is not None and fsdp.checkpoints_inside) or stack.does(nemo_automodel.CHECKPOINT_WRAPPER)
    if wrapped or not of_transformers(job):
        return True
    return not stack.does(transformers_models.IGNORES_CHECKPOINTING, model_type)


def packed(job: Job) -> Packed:
    """The switches of the job's `versions.bitsandbytes`.

    What others pack is multiplied by torch.matmul once it is unpacked, or by a function that saves the packed weight
    (auto_gptq nn_modules/qlinear/qlinear_cuda_old.py, triton_utils/kernels.py): no input stays on a context.
    bitsandbytes' own product kept its input there up to 0.43.1 (autograd/_functions.py `MatMul4Bit`, `ctx.tensors`).
    """
    quantization, stack = job.weights.quantization, Stack(job)
    own = quantization is None or quantization.method.startswith("bnb")
    return Packed(
        keeps_input=own and stack.does(bitsandbytes.KEEPS_INPUT),
        always_unpacks=stack.does(bitsandbytes.ALWAYS_UNPACKS),
        transposed=stack.does(bitsandbytes.KEEPS_TRANSPOSED),
        halved=_bfloat16(job),
    )


def _bfloat16(job: Job) -> bool:
    return (job.precision.autocast or job.weights.dtype) == "bfloat16"


def reentrant(job: Job) -> bool:
    """Whether checkpoints are reentrant: Trainers of transformers 4 make them so, of 5 not (modeling_utils.py 5.23).

    The first Qwen's finetune.py runs such a Trainer, and its modeling_qwen.py calls torch's checkpoint as it comes.
    """
    if job.reentrant is not None:
        return job.reentrant
    stack = Stack(job)
    return (not stack.native or stack.runs(QWEN)) and stack.does(transformers.REENTRANT)


def arch_at(job: Job, model: Model) -> ArchSpec:
    """The ArchSpec of the model's class: those of the newest release, but for how scores were made before."""
    found = arch_spec(model.model_type, {**model.defaults, **text_config(model.config)}, model.shape.norm)
    stack, half = Stack(job), "float16" in (job.precision.autocast, job.weights.dtype)
    native = stack.does(NATIVE_SCORES, model.model_type) or (
        not half and stack.does(WIDE_NATIVE_SCORES, model.model_type)
    )
    bounded = stack.does(BOUNDED_SCORES, model.model_type)
    return found._replace(scores="native" if native else found.scores, bounded=bounded)


class Trl(NamedTuple):
    """Switches of one release; a job that states none has none of them, as TRL 1.15 and later, which hold no logits.

    temperature  online trainers divide the logits: `anew` (0.16 to 0.29), or in their own bytes, `in_place` (1.0 to
                 1.9), or `beside` those that the model returned, which have a name (1.10 on), `` before
    entropies    of the policy's logits, for the log: GRPO 0.20 on, SFT and RLOO 0.22 on, DPO 0.29 on, KTO 1.8 on, to
                 1.13
    means        of wanted and unwanted answers' logits, which are copied for it: DPO 0.29 on, KTO 1.8 on, to 1.14
    """

    temperature: str = ""
    entropies: bool = False
    means: bool = False


def trl(job: Job) -> Trl:
    """The switches of the job's `versions.trl` for its objective."""
    stack, version, objective = Stack(job), job.versions.get(NAME), job.objective
    if objective == "sft" and stack.does(axolotl.OWN_SFT):
        return Trl()
    whole = job.loss.kernel == "torch" and job.loss.log_softmax != "float32"
    if version is None or objective not in ENTROPIES.types or not whole or TILES.at(version):
        return Trl()
    logged, kernel = ENTROPIES.at(version, objective), KERNEL.at(version)
    entropies = logged and not kernel
    if objective in ("dpo", "kto"):
        return Trl("", entropies, logged)
    if objective == "sft" or kernel or not TEMPERATURE.at(version):
        return Trl("", entropies)
    if DIVIDES_IN_PLACE.at(version):
        return Trl("in_place", entropies)
    return Trl("beside" if NAMES_LOGITS.at(version) else "anew", entropies)
