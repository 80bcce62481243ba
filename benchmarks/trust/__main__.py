"""Prints the share of true findings of each draw by severity, and the kinds of the false ones."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

FOLDER = Path(__file__).parent
DRAWS = ("first", "second")


def answers(draw: str) -> list[dict[str, str]]:
    """The reviewed findings of a draw; none where it was not reviewed."""
    path = FOLDER / f"{draw}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def table(rows: list[dict[str, str]]) -> list[str]:
    """One line a run and severity: findings, true, false, undecided, and the true ones among the decided."""
    lines = []
    for run in ("plain", "h100"):
        for severity in ("error", "warning"):
            found = Counter(
                row["answer"] for row in rows if row["severity"] == severity and row["way"] in (run, "both")
            )
            decided = found["true"] + found["false"]
            share = f"{found['true'] / decided:.0%}" if decided else "-"
            counts = f"{found['true']:4} true {found['false']:4} false {found['undecided']:3} undecided"
            lines.append(f"{run:5} {severity:7} {counts}  {share:>4}")
    return lines


def main() -> None:
    """The tables of both draws."""
    for draw in DRAWS:
        rows = answers(draw)
        if not rows:
            continue
        print(f"{draw} draw: {len({row['repo'] for row in rows})} repositories with findings")
        print("\n".join(f"  {line}" for line in table(rows)))
        kinds = Counter(row["kind"] for row in rows if row["answer"] == "false")
        print("\n".join(f"  {number:4} {kind}" for kind, number in kinds.most_common()))


if __name__ == "__main__":
    main()
