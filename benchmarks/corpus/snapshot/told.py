"""What is told of one corpus file, one example, one accuracy case, one model of the catalogue."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.accuracy import figures
from gpulint.settings.layers import Layers

from .package import (
    Job,
    Settings,
    check,
    estimate,
    estimated,
    explained,
    open_example,
    open_jobs,
    recognise_file,
    resolve,
    run_example,
    selection_with,
)
from .plain import Words, by_name, failure, numbered, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from benchmarks.accuracy.case import Case, Excluded
    from benchmarks.corpus.stated import StatedLayers

GPU, GPUS = "h100-80gb", 8
"""The hardware of a file of which nobody states any."""

H100 = {"gpu": GPU, "gpus": 1}
EIGHT = {"gpu": GPU, "gpus": GPUS}
ADAPTER = {"type": "lora", "r": 16, "targets": "all-linear"}
NF4 = {"method": "bnb-nf4", "bits": 4, "double_quant": True}
ROWS = {"packing": True, "micro_batch_size": 2, "sequence_length": 3001}
PLANS: dict[str, dict[str, Any]] = {
    "full": {**ROWS, "hardware": H100, "micro_batch_size": 1},
    "lora": {**ROWS, "hardware": H100, "method": "lora", "adapter": ADAPTER, "packing": False, "sequence_length": 1930},
    "qlora": {
        **ROWS, "hardware": H100, "method": "lora", "adapter": {**ADAPTER, "prepare_kbit": True},
        "activation_checkpointing": "full", "weights": {"dtype": "bfloat16", "quantization": NF4},
    },
    "zero3": {
        **ROWS, "hardware": EIGHT, "activation_checkpointing": "full", "precision": {"master_weights": True},
        "parallelism": {"zero": {"stage": 3}},
    },
    "fsdp2": {
        **ROWS, "hardware": EIGHT, "weights": {"dtype": "float32"}, "precision": {"autocast": "bfloat16"},
        "parallelism": {"fsdp": {"version": 2, "wrap": "transformer"}},
    },
    "vllm": {"kind": "inference", "inference": {"engine": "vllm", "max_model_len": 2050}, "hardware": H100},
    "generation": {
        "kind": "inference", "inference": {"batch_size": 3, "prompt_length": 257, "new_tokens": 130}, "hardware": H100,
    },
}  # fmt: skip
"""The seven jobs that every model of the catalogue is given; lengths that are no multiple of what kernels round to."""


class FixedLayers(Layers):
    """The hardware that is stated of each file of the corpus, else GPUS of GPU; all files as if met in a folder."""

    def __init__(self, layers: StatedLayers) -> None:
        super().__init__()
        self.layers = layers

    def of(self, path: str) -> Settings:
        """What counts for a file. A count of its own, or none, goes with a GPU that is stated."""
        settings = self.layers.of(path)
        gpus = GPUS if settings.configured_gpu is None else None
        return replace(
            settings,
            configured_gpu=settings.configured_gpu or GPU,
            configured_gpus=settings.configured_gpus or gpus,
            skip_unknown=True,
        )


def corpus_file(path: str, layers: FixedLayers) -> dict[str, Any]:
    """A file as checked, and its jobs with their estimates."""
    return {
        "checked": _tried(lambda: _checked(path, layers)),
        "jobs": _tried(lambda: _jobs(open_jobs(recognise_file(path), layers.of(path)).opened)),
    }


def example(rule: Any, number: int) -> dict[str, Any]:
    """An example of a rule: what it expects, what the rules find, its jobs with their estimates."""
    given, where = rule.source["examples"][number], rule.id

    def run() -> dict[str, Any]:
        outcome = run_example(given, selection_with(rule.rule), where)
        return {"got": sorted(outcome.got), "findings": _findings(outcome.findings)}

    return {
        "expected": sorted(given["expect"]),
        "checked": _tried(run),
        "jobs": _tried(lambda: _jobs(open_example(given, where).opened)),
    }


def excluded(row: Excluded) -> dict[str, Any]:
    """A row that is not scored, and why."""
    return {"excluded": True, "reason": Words(row.reason)}


def case(given: Case) -> dict[str, Any]:
    """An accuracy case: its job, the estimate, the figure that is scored."""
    job = given.job

    def run() -> dict[str, Any]:
        found = figures.run(job)
        explain = _tried(lambda: explained(found, job, resolve(job.model or "")), _estimate)
        told: dict[str, Any] = explain if "error" not in explain else {**_estimate(found), "explained": explain}
        return {
            "estimate": told,
            "value": _tried(lambda: figures.value(given, found)),
            "interval": _tried(lambda: figures.interval(given, found)),
        }

    return {"job": plain(job), "scored": _tried(run), "measured": given.measured, "outcome": given.outcome}


def model(name: str) -> dict[str, Any]:
    """A model of the catalogue as it is resolved, and its estimates under the seven jobs."""
    return {"model": _tried(partial(_model, name)), **{plan: _tried(partial(_planned, name, plan)) for plan in PLANS}}


def _planned(name: str, plan: str) -> dict[str, Any]:
    given = {"weights": {"dtype": "bfloat16"}, **PLANS[plan], "model": name}
    return _estimate(estimate(Job.validate(given)), terms=False)


def _model(name: str) -> dict[str, Any]:
    found = resolve(name)
    tensors = json.dumps([plain(tensor) for tensor in found.tensors], sort_keys=True)
    return {**plain(found), "tensors": hashlib.sha256(tensors.encode()).hexdigest()[:16], "count": len(found.tensors)}


def _checked(path: str, layers: FixedLayers) -> dict[str, Any]:
    report = check([path], layers)
    files = numbered(("", plain(file)) for file in report.files)
    return {"files": files, "suppressed": report.suppressed, "findings": _findings(report.findings)}


def _findings(found: Iterable[Any]) -> dict[str, Any]:
    return numbered((_place(finding), _finding(finding)) for finding in found)


def _place(finding: Any) -> str:
    span = finding.location.span
    return f"{finding.rule} @{finding.location.path}:{span.line}:{span.column}"


def _finding(finding: Any) -> dict[str, Any]:
    found = plain(finding)
    if finding.estimate is not None:
        found["needed"] = plain(finding.estimate.per_gpu)
        found["verdict"] = finding.estimate.verdict
    return found  # type: ignore[no-any-return]


def _jobs(opened: Iterable[Any]) -> dict[str, Any]:
    return numbered((f"@{item.part}", _job(item)) for item in opened)


def _job(opened: Any) -> dict[str, Any]:
    reading = opened.reading
    job = plain(reading.job)
    return {
        "part": opened.part,
        "gpu": opened.gpu.name if opened.gpu is not None else None,
        "reading": {
            "format": reading.format,
            "upstream": Words(reading.upstream),
            "program": reading.program,
            "references": {name: document.path for name, document in reading.references.items()},
            "launch": plain(reading.launch),
            "problems": numbered((f"{problem.kind} @{problem.key}", plain(problem)) for problem in reading.problems),
        },
        "origins": job.pop("origins"),
        "job": job,
        "estimate": _tried(lambda: _explained(opened)),
    }


def _explained(opened: Any) -> dict[str, Any]:
    job, model, _, found, _ = estimated(opened)
    told = _tried(lambda: explained(found, job, model), _estimate)
    return told if "error" not in told else {**_estimate(found), "explained": told}


def _estimate(found: Any, *, terms: bool = True) -> dict[str, Any]:
    """An estimate; `terms` are its derivation."""
    told: dict[str, Any] = plain(found)
    told["components"] = plain(found.components)
    told["phases"] = by_name(found.phases, "name")
    told["assumptions"] = by_name(found.assumptions, "field")
    if terms:
        told["terms"] = by_name(found.terms, "component")
    return told


def _tried(make: Callable[[], Any], told: Callable[[Any], Any] = plain) -> Any:
    """What is made, or the error in its place: none is lost, and none stops the run."""
    try:
        return told(make())
    except Exception as error:
        return failure(error)
