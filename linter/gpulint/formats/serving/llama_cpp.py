"""llama.cpp: the flags of `llama-server`.

Facts from llama.cpp 0c1e57098, which llama-cpp-python 0.3.36 carries (common/arg.cpp, tools/server/README.md). The GGUF
file says how its weights are packed; its name is read for that, as llama.cpp's own download option names it
(`-hf repo:Q4_K_M`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..core.arguments import Arguments
from ..core.dotted_edits import Vocabulary, said_in
from ..core.format import Format, JobBuilder, Reading
from ..core.keys import key_problems, load
from ..core.model_facts import find_model
from ..core.sections import Filling
from ..core.world_size import set_hardware

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.arguments import Given
    from ..core.format import Project

NAME = "llama_cpp"
UPSTREAM = "llama.cpp of llama-cpp-python 0.3.36"

_PACKING = re.compile(r"(?<![a-z0-9])(i?q[1-8](?:_[0-9a-z]+)*|mxfp4)(?![a-z0-9])", re.IGNORECASE)
_CACHE = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "q8_0": "q8_0", "q4_0": "q4_0"}


def recognise(document: Document) -> bool:  # noqa: ARG001
    """No file of its own: its flags stand in launchers."""
    return False


def read(document: Document, project: Project) -> Reading:
    """The Job of a server; all its layers are on GPUs, as `--n-gpu-layers` has it by default."""
    builder = JobBuilder(document, UPSTREAM)
    filling, flags = Filling(builder), _options(document)
    builder.derived("kind", "inference", "a server")
    builder.derived("inference.engine", "llama.cpp", "llama-server", "kind")
    named = flags.text("hf-repo", "model", "model-url")
    if named:
        filling.put("model", named, _model(named, document, project))
    else:
        builder.assumed("model", None, "no flag names a model")
    file = flags.text("hf-file") or named
    packing = _PACKING.search(file.value.rpartition("/")[2]) if file else None
    if file and packing:
        filling.put("weights.quantization.method", file, f"gguf-{packing[1].lower()}", "as the file is called")
    set_hardware(builder, project, None, sharded=False)
    _spread(builder, flags, project)
    filling.fill("inference.max_num_seqs", flags.integer("parallel", least=1), None, "as many as it finds room for")
    length = flags.integer("ctx-size", least=1)
    filling.fill("inference.max_model_len", length, None, "ctx-size 0: the model's maximum")
    filling.fill("inference.max_num_batched_tokens", flags.integer("batch-size", least=1), 2048)
    cache = flags.text("cache-type-k")
    value = cache._replace(value=_CACHE.get(cache.value, cache.value)) if cache else None
    filling.fill("inference.kv_cache_dtype", value, "float16")
    spelled = {str(key) for key in document.root.keys() if str(key).replace("_", "-") in load(NAME)["properties"]}  # noqa: SIM118
    reading = Reading(NAME, UPSTREAM, document, builder.job)
    reading.problems = key_problems(document, NAME, known=spelled)
    return reading


def _spread(builder: JobBuilder, flags: Arguments, project: Project) -> None:
    """Layers are split over all GPUs that the server sees (`--split-mode layer`), unless one is to hold them all."""
    mode = flags.text("split-mode")
    alone = mode is not None and mode.value == "none"
    if project.gpus is None and project.asked and not alone:
        builder.derived("hardware.gpus", project.asked, "the GPUs that it sees")
    gpus = 1 if alone else builder.job.hardware.gpus or 1
    builder.default("parallelism.tensor", 1)
    if gpus > 1:
        builder.derived("parallelism.pipeline", gpus, "layers are split over the GPUs that it sees", "hardware.gpus")
    else:
        builder.default("parallelism.pipeline", 1)


def _options(document: Document) -> Arguments:
    """The flags, each under the name that stands for all its spellings, too."""
    flags, known = Arguments(document.root, dashes=True), load(NAME)["properties"]
    for name, entry in list(flags.entries.items()):
        option = known.get(name.replace("_", "-"), {}).get("x-option")
        if option:
            flags.entries[option.replace("-", "_")] = entry
    return flags


def _model(named: Given, document: Document, project: Project) -> str:
    """The repository whose weights a GGUF repository holds, where that is known; else what the flag says."""
    repository = str(named.value).partition(":")[0] if named.key.endswith("repo") else str(named.value)
    whole = re.sub(r"-gguf$", "", repository, flags=re.IGNORECASE)
    return whole if find_model(whole, document.path, project.root) is not None else repository


def _cache(_reading: Reading, value: str) -> dict[str, str] | None:
    """8-bit caches are integers here; both halves are said apart."""
    word = {"fp8": "q8_0", "int8": "q8_0", "float16": "f16"}.get(value)
    return {"cache-type-k": word, "cache-type-v": word} if word else None


VOCABULARY = Vocabulary(
    {
        "inference.max_model_len": "ctx-size",
        "inference.max_num_seqs": "parallel",
        "inference.max_num_batched_tokens": "batch-size",
    },
    {"inference.kv_cache_dtype": _cache},
)

describe, edits = said_in(VOCABULARY)


FORMAT = Format(
    NAME,
    "llama-server flags",
    UPSTREAM,
    recognise,
    read,
    describe,
    edits,
    "not in the flags: all that it sees",
    serves=True,
)
