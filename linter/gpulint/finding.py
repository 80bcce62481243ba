"""Finding: one thing a rule found, and Report: everything one run found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from .settings.severity import SEVERITIES, Severity

if TYPE_CHECKING:
    from .estimator.estimate import Estimate
    from .source.edit.replacement import Edit
    from .source.node import Span

Applicability = Literal["safe", "unsafe"]
Status = Literal["checked", "skipped", "error"]


@dataclass(slots=True, frozen=True)
class Location:
    """A span in a file, with a label for the frame. `path` is relative to where the user stands if below it."""

    path: str
    span: Span
    label: str = ""


@dataclass(slots=True, frozen=True)
class Suggestion:
    """A change of the job that has been estimated again.

    `per_gpu` is the process bytes that result, None where no estimate is involved. `edits` is empty where the
    format cannot say the change, and `applicability` is then None. `effect` is the bytes that the change takes from
    what the job needs now, `cost` what it costs the run, in words.
    """

    text: str
    per_gpu: int | None = None
    applicability: Applicability | None = None
    edits: tuple[Edit, ...] = ()
    effect: int | None = None
    cost: str = ""


@dataclass(slots=True, frozen=True)
class Finding:
    """What a rule found at one place. `notes` are lines below the frame; `estimate` the peak where memory matters."""

    rule: str
    name: str
    severity: Severity
    confidence: str
    message: str
    location: Location
    related: tuple[Location, ...] = ()
    suggestions: tuple[Suggestion, ...] = ()
    notes: tuple[str, ...] = ()
    estimate: Estimate | None = field(default=None, repr=False)
    fingerprint: str = ""


JobVerdict = Literal["fits", "tight", "exceeds", "refuses", "not-checked"]
"""Whether the memory of a job suffices; `refuses`: its program will not start for another reason of memory."""


@dataclass(slots=True, frozen=True)
class JobResult:
    """What became of one job: its verdict and, where its memory was not checked, why and what would settle it.

    `part` says which of its file's jobs it is.
    """

    part: str
    verdict: JobVerdict
    why: str = ""
    settles: str = ""

    @property
    def unchecked(self) -> str:
        """`memory not checked: no GPU is named (--gpu)`; "" where it was."""
        if self.verdict != "not-checked":
            return ""
        return f"memory not checked: {self.why}" + f" ({self.settles})" * bool(self.settles)


@dataclass(slots=True, frozen=True)
class FileResult:
    """What became of one file. `reason` says why it was skipped or failed; `line` where, 0 for nowhere."""

    path: str
    format: str | None
    status: Status
    reason: str = ""
    line: int = 0
    column: int = 0
    jobs: tuple[JobResult, ...] = ()

    @property
    def broken(self) -> bool:
        """Whether the file could not be parsed."""
        return self.status == "error" or (self.status == "skipped" and self.line > 0)


@dataclass(slots=True)
class Report:
    """Everything one `gpulint check` found, in the order of the files. `texts` holds the files for frames.

    `suppressed` and `baselined` count findings that are not reported; `gone` names entries of the baseline that no
    finding matches any more.
    """

    files: list[FileResult] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict, repr=False)
    suppressed: int = 0
    baselined: int = 0
    gone: list[str] = field(default_factory=list)

    def count(self, status: Status) -> int:
        """How many files ended in `status`."""
        return sum(file.status == status for file in self.files)

    def not_checked(self) -> list[JobResult]:
        """The jobs whose memory was not checked, in the order of the files."""
        return [job for file in self.files for job in file.jobs if job.verdict == "not-checked"]

    def severity_counts(self) -> dict[Severity, int]:
        """Findings by severity, most serious first."""
        counts: dict[Severity, int] = dict.fromkeys(reversed(SEVERITIES), 0)
        for finding in self.findings:
            counts[finding.severity] += 1
        return counts
