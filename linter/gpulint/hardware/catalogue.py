"""The GPUs that gpulint knows, under the names that people, clouds and schedulers give them.

`find` takes what configs contain: `h100`, `NVIDIA-A100-SXM4-80GB`, `gpu:a100_80`, `Tesla-T4`, `8xL40S`.
A family name without a size is taken as the smallest memory sold under it, as the cloud catalogues do
(GKE's `nvidia-tesla-a100` and SkyPilot's `A100` are the 40 GB card); `ambiguity` says so.
A partition of a card is the card's name and the profile: `a100-80gb-mig-3g.40gb`.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple

from ..source.tables import read_table
from ..units import GIB, MIB
from .gpu import Gpu

_TORCH_BELOW_SMI = int(1.1 * GIB)
"""The largest gap between nvidia-smi's and torch's total (GH200), for cards without a torch total."""

_NOISE = re.compile(
    r"nvidia|tesla|geforce|quadro|amd|instinct|radeon|gpus?|generation|edition|server|workstation|blackwell"
    r"|mega|nvlink|hbm|hbm[23]e?|oam|shared|ac|max|q"
)
"""Words of product names that do not tell one card from another."""

_FORM = re.compile(r"sxm\d?|pcie")
_MEMORY = re.compile(r"(?<![a-z0-9.])(\d{1,3})\s*g(?:i?b)?(?![a-z0-9.])")
_MIG = re.compile(r"[-_ ]*(?:mig[-_ ]*|(?<=[a-z0-9])_)(\d+g\.\d+gb)(?:\+me)?")
_COUNT_FIRST = re.compile(r"^(\d{1,4}(?=\s*[x*])|\d{1,2}(?=\s))(?:\s*[x*]\s*|\s+)(?=[a-z0-9])")
_UNIT = re.compile(r"g(?:i?b)?\b")
_COUNT_LAST = re.compile(r"(?::|(?<=[0-9 _-])[x*]\s*)(\d{1,4})$")


class UnknownGpu(Exception):  # noqa: N818
    """A name that no GPU of the catalogue answers to; the message is one line and names the nearest."""


class Instance(NamedTuple):
    """A cloud machine: `p5.48xlarge` of `aws` has 8 `gpus` of the kind `gpu`; `memory` is in bytes, None if unknown."""

    name: str
    cloud: str
    gpu: Gpu
    gpus: int
    memory: int | None = None


class _Name(NamedTuple):
    """What a text says: the family (`h100`), the size in GB, the form factor and the MIG profile."""

    family: str
    memory: int | None
    form: str
    mig: str | None
    number: int | None


def gpus() -> tuple[Gpu, ...]:
    """Every GPU of the catalogue, partitions left out."""
    return tuple(gpu for gpu, _ in _rows())


def find(name: str) -> Gpu:
    """The GPU that `name` means; a count in it is ignored.

    Raises UnknownGpu.
    """
    return parse(name)[0]


def parse(text: str) -> tuple[Gpu, int | None]:
    """The GPU that `text` means and how many (`H100:8`, `8xA100-80GB`, `p5.48xlarge`); None when it does not say.

    Raises UnknownGpu.
    """
    machine = instance(text.strip().lower())
    if machine is not None:
        return machine.gpu, machine.gpus
    name = _read(text)
    if name.mig is not None and not name.family:
        return _slice(text, name.mig), name.number
    candidates = _candidates(text, name)
    if not candidates:
        raise UnknownGpu(_unknown(text, name))
    gpu = candidates[0]
    return (gpu if name.mig is None else _partition(gpu, name.mig)), name.number


def ambiguity(text: str) -> str | None:
    """Why another GPU may be meant ("a100 is sold with 40 and 80 GB ..."); None when it is clear."""
    candidates = _sold(text)
    if len(candidates) < 2:
        return None
    return f"{_sizes_of(text, candidates)}; {candidates[0].name} is assumed"


def of_size(text: str, size: int) -> Gpu:
    """The GPU of the named family whose memory is nearest to `size` bytes, as a cloud rounds it.

    Raises UnknownGpu.
    """
    return min(_sold(text) or [find(text)], key=lambda gpu: abs(gpu.total - size))


def largest(text: str) -> tuple[Gpu, str]:
    """The GPU of most memory that `text` may mean, and why it is a choice ("" where it is none).

    For names that people gave their own machines: a job is not told that it fails where it may fit.
    Raises UnknownGpu.
    """
    candidates = _sold(text)
    if len(candidates) < 2:
        return find(text), ""
    gpu = max(candidates, key=lambda one: _memory_of()[one.name])
    return gpu, f"{_sizes_of(text, candidates)}; {gpu.name} is assumed"


def _sold(text: str) -> list[Gpu]:
    """The GPUs of the named family and form, one for each size of memory, the usual one first."""
    name = _read(text)
    candidates = [gpu for gpu in _candidates(text, name) if _main_family()[gpu.name] == name.family]
    return list({_memory_of()[gpu.name]: gpu for gpu in reversed(candidates)}.values())[::-1]


def _sizes_of(text: str, candidates: list[Gpu]) -> str:
    sizes = sorted(_memory_of()[gpu.name] for gpu in candidates)
    listed = ", ".join(str(size) for size in sizes[:-1]) + f" and {sizes[-1]}"
    return f"{_read(text).family} is sold with {listed} GB"


def instance(name: str) -> Instance | None:
    """The cloud machine of that name, None when it is not in the table."""
    row = _load("instances.json")["instances"].get(name)
    return None if row is None else Instance(name, row[0], find(row[1]), row[2], row[3] * GIB if row[3:] else None)


def counted(text: str | None, stated: int | None) -> int | None:
    """The number of GPUs that is `stated`, else the one in the card's name (`2xA100-40GB`).

    Raises UnknownGpu where both stand and differ.
    """
    if text is None:
        return stated
    count = parse(text)[1]
    if stated is not None and count not in (None, 0, stated):
        raise UnknownGpu(f"{text!r} says {count} GPUs, and gpus says {stated}; name the card without a number")
    return stated or count or None


def _candidates(text: str, name: _Name) -> list[Gpu]:
    """The GPUs that fit, best first: by exact name, then by family, form factor and size."""
    exact = _by_name().get(_squeezed(_without_count(text)))
    if exact is not None:
        return [exact]
    families = _by_family()
    for family in (name.family + name.form, name.family):
        named = families.get(family, [])
        if name.memory is not None:
            sizes = _memory_of()
            named = [gpu for gpu in named if abs(sizes[gpu.name] - name.memory) <= 0.08 * name.memory]
            named.sort(key=lambda gpu: abs(sizes[gpu.name] - (name.memory or 0)))
        if named:
            return named
    return []


def _read(text: str) -> _Name:
    low = text.strip().lower()
    mig = _MIG.search(low)
    if mig:
        low = low[: mig.start()] + low[mig.end() :]
    count, low = _count(low)
    memory: int | None = None
    sized = _MEMORY.search(low)
    if sized:
        memory = int(sized[1])
        low = low[: sized.start()] + " " + low[sized.end() :]
    words, form = [], ""
    for word in re.split(r"[^a-z0-9]+", low.removeprefix("gpu:")):
        if _FORM.fullmatch(word):
            form = "pcie" if word == "pcie" else "sxm"
        elif word and not _NOISE.fullmatch(word):
            words.append(word)
    if memory is None and len(words) > 1 and words[-1].isdigit() and len(words[-1]) < 4:
        memory = int(words.pop())
    return _Name("".join(words), memory, form, mig[1] if mig else None, count)


def _count(low: str) -> tuple[int | None, str]:
    low = low.removeprefix("gpu:")
    last = _COUNT_LAST.search(low)
    if last:
        return int(last[1]), low[: last.start()].rstrip(" -_")
    first = _COUNT_FIRST.match(low)
    if first and not _UNIT.match(low, first.end()):
        return int(first[1]), low[first.end() :]
    return None, low


def _without_count(text: str) -> str:
    return _count(text.strip().lower())[1]


def _squeezed(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "", name.lower())


def _partition(gpu: Gpu, profile: str) -> Gpu:
    """A MIG slice as a GPU of its own: torch sees all the MiB of the slice."""
    profiles: dict[str, int] = _load("gpus.json")["mig"].get(gpu.name, {})
    if profile not in profiles:
        known = ", ".join(profiles) or "none"
        raise UnknownGpu(f"{gpu.title} has no MIG profile {profile} in the catalogue; it has: {known}")
    size = profiles[profile] * MIB
    return gpu._replace(
        name=f"{gpu.name}-mig-{profile}",
        title=f"{gpu.title} MIG {profile}",
        total=size,
        usable=size,
        aliases=(),
        source="MIG profile, unconfirmed",
    )


def _slice(text: str, profile: str) -> Gpu:
    """A slice that names no card, as in `nvidia.com/mig-1g.20gb`: that of the newest card which is cut so, whose
    slices of one profile differ by less than 3 % (gpus.json `mig`)."""
    cards = [gpu for gpu in gpus() if profile in _load("gpus.json")["mig"].get(gpu.name, {})]
    if not cards:
        raise UnknownGpu(f"unknown GPU {text!r}: no card of the catalogue has slices {profile}")
    return _partition(max(cards, key=lambda gpu: gpu.compute_capability or 0.0), profile)


def _unknown(text: str, name: _Name) -> str:
    import difflib

    family = _by_family().get(name.family)
    if family:
        near = [gpu.name for gpu in family]
    elif not name.family and name.memory:
        near = [gpu.name for gpu in gpus() if _memory_of()[gpu.name] == name.memory]
    else:
        by_name = {key: gpu.name for key, gpu in _by_name().items()}
        by_name.update({key: members[0].name for key, members in _by_family().items()})
        said = name.family or _squeezed(text)
        longer = [key for key in by_name if len(said) > 3 and key.startswith(said)]
        found = (*longer, *difflib.get_close_matches(said, by_name, n=5, cutoff=0.6))
        near = list(dict.fromkeys(by_name[key] for key in found))[:3]
    printable = text if len(text) <= 60 else text[:57] + "..."
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"unknown GPU {printable!r}{hint}"


@cache
def _load(file: str) -> dict[str, Any]:
    return read_table(__file__, file)


@cache
def _rows() -> tuple[tuple[Gpu, dict[str, Any]], ...]:
    return tuple((_gpu(row), row) for row in _load("gpus.json")["gpus"])


@cache
def _by_name() -> dict[str, Gpu]:
    return {_squeezed(name): gpu for gpu, _ in _rows() for name in (*gpu.aliases, gpu.title, gpu.name)}


@cache
def _by_family() -> dict[str, list[Gpu]]:
    families: dict[str, list[Gpu]] = {}
    for gpu, row in _rows():
        for family in row["families"]:
            families.setdefault(_squeezed(family), []).append(gpu)
    return families


@cache
def _main_family() -> dict[str, str]:
    """The name a card is sold under; the H100 NVL answers to `h100` only where a size says so."""
    return {gpu.name: _squeezed(row["families"][0]) for gpu, row in _rows()}


@cache
def _memory_of() -> dict[str, int]:
    return {gpu.name: row["memory_gb"] for gpu, row in _rows()}


def _gpu(row: dict[str, Any]) -> Gpu:
    torch_gib, smi_mib = row["torch_gib"], row["smi_mib"]
    total = smi_mib * MIB if smi_mib else int(max(torch_gib) * GIB)
    usable = int(min(torch_gib) * GIB) if torch_gib else total - _TORCH_BELOW_SMI
    return Gpu(
        name=row["name"],
        title=row["title"],
        vendor=row["vendor"],
        architecture=row["architecture"],
        compute_capability=row["compute_capability"],
        total=total,
        usable=min(usable, total),
        bf16=row["bf16"],
        fp8=row["fp8"],
        fp4=row["fp4"],
        flash_attention_2=row["flash_attention_2"],
        flash_attention_3=row["flash_attention_3"],
        aliases=tuple(row["aliases"]),
        source=row["source"],
        unified=row.get("unified", False),
        display=row.get("display", False),
    )
