"""What the default rules find in published configs, and how much of it is true.

python -m benchmarks.corpus.crater ../shared/corpus                # check every file; a row a rule
python -m benchmarks.corpus.crater ../shared/corpus --list GPU112  # the findings of a rule, with their messages
python -m benchmarks.corpus.crater ../shared/corpus --sample 15    # of each rule that many findings, spread evenly

Each file is checked on the hardware that it states, else that its entry in INDEX.json states (`stated`), else on none.
`reviewed.json` holds what people found who read findings: a finding is true, ours (gpulint is wrong), or open (the file
and what upstream publishes do not settle it). Precision is true / (true + ours) of the findings read.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpulint.rules.load import load_rules
from gpulint.run.check import check
from gpulint.settings.settings import Settings

from .stated import StatedLayers

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpulint.finding import Finding, Report

TARGET = 0.95
"""Below this precision a rule is preview."""


def crater(folder: Path, paths: Sequence[str] | None = None, jobs: int = 1) -> Report:
    """Check the corpus, or files of it by their paths in the index."""
    chosen = [str(folder)] if paths is None else [str(folder / path) for path in paths]
    return check(chosen, StatedLayers(folder), jobs=jobs)


def where(finding: Finding, folder: Path) -> str:
    """`path:line` of a finding, the path as in the index."""
    path = os.path.relpath(os.path.realpath(finding.location.path), os.path.realpath(folder))
    return f"{path}:{finding.location.span.line}"


def by_rule(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    """Findings by rule, rules in order."""
    found: dict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        found[finding.rule].append(finding)
    return dict(sorted(found.items()))


def spread(findings: Sequence[Finding], count: int) -> list[Finding]:
    """So many of the findings, evenly over them."""
    if len(findings) <= count:
        return [*findings]
    return [findings[number * len(findings) // count] for number in range(count)]


def table(found: dict[str, list[Finding]], folder: Path, reviewed: dict[str, Any]) -> list[str]:
    """A row a rule that fires: findings, how many were read, were true, ours, open, and the precision."""
    form = "{:<7} {:<45} {:<8} {:>8} {:>5} {:>5} {:>5} {:>5} {:>9}"
    lines = [form.format("rule", "name", "severity", "findings", "read", "true", "ours", "open", "precision")]
    for rule, findings in found.items():
        here = {where(finding, folder) for finding in findings}
        said = reviewed.get(rule, {})
        read = here if said.get("read") == "all" else here & {*said.get("read", ())}
        ours, undecided = read & {*said.get("ours", {})}, read & {*said.get("open", {})}
        true = len(read) - len(ours) - len(undecided)
        precision = f"{true / (true + len(ours)):.1%}" if true + len(ours) else "-"
        severity = min((finding.severity for finding in findings), key=("error", "warning", "info").index)
        lines.append(
            form.format(
                rule, findings[0].name, severity, len(findings), len(read), true, len(ours), len(undecided), precision
            )
        )
    return lines


def reviewed() -> dict[str, Any]:
    """What was found by reading findings, by rule."""
    return json.loads(Path(__file__).with_name("reviewed.json").read_text(encoding="utf-8"))["rules"]  # type: ignore[no-any-return]


def main() -> int:
    """Check the corpus and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--list", metavar="RULE", help="the findings of one rule")
    parser.add_argument("--sample", type=int, metavar="COUNT", help="so many findings of each rule")
    options = parser.parse_args()
    found = by_rule(crater(options.folder, jobs=options.jobs).findings)
    if options.list or options.sample:
        for rule, findings in found.items():
            if options.list in (None, rule):
                for finding in spread(findings, options.sample or len(findings)):
                    print(f"{rule} {finding.severity} {where(finding, options.folder)}: {finding.message}")
        return 0
    print("\n".join(table(found, options.folder, reviewed())))
    files = len({where(finding, options.folder).rpartition(":")[0] for rows in found.values() for finding in rows})
    silent = len(load_rules(Settings()).rules) - len(found)
    print(f"{sum(map(len, found.values()))} findings in {files} files; {silent} default rules find nothing")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
