"""Job changes in the words of NeMo Automodel recipes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.dotted_edits import Vocabulary, said_in

if TYPE_CHECKING:
    from ..core.format import Reading
    from ..core.key_changes import Keys

_PEFT = "nemo_automodel.components._peft.lora.PeftConfig"
_FUSED = "nemo_automodel.components.loss.linear_ce.FusedLinearCrossEntropy"
_MASKED = "nemo_automodel.components.loss.masked_ce.MaskedCrossEntropy"
_OFFLOAD = "torch.distributed.fsdp.CPUOffloadPolicy"


def _checkpointing(_reading: Reading, value: str) -> Keys | None:
    words: dict[str, Any] = {"full": True, "none": False, "selective": "selective"}
    return {"distributed.activation_checkpointing": words[value]} if value in words else None


def _length(reading: Reading, value: int) -> Keys | None:
    """The key that bounds rows in this file; a recipe without one has none that all data sets take."""
    origin = reading.job.origins.get("sequence_length")
    return {origin.key: value} if origin is not None and origin.kind == "file" and origin.key else None


def _batch(reading: Reading, value: int) -> Keys | None:
    pipelined = reading.job.parallelism.pipeline > 1
    key = "distributed.pipeline.pp_microbatch_size" if pipelined else "step_scheduler.local_batch_size"
    return {key: value}


def _method(reading: Reading, value: str) -> Keys | None:
    if value == "full":
        return {"peft": None, "quantization": None}
    if value != "lora" or reading.job.method == "lora":
        return {} if value == "lora" else None
    return {"peft": {"_target_": _PEFT, "match_all_linear": True, "dim": 16, "alpha": 32}}


def _quantization(_reading: Reading, value: str | None) -> Keys | None:
    if value is None:
        return {"quantization": None}
    if value not in ("bnb-nf4", "bnb-int8"):
        return None
    return {"quantization": {"load_in_4bit": True} if value == "bnb-nf4" else {"load_in_8bit": True}}


def _loss(reading: Reading, value: str) -> Keys | None:
    """The fused loss needs a model that can leave its logits out, which pipelines cannot."""
    if value in ("cut_cross_entropy", "liger") and reading.job.parallelism.pipeline == 1:
        return {"loss_fn._target_": _FUSED, "loss_fn.fp32_upcast": None}
    return {"loss_fn._target_": _MASKED} if value == "torch" else None


def _offload(_reading: Reading, value: bool) -> Keys | None:
    return {"distributed.offload_policy": {"_target_": _OFFLOAD} if value else None}


def _attention(reading: Reading, value: str) -> Keys | None:
    if reading.config.root.find("model.backend.attn") is not None or value not in ("sdpa", "flash_attention_2"):
        return None
    return {"model.attn_implementation": value}


def _evaluation(reading: Reading, value: int) -> Keys | None:
    return {"validation_dataloader.batch_size": value} if reading.job.evaluation.micro_batch_size else None


VOCABULARY = Vocabulary(
    {
        "weights.dtype": "model.torch_dtype",
        "adapter.r": "peft.dim",
        "parallelism.tensor": "distributed.tp_size",
        "parallelism.context": "distributed.cp_size",
        "parallelism.expert": "distributed.ep_size",
        "parallelism.sequence": "distributed.sequence_parallel",
        "parallelism.fsdp.reshard_after_forward": "distributed.reshard_after_forward",
    },
    {
        "activation_checkpointing": _checkpointing,
        "sequence_length": _length,
        "micro_batch_size": _batch,
        "method": _method,
        "weights.quantization.method": _quantization,
        "loss.kernel": _loss,
        "parallelism.fsdp.offload": _offload,
        "attention": _attention,
        "evaluation.micro_batch_size": _evaluation,
    },
    total="step_scheduler.global_batch_size",
)


describe, edits = said_in(VOCABULARY)
