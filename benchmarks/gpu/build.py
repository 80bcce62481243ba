"""Models with random weights, their adapters and optimizers, as the Trainer and PEFT would set them up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .grid import RANK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .grid import Point

STD = 0.02


def model(point: Point, config: dict[str, Any], device: str) -> Any:
    """The model on the device, in the dtype of its weights; quantised and with an adapter where the point says so."""
    from transformers import AutoConfig, AutoModelForCausalLM

    fields = {key: value for key, value in config.items() if key != "model_type"}
    built = AutoConfig.for_model(config["model_type"], **fields)
    dtype = getattr(torch, point.weights)
    with torch.device(device):
        made = AutoModelForCausalLM.from_config(built, dtype=dtype, attn_implementation=point.attention)
    made.to(device)
    if point.method == "qlora":
        quantise(made, device)
    if point.checkpointing == "full":
        made.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return with_adapter(made, point) if point.method in ("lora", "qlora") else made


def quantise(made: Any, device: str) -> None:
    """NF4 with double quantisation in place of every Linear but the head, as bitsandbytes' integration does."""
    import bitsandbytes as bnb

    head = made.get_output_embeddings()
    for parent in list(made.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is not torch.nn.Linear or child is head:
                continue
            packed = bnb.nn.Linear4bit(
                child.in_features, child.out_features, child.bias is not None,
                compute_dtype=torch.bfloat16, compress_statistics=True, quant_type="nf4", device="meta",
            )  # fmt: skip
            packed.weight = bnb.nn.Params4bit(
                child.weight.data.to("cpu"), requires_grad=False, compress_statistics=True, quant_type="nf4"
            )
            if child.bias is not None:
                packed.bias = child.bias
            setattr(parent, name, packed.to(device))
    made.is_loaded_in_4bit = True
    if device != "cpu":
        torch.cuda.empty_cache()


def with_adapter(made: Any, point: Point) -> Any:
    """A LoRA adapter, over a base prepared for k-bit training where it is quantised."""
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training

    if point.method == "qlora":
        checkpointing = point.checkpointing == "full"
        made = prepare_model_for_kbit_training(
            made, checkpointing, gradient_checkpointing_kwargs={"use_reentrant": False}
        )
    targets: Any = point.targets if point.targets == "all-linear" else point.targets.split(",")
    plan = LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules=targets, task_type="CAUSAL_LM")
    return get_peft_model(made, plan)


def optimizer(name: str, trained: Iterable[Any]) -> Any:
    """The optimizer that the Transformers `optim` spelling names."""
    weights = list(trained)
    if name.startswith("adamw_torch"):
        fused = name.endswith("fused")
        return torch.optim.AdamW(weights, lr=1e-5, fused=fused or None)
    if name == "sgd":
        return torch.optim.SGD(weights, lr=1e-5)
    if name == "adafactor":
        from transformers.optimization import Adafactor

        return Adafactor(weights, lr=1e-5, scale_parameter=False, relative_step=False)
    import bitsandbytes as bnb

    kinds = {"adamw_8bit": bnb.optim.AdamW8bit, "paged_adamw_8bit": bnb.optim.PagedAdamW8bit}
    return kinds[name](weights, lr=1e-5)
