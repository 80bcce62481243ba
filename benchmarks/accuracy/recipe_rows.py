"""vLLM's recipes as files of `vllm serve`: a checkpoint, its arguments, and the cards that its authors verified.

A recipe states the memory it needs over all GPUs. Where it fixes no tensor parallel size it runs on the smallest power
of two of cards that have so much together; the first verified card of the catalogue is taken.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import yaml

from gpulint.hardware.catalogue import UnknownGpu, find
from gpulint.job import Quantization
from gpulint.models.model import UnknownModel
from gpulint.models.resolve import resolve

from .case import SHARED, Case, Inexpressible, Row
from .config_rows import read_text

if TYPE_CHECKING:
    from gpulint.hardware.gpu import Gpu
    from gpulint.models.model import Model

GROUP = "vllm recipes"
GB = 10**9
PACKED = {
    "fp8": Quantization("fp8", 8),
    "mxfp8": Quantization("fp8", 8, group_size=32),
    "nvfp4": Quantization("nvfp4", 4),
    "fp4": Quantization("nvfp4", 4),
    "int4": Quantization("gptq", 4, group_size=128),
}
"""What a variant's precision means where the catalogue has no quantization_config for its checkpoint."""

NOT_NVIDIA = ("mi", "arc", "xeon", "ironwood", "dgx_spark", "tpu")


def case(row: Row) -> Case:
    """One variant of a recipe."""
    given = row["key_fields"]
    arguments = [*(given["base_args"] or []), *(given["extra_args"] or [])]
    if "--omni" in arguments or not given["strategies"]:
        raise Inexpressible("not a language model served by vLLM alone")
    try:
        model = resolve(given["model_id"])
    except UnknownModel:
        raise Inexpressible("the model's config.json is not in the catalogue") from None
    gpu = card(row["gpu"])
    count = tensor_parallel(row, gpu)
    text = config_text(given["model_id"], arguments, count)
    job = read_text(text, "vllm", gpu.name, count)
    precision = given["precision"].lower()
    if precision in PACKED and not job.weights.quantization and _unstated(model, PACKED[precision]):
        job.weights.quantization = PACKED[precision]
    assert job.inference is not None
    job.inference.version = version(row)
    if "--gpu-memory-utilization" not in arguments:
        job.inference.gpu_memory_utilization = None
    return Case(row["id"], GROUP, job, "process", None, row["outcome"], bool(row["strict"]), row["confidence"])


def _unstated(model: Model, packed: Quantization) -> bool:
    """Whether the catalogue's config lacks the variant's quantisation, or has that of a wider checkpoint."""
    stated = model.config.get("quantization_config")
    return stated is None or (stated.get("quant_method") == "fp8" and packed.bits == 4)


def card(text: str) -> Gpu:
    """The first verified card that the catalogue knows by one name."""
    for part in text.split(";"):
        name, _, state = part.strip().partition(":")
        if state != "verified" or name.startswith(NOT_NVIDIA):
            continue
        try:
            return find(name.replace("_", "-"))
        except UnknownGpu:
            continue
    raise Inexpressible("no verified card is in the catalogue by that name")


def tensor_parallel(row: Row, gpu: Gpu) -> int:
    """Stated, or the smallest power of two of cards with the memory that the recipe needs."""
    given = row["key_fields"]
    arguments = [*(given["base_args"] or []), *(given["extra_args"] or [])]
    if "--tensor-parallel-size" in arguments:
        return int(arguments[arguments.index("--tensor-parallel-size") + 1])
    stated = (given["strategy_overrides"] or {}).get("single_node_tp", {}).get("tp")
    if stated:
        return int(stated)
    count = 1
    while count * nominal_gb(gpu) < row["vram_minimum_gb"]:
        count *= 2
    if count > 8:
        raise Inexpressible("several nodes: the recipe does not say how the model is split over them")
    return count


def nominal_gb(gpu: Gpu) -> int:
    """The size by which the card is sold, which is what recipes add up: 141 for h200-141gb."""
    stated = re.search(r"-(\d+)gb$", gpu.name)
    return int(stated[1]) if stated else gpu.total // GB


def config_text(model: str, arguments: list[str], count: int) -> str:
    """The file that says the same as the command line."""
    keys: dict[str, object] = {"model": model}
    name = ""
    for word in [*arguments, "--"]:
        text = str(word)
        if text.startswith("--"):
            if name:
                keys.setdefault(name, True)
            name, _, value = text.removeprefix("--").partition("=")
            if value:
                keys[name], name = value, ""
        else:
            keys[name], name = yaml.safe_load(text) if not text.startswith("{") else json.loads(text), ""
    keys.pop("", None)
    keys["tensor-parallel-size"] = count
    return yaml.safe_dump(keys, sort_keys=False)


def version(row: Row) -> str | None:
    """The least vLLM that the recipe asks for."""
    recipe = yaml.safe_load((SHARED / "corpus" / row["corpus_path"]).read_text(encoding="utf-8"))
    stated = recipe["model"].get("min_vllm_version")
    return str(stated) if stated and str(stated)[0].isdigit() else None
