"""One point in this process: two optimizer steps or a generation, measured phase by phase."""

from __future__ import annotations

import contextlib
import importlib.metadata
from typing import TYPE_CHECKING, Any

import torch

from . import build
from .driver import nvidia_smi
from .meter import Meter

if TYPE_CHECKING:
    from .grid import Point

PACKAGES = ("torch", "transformers", "peft", "bitsandbytes")
CLIP = 1.0


def measure(point: Point, config: dict[str, Any], device: str, before: int) -> dict[str, Any]:
    """Outcome `ok` or `oom`, bytes by phase, versions and the device. `before` is what the card had in use.

    torch keeps what it reserved, so nvidia-smi at the end shows the most that the process took.
    """
    meter = Meter(device, before)
    result: dict[str, Any] = {
        "outcome": "ok",
        "phases": meter.phases,
        "versions": versions(),
        "device": describe(device),
    }
    torch.manual_seed(0)
    try:
        made = build.model(point, config, device)
        if meter.cuda:
            torch.cuda.empty_cache()
        meter.mark("load")
        (generate if point.method == "generate" else train)(point, made, device, meter)
    except torch.OutOfMemoryError as error:
        result |= {"outcome": "oom", "failed_in": str(error).splitlines()[0][:200]}
    if meter.cuda:
        result["nvidia_smi"] = nvidia_smi() - before
    return result


def train(point: Point, made: Any, device: str, meter: Meter) -> None:
    """Forward, loss, backward, clipping and optimizer step, twice, as the Trainer orders them."""
    made.train()
    made.config.use_cache = False
    trained = [weight for weight in made.parameters() if weight.requires_grad]
    step = build.optimizer(point.optimizer, trained)
    _mark_before_loss(made, meter)
    for prefix in ("", "second "):
        meter.prefix = prefix
        tokens = torch.randint(0, made.config.vocab_size, (point.batch, point.length), device=device)
        with _autocast(point, device):
            loss = made(input_ids=tokens, labels=tokens).loss
        meter.mark("loss")
        loss.backward()
        meter.mark("backward")
        torch.nn.utils.clip_grad_norm_(trained, CLIP)
        step.step()
        step.zero_grad(set_to_none=True)
        del loss, tokens
        meter.mark("optimizer_step")


def _mark_before_loss(made: Any, meter: Meter) -> None:
    """Close the forward phase where the model calls its loss function."""
    inner = made.get_base_model() if hasattr(made, "get_base_model") else made
    function = inner.loss_function

    def marked(*args: Any, **kwargs: Any) -> Any:
        meter.mark("forward")
        return function(*args, **kwargs)

    inner.loss_function = marked


def _autocast(point: Point, device: str) -> contextlib.AbstractContextManager[Any]:
    if point.autocast is None:
        return contextlib.nullcontext()
    found: contextlib.AbstractContextManager[Any] = torch.autocast(device, dtype=getattr(torch, point.autocast))
    return found


def generate(point: Point, made: Any, device: str, meter: Meter) -> None:
    """Greedy decoding of exactly `new_tokens` tokens."""
    made.eval()
    tokens = torch.randint(0, made.config.vocab_size, (point.batch, point.length), device=device)
    plan = made.generation_config
    plan.eos_token_id, plan.pad_token_id = None, 0
    with torch.no_grad():
        made.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=point.new_tokens, do_sample=False)
    meter.mark("generate")


def versions() -> dict[str, str]:
    """Installed versions of the packages that decide what is allocated."""
    found = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def describe(device: str) -> dict[str, Any]:
    """Name and bytes of the card."""
    if device == "cpu":
        return {"name": None, "total": None, "cuda": None}
    card = torch.cuda.get_device_properties(0)
    return {"name": card.name, "total": card.total_memory, "cuda": torch.version.cuda}
