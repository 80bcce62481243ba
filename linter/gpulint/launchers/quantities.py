"""Sizes as cluster files write them: `64Gi`, `512G`, `1500M`, `200GB`."""

from __future__ import annotations

import re

from ..units import MOST

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kKmMgGtTpP]?)(i?)([bB]?)\+?")
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)(m?)")
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}


def size(text: object, *, unit: str = "", binary: bool = True) -> int | None:
    """Bytes; `unit` stands in where the text names none. None where it is no size.

    Without an `i` the units are powers of 1024 where `binary` (Slurm, Docker, which take small letters, too), of 1000
    where not (Kubernetes).
    """
    match = _SIZE.fullmatch(str(text).strip())
    if match is None:
        return None
    number, letter, i, _ = match.groups()
    if letter.islower() and letter != "k" and not binary:
        return None
    letter = letter.upper()
    base = 1024 if i or binary else 1000
    return int(min(float(number), MOST) * base ** _POWERS[letter or unit])


def quantity(text: object) -> int | None:
    """Bytes of a Kubernetes quantity; `200m` are 200 thousandths of one."""
    thousandths = _NUMBER.fullmatch(str(text).strip())
    if thousandths is not None and thousandths[2]:
        return int(min(float(thousandths[1]), MOST) / 1000)
    return size(text, binary=False)


def gpus_of(text: object) -> float | str:
    """GPUs of a Kubernetes quantity, whole or not: `1`, `"0.5"`, `500m`; what is no number stays as it is written."""
    words = str(text).strip()
    match = _NUMBER.fullmatch(words)
    if match is None:
        return words
    number = float(match[1]) / (1000 if match[2] else 1)
    return int(number) if number.is_integer() else number
