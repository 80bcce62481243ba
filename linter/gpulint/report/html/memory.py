"""The memory of a job as bars of HTML: by phase against the card, and for what its sliders choose."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ...estimator.estimate import COMPONENTS
from ...units import bytes_text
from ..text.full import UNCACHED, phase_text
from .palette import legend
from .text import text

if TYPE_CHECKING:
    from ...estimator.estimate import Estimate
    from ...run.whatif import Axis, Grid


def memory(estimate: Estimate) -> str:
    """A stacked bar per phase, the GPU's memory as a line, then the tiers."""
    usable = estimate.capacity.usable if estimate.capacity else 0
    totals = [phase.allocated + estimate.runtime for phase in estimate.phases]
    whole = 1.02 * max(usable, estimate.per_gpu.process, *totals)
    line = f'<span class="card-line" style="left:{100 * usable / whole:.2f}%"></span>' if usable else ""
    rows = []
    for phase in estimate.phases:
        parts = {**phase.components, "runtime": estimate.runtime}
        peak = " peak" if phase.name == estimate.peak_phase else ""
        name = text(phase.name.replace("_", " "))
        track = f'<div class="track" role="img" aria-label="{_label(parts)}">{_bar(parts, whole)}{line}</div>'
        total = bytes_text(sum(parts.values()))
        rows.append(f'<div class="phase{peak}"><span>{name}</span>{track}<b>{total}</b></div>')
    named = "".join(f'<li style="--own:var(--{name})">{name.replace("_", " ")}</li>' for name in legend(estimate))
    return "\n".join(
        [
            f"<h3>Peak memory per GPU ({text(phase_text(estimate.peak_phase))})</h3>",
            *rows,
            f'<ul class="legend">{named}{_line_legend(usable)}</ul>',
            _tiers(estimate),
            *([f'<p class="error">fails to start: {text(estimate.stops)}</p>'] if estimate.stops else []),
        ]
    )


def what_if(grid: Grid, number: int) -> str:
    """Sliders over the axes of a grid, with every estimate as data."""
    names = list(COMPONENTS)
    points, refused = {}, []
    usable = 0
    for place, estimate in grid.points.items():
        key = ",".join(map(str, place))
        if estimate is None:
            refused.append(key)
            continue
        usable = estimate.capacity.usable if estimate.capacity else 0
        split = {**estimate.components, "runtime": estimate.runtime}
        tiers = estimate.per_gpu
        points[key] = {
            "parts": [split.get(name, 0) for name in names],
            "process": tiers.process,
            "low": tiers.low,
            "high": tiers.high,
            "verdict": estimate.verdict,
        }
    data = {
        "components": names,
        "labels": [axis.labels for axis in grid.axes],
        "usable": usable,
        "points": points,
        "refused": refused,
    }
    sliders = "\n".join(_slider(axis, f"job-{number}-{place}") for place, axis in enumerate(grid.axes))
    line = '<span class="card-line"></span>' if usable else ""
    packed = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return "\n".join(
        [
            "<h3>What if</h3>",
            f'<div data-grid><div class="sliders">\n{sliders}\n</div>',
            f'<div class="track"><div class="bar"></div>{line}</div>',
            '<p class="told" aria-live="polite"></p>',
            '<noscript><p class="faint">The sliders need JavaScript.</p></noscript>',
            f'<script type="application/json">{packed}</script></div>',
        ]
    )


def _slider(axis: Axis, name: str) -> str:
    attributes = f'type="range" id="{name}" min="0" max="{len(axis.labels) - 1}" step="1" value="{axis.now}"'
    chosen = f'<output class="choice">{text(axis.labels[axis.now])}</output>'
    return f'<label for="{name}">{text(axis.name)}{chosen}<input {attributes}></label>'


def _bar(parts: dict[str, int], whole: float) -> str:
    inner = "".join(
        f'<i style="width:{100 * parts[name] / whole:.2f}%;background:var(--{name})" '
        f'title="{name.replace("_", " ")} {bytes_text(parts[name])}"></i>'
        for name in COMPONENTS
        if parts.get(name)
    )
    return f'<div class="bar">{inner}</div>'


def _label(parts: dict[str, int]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {bytes_text(size)}" for name, size in parts.items() if size)


def _line_legend(usable: int) -> str:
    return f'<li style="--own:var(--text)">GPU memory: {bytes_text(usable)} usable</li>' if usable else ""


def _tiers(estimate: Estimate) -> str:
    tiers, host = estimate.per_gpu, estimate.host_memory
    cells = [
        ("allocated", bytes_text(tiers.allocated), "torch.cuda.max_memory_allocated()"),
        ("reserved", bytes_text(tiers.reserved), "torch.cuda.max_memory_reserved()"),
        ("process", bytes_text(tiers.process), f"nvidia-smi; {bytes_text(tiers.low)} to {bytes_text(tiers.high)}"),
    ]
    if host is not None:
        cells.append(("host RAM", bytes_text(host.peak), "per node"))
    if estimate.kv_cache is not None:
        cache = estimate.kv_cache
        cells.append(("KV cache", f"{cache.tokens:,} tokens", f"{cache.max_concurrency:.2f} requests of full length"))
    elif estimate.uncached:
        cells.append(("KV cache", "none", UNCACHED))
    inner = "".join(
        f'<div><span class="faint">{name}</span><b>{size}</b><span class="faint">{text(note)}</span></div>'
        for name, size, note in cells
    )
    return f'<div class="tiers">{inner}</div>'
