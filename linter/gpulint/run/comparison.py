"""Two jobs side by side: what differs between them, and how much memory each difference makes alone."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .estimated import Estimated

_ASIDE = ("origins", "versions", "unstated", "unread")


class Difference(NamedTuple):
    """A Job field that differs; `alone` is the bytes of the process that it makes if only it changes, where known."""

    path: str
    before: Any
    after: Any
    origin: str
    alone: int | None


def differences(one: Estimated, two: Estimated) -> list[Difference]:
    """Every Job field that differs, those that make most memory first."""
    found = []
    for path, before, after in _different(one.job, two.job, ""):
        origin = two.job.origins.get(path) or one.job.origins.get(path)
        found.append(Difference(path, before, after, str(origin) if origin else "", _alone(one, two, path, after)))
    return sorted(found, key=lambda item: (-abs(item.alone or 0), item.path))


def _different(one: Any, two: Any, prefix: str) -> Iterator[tuple[str, Any, Any]]:
    """The fields whose values differ; a part that one job lacks counts as one."""
    for item in fields(one):
        if item.name in _ASIDE:
            continue
        before, after = getattr(one, item.name), getattr(two, item.name)
        if is_dataclass(before) and is_dataclass(after):
            yield from _different(before, after, f"{prefix}{item.name}.")
        elif before != after:
            yield prefix + item.name, before, after


def _alone(one: Estimated, two: Estimated, path: str, after: Any) -> int | None:
    from ..estimator.estimate import NotEstimable
    from ..estimator.estimate_job import estimate_job
    from ..models.lora import NotAdaptable

    model = two.model if path == "model" else one.model
    gpu = two.gpu if path == "hardware.gpu" else one.gpu
    try:
        changed = estimate_job(one.job.with_changes({path: after}), model, gpu)
    except (NotEstimable, NotAdaptable, ValueError):
        return None
    return changed.per_gpu.process - one.estimate.per_gpu.process
