"""Writes which releases take which key, from every final release since 2023: `upstream/key_releases/*.json`.

    python scripts/release_keys.py [--sources FOLDER] [--offline] [PACKAGE ...]
    python scripts/release_keys.py --check [PACKAGE ...]

After a new release of a package: run it and read the diff. What is missing in FOLDER (`.upstream/released` unless
named) is fetched: single files of wheels, whole sdists, tags of repositories. `--check` says which tables miss the
newest release of the index (exit code 1). `scripts/releases/packages.py` lists the packages, and those that cannot be
read.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.releases.archives import kept, listed, numbers, obtain, obtain_tags, texts_of  # noqa: E402
from scripts.releases.packages import PACKAGES, Groups, Package  # noqa: E402
from scripts.releases.read import Files  # noqa: E402
from scripts.releases.table import groups_of  # noqa: E402

TABLES = ROOT / "linter" / "gpulint" / "upstream" / "key_releases"


def fetch(name: str, package: Package, folder: Path) -> list[str]:
    """Keep the files of every release of a package; what could not be fetched."""
    if package.repository:
        wanted = re.compile(re.escape(package.root) + f"(?:{package.files})")
        return obtain_tags(package.repository, package.tags, wanted, name, folder)
    failed = obtain(name, re.compile(re.escape(package.root) + f"(?:{package.files})"), folder)
    if package.former:
        failed += obtain(package.former, re.compile(re.escape(f"{package.former}/") + f"(?:{package.files})"), folder)
    return failed


def table(name: str, package: Package, folder: Path) -> dict[str, Any]:
    """The table of a package. Raises ValueError where a release in the middle was not understood."""
    read: dict[str, Groups] = {}
    unread: list[str] = []
    of_former = [(package.former, f"{package.former}/")] if package.former else []
    for called, root in (*of_former, (name, package.root)):
        for release in kept(called, folder):
            files = Files(name, release, texts_of(called, release, folder), root)
            try:
                read[release] = package.keys(files)
            except (LookupError, OSError, TypeError, ValueError, SyntaxError) as error:
                unread.append(release)
                print(f"{called} {release}: {error!r}", file=sys.stderr)
    groups = groups_of({release: read[release] for release in sorted(read, key=numbers)})
    return {
        "package": name,
        "releases": " ".join(sorted(read, key=numbers)),
        "source": f"{package.repository} by tag" if package.repository else "the package index",
        "files": package.root + package.files,
        "unread": " ".join(unread),
        "first": {group: first for group, (first, _) in groups.items()},
        "groups": {group: keys for group, (_, keys) in groups.items()},
    }


def written(made: dict[str, Any]) -> str:
    """JSON with one span a line: the keys of equal spans stand together, those of one section as `section.{a,b}`."""
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in made.items() if key != "groups"]
    groups = []
    for group, keys in made["groups"].items():
        together: dict[str, list[str]] = {}
        for key, span in keys.items():
            together.setdefault(span, []).append(key)
        ordered = sorted(together, key=lambda span: [numbers(part) for part in span.split()])
        rows = ",\n".join(f"      {json.dumps(span)}: {json.dumps(folded(together[span]))}" for span in ordered)
        groups.append(f"    {json.dumps(group)}: {{\n{rows}\n    }}")
    return "{\n" + ",\n".join([*lines, '  "groups": {\n' + ",\n".join(groups) + "\n  }"]) + "\n}\n"


def folded(keys: list[str]) -> str:
    """Dotted keys as one text, those of one section behind one prefix."""
    sections: dict[str, list[str]] = {}
    for key in keys:
        section, _, name = key.rpartition(".")
        sections.setdefault(section, []).append(name)
    texts = []
    for section, names in sections.items():
        if section and len(names) > 1:
            texts.append(f"{section}.{{{','.join(names)}}}")
        else:
            texts += [f"{section}.{name}" if section else name for name in names]
    return " ".join(texts)


def stale(names: list[str]) -> int:
    """Print the tables that miss the newest release; 1 where there are any."""
    found = 0
    for name in names:
        path = TABLES / f"{name}.json"
        held = json.loads(path.read_text(encoding="utf-8"))["releases"].split()[-1] if path.is_file() else "0"
        newest = listed(name)[-1].version if not PACKAGES[name].repository else held
        if numbers(newest) > numbers(held):
            print(f"newer {name}: {newest}, read to {held}")
            found = 1
    return found


def main(arguments: list[str]) -> int:
    """Write the tables, or check them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="PACKAGE", help="all unless named")
    parser.add_argument("--check", action="store_true", help="say which tables miss the newest release")
    parser.add_argument("--offline", action="store_true", help="fetch nothing")
    parser.add_argument(
        "--sources", type=Path, default=ROOT / ".upstream" / "released", help="where the files are kept"
    )
    given = parser.parse_args(arguments)
    names = given.names or [*PACKAGES]
    if given.check:
        return stale(names)
    failed = 0
    for name in names:
        missing = [] if given.offline else fetch(name, PACKAGES[name], given.sources)
        print(*missing, sep="\n", file=sys.stderr, end="" if not missing else "\n")
        try:
            made = table(name, PACKAGES[name], given.sources)
        except ValueError as error:
            failed = 2
            print(f"not made {name}: {error}", file=sys.stderr)
            continue
        (TABLES / f"{name}.json").write_text(written(made), encoding="utf-8")
        print(f"{name}: {len(made['releases'].split())} releases, {sum(map(len, made['groups'].values()))} keys")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
