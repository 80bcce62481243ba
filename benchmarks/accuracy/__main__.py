"""Estimates against published figures.

python -m benchmarks.accuracy                              # all groups
python -m benchmarks.accuracy --group fms --worst 10       # the worst rows of a group and what they consist of
python -m benchmarks.accuracy --excluded                   # the rows that no Job says, with reasons
python -m benchmarks.accuracy --outside                    # the rows that their interval does not hold
python -m benchmarks.accuracy --check                      # only what is worse than recorded; exit code 1 for any
python -m benchmarks.accuracy --record                     # write recorded.json; then scripts/build.py, the pages
python -m benchmarks.accuracy --peers                      # other estimators on the same rows
python -m benchmarks.accuracy --peers --peers-venv DIR     # ask those that run again: fitcheck-llm, accelerate
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from . import fresh_rows, headline, listing, megatron_rows, record
from .case import SHARED
from .scores import by_group, is_tested, score_all, verdicts
from .sources import everything

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .scores import Scored


def main() -> int:
    """Score, print, and say whether anything recorded got worse."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accuracy", description="Estimates against published figures."
    )
    parser.add_argument("--group", default="", help="only groups and rows whose name contains this")
    parser.add_argument("--worst", type=int, default=0, metavar="N", help="list the N worst rows with their components")
    parser.add_argument("--excluded", action="store_true", help="list the rows that are not scored")
    parser.add_argument("--outside", action="store_true", help="list the rows that their interval does not hold")
    parser.add_argument("--verdicts", action="store_true", help="list the rows with a wrong verdict")
    parser.add_argument("--check", action="store_true", help="only say what is worse than recorded")
    parser.add_argument("--record", action="store_true", help="write recorded.json, from which docs/ are built")
    parser.add_argument("--peers", action="store_true", help="score other estimators beside ours")
    parser.add_argument(
        "--peers-venv",
        type=Path,
        metavar="DIR",
        help="virtual environment with fitcheck-llm, accelerate, transformers",
    )
    options = parser.parse_args()
    if options.check and not SHARED.is_dir():
        print("accuracy: the tables of measurements are not here, nothing is scored")
        return 0
    cases, excluded = everything()
    if options.group:
        cases = [case for case in cases if options.group in case.group or options.group in case.id]
        excluded = [item for item in excluded if options.group in item.group or options.group in item.id]
    scored, refused = score_all(cases)
    scores, found = by_group(scored), verdicts(scored)
    first = [score for score in (*fresh_rows.blind(), *megatron_rows.blind()) if options.group in score.name]
    totals = headline.totals(scored, None if not options.group else [])
    kinds = headline.kinds(scored)
    if options.check:
        return _told(record.worse(record.read(), record.build([*scores, *first], found, totals, kinds)))
    print(listing.text(listing.HEAD, listing.score_rows([*scores, *first])))
    print("\n" + listing.text(listing.VERDICT_HEAD, listing.verdict_rows(found)))
    print("\n" + listing.text(headline.HEAD, headline.cells([*totals, *kinds])))
    print(f"\n{len(scored)} figures scored; {len(excluded) + len(refused)} rows not expressible (--excluded)")
    compared = _peers(scored, options.peers_venv) if options.peers or options.record else {}
    if options.outside:
        print("\n" + listing.text(listing.OUTSIDE_HEAD, listing.outside_rows(scored)))
    if options.excluded:
        for group, rows, reason in listing.excluded_rows([*excluded, *refused]):
            print(f"{rows:>4}  {group}: {reason}")
    if options.worst:
        print("\n" + listing.worst(scored, options.worst))
    if options.verdicts:
        wrong = [
            item
            for item in scored
            if (item.case.outcome, item.estimate.verdict) in (("fits", "exceeds"), ("oom", "fits"), ("oom", "tight"))
        ]
        print("\n" + "\n\n".join(listing.details(item) for item in wrong))
    now = record.build([*scores, *first], found, totals, kinds)
    if options.record:
        counts = [["figures scored", str(len(scored))], ["rows left out", str(len(excluded) + len(refused))]]
        tested = [item for item in scored if is_tested(item.case)]
        share = record.build(by_group(tested), verdicts(tested), headline.totals(tested, []), headline.kinds(tested))
        record.write({**now, "tested": share}, {**compared, "outside": listing.outside_rows(scored), "counts": counts})
    elif not options.group and record.PATH.exists():
        print()
        return _told(record.worse(record.read(), now))
    return 0


def _told(changes: Sequence[str]) -> int:
    """Say what is worse than recorded; 1 where anything is."""
    print("accuracy: nothing is worse than recorded" if not changes else "worse than recorded:")
    print(*(f"  {change}" for change in changes), sep="\n", end="\n" if changes else "")
    return int(bool(changes))


def _peers(scored: Sequence[Scored], venv: Path | None) -> dict[str, Sequence[Sequence[str]]]:
    from benchmarks.peers import asking

    from . import peers

    if venv is not None:
        asking.record(venv, peers.questions(scored))
    said, unrecorded = peers.answers(scored)
    tables = {"peers": peers.table(scored, said), "peer verdicts": peers.verdicts(said)}
    print("\n" + listing.text(peers.HEAD, tables["peers"]))
    print("\n" + listing.text(peers.VERDICT_HEAD, tables["peer verdicts"]))
    if unrecorded:
        print(f"\n{unrecorded} questions were never put to fitcheck-llm or accelerate (--peers-venv)")
    return dict(tables)


if __name__ == "__main__":
    sys.exit(main())
