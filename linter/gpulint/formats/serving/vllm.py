"""vLLM `--config` YAML: the options of `vllm serve`, spelled with dashes or underscores.

Facts from vllm 0.33.0 (`engine/arg_utils.py`, `utils/argparse_utils.py`, `config/*.py`), read statically. Defaults that
depend on the GPU or the model stay None: the engine fills them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...upstream.behaviour import still_in
from ..core.arguments import Arguments
from ..core.format import Format, JobBuilder, Problem, Reading, written_by
from ..core.keys import key_problems, load, meant, old_key
from .vllm_engine import (
    NAME,
    UPSTREAM,
    option,
    set_batches,
    set_engine,
    set_extras,
    set_model,
    set_parallelism,
    set_version,
    set_weights,
)

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.format import Project

_SIGNS = frozenset(
    {
        "tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size", "max-model-len", "max-num-seqs",
        "gpu-memory-utilization", "max-num-batched-tokens", "kv-cache-dtype", "enforce-eager", "enable-prefix-caching",
        "enable-chunked-prefill", "speculative-config", "compilation-config", "served-model-name", "enable-lora",
        "max-lora-rank", "swap-space", "cpu-offload-gb", "block-size", "enable-expert-parallel",
    }
)  # fmt: skip
"""Options that serving engines have and little else."""

_OTHERS = frozenset(
    {
        "mem-fraction-static", "disable-radix-cache", "disaggregation-mode", "chunked-prefill-size", "tp-size",
        "model-path", "cuda-graph-max-bs", "max-running-requests", "base-model", "model-name-or-path", "gpulint",
    }
)  # fmt: skip
"""Options of SGLang and keys of training configs."""

_KNOWN_SHARE = 0.6
"""At least this share of a file's keys must be options of vLLM."""


def recognise(document: Document) -> bool:
    """A flat YAML file mostly of vLLM options, one of which is an engine's own and spelled with dashes, or two."""
    root = document.root
    if document.syntax != "yaml":
        return False
    written = list(root.keys())
    keys = {option(key) for key in written}
    if keys & _OTHERS or not keys & _SIGNS:
        return False
    model = root.get("model")
    if model is not None and not model.is_scalar:
        return False
    known = load(NAME)["properties"]
    if sum(option(key) in known for key in keys) < _KNOWN_SHARE * len(keys):
        return False
    dashed = any("-" in key and option(key) in _SIGNS for key in written)
    return dashed or len(keys & (_SIGNS | {"model"})) >= 2


def read(document: Document, project: Project) -> Reading:
    """The Job of a vLLM server."""
    builder = JobBuilder(document, UPSTREAM)
    reading = Reading(NAME, UPSTREAM, document, builder.job)
    arguments = Arguments(document.root, dashes=True)
    builder.derived("kind", "inference", "a vLLM server")
    builder.derived("objective", "sft", "nothing is trained")
    builder.derived("inference.engine", "vllm", "a vLLM server")
    version = set_version(builder, arguments, project)
    set_model(builder, arguments)
    set_weights(builder, arguments)
    set_parallelism(builder, arguments, project)
    set_engine(builder, arguments, version)
    set_batches(builder, arguments)
    set_extras(builder, arguments)
    stated = project.versions.get(NAME)
    for item in _key_problems(document):
        if stated and item.kind == "deprecated-key":
            if not _known_to(stated, item.key):
                reading.problems.append(item._replace(values={**item.values, "upstream": f"vllm {stated}"}))
        else:
            reading.problems.append(item)
    return reading


def _known_to(version: str, key: str) -> bool:
    """Whether a version still knew an option that was removed later."""
    removed = load(NAME)["properties"].get(option(key), {}).get("x-removed", "")
    last = removed.partition(";")[0].rpartition(" ")[2]
    return bool(last) and still_in(version, last)


def _key_problems(document: Document) -> list[Problem]:
    """Unknown options; those spelled with underscores are known too (`FlexibleArgumentParser`)."""
    known = load(NAME)["properties"]
    other = {key for key in set(document.root.keys()) if key not in known and option(key) in known}
    problems = [_suggested(item, known) for item in key_problems(document, NAME, known=other)]
    for key in sorted(other):
        schema = known[option(key)]
        entry = document.root.entry(key)
        if entry is not None and "x-removed" in schema:
            successor = schema.get("x-replacement", "").replace("-", "_")
            part = {**schema, "x-replacement": successor} if "_" in key else schema
            problems.append(old_key(entry, key, part, UPSTREAM))
    return problems


def _suggested(problem: Problem, known: dict[str, Any]) -> Problem:
    """An unknown option with the one it was meant to be, in the spelling of the file."""
    if problem.kind != "unknown-key" or "_" not in problem.key:
        return problem
    found = meant(option(problem.key), known).replace("-", "_")
    return problem._replace(values={**problem.values, "suggestion": found, "spelling": found})


describe, edits = written_by("serving.vllm_edits")


FORMAT = Format(
    NAME,
    "vLLM server config",
    UPSTREAM,
    recognise,
    read,
    describe,
    edits,
    "tensor x pipeline x data parallel size",
    serves=True,
)
