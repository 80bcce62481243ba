"""fitcheck-llm (PyPI), run offline: the closest flags that its command line has for a job.

`--precision` is the dtype that the model computes in; `--optimizer-dtype` is bf16 where Adam's states take the dtype
of 16-bit weights; `--flash-attn` is any attention that does not keep its scores. The model's parameters are told to
it as the Hub would report them, so that it refuses what it refuses online. Without a GPU it is asked for 80 GiB.
Its tensors without overhead are compared with `allocated`, its total without the context with `reserved`, its total
with `process`. It has no words for several GPUs, mixtures of experts, other losses and other optimizers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .question import BYTES, Unsaid
from .recorded import label, look_up

if TYPE_CHECKING:
    from .question import Question

MIB = 1 << 20
NO_GPU = 80 << 10
OPTIMIZERS = {
    **dict.fromkeys(("adamw_torch", "adamw_torch_fused", "adamw_hf", "paged_adamw_32bit", "paged_adamw"), "adamw"),
    **dict.fromkeys(("adamw_8bit", "adamw_bnb_8bit", "adamw_torch_8bit", "paged_adamw_8bit"), "adam8bit"),
    "sgd": "sgd",
}
PRECISIONS = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
QUANTISATIONS = {"bnb-nf4": "nf4", "bnb-fp4": "nf4", "bnb-int8": "int8"}
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
GPUS = {
    "t4": "t4", "l4": "l4", "a10": "a10", "l40": "l40", "l40s": "l40s", "rtx-a6000": "a6000", "rtx-4090": "4090",
    "rtx-3090": "3090", "rtx-5090": "5090", "a100-40gb": "a100-40", "a100-80gb": "a100-80", "h100-80gb": "h100",
    "h200-141gb": "h200", "v100-16gb": "v100-16",
}  # fmt: skip
"""Catalogue name -> fitcheck's own; others are given by their memory."""


def answer(q: Question) -> float:
    """Bytes of the question's counter. Raises Unsaid."""
    return look_up("fitcheck-llm", request(q)["key"])[q.counter] * MIB


def request(q: Question) -> dict[str, Any]:
    """What is asked, and the key that the answer is recorded under. Raises Unsaid."""
    q.whole_model()
    q.need(q.job.world_size == 1, "several GPUs")
    fields = _serving(q) if q.job.kind == "inference" else _training(q)
    model = label(q.model)
    gpu = GPUS.get(q.gpu.name) if q.gpu else None
    memory = q.gpu.total // MIB if q.gpu else NO_GPU
    shown = " ".join(f"{name}={','.join(v) if isinstance(v, list) else v}" for name, v in fields.items())
    return {
        "tool": "fitcheck-llm",
        "key": f"{model} {q.job.kind} {gpu or f'{memory}MiB'} {shown}",
        "kind": q.job.kind,
        "model": model,
        "config": q.model.config,
        "parameters": q.parameters,
        "gpu": gpu,
        "memory": memory,
        "fields": fields,
    }


def _quantization(q: Question) -> dict[str, Any]:
    packed = q.job.weights.quantization
    if packed is None:
        return {"quantization": "none", "double_quant": False}
    q.need(packed.method in QUANTISATIONS, f"{packed.method} weights")
    method = QUANTISATIONS[packed.method]
    return {"quantization": method, "double_quant": packed.double_quant and method == "nf4"}


def _precision(q: Question) -> str:
    q.need(q.computed in PRECISIONS, f"weights in {q.computed}")
    return PRECISIONS[q.computed]


def _serving(q: Question) -> dict[str, Any]:
    given = q.job.inference
    if given is None or given.engine != "transformers":
        raise Unsaid("an inference engine")
    q.need(bool(given.batch_size and given.prompt_length), "no batch or length")
    return {
        "precision": _precision(q),
        **_quantization(q),
        "seq_len": (given.prompt_length or 0) + (given.new_tokens or 0),
        "num_concurrent": given.batch_size,
    }


def _training(q: Question) -> dict[str, Any]:
    job = q.job
    q.need(job.optimizer.name in OPTIMIZERS, f"optimizer {job.optimizer.name}")
    q.need(job.loss.kernel == "torch", f"loss {job.loss.kernel}")
    q.need(job.activation_checkpointing in ("none", "full"), f"checkpointing {job.activation_checkpointing}")
    q.need(job.objective in ("sft", "pretrain"), f"objective {job.objective}")
    q.need(bool(job.micro_batch_size and job.sequence_length), "no batch or length")
    rank, targets = _adapter(q)
    narrow = job.method == "full" and BYTES.get(q.stored) == 2 and not job.precision.master_weights
    return {
        "precision": _precision(q),
        **_quantization(q),
        "optimizer": OPTIMIZERS[job.optimizer.name],
        "optimizer_dtype": "bf16" if narrow and OPTIMIZERS[job.optimizer.name] == "adamw" else "fp32",
        "batch_size": job.micro_batch_size,
        "seq_len": job.sequence_length,
        "lora_rank": rank,
        "lora_targets": targets,
        "grad_checkpoint": job.activation_checkpointing == "full",
        "flash_attn": job.attention != "eager",
    }


def _adapter(q: Question) -> tuple[int | None, list[str]]:
    if q.job.method == "full":
        q.full_training()
        return None, list(TARGETS)
    given = q.job.adapter
    if q.job.method != "lora" or given is None or given.type != "lora":
        raise Unsaid(f"method {q.job.method} {given.type if given else ''}".strip())
    plain = not (given.modules_to_save or given.layers or given.rank_pattern)
    q.need(plain, "an adapter with parts of its own")
    targets = list(TARGETS) if given.targets == "all-linear" else given.targets
    if not isinstance(targets, list):
        raise Unsaid("targets by a pattern")
    q.need(bool(targets) and set(targets) <= set(TARGETS), f"targets {targets}")
    return given.r, sorted(set(targets), key=TARGETS.index)
