"""What `scripts/build.py` writes from `recorded.json`: tables of `docs/accuracy.md`, and `docs/accuracy-tables.md`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from . import headline, listing, peers, record

if TYPE_CHECKING:
    from collections.abc import Iterator

PARTS = ("totals", "kinds")

TABLES = """# Accuracy: all tables

<!-- Made by scripts/build.py from benchmarks/accuracy/recorded.json. -->

The numbers behind [Accuracy](accuracy.md). Errors are (estimate - measured) / measured. Groups called
`fresh ..., set N` hold the rows of our own search number N.
"""


def summary(text: str, recorded: dict[str, Any]) -> str:
    """`docs/accuracy.md` with the recorded lines between `<!-- totals -->` or `<!-- kinds -->` and `<!-- end -->`."""
    for part in PARTS:
        text = _filled(text, part, listing.markdown(headline.HEAD, headline.cells(record.lines(recorded, part))))
    return text


def changelog(text: str, recorded: dict[str, Any]) -> str:
    """`CHANGELOG.md` with the first lines of the headline as a list."""
    lines = headline.cells(record.lines(recorded, "totals"))
    words = [
        f"- {name}: {n} figures, median error {median}, {inside} inside the interval;\n"
        f"  missed out-of-memory {missed}, false alarms {alarms}"
        for name, n, median, _, inside, missed, alarms in lines
        if missed
    ]
    return _filled(text, "accuracy", "\n".join(words))


def _filled(text: str, name: str, new: str) -> str:
    begin = f"<!-- {name} -->"
    text, count = re.subn(rf"{begin}.*?<!-- end -->", lambda _: f"{begin}\n{new}\n<!-- end -->", text, flags=re.DOTALL)
    assert count == 1, f"one block {begin}"
    return text


def tables(recorded: dict[str, Any]) -> str:
    """`docs/accuracy-tables.md`."""
    return TABLES + "".join(f"\n## {title}\n\n{words}\n\n{table}\n" for title, words, table in _sections(recorded))


def _sections(recorded: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    scores = record.scores(recorded)
    shown = recorded["tables"]
    now = [score for score in scores if not score.name.endswith("(blind)")]
    first = [score for score in scores if score.name.endswith("(blind)")]
    yield (
        "Errors",
        "MAPE is the mean absolute error, p95 the 95th percentile; coverage, the share of figures inside the interval.",
        listing.markdown(listing.HEAD, listing.score_rows(now)),
    )
    yield (
        "First answers",
        "The same for the estimates made on the day a row was found, before any change was made for it.",
        listing.markdown(listing.HEAD, listing.score_rows(first)),
    )
    yield (
        "Verdicts",
        "`oom: fits` are missed out-of-memory runs, `fits: exceeds` false alarms; `strict` rows state what decides.",
        listing.markdown(listing.VERDICT_HEAD, listing.verdict_rows(record.verdicts(recorded))),
    )
    yield (
        "Other estimators",
        "Errors on the rows for which both give a number; the last three columns are gpulint's on the same rows.",
        listing.markdown(peers.HEAD, shown["peers"]),
    )
    yield (
        "Verdicts of other estimators",
        "A number above the usable memory counts as `exceeds`.",
        listing.markdown(peers.VERDICT_HEAD, shown["peer verdicts"]),
    )
    yield (
        "Rows outside their interval",
        "With what their source does not state.",
        listing.markdown(listing.OUTSIDE_HEAD, shown["outside"]),
    )
