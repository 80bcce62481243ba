"""llama.cpp: the flags of `llama-server`.

Facts from llama.cpp 0c1e57098, which llama-cpp-python 0.3.36 carries (common/arg.cpp, tools/server/README.md). The GGUF
file says how its weights are packed; its name is read for that, as llama.cpp's own download option names it
(`-hf repo:Q4_K_M`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..core.arguments import Arguments
from ..core.bindings.kinds import POSITIVE, TEXT
from ..core.bindings.reader import Reader
from ..core.bindings.rows import NEVER, Default, Derived, Fixed, Key, Table
from ..core.bindings.spelling import AMP, FLOAT8, dtype
from ..core.format import Format, Reading
from ..core.keys import key_problems, load
from ..core.model_facts import find_model
from ..core.world_size import set_hardware

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.arguments import Given
    from ..core.format import Project
    from ..core.key_changes import Keys

NAME = "llama_cpp"
UPSTREAM = "llama.cpp of llama-cpp-python 0.3.36"

_PACKING = re.compile(r"(?<![a-z0-9])(i?q[1-8](?:_[0-9a-z]+)*|mxfp4)(?![a-z0-9])", re.IGNORECASE)


def read(document: Document, project: Project) -> Reading:
    """The Job of a server; all its layers are on GPUs, as `--n-gpu-layers` has it by default."""
    reader = Reader(document, project, NAME, UPSTREAM, keys=_options(document))
    reader.bind(TABLE.rows)
    names = [entry.key.value for entry in document.root.entries()]
    spelled = {str(name) for name in names if str(name).replace("_", "-") in load(NAME)["properties"]}
    reader.reading.problems = key_problems(document, NAME, known=spelled)
    return reader.reading


def _set_model(reader: Reader) -> None:
    named = reader.given(TEXT, "hf-repo", "model", "model-url")
    if named is None:
        reader.assumed("model", None, "no flag names a model")
    else:
        reader.set("model", named, _model(named, reader))
    file = reader.given(TEXT, "hf-file") or named
    packing = _PACKING.search(file.value.rpartition("/")[2]) if file else None
    if packing:
        reader.set("weights.quantization.method", file, f"gguf-{packing[1].lower()}", "as the file is called")


def _model(named: Given, reader: Reader) -> str:
    """The repository whose weights a GGUF repository holds, where that is known; else what the flag says."""
    repository = str(named.value).partition(":")[0] if named.key.endswith("repo") else str(named.value)
    whole = re.sub(r"-gguf$", "", repository, flags=re.IGNORECASE)
    return whole if find_model(whole, reader.document.path, reader.project.root) is not None else repository


def _set_gpus(reader: Reader) -> None:
    """Layers are split over all GPUs that the server sees (`--split-mode layer`), unless one is to hold them all."""
    project, alone = reader.project, reader.value(TEXT, "split-mode") == "none"
    set_hardware(reader, project, None, sharded=False)
    if project.gpus is None and project.asked and not alone:
        reader.derived("hardware.gpus", project.asked, "the GPUs that it sees")
    gpus = 1 if alone else reader.job.hardware.gpus or 1
    if gpus > 1:
        reader.derived("parallelism.pipeline", gpus, "layers are split over the GPUs that it sees", "hardware.gpus")


def _options(document: Document) -> Arguments:
    """The flags, each under the name that stands for all its spellings, too."""
    flags, known = Arguments(document.root, dashes=True), load(NAME)["properties"]
    for name, entry in list(flags.entries.items()):
        option = known.get(name.replace("_", "-"), {}).get("x-option")
        if option:
            flags.entries[option.replace("-", "_")] = entry
    return flags


def _cache(_reading: Reading, value: str) -> Keys | None:
    """8-bit caches are integers here; both halves are said apart."""
    word = {"fp8": "q8_0", "int8": "q8_0", "float16": "f16"}.get(value)
    return {"cache-type-k": word, "cache-type-v": word} if word else None


TABLE = Table(
    (
        Fixed("kind", Derived("inference", "a server")),
        Fixed("inference.engine", Derived("llama.cpp", "llama-server", "kind")),
        _set_model,
        _set_gpus,
        Fixed("parallelism.tensor", 1),
        Fixed("parallelism.pipeline", 1),
        Key("inference.max_num_seqs", "parallel", POSITIVE, Default(None, "as many as it finds room for")),
        Key("inference.max_model_len", "ctx-size", POSITIVE, Default(None, "ctx-size 0: the model's maximum")),
        Key("inference.max_num_batched_tokens", "batch-size", POSITIVE, 2048),
        Key(
            "inference.kv_cache_dtype", "cache-type-k", dtype(refuses=AMP | FLOAT8), "float16", back=NEVER,
            other=lambda word: word,
        ),
    ),
    says={"inference.kv_cache_dtype": _cache},
)  # fmt: skip

FORMAT = Format.of_table(
    NAME, "llama-server flags", UPSTREAM, read, TABLE, "not in the flags: all that it sees", serves=True
)
