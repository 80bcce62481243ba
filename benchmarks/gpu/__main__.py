"""Runs a slice of the grid, each point in a process of its own; a file of rows grows after every point.

What is in the file already is not run again, so a slice that ran out of time goes on where it stopped. A point that
fails for another reason than memory is listed under `failed` and tried again next time.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from . import grid, rows
from .driver import nvidia_smi

POINT_SECONDS = 180
NEEDS = {"qlora": ("peft", "bitsandbytes"), "lora": ("peft",)}


def main() -> int:
    """Run a slice, or one point for the driver."""
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}", description="Measured GPU runs as rows.")
    parser.add_argument("--slice", default="1/1", metavar="I/N", help="every N-th point from the I-th on")
    parser.add_argument("--seconds", type=float, default=500.0, help="start no point that would end later than this")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "rows", help="folder for the file of rows")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--tiny", action="store_true", help="shrunken models and a few tokens, to try the pipeline")
    parser.add_argument("--only", default="", help="only points whose name contains this")
    parser.add_argument("--list", action="store_true", help="print the points of the slice and stop")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    parser.add_argument("--before", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.point:
        return _point(options)
    index, count = map(int, options.slice.split("/"))
    chosen = [point for point in grid.points()[index - 1 :: count] if options.only in point.id]
    if options.list:
        print("\n".join(point.id for point in chosen))
        return 0
    name = f"{options.device}-{index}-of-{count}.json"
    options.out.mkdir(parents=True, exist_ok=True)
    return _slice(chosen, options.out / name, options)


def _slice(chosen: list[grid.Point], path: Path, options: argparse.Namespace) -> int:
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"rows": [], "failed": {}}
    done = {row["id"] for row in found["rows"]}
    start, longest = time.monotonic(), 0.0
    for point in chosen:
        began = time.monotonic()
        if f"own-{point.id}" in done:
            continue
        if began - start + longest > options.seconds:
            print(f"out of time; run the same again for the rest of {path.name}")
            return 1
        missing = [name for name in _needs(point) if importlib.util.find_spec(name) is None]
        if missing:
            found["failed"][point.id] = f"needs {', '.join(missing)}"
        else:
            _run(point, found, options)
        path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        longest = max(longest, time.monotonic() - began)
    return 0


def _needs(point: grid.Point) -> tuple[str, ...]:
    return (*NEEDS.get(point.method, ()), *(("bitsandbytes",) if "8bit" in point.optimizer else ()))


def _run(point: grid.Point, found: dict[str, Any], options: argparse.Namespace) -> None:
    """Run a point in its own process and file its row, or the reason why there is none."""
    command = [sys.executable, "-m", str(__package__), "--point", json.dumps(point), "--device", options.device]
    command += ["--before", str(nvidia_smi() if options.device == "cuda" else 0), *(["--tiny"] if options.tiny else [])]
    above = Path(__file__).resolve().parents[str(__package__).count(".") + 1]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=POINT_SECONDS, cwd=above, check=False)
    except subprocess.TimeoutExpired:
        found["failed"][point.id] = f"took longer than {POINT_SECONDS} s"
        return
    if done.returncode:
        found["failed"][point.id] = (done.stderr.strip() or "no message").splitlines()[-1][:300]
        print(f"{point.id}: failed: {found['failed'][point.id]}", flush=True)
        return
    row = json.loads(done.stdout.splitlines()[-1])
    found["rows"].append(row)
    found["failed"].pop(point.id, None)
    print(f"{point.id}: {row['outcome']} {row['measured_gib']} GiB", flush=True)


def _point(options: argparse.Namespace) -> int:
    """Measure one point and print its row."""
    from .run import measure

    point = grid.Point(*json.loads(options.point))
    name = f"own-{point.id}"
    config = grid.config(point, tiny=options.tiny)
    if options.tiny:
        point = grid.shrunk(point)
    result = measure(point, config, options.device, options.before)
    print(json.dumps(rows.row(name, point, config, result)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
