"""The grid of `grid.json`: each sweep is a product over its lists."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any, NamedTuple

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
RANK = 16
TINY = {
    "hidden_size": 64, "n_embd": 64, "intermediate_size": 128, "num_hidden_layers": 2, "n_layer": 2, "head_dim": 16,
    "num_attention_heads": 4, "n_head": 4, "num_key_value_heads": 2, "vocab_size": 256, "query_pre_attn_scalar": 16,
}  # fmt: skip
TINY_SHAPE = (1, 16)
"""Tokens of a tiny point, as batch x length."""


class Point(NamedTuple):
    """One run.

    precision    `bf16`, `fp32`: weights and computation; `bf16-amp`: float32 weights under autocast;
                 `bf16-over-bf16`: 16-bit weights under autocast, as the Trainer runs LoRA
    method       `full`, `lora`, `qlora` or `generate`
    """

    model: str
    method: str
    precision: str
    batch: int
    length: int
    checkpointing: str = "none"
    optimizer: str = ""
    attention: str = "sdpa"
    targets: str = ""
    new_tokens: int = 0

    @property
    def id(self) -> str:
        """A readable name, unique in the grid."""
        words = [self.model, self.method, self.precision, f"{self.batch}x{self.length}", self.optimizer]
        words += ["checkpointing" if self.checkpointing != "none" else "", "eager" if self.attention == "eager" else ""]
        words += [
            self.targets.replace("_proj", "").replace(",", ""),
            f"{self.new_tokens}new" if self.new_tokens else "",
        ]
        return "-".join(filter(None, words))

    @property
    def weights(self) -> str:
        """dtype that the model is built in."""
        return DTYPES["fp32" if self.precision == "bf16-amp" else self.precision.partition("-")[0]]

    @property
    def autocast(self) -> str | None:
        """dtype of autocast."""
        return "bfloat16" if "-" in self.precision else None


def points() -> list[Point]:
    """All points, each sweep spread evenly over the whole, so that a slice holds some of each."""
    placed: dict[Point, float] = {}
    for sweep in _read()["sweeps"]:
        found = _product(sweep)
        for place, point in enumerate(found):
            placed.setdefault(point, place / len(found))
    return sorted(placed, key=placed.__getitem__)


def _product(sweep: dict[str, Any]) -> list[Point]:
    names = [name for name in sweep if name not in ("why", "shape")]
    found = []
    for (batch, length), *values in itertools.product(sweep["shape"], *(sweep[name] for name in names)):
        found.append(Point(batch=batch, length=length, **dict(zip(names, values, strict=True))))
    return found


def config(point: Point, *, tiny: bool = False) -> dict[str, Any]:
    """The `config.json` fields of a point's model, shrunk for a trial without a GPU."""
    fields: dict[str, Any] = _read()["models"][point.model]
    return {**fields, **{key: TINY[key] for key in fields if key in TINY}} if tiny else fields


def shrunk(point: Point) -> Point:
    """The point with a few tokens."""
    batch, length = TINY_SHAPE
    return point._replace(batch=batch, length=length, new_tokens=min(point.new_tokens, 2))


def _read() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(__file__).parent / "grid.json").read_text(encoding="utf-8"))
    return found
