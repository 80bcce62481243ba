"""Whether gpulint finds what a tool's own validators refuse: `python -m benchmarks.refusals [UPSTREAM ...]`.

Each upstream is a file here, drawn from its validators and not from gpulint's rules: bases that the tool takes, and
cases that each make one mistake in a base, with the answer that the tool's own code of the named release gave. The
mistake must be an error at one of the case's keys; the same config without it, its twin, must have no finding there and
no error at all. The cases of `launching` are whole files (a script, a manifest, a Dockerfile) drawn from manuals, with
one place changed; a line of that place must be named, with the case's level or a worse one. A file's `reasons` name
the validators of which there is no case, and why.
"""

from __future__ import annotations

import argparse
import sys

from .score import scored, upstreams


def main() -> int:
    """Print a row for each upstream; exit with 1 where less is found than each is to reach, or a twin is accused."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.refusals", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("upstreams", nargs="*", help=f"of {', '.join(upstreams())}; default all")
    parser.add_argument("--verbose", action="store_true", help="every case that is missed, and every accused twin")
    given = parser.parse_args()
    failed = False
    for name in given.upstreams or upstreams():
        score = scored(name)
        failed |= not score.passes
        print(score.line)
        for outcome in score.outcomes if given.verbose else ():
            if outcome.text:
                print(f"  {outcome.text}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
