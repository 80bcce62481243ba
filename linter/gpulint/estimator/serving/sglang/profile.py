"""What a release of SGLang sets where nobody does: `sglang.json`, of which a row states only what changed.

A new figure is a field here, whose default is what every release before did, a row there, and the formula that reads
it. Rows of `below` (bound, ...) hold for cards of less MiB than their bound, which is null in the last one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from ....declared import declared
from ....source.tables import read_table
from ....upstream.behaviour import as_of


@dataclass(frozen=True, slots=True)
class Profile:
    """What a release does; the defaults are what 0.3.0 did."""

    rule: Literal["ranks", "reserve", "formula"] = declared(
        "`ranks`: a share by ranks; `reserve`: MiB + MiB a rank, by the card; `formula`: 512 + 1.5 x max(chunk, 2048) "
        "+ 128 x ranks + 2 x largest captured batch, and with data parallel attention 3 x largest captured batch x "
        "groups (4.5 x above 300), in MiB; at least 10,240 on cards above 61,440 MiB.",
        "ranks",
    )
    chunks: list[list[Any]] = declared(
        "Below so many MiB of the card: tokens of one prefill step.", made=lambda: [[None, 8192]]
    )
    groups_halve: bool = declared(
        "Whether data parallel attention halves a chunk, whatever its groups; else the groups share it out.", True
    )
    shares: list[list[float]] = declared(
        "From so many ranks on: the share.", made=lambda: [[16, 0.79], [8, 0.83], [4, 0.85], [2, 0.87], [1, 0.88]]
    )
    large: Literal["all", "reserve", "blend"] = declared(
        "The share of larger cards instead. `all`: the same; `reserve`: what 13 GiB leave above 81,920 MiB; `blend`: "
        "0.88 above 81,920 MiB, and above 98,304 MiB min(share + 48 GiB x (1 - share) / card, what 18 GiB leave).",
        "all",
    )
    largest: list[float] | None = declared("Above so many MiB of the card: the share.", None)
    reserve: list[list[Any]] = declared(
        "Below so many MiB of the card: MiB kept free, and more for each rank.", made=list
    )
    grouped: float = declared("MiB that data parallel attention adds to the reserve.", 0)
    speculation: dict[str, float] = declared(
        "MiB that speculative decoding adds, by its algorithm; `other` is for those not named. `ranks`: MiB that a "
        "blended card keeps in place of 18,432, and `factor` for the others.",
        made=dict,
    )
    tower: float | None = declared(
        "What is left of the share of a multimodal model; null: by the vision encoder's layers and width.", 0.95
    )
    tower_always: bool = declared("Whether it shrinks where it is stated, too.", True)
    windows: list[str] | None = declared(
        "Beginnings of the model types whose sliding layers get a pool of 0.8 times the tokens (is_hybrid_swa_model); "
        "null: every type but `unwindowed`.",
        made=list,
    )
    unwindowed: list[str] = declared(
        "Beginnings of the types that keep every token (disable_hybrid_swa_memory), where `windows` is null.", made=list
    )
    sparse_fp8: bool = declared(
        "Whether sparse latent attention caches in fp8 on Blackwell unless told otherwise.", False
    )
    graphs: list[list[Any]] = declared(
        "Below so many MiB of the card: the largest captured batch with fewer than 4 tensor-parallel ranks, and from 4 "
        "on. This is what 0.4.6 sets (srt/server_args.py) and captures (model_executor/cuda_graph_runner.py "
        "get_batch_sizes_to_capture); no other release before 0.5.3 was read for it.",
        made=lambda: [[25000, 8, 80], [98304, 160, 160], [None, 256, 256]],
    )
    eager_reserves: bool = declared("Whether the largest batch counts where no graph is captured.", False)
    capped: bool = declared("Whether max_running_requests caps the largest batch.", True)
    prefill_graphs: list[str] | None = declared(
        "null: prefill steps are not captured; else what turns their capture off. Captured, they add 8 MiB a size, or "
        "1,536 MiB with latent attention.",
        None,
    )


def profile(version: str | None) -> Profile:
    """What holds for a version; for an unstated one, the newest."""
    return Profile(**as_of(table()["profiles"], version))


@cache
def table() -> dict[str, Any]:
    """`sglang.json`."""
    return read_table(__file__, "sglang.json")
