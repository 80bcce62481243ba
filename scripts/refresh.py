"""Refreshes the schemas and tables that are read from upstream tools; one command, one list: `scripts/upstreams.json`.

    python scripts/refresh.py [--sources FOLDER] [OUTPUT or UPSTREAM ...]
    python scripts/refresh.py --check [--offline] [OUTPUT or UPSTREAM ...]

A new upstream release: raise its `version` (or `revision`) in the list, run the command, read the diff. What is missing
in FOLDER (`.upstream` unless named) is downloaded with pip or cloned with git; nothing upstream is imported. pip runs
the setup of a package that has no wheel (DeepSpeed), which needs setuptools and wheel beside it.

`--check` says which outputs do not carry the stated version (exit code 1) and, unless `--offline`, for which upstreams
there is a newer one. Keys that upstream drops stay in a schema as removed ones, with the release
that dropped them (`scripts/release_keys.py` first).
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from gpulint.upstream.key_releases.table import standing  # noqa: E402
from scripts.upstream.schema import Json, add_former, add_known, table, written  # noqa: E402
from scripts.upstream.source import Source, Upstream, obtain  # noqa: E402

LIST = ROOT / "scripts" / "upstreams.json"
FORMER = ROOT / "scripts" / "upstream" / "former.json"


class Output(NamedTuple):
    """A generated file: its path, its generator, and the upstreams it is made from; `own` are those of its stamp."""

    path: str
    make: str
    own: tuple[Upstream, ...]
    also: tuple[Upstream, ...]
    former: str

    @property
    def stamp(self) -> str:
        """The upstreams and their versions."""
        return ", ".join(upstream.stamp for upstream in self.own)

    @property
    def read(self) -> list[Upstream]:
        """The upstreams whose files the generator is given."""
        return [upstream for upstream in (*self.own, *self.also) if not upstream.listed]

    @property
    def is_schema(self) -> bool:
        """Whether the file is a schema of a format, or a table of facts."""
        return self.path.startswith("schemas/")


def outputs(names: list[str] | None = None) -> list[Output]:
    """The declared outputs, or those whose path, file name or upstream is named. Raises SystemExit for a wrong name."""
    listed = json.loads(LIST.read_text(encoding="utf-8"))
    rows = {name: Upstream(**row) for name, row in listed["upstreams"].items()}
    found: list[Output] = []
    known: set[str] = set()
    for path, row in listed["outputs"].items():
        called = {path, Path(path).stem, *row["from"], *row.get("also", ())}
        known |= called
        if not names or called & set(names):
            own, also = (tuple(rows[name] for name in row.get(part, ())) for part in ("from", "also"))
            found.append(Output(path, row["make"], own, also, row.get("former", "")))
    wrong = sorted(set(names or ()) - known)
    if wrong:
        raise SystemExit(f"no output or upstream is called {', '.join(wrong)}; {LIST.name} lists them")
    return found


def stamp_of(path: str) -> str:
    """The upstream that a generated file says it was made from; "" where there is no such file."""
    file = ROOT / path
    if not file.is_file():
        return ""
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return str(content.get("x-upstream" if path.startswith("schemas/") else "upstream", ""))


def make(output: Output, folder: Path) -> str:
    """The new text of an output. Raises FileNotFoundError where an upstream is not in `folder`."""
    module, _, function = output.make.partition(".")
    sources = [Source(upstream, folder) for upstream in output.read]
    made: Json = getattr(import_module(f"scripts.upstream.{module}"), function)(*sources)
    if not output.is_schema:
        return table({"upstream": output.stamp, **made})
    made["x-upstream"] = output.stamp
    file = ROOT / output.path
    before = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    own, kept = len(made["properties"]), 0
    if output.former == "removed":
        kept = add_former(made, before, json.loads(FORMER.read_text(encoding="utf-8")), partial(dropped, file.stem))
    elif output.former == "known":
        kept = add_known(made, before)
    print(f"{output.path}: {own} top keys of {output.stamp}" + (f", {kept} of former releases" if kept else ""))
    return written(made)


def dropped(schema: str, key: str) -> str:
    """The release that dropped a key of a schema, as the tables of `scripts/release_keys.py` have it: `vllm 0.10.0`."""
    found = standing(schema, key, {})
    if found is None or not found.until:
        raise SystemExit(f"no table says when {schema} lost {key}; run scripts/release_keys.py first")
    return f"{found.package} {found.until}"


def check(chosen: list[Output], *, offline: bool) -> int:
    """Print what is stale against the list and, with the network, which upstreams have moved on; 1 when stale."""
    stale = [output for output in chosen if stamp_of(output.path) != output.stamp]
    for output in stale:
        print(f"stale {output.path}: made from {stamp_of(output.path) or 'nothing'}, stated {output.stamp}")
    if not offline:
        for upstream in dict.fromkeys(upstream for output in chosen for upstream in output.own if not upstream.fixed):
            commit, release = newest_of(upstream)
            if commit and not commit.startswith(upstream.revision):
                print(f"newer {upstream.name}: {commit}, stated {upstream.revision}")
            elif release and numbers(release) > numbers(upstream.version):
                print(f"newer {upstream.name}: {release}, stated {upstream.version}")
            elif not commit and not release:
                print(f"unknown {upstream.name}: neither pip nor git says which is the newest")
    print(f"{len(chosen) - len(stale)} of {len(chosen)} outputs carry the stated version")
    return int(bool(stale))


def newest_of(upstream: Upstream) -> tuple[str, str]:
    """The newest commit of a repository and the newest release in the index; "" for what cannot be asked."""
    commit = release = ""
    if upstream.repository:
        words = ["git", "ls-remote", f"https://github.com/{upstream.repository}", "HEAD"]
        commit = _answer(words, r"^([0-9a-f]+)")
    package = upstream.package or upstream.released_as
    if package and not commit:
        release = _answer([sys.executable, "-m", "pip", "index", "versions", package], r"\(([^)]+)\)")
    return commit, release


def numbers(version: str) -> list[int]:
    """The numbers of a release, `0.10.0.dev` as 0, 10, 0."""
    return [int(part) for part in re.findall(r"\d+", version.partition("+")[0])]


def _answer(words: list[str], pattern: str) -> str:
    """What a command says that fits the pattern; "" where it fails."""
    try:
        answer = subprocess.run(words, capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        return ""
    found = re.search(pattern, answer.stdout)
    return found[1] if found and not answer.returncode else ""


def main(arguments: list[str]) -> int:
    """Write the outputs, or check them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="an output or upstream of upstreams.json; all unless named"
    )
    parser.add_argument("--check", action="store_true", help="say what is stale and write nothing")
    parser.add_argument("--offline", action="store_true", help="do not ask for newest versions, and download nothing")
    parser.add_argument("--sources", type=Path, default=ROOT / ".upstream", help="where the upstreams are")
    given = parser.parse_args(arguments)
    chosen = outputs(given.names)
    if given.check:
        return check(chosen, offline=given.offline)
    failed = 0
    for output in chosen:
        try:
            for upstream in output.read if not given.offline else ():
                obtain(upstream, given.sources)
            text = make(output, given.sources)
        except (FileNotFoundError, subprocess.CalledProcessError) as error:
            failed = 2
            print(f"not made {output.path}: {error}", file=sys.stderr)
            continue
        (ROOT / output.path).write_text(text, encoding="utf-8")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
