"""vLLM's recipes as gpulint reads them: each variant as the recipes' page starts it on a verified card.

The recipe's least version of vLLM says nothing of the one it was tried with; the page starts the newest image.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from gpulint.job.job import Quantization
from gpulint.launchers.reading import open_jobs, recognise_file
from gpulint.models.model import UnknownModel
from gpulint.models.resolve import resolve
from gpulint.settings.settings import Settings

from .case import SHARED, Case, Inexpressible, Row

if TYPE_CHECKING:
    from gpulint.job.job import Job
    from gpulint.models.model import Model

GROUP = "vllm recipes"
PACKED = {
    "fp8": Quantization("fp8", 8),
    "mxfp8": Quantization("fp8", 8, group_size=32),
    "nvfp4": Quantization("nvfp4", 4),
    "fp4": Quantization("nvfp4", 4),
    "int4": Quantization("gptq", 4, group_size=128),
}
"""What a variant's precision means where the catalogue has no quantization_config for its checkpoint."""


def case(row: Row) -> Case:
    """One variant of a recipe."""
    given = row["key_fields"]
    if not given["strategies"]:
        raise Inexpressible("not a language model served by vLLM alone")
    try:
        model = resolve(given["model_id"])
    except UnknownModel:
        raise Inexpressible("the model's config.json is not in the catalogue") from None
    job = servers(row["corpus_path"]).get(f"variant {given['variant']}")
    if job is None:
        raise Inexpressible("not a language model served by vLLM alone")
    if job.hardware.gpu is None:
        raise Inexpressible("no verified card is in the catalogue by that name, or the recipe has no split over it")
    precision = given["precision"].lower()
    if precision in PACKED and not job.weights.quantization and _unstated(model, PACKED[precision]):
        job.weights.quantization = PACKED[precision]
    return Case(row["id"], GROUP, job, "process", None, row["outcome"], bool(row["strict"]), row["confidence"])


@cache
def servers(path: str) -> dict[str, Job]:
    """The Jobs of a recipe of the corpus, by variant."""
    found = open_jobs(recognise_file(str(SHARED / "corpus" / path)), Settings())
    return {opened.part: opened.reading.job for opened in found.opened}


def _unstated(model: Model, packed: Quantization) -> bool:
    """Whether the catalogue's config lacks the variant's quantisation, or has that of a wider checkpoint."""
    stated = model.config.get("quantization_config")
    return stated is None or (stated.get("quant_method") == "fp8" and packed.bits == 4)
