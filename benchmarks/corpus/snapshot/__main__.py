"""What gpulint says of many inputs, written down and compared: the net under a change that is to change nothing.

python -m benchmarks.corpus.snapshot write ../shared/corpus new.jsonl.gz --part 1/10      # while working: minutes
python -m benchmarks.corpus.snapshot write ../shared/corpus cases.jsonl.gz --kind cases
python -m benchmarks.corpus.snapshot compare old.jsonl.gz new.jsonl.gz
python -m benchmarks.corpus.snapshot compare BASELINE/ new.jsonl.gz --renames renames.json --section facts

Four kinds of items: every file of the corpus (as checked, the Job with its origins, its estimate and derivation, on the
hardware that is stated of it, else on 8 x h100-80gb), every example of every rule, every case that
`benchmarks.accuracy` scores, every model of the catalogue under seven jobs. An error is a part of its item.

A line holds `facts` and, apart, `words`: messages, notes, formulas. OLD may be a folder of snapshots; of it only the
kinds and the part of NEW are compared. RENAMES is a JSON mapping of old to new names: a name is one or several dotted
steps of a path (`job.longest_batch_first`), a rule's id in the key of an item, or a whole value (`rl.prompt_length`).
Exit code 0: no difference; 1: some.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from . import files
from .differences import compare, report
from .items import KINDS, Part, written

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .plain import Item


def main(arguments: list[str] | None = None) -> int:
    """Write or compare; returns the exit code."""
    text = __doc__ or ""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.corpus.snapshot",
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True)
    write = commands.add_parser("write", help="write a snapshot")
    write.add_argument("folder", type=Path, help="the corpus, a folder with INDEX.json")
    write.add_argument("out", type=Path)
    write.add_argument("--part", type=_part, default=Part(), metavar="K/N", help="the K-th of N shares of the items")
    write.add_argument("--kind", action="append", choices=KINDS, help="may be repeated; all without it")
    write.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    write.set_defaults(run=_write)
    other = commands.add_parser("compare", help="tell two snapshots apart")
    other.add_argument("old", type=Path)
    other.add_argument("new", type=Path)
    other.add_argument("--renames", type=Path, help="a JSON mapping of old to new names, applied to OLD")
    other.add_argument("--section", choices=("facts", "words"), help="only differences of this section in detail")
    other.add_argument("--under", default="", metavar="PATH", help="only paths that begin so in detail")
    other.add_argument("--changes", type=int, default=5, help="changes shown of one path")
    other.add_argument("--items", type=int, default=3, help="items shown of one change")
    other.set_defaults(run=_compare)
    options = parser.parse_args(arguments)
    code: int = options.run(options)
    return code


def _write(options: argparse.Namespace) -> int:
    kinds = options.kind or KINDS
    out = options.out.resolve()
    count = files.write(out, kinds, options.part, _all(kinds, options))
    print(f"{count} items in {options.out}", file=sys.stderr)
    return 0


def _all(kinds: Sequence[str], options: argparse.Namespace) -> Iterator[Item]:
    for kind in kinds:
        begun, count = time.monotonic(), 0
        for item in written(kind, options.folder, options.part, options.jobs):
            count += 1
            yield item
        print(f"{kind}: {count} items, {time.monotonic() - begun:.0f} s", file=sys.stderr)


def _compare(options: argparse.Namespace) -> int:
    renames = json.loads(options.renames.read_text(encoding="utf-8")) if options.renames else {}
    found = compare(files.read(options.old), files.read(options.new), renames)
    print("\n".join(report(found, options.section, options.under, options.changes, options.items)))
    return 1 if found else 0


def _part(text: str) -> Part:
    number, _, of = text.partition("/")
    part = Part(int(number), int(of))
    if not 1 <= part.number <= part.of:
        raise argparse.ArgumentTypeError(f"{text} is no part such as 1/10")
    return part


if __name__ == "__main__":
    raise SystemExit(main())
