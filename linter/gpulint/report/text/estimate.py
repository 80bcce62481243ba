"""An estimate for people: a bar a component, the peak instant, the assumptions and where they come from."""

from __future__ import annotations

from itertools import groupby, zip_longest
from textwrap import wrap
from typing import TYPE_CHECKING

from ...units import GIB, KIB, MIB, bytes_text, count_text
from ..printable import printable
from ..table import PLAIN, wrapped
from ..verdict import word
from .full import UNCACHED, phase_text

if TYPE_CHECKING:
    from ...estimator.estimate import Assumption, Estimate
    from ...estimator.terms import Term
    from ...finding import JobResult
    from ..style import Style

BAR = 40
"""Characters of the longest bar."""
WIDTH, FORMULA, LABEL = 100, 48, 24
"""Columns of the derivation, of its formulas where what they count is told beside them, and of that at least."""
UNITS = (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")
INDENT = " " * 18
"""Up to where formulas begin."""


def render(
    file: str,
    estimate: Estimate,
    style: Style = PLAIN,
    *,
    explain: bool = False,
    fitting: str = "",
    result: JobResult | None = None,
) -> str:
    """The estimate of one file; `explain` adds the derivation, `fitting` names GPUs that fit if none is set, `result`
    is what `check` says of the job."""
    lines = [*_head(file, estimate, style), "", *_bars(estimate, style), "", *_totals(estimate)]
    lines += _verdict(estimate, result, style)
    if fitting:
        lines.append(f"  fits on      {printable(fitting)}")
    if len(estimate.phases) > 1:
        lines += ["", "Allocated memory by phase", *_phases(estimate, style)]
    if estimate.assumptions:
        lines += ["", "Assumptions and defaults"]
        rows = [
            (printable(item.field), f"{printable(item.value)}  {style.dim(printable(f'({_origin(item)})'))}")
            for item in estimate.assumptions
        ]
        width = max(len(field) for field, _ in rows)
        if style.width:
            lines += wrapped(rows, (width, 0), style.width, indent=2)
        else:
            lines += [f"  {field:<{width}}  {told}" for field, told in rows]
    if explain:
        lines += ["", "Derivation", *_terms(estimate, style)]
    return "\n".join(lines)


def _head(file: str, estimate: Estimate, style: Style) -> list[str]:
    trainable = ""
    if estimate.kind == "training":
        share = estimate.trainable_parameters / max(1, estimate.parameters)
        trainable = f", {count_text(estimate.trainable_parameters)} trainable"
        trainable += f" ({share:.2%})" if estimate.trainable_parameters < estimate.parameters else ""
    parameters = f"{count_text(estimate.parameters)} parameters ({estimate.parameters:,})"
    return [
        f"{style.bold(printable(file))}: {estimate.kind}",
        f"  {printable(estimate.model_id)}: {parameters}{trainable}",
    ]


def _bars(estimate: Estimate, style: Style) -> list[str]:
    components = {name: size for name, size in estimate.components.items() if size}
    largest = max(components.values(), default=1)
    width = max((len(name) for name in components), default=0)
    rank = f"{estimate.fullest}, " if estimate.fullest else ""
    lines = [f"Peak memory per GPU ({rank}{phase_text(estimate.peak_phase)})"]
    for name, size in components.items():
        bar = "█" * max(1, round(BAR * size / largest)) if size >= largest / (2 * BAR) else "▏"
        lines.append(f"  {name.replace('_', ' '):<{width}}  {bytes_text(size):>10}  {style.note(bar)}")
    return lines


def _origin(item: Assumption) -> str:
    sizes = [f"{bytes_text(size)} {word}" for size, word in ((item.low, "less"), (item.high, "more")) if size]
    return f"{item.origin}; could be {' or '.join(sizes)}" if sizes else item.origin


def _totals(estimate: Estimate) -> list[str]:
    tiers = estimate.per_gpu
    interval = f"nvidia-smi, {bytes_text(tiers.low)} to {bytes_text(tiers.high)}"
    lines = [
        f"  allocated    {bytes_text(tiers.allocated):>10}  torch.cuda.max_memory_allocated()",
        f"  reserved     {bytes_text(tiers.reserved):>10}  torch.cuda.max_memory_reserved()",
        f"  process      {bytes_text(tiers.process):>10}  {interval}",
    ]
    main = estimate.host_memory
    if main is not None and main.peak:
        pinned = f", {bytes_text(main.pinned)} of it pinned" if main.pinned else ""
        saved = f", {bytes_text(main.save)} saving" if main.save else ""
        split = f"{bytes_text(main.load)} loading, {bytes_text(main.train)} training{pinned}{saved}"
        lines.append(f"  host RAM     {bytes_text(main.peak):>10}  per node: {split}")
    elif estimate.host:
        lines.append(f"  host RAM     {bytes_text(estimate.host):>10}  per node, for offloading")
    cache = estimate.kv_cache
    if cache:
        lines.append(
            f"  KV cache     {cache.tokens:>10,}  tokens, {cache.bytes_per_token:,} B each;"
            f" {cache.max_concurrency:.2f} requests of full length"
        )
    elif estimate.uncached:
        lines.append(f"  KV cache     {'none':>10}  {UNCACHED}")
    return lines


def _verdict(estimate: Estimate, result: JobResult | None, style: Style) -> list[str]:
    capacity, on = estimate.capacity, ""
    if capacity:
        share = estimate.per_gpu.process / capacity.usable
        on = f" on {capacity.gpu} ({bytes_text(capacity.usable)} usable, {share:.0%} needed)"
    lines = [f"  verdict      {style.severity(estimate.verdict, word(estimate, result))}{on}"]
    if result is not None and result.unchecked:
        lines.append(f"  {printable(result.unchecked)}")
    elif estimate.stops:
        lines.append(f"  {style.error('fails to start')}: {printable(estimate.stops)}")
    return lines


def _phases(estimate: Estimate, style: Style) -> list[str]:
    width = max(len(phase.name) for phase in estimate.phases)
    return [
        f"  {phase.name.replace('_', ' '):<{width}}  {bytes_text(phase.allocated):>10}"
        + (style.bold("  <- peak") if phase.name == estimate.peak_phase else "")
        for phase in estimate.phases
    ]


NAMES = {
    "low": "process, lower bound",
    "high": "process, upper bound",
    "kv_token": "KV cache per token",
    "kv_request": "KV cache per request of full length",
    "available_kv_cache_memory": "memory for the KV cache",
}
"""Titles of figures that are not components."""


def _terms(estimate: Estimate, style: Style) -> list[str]:
    """The terms by component, with the source of each run of them, or the component's only one under its name."""
    lines = []
    for component, terms in groupby(estimate.terms, key=lambda term: term.component):
        found = list(terms)
        sources = {term.source for term in found}
        name = NAMES.get(component, component.replace("_", " "))
        lines.append(f"  {name}, {_exact(sum(term.size for term in found))}")
        if len(sources) == 1:
            lines += _source(sources.pop(), "    ", style)
        width = min(FORMULA, max((len(term.formula) for term in found if term.label), default=0))
        for term, after in zip_longest(found, found[1:]):
            lines += _term(term, width)
            if sources and (after is None or after.source != term.source):
                lines += _source(term.source, INDENT, style)
    return lines


def _term(term: Term, width: int) -> list[str]:
    """The arithmetic, and beside it, in a column of its own, what it counts."""
    head = f"    {_exact(term.size):>11} = "
    if not term.label:
        return wrap(printable(term.formula), WIDTH, initial_indent=head, subsequent_indent=" " * len(head))
    head += f"{printable(term.formula):<{width}}  "
    room = WIDTH - len(head)
    if room < LABEL:
        return [head.rstrip(), *wrap(printable(term.label), WIDTH, initial_indent=INDENT, subsequent_indent=INDENT)]
    first, *others = wrap(printable(term.label), room)
    return [head + first, *(" " * len(head) + line for line in others)]


def _exact(size: int) -> str:
    """Two decimals, so that lines add up to the eye."""
    unit, name = next((pair for pair in UNITS if abs(size) >= pair[0]), (1, "B"))
    return f"{size / unit:.2f} {name}" if unit > 1 else f"{size:,} B"


def _source(source: str, indent: str, style: Style) -> list[str]:
    lines = wrap(f"[{printable(source)}]", WIDTH, initial_indent=indent, subsequent_indent=indent) if source else []
    return [style.dim(line) for line in lines]
