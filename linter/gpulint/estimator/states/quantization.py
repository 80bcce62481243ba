"""The quantisation that counts: the job's, else what its checkpoint states or its repository's name says."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...upstream import nemo_automodel, unsloth
from ...upstream.stack import Stack
from ...upstream.transformers_models import FUSED_EXPERTS
from ..estimate import Assumption
from ..frameworks.frameworks import framework, of_transformers
from .checkpoint import compressed, named_quantization, stored_quantization
from .guessed import UNTOLD
from .skipping import kept, left_out, unconverted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...job.job import Job, Quantization
    from ...models.model import Model
    from .parameter import Parameter


def effective_quantization(job: Job, model: Model) -> Quantization | None:
    """The job's quantisation, else the checkpoint's own (`quantization_config`), else what its name states.

    `experts` of it says whether expert tensors are packed. Training over an MXFP4 checkpoint unpacks it to 16 bits
    (transformers Mxfp4HfQuantizer, `dequantize`), and so does Transformers' first forward pass over one of
    compressed-tensors, for good (linear/compressed_linear.py up to 0.14, then model_compressor.py
    `add_decompress_hook`). An FP8 checkpoint is trained in 16 bits too (`_trained_wide`).
    """
    found = job.weights.quantization
    own = None
    if found is None or _restates(job, found):
        own = stored_quantization(model) or named_quantization(job, model)
    ready = found is None or own is not None
    found = own or found
    if found is None:
        return found
    found = left_out(found, (*kept(job, model), *unconverted(job, model)))
    if framework(job).packs_head and found.method.startswith("bnb"):
        found = replace(found, head=True)
    if found.experts:
        return found
    if ready and found.method == "mxfp4" and job.kind == "training":
        return None
    if ready and ((_runs_in_transformers(job) and compressed(model)) or _trained_wide(job, found)):
        return None
    return replace(found, experts=_packs_experts(job, model, found, ready))


def _trained_wide(job: Job, found: Quantization) -> bool:
    """Whether a checkpoint of FP8 weights is made 16 bits to be trained.

    Programs with model code of their own do so as they load it, and all that train every weight have to:
    Transformers' Trainer takes a quantised model with adapters alone (trainer_utils.py
    `validate_quantization_for_training`).
    Source: torchtitan models/deepseek_v3/model/state_dict_adapter.py (`dequantize_from_fp8`), NeMo-AutoModel
    components/models/deepseek_v3/state_dict_adapter.py; NeMo RL's guide casts the checkpoint to bf16 first.
    """
    if job.kind != "training" or found.method not in FLOAT8:
        return False
    return job.adapter is None or not of_transformers(job) or Stack(job).does(nemo_automodel.DEQUANTIZES)


FLOAT8 = ("fp8", "finegrained-fp8")
"""Weights of eight-bit floating point with scales."""

SERVERS = ("vllm", "sglang")
"""Engines that take the whole of a checkpoint's quantisation from its config."""


def _restates(job: Job, found: Quantization) -> bool:
    """Whether the job's quantisation is a server's argument, which can only repeat what the checkpoint's config says.

    vLLM and SGLang refuse one that does not agree, and read the modules left out, the groups and what `modelopt` stands
    for from the config (vllm 0.24 config/model.py, sglang 0.5.12 srt/configs/model_config.py `_verify_quantization`).
    """
    served = job.kind == "inference" and job.inference is not None and job.inference.engine in SERVERS
    return served and not found.skip and found.group_size is None and not found.modules


def _runs_in_transformers(job: Job) -> bool:
    engine = job.inference.engine if job.kind == "inference" and job.inference else "transformers"
    return engine == "transformers" and of_transformers(job)


_SMALL_GROUP, _GROUP = 32, 128
_SCALE_BYTES = 2.5
"""A 16-bit scale and a 4-bit zero point a group (AutoAWQ's and compressed-tensors' packed formats)."""


def wider_perhaps(model: Model, found: Iterable[Parameter]) -> int:
    """Bytes that a served checkpoint of recurrent layers, known by its name alone, may take more.

    AutoAWQ and AutoGPTQ write none of those. llm-compressor packs in groups of 128 or of what it is told, and may leave
    recurrent mixers in 16 bits (its examples/awq/qwen3-omni-30b-a3b-instruct-example.py with groups of 32, and
    quantization_w4a16_fp4/nvfp4/qwen3.5_example.py with `re:.*linear_attn.*`).
    """
    named = stored_quantization(model) is None and model.named_quantization in UNTOLD
    if not named or not any(model.shape.recurrent_states):
        return 0
    scales = _SCALE_BYTES * (1 / _SMALL_GROUP - 1 / _GROUP)
    packed = [item for item in found if item.packed]
    return round(sum(2 * item.elements - item.raw if item.role == "ssm" else scales * item.elements for item in packed))


def _packs_experts(job: Job, model: Model, quantization: Quantization, ready: bool) -> bool:
    """Whether a method packs expert weights.

    Checkpoints quantised beforehand (GPTQ, AWQ, FP8, compressed-tensors) hold each expert's matrices packed, and
    engines load them so. What packs on loading finds nn.Linear: experts before transformers 5, whose fused tensors
    it leaves in 16 bits. vLLM packs its experts itself. Unsloth makes gpt-oss's experts nn.Linear where it packs
    (unsloth_zoo temporary_patches/gpt_oss.py `GptOssExpertsBnb4bit`).
    """
    engine = job.inference.engine if job.kind == "inference" and job.inference else "transformers"
    if engine == "vllm" or (not quantization.method.startswith("bnb") and (ready or job.kind == "inference")):
        return True
    stack = Stack(job)
    if model.model_type == "gpt_oss" and stack.does(unsloth.LINEAR_EXPERTS):
        return True
    return not stack.does(FUSED_EXPERTS, model.model_type)


def named_assumption(job: Job, model: Model) -> Assumption | None:
    """The line that says the name is the source, where it is."""
    open_ = job.weights.stored is not None
    if job.weights.quantization is not None or model.named_quantization is None or open_:
        return None
    found = effective_quantization(job, model)
    if found is None:
        return None
    note = f"its name, {model.id}, says so; there is no quantization_config to read"
    return Assumption("weights.quantization.method", found.method, note)
