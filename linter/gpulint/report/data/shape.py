"""The JSON that `check`, `estimate` and `plan` print, declared: `schemas/{report,estimate,plan}.json` are made of it.

A key whose field has the default None is left out where nothing is known; every other key is always there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from ...declared import declared
from ...estimator.estimate import Capacity, PerGpu, Verdict
from ...finding import Applicability, JobVerdict, Status
from ...settings.severity import Severity
from ...source.edit.replacement import Edit

REPORT: Final = "gpulint-report/1"
ESTIMATE: Final = "gpulint-estimate/1"
PLAN: Final = "gpulint-plan/1"

Kind = Literal["training", "inference"]
Confidence = Literal["low", "medium", "high"]
RowKind = Literal["room", "change", "combination", "hardware"]


@dataclass(frozen=True)
class Place:
    """A range of characters in a file."""

    path: str = declared("Path of the file, relative to the working directory if the file is below it.")
    line: int = declared("First line, from 1.", least=1)
    column: int = declared("First column, from 1.", unit="characters", least=1)
    end_line: int = declared("Last line.", least=1)
    end_column: int = declared("Column after the last character.", unit="characters", least=1)


@dataclass(frozen=True)
class Components:
    """Memory by what it is for, at the peak."""

    weights: int = declared("Model weights.", unit="bytes", least=0)
    adapter: int = declared("Weights of the adapter (LoRA and its kind).", unit="bytes", least=0)
    gradients: int = declared("Gradients.", unit="bytes", least=0)
    optimizer: int = declared("Optimizer states and master weights.", unit="bytes", least=0)
    activations: int = declared("What the forward pass keeps or computes with.", unit="bytes", least=0)
    logits: int = declared("Logits and what the loss makes of them.", unit="bytes", least=0)
    kv_cache: int = declared("Keys and values of earlier tokens.", unit="bytes", least=0)
    buffers: int = declared("Communication and dequantization buffers.", unit="bytes", least=0)
    runtime: int = declared("CUDA context, NCCL and libraries, outside of torch's allocator.", unit="bytes", least=0)


@dataclass(frozen=True)
class Label(Place):
    """Another place that a finding is about."""

    label: str = declared("What this place has to do with it.")


@dataclass(frozen=True)
class Change:
    """A change of the job: what it is, what it costs, and how it is made."""

    text: str = declared("The change, in keys of the format if it has them.")
    cost: str | None = declared("What it costs the run.")
    applicability: Applicability | None = declared("safe: the job computes the same. null: the format has no key.")
    edits: tuple[Edit, ...] = declared("The change as edits of files; empty if the format has no key for it.")


@dataclass(frozen=True)
class Suggestion(Change):
    """A change that resolves a finding; the job was estimated again with it."""

    per_gpu: int | None = declared("Process memory per GPU after the change.", unit="bytes", least=0)
    effect: int | None = declared("Memory per GPU that the change saves.", unit="bytes")


@dataclass(frozen=True)
class FindingEstimate:
    """The memory of the job that a finding is about."""

    per_gpu: PerGpu = declared("Memory of the GPU that needs most.")
    components: Components = declared("`allocated` by component, and `runtime`.")
    peak_phase: str = declared("The phase that needs most.")
    verdict: Verdict = declared("Whether the job fits on its GPU.")


@dataclass(frozen=True)
class RuleOfFinding:
    """The rule that a finding is of."""

    rule: str = declared("Id of the rule.")
    name: str = declared("Name of the rule.")
    severity: Severity = declared("error: the job fails or is wrong. warning: it may fail. info: waste.")
    confidence: Confidence = declared("How reliable findings of the rule are.")


@dataclass(frozen=True)
class Finding(Place, RuleOfFinding):
    """One problem, at the place that causes it."""

    message: str = declared("What is wrong.")
    notes: tuple[str, ...] = declared("Additional lines.")
    related: tuple[Label, ...] = declared("Other places that it is about.")
    suggestions: tuple[Suggestion, ...] = declared("What resolves it, best first.")
    fingerprint: str = declared("The same for the same finding when lines move; what a baseline holds.")
    estimate: FindingEstimate | None = declared("Rules about memory: the estimate.", None)


@dataclass(frozen=True)
class JobOfFile:
    """What became of the memory of one job."""

    part: str | None = declared("Which of the file's jobs it is; null if the file is the job.")
    verdict: JobVerdict = declared("Whether its memory suffices, over all that is not known.")
    why: str | None = declared("Why its memory was not checked.")
    settles: str | None = declared("What would settle it.")


@dataclass(frozen=True)
class File:
    """What became of one file."""

    path: str = declared("Path of the file.")
    format: str | None = declared("Format of the config or launcher; null if it is not known.")
    status: Status = declared("checked, skipped (no config of a GPU job), or error (could not be read).")
    reason: str | None = declared("Why it was skipped or could not be read.")
    line: int | None = declared("Line of that reason, from 1.")
    column: int | None = declared("Column of that reason, from 1.", unit="characters")
    jobs: tuple[JobOfFile, ...] = declared("Jobs that the file holds or starts.")


@dataclass(frozen=True)
class Severities:
    """Number of findings by severity."""

    error: int = declared("Errors.", least=0)
    warning: int = declared("Warnings.", least=0)
    info: int = declared("Infos.", least=0)


@dataclass(frozen=True)
class Summary:
    """Totals of a run."""

    files: int = declared("Number of files.", least=0)
    checked: int = declared("Files that were checked.", least=0)
    skipped: int = declared("Files that were skipped.", least=0)
    errors: int = declared("Files that could not be read.", least=0)
    not_checked: int = declared("Jobs whose memory was not checked.", least=0)
    suppressed: int = declared("Findings that a comment or the settings suppress.", least=0)
    baselined: int = declared("Findings that are in the baseline.", least=0)
    gone: tuple[str, ...] = declared("Entries of the baseline that no finding matches.")
    findings: Severities = declared("Findings that are reported, by severity.")


@dataclass(frozen=True)
class Report:
    """What `gpulint check --output-format json` prints."""

    schema: Literal["gpulint-report/1"] = declared("Name and version of this schema.")
    files: tuple[File, ...] = declared("Files, in the order of the check.")
    findings: tuple[Finding, ...] = declared("Findings, by file and place.")
    summary: Summary = declared("Totals.")


@dataclass(frozen=True)
class Model:
    """The model of a job."""

    id: str = declared("Name or path of the model.")
    parameters: int = declared("Number of parameters.", unit="elements", least=0)
    trainable_parameters: int = declared("Parameters that the job trains.", unit="elements", least=0)


@dataclass(frozen=True)
class KvCache:
    """The KV cache of one GPU, as the engine logs it."""

    bytes_per_token: int = declared("Memory of one token.", unit="bytes", least=0)
    tokens: int = declared("Tokens that the cache holds.", unit="tokens", least=0)
    max_concurrency: float = declared("Requests of full length that it holds at once.", least=0)
    tokens_low: int | None = declared("The fewest tokens that it may hold.", None, unit="tokens", least=0)
    tokens_high: int | None = declared("The most tokens that it may hold.", None, unit="tokens", least=0)


@dataclass(frozen=True)
class HostMemory:
    """Host RAM of one node."""

    load: int = declared("While the weights are loaded.", unit="bytes", least=0)
    train: int = declared("From the first step on.", unit="bytes", least=0)
    save: int = declared("While a full checkpoint is gathered; 0 if each rank saves its shard.", unit="bytes", least=0)
    pinned: int = declared("Page-locked memory, part of `train`.", unit="bytes", least=0)
    peak: int = declared("The largest of `load`, `train` and `save`.", unit="bytes", least=0)
    high: int = declared("`peak` with what page-locking may round up.", unit="bytes", least=0)


@dataclass(frozen=True)
class Assumption:
    """Something that the estimate rests on and the config does not say."""

    field: str = declared("The Job field.")
    value: str = declared("What is assumed.")
    origin: str = declared("Why.")
    low: int | None = declared("Memory that the job needs less if it is otherwise.", None, unit="bytes", least=1)
    high: int | None = declared("Memory that the job needs more if it is otherwise.", None, unit="bytes", least=1)


@dataclass(frozen=True)
class Term:
    """One part of a figure and its derivation."""

    component: str = declared(
        "The figure that it is a part of: a component at the peak; `reserved`, `process`, `low` or `high` of "
        "`per_gpu`; `host`; `kv_token`, `kv_request` or `available_kv_cache_memory`: a token, a request of full "
        "length, the KV cache. The terms of a figure sum to it."
    )
    bytes: int = declared("Its size.", unit="bytes")
    formula: str = declared("How it is computed.")
    label: str = declared("What it is.")
    source: str = declared("Where upstream says so.")


@dataclass(frozen=True)
class Estimate:
    """The memory of one job, on the GPU that needs most."""

    file: str = declared("Path of the config.")
    kind: Kind = declared("Kind of the job.")
    model: Model = declared("The model.")
    per_gpu: PerGpu = declared("Memory of the GPU that needs most.")
    components: Components = declared("`allocated` by component, and `runtime`.")
    phases: dict[str, int] = declared("Allocated memory by phase.", unit="bytes")
    peak_phase: str = declared("The phase that needs most.")
    fullest: str | None = declared("The rank that needs most, if ranks differ (pipeline stages).")
    kv_cache: KvCache | None = declared("The KV cache of an inference server.")
    capacity: Capacity | None = declared("The GPU to compare with.")
    host: int = declared("Host RAM per node that offloading takes.", unit="bytes", least=0)
    host_memory: HostMemory | None = declared("Host RAM per node; null if nothing is known of it.")
    verdict: Verdict = declared("Whether the job fits on its GPU.")
    refusal: str | None = declared("Why the job does not start, if that can be predicted; the verdict says if it may.")
    why: str | None = declared("Why `check` counts its memory as not checked.")
    settles: str | None = declared("What would settle it.")
    assumptions: tuple[Assumption, ...] = declared("What the estimate rests on and the config does not say.")
    terms: tuple[Term, ...] | None = declared("With --explain: the derivation.", None)


@dataclass(frozen=True)
class Estimates:
    """What `gpulint estimate --format json` prints."""

    schema: Literal["gpulint-estimate/1"] = declared("Name and version of this schema.")
    estimates: tuple[Estimate, ...] = declared("One for each job, in the order of the files.")


@dataclass(frozen=True)
class Now:
    """The job as it is."""

    per_gpu: PerGpu = declared("Memory of the GPU that needs most.")
    verdict: Verdict = declared("Whether the job fits on its GPU.")
    refusal: str | None = declared("Why the job does not start, if that can be predicted; the verdict says if it may.")
    why: str | None = declared("Why `check` counts its memory as not checked.")
    settles: str | None = declared("What would settle it.")


@dataclass(frozen=True)
class Row(Change):
    """One change of a plan and what the job needs with it."""

    kind: RowKind = declared(
        "room: uses free memory. change, combination: save memory. hardware: another GPU or number of GPUs."
    )
    recipe: str | None = declared("Name of the recipe; null for combinations and hardware.")
    per_gpu: PerGpu = declared("Memory of the GPU that needs most, with the change.")
    host: int = declared("Host RAM per node that offloading takes.", unit="bytes", least=0)
    verdict: Verdict = declared("Whether the job fits on its GPU.")
    reason: str = declared("Why it does or does not fit.")


@dataclass(frozen=True)
class Absent:
    """A recipe that does not apply."""

    recipe: str = declared("Name of the recipe.")
    reason: str = declared("Why it does not apply.")


@dataclass(frozen=True)
class Plan:
    """The plan of one job."""

    file: str = declared("Path of the config.")
    kind: Kind = declared("Kind of the job.")
    model: str = declared("Name or path of the model.")
    gpus: int = declared("Number of GPUs.", least=1)
    gpu: str | None = declared("Name of the GPU in the catalogue; null if none is set.")
    usable: int | None = declared("Memory of that GPU that torch can use.", unit="bytes")
    now: Now = declared("The job as it is.")
    rows: tuple[Row, ...] = declared("Changes and what they come to.")
    absent: tuple[Absent, ...] = declared("Recipes that do not apply.")
    fits_on: tuple[str, ...] = declared("GPUs that the job fits on, if none is set.")


@dataclass(frozen=True)
class Plans:
    """What `gpulint plan --format json` prints."""

    schema: Literal["gpulint-plan/1"] = declared("Name and version of this schema.")
    plans: tuple[Plan, ...] = declared("One for each job, in the order of the files.")
