"""Container images: the program that one starts, the device it is made for."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from ...repository.images import name_of, named_after
from ...source.tables import read_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..shell.words import Word


def entrypoint(image: str) -> list[str]:
    """The program that an image starts by itself, as far as `images.json` knows it; empty otherwise."""
    name = name_of(image)
    for row in _rows("images"):
        ends = any(name == end or name.endswith("/" + end) for end in row["ends"])
        if row.get("tag", "") not in image.removeprefix(name).partition("@")[0]:
            continue
        if ends or any(part in name for part in row.get("holds", ())):
            command: list[str] = row["command"]
            return command
    return []


_VLLM_FLAGS = frozenset(
    {
        "tensor-parallel-size", "max-model-len", "gpu-memory-utilization", "max-num-seqs", "max-num-batched-tokens",
        "kv-cache-dtype", "enable-prefix-caching", "enforce-eager", "enable-lora", "served-model-name", "swap-space",
        "pipeline-parallel-size", "tool-call-parser", "enable-auto-tool-choice", "enable-expert-parallel",
        "data-parallel-size", "max-lora-rank", "enable-chunked-prefill", "limit-mm-per-prompt", "trust-remote-code",
    }
)  # fmt: skip
_SGLANG_FLAGS = frozenset(
    {
        "tp", "tp-size", "tensor-parallel-size", "mem-fraction-static", "context-length", "chunked-prefill-size", "dp",
        "max-running-requests", "attention-backend", "served-model-name", "dp-size", "schedule-policy",
    }
)  # fmt: skip
_TGI_FLAGS = frozenset(
    {"num-shard", "sharded", "max-total-tokens", "max-input-length", "max-input-tokens", "max-batch-prefill-tokens"}
)
_LLAMA_FLAGS = frozenset({"ngl", "n-gpu-layers", "gpu-layers", "c", "ctx-size", "np", "parallel", "fa", "flash-attn"})

_TOLD = (
    ("model", _VLLM_FLAGS, ("vllm", "serve")),
    ("model-path", _SGLANG_FLAGS, ("python3", "-m", "sglang.launch_server")),
    ("model-id", _TGI_FLAGS, ("text-generation-launcher",)),
    *((name, _LLAMA_FLAGS, ("llama-server",)) for name in ("hf-repo", "hf", "m")),
)
"""The flag for the model, others of which one must stand beside it, and the server that takes both."""

_NAMED = {"vllm": "model", "sglang": "model-path", "tgi": "model-id"}
"""Words of an image's name that tell the server where its flag for the model is there."""

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(?<!\.py)(?<!\.sh)")


def names_model(word: str) -> bool:
    """Whether a word has the form of a hub id, ORG/NAME, and is no script."""
    return _HUB_ID.fullmatch(word) is not None


def program_of(image: str, words: Sequence[Word], *, guess: bool = True) -> tuple[str, ...]:
    """The program in front of the arguments of an image: its entrypoint, else, where one may `guess`, the server whose
    flags they are; empty where they begin with a program of their own or tell none.

    The same for `docker run`, a service of compose, and a container of a pod.
    """
    known = tuple(entrypoint(image))
    if known or not words or not image or not guess or not words[0].at:
        return known
    return _called(words, name_of(image).rpartition("/")[2].lower())


def _called(words: Sequence[Word], name: str) -> tuple[str, ...]:
    flags = {word.text.lstrip("-").partition("=")[0].replace("_", "-") for word in words if word.text.startswith("-")}
    first = words[0].text
    if first == "serve":
        return ("vllm",) if not flags.isdisjoint(_VLLM_FLAGS) else ()
    if names_model(first) and not flags.isdisjoint(_VLLM_FLAGS):
        return ("vllm", "serve")
    if not first.startswith("-"):
        return ()
    for model, others, program in _TOLD:
        said = any(word in re.split(r"[^a-z]+", name) for word, flag in _NAMED.items() if flag == model)
        if model in flags and (said or not flags.isdisjoint(others)):
            return program
    return ()


def upstream(image: str) -> bool:
    """Whether an image is a program's own, as far as `images.json` knows it; others may be built from any fork."""
    return bool(entrypoint(image)) or named_after(image)


def why_alone(image: str) -> str:
    """Why an image that is given no command is no job: "" where `images.json` does not know it."""
    name = name_of(image)
    return next((str(row["reason"]) for row in _rows("alone") if re.search(row["image"], name)), "")


def elsewhere(image: str) -> str:
    """The device that an image is made for, where that is no GPU: `opea/vllm-gaudi:1.22.0` -> Intel Gaudi; else ""."""
    name = image.partition("@")[0].lower()
    return next((row["device"] for row in _rows("devices") if re.search(row["image"], name)), "")


def not_estimated(device: str) -> str:
    """Why what runs on such a device is no job."""
    return f"its servers run on {device}, which gpulint does not estimate"


@cache
def _rows(section: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = read_table(__file__, "images.json")[section]
    return rows
