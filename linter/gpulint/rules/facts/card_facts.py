"""Facts about what a job needs of its card: kernels of an engine, a number format, an image, a build of torch."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from ...repository.images import name_of
from ...source.tables import read_table
from ...upstream.behaviour import Span
from ..expression import UNKNOWN
from .facts import Facts, fact

if TYPE_CHECKING:
    from ...hardware.gpu import Gpu


@cache
def _table() -> dict[str, Any]:
    return read_table(__file__, "cards.json")


def _card(facts: Facts) -> Gpu | None:
    """The GPU, if it is one with a CUDA compute capability."""
    return facts.gpu if facts.gpu is not None and facts.gpu.compute_capability is not None else None


def _engine(facts: Facts) -> str:
    """The engine of a server, also of one that is read no further than its command."""
    job = facts.job
    if job.kind == "inference" and job.inference is not None:
        return job.inference.engine
    told = facts.get("launch.demands.engine")
    return told if isinstance(told, str) else ""


@fact("card.engine")
def _of_engine(facts: Facts) -> Any:
    """Why the engine does not start on the card at all; null if it does."""
    gpu, row = _card(facts), _table()["engines"].get(_engine(facts))
    if gpu is None or row is None or (gpu.compute_capability or 0) >= row[1]:
        return None
    title, least = row
    return f"{title} needs compute capability {least}, and the {gpu.title} has {gpu.compute_capability}"


def _takes_checkpoints_dtype(facts: Facts) -> dict[str, Any] | None:
    """What the engine says of bfloat16, where nothing states another dtype; None for engines that look after it."""
    row: dict[str, Any] | None = _table()["bfloat16"].get(_engine(facts))
    gpu = _card(facts)
    if row is None or gpu is None or (gpu.compute_capability or 0) >= row["least"]:
        return None
    key, value = row.get("backend", ("", ""))
    if key and facts.get(f"config.{key}") != value:
        return None
    return row if "until" not in row or _before(facts, row["until"]) else None


def _before(facts: Facts, until: str) -> bool:
    """Whether a release of the engine before another is stated, and leaves the dtype to the checkpoint."""
    release = _stated(facts, _engine(facts))
    return release is not None and Span(until=until).at(release) and facts.get("origin.weights.dtype") != "file"


@fact("card.bfloat16")
def _bfloat16(facts: Facts) -> Any:
    """Why a server that runs in bfloat16 fails on the card; null if it does not, or looks after it."""
    row, gpu = _takes_checkpoints_dtype(facts), _card(facts)
    if row is None or gpu is None or _dtype(facts) != "bfloat16":
        return None
    if "until" in row:
        return (
            f"{row['title']} before {row['until']} takes the checkpoint's bfloat16, which needs compute capability "
            f"{row['least']}; the {gpu.title} has {gpu.compute_capability}, and the server stops at start"
        )
    return (
        f"the Triton kernels of {row['title']} need compute capability {row['least']} for bfloat16, and the "
        f"{gpu.title} has {gpu.compute_capability}: they do not compile, at start or at the first request"
    )


@fact("card.bfloat16.open")
def _bfloat16_open(facts: Facts) -> Any:
    """The same where the checkpoint decides about the dtype and is not known; null otherwise."""
    row, gpu = _takes_checkpoints_dtype(facts), _card(facts)
    if row is None or gpu is None or _dtype(facts):
        return None
    return (
        f"{row['title']} takes the checkpoint's own dtype; if that is bfloat16, its Triton kernels do not compile on "
        f"the {gpu.title} (compute capability {gpu.compute_capability}, bfloat16 needs {row['least']})"
    )


@fact("card.bfloat16.option")
def _option(facts: Facts) -> Any:
    """The option that makes such a server run in float16."""
    row = _takes_checkpoints_dtype(facts)
    return UNKNOWN if row is None else row["option"]


def _dtype(facts: Facts) -> str:
    """The dtype that a server runs in: the stated one, else the checkpoint's; "" where it is not known."""
    told = facts.get("launch.demands.dtype")
    if isinstance(told, str):
        return told
    stated = facts.job.weights.dtype
    if facts.get("origin.weights.dtype") == "file" and isinstance(stated, str):
        return stated
    found = facts.get("model.config_dtype")
    return found if isinstance(found, str) else ""


@fact("card.image")
def _image(facts: Facts) -> Any:
    """Why the kernels of the container image do not run on the card; null if they do."""
    gpu, image = _card(facts), facts.get("launch.container.image")
    if gpu is None or not isinstance(image, str):
        return None
    row = _table()["images"].get(name_of(image).rpartition("/")[2])
    if row is None:
        return None
    tag = image.partition("@")[0][len(name_of(image)) + 1 :]
    built = next(need for start, need in row["tags"].items() if re.match(rf"{start}(-|$)", tag) or not start)
    if built is None or _runs(built, gpu.compute_capability or 0):
        return None
    return (
        f"the image {image.rpartition('/')[2]} holds kernels for compute capability {built} only, and the "
        f"{gpu.title} has {gpu.compute_capability}: {row['title']} stops at start"
    )


def _runs(built: float, card: float) -> bool:
    """Whether compiled kernels run: on the same major number and no lower minor one (CUDA binary compatibility)."""
    return int(built) == int(card) and card >= built


@fact("card.image.tag")
def _tag(facts: Facts) -> Any:
    """How the tags of such an image begin that are built for the card."""
    gpu, image = _card(facts), facts.get("launch.container.image")
    row = _table()["images"].get(name_of(image).rpartition("/")[2]) if isinstance(image, str) else None
    return UNKNOWN if gpu is None or row is None else row["prefixes"].get(str(gpu.compute_capability), UNKNOWN)


def _stated(facts: Facts, package: str) -> str | None:
    """The release that a file, a launcher or the run states; not one that a tool or an operator usually brings."""
    origin, pin = facts.job.origins.get(f"versions.{package}"), facts.project.pins.get(package)
    if origin is None or origin.kind in ("default", "assumed") or (pin is not None and not pin.path):
        return None
    return facts.job.versions.get(package)


@fact("card.release")
def _release(facts: Facts) -> Any:
    """Why the wheels of a stated release hold no kernels for the card; null if they do."""
    gpu = _card(facts)
    if gpu is None:
        return None
    card = gpu.compute_capability or 0
    for package, row in _table()["packages"].items():
        release = _stated(facts, package)
        if not release:
            continue
        without = f"{row['title']} {release} has no kernels for the {gpu.title} (compute capability {card})"
        for need, first in row["first"]:
            if card >= need and Span(until=first).at(release):
                return f"{without}; its first release with them is {first}"
        for least, since in row["dropped"]:
            if card < least and Span(since=since).at(release) and "+" not in release:
                return f"{without} any more: its default wheels begin at {least} from {since} on"
    return None


@fact("card.cache")
def _cache(facts: Facts) -> Any:
    """Why the kernels of the engine cannot read a KV cache of that dtype on the card; null if they can."""
    gpu, job = _card(facts), facts.job
    if gpu is None or job.inference is None or job.kind != "inference":
        return None
    dtype, card, engine = job.inference.kv_cache_dtype, gpu.compute_capability or 0, job.inference.engine
    if dtype not in ("fp8", "fp8_e4m3") or card >= E4M3:
        return None
    flashes = card >= FLASHINFER
    if engine == "vllm" and not flashes and Span(since=ONE_ENGINE).at(job.versions.get("vllm")):
        by = "vLLM's Triton attention, the only one that runs there,"
    elif engine == "sglang" and _attention(facts) == "triton":
        by = "SGLang's Triton attention"
    else:
        return None
    return (
        f"{by} compiles float8 e4m3 from compute capability {E4M3} on, and the {gpu.title} has {card}: the server "
        'stops with "type fp8e4nv not supported in this architecture"'
    )


E4M3 = 8.9
"""The lowest capability for which Triton compiles e4m3 (`fp8e4nv`); e5m2 needs less."""

FLASHINFER = 7.5
"""The lowest capability of FlashInfer, which converts float8 itself."""

ONE_ENGINE = "0.11.0"
"""vLLM's first release without V0, whose kernels converted float8 on older cards."""


def _attention(facts: Facts) -> Any:
    found = facts.get("config.attention-backend")
    return found if isinstance(found, str) else facts.get("config.attention_backend")
