"""The table of config formats and launchers for the docs, from the code that reads them."""

from __future__ import annotations

import inspect
import json
import pkgutil
import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from changes_page import section  # type: ignore[import-not-found]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpulint.upstream.behaviour import Default

_HEAD = """# Config formats

<!-- Made by scripts/build.py from linter/gpulint/formats and linter/gpulint/launchers. -->

A format is a kind of file that configures one job. A launcher is a kind of file that starts jobs on hardware: the
command lines and configs inside it are checked as the formats below, and the config files that it names are checked on
the hardware that it requests. Keys are checked at every depth against the named upstream version; an unknown key is a
finding. Where a tool forwards unknown keys, only likely typos are reported.

"""


def page() -> str:
    """The whole page."""
    return _HEAD + "\n".join(
        [
            *_formats(),
            "",
            *_by_hand(),
            "",
            "## Launchers",
            "",
            *_launchers(),
            "",
            "## Programs",
            "",
            *_programs(),
            "",
            "## Suggestions",
            "",
            *section(),
            "",
            "## Versions",
            "",
            *_versions(),
            "",
        ]
    )


def _formats() -> Iterator[str]:
    from gpulint.formats.core.claims import TOOLS
    from gpulint.formats.core.registry import FORMAT_NAMES, find

    yield "| format | upstream | recognised by | known keys | where it states its GPUs |"
    yield "| --- | --- | --- | ---: | --- |"
    for name in FORMAT_NAMES:
        form = find(name)
        yield _row(form.title, form.upstream, TOOLS[name].words, _keys(name), form.hardware)
    yield ""
    silent = [find(name).title for name in FORMAT_NAMES if not _writes(name)]
    yield "Suggestions can be applied as edits in " + (f"all but {', '.join(silent)}." if silent else "all of them.")


def _by_hand() -> Iterator[str]:
    """What no script reads from upstream."""
    listed = json.loads((Path(__file__).parent / "upstreams.json").read_text(encoding="utf-8"))["upstreams"]
    rows = [
        f"{row['name']} {row['version']} (commit {row['revision']})" for row in listed.values() if row.get("listed")
    ]
    yield ("Scripts extract keys, types and defaults from upstream's source, except for " + ", ".join(rows) + ",")
    yield "which were entered and compared by hand."


def _launchers() -> Iterator[str]:
    from gpulint.launchers.registry import LAUNCHER_NAMES, find

    yield "| launcher | upstream | recognised by | where it states its GPUs |"
    yield "| --- | --- | --- | --- |"
    for name in LAUNCHER_NAMES:
        launcher = find(name)
        yield _row(launcher.title, launcher.upstream, _sentence(launcher.recognise), launcher.hardware)


def _programs() -> Iterator[str]:
    from gpulint.launchers.commands.program_table import PROGRAMS

    yield "Commands that are recognised in launchers, with their flags and config files:"
    yield ""
    yield "| format | commands |"
    yield "| --- | --- |"
    heads: dict[str, list[str]] = {}
    for program in PROGRAMS:
        heads.setdefault(program.format, []).extend(program.heads)
    for name, listed in heads.items():
        yield _row(name, ", ".join(f"`{head}`" for head in listed))


def _versions() -> Iterator[str]:
    """What `upstream` and the engine profiles say of older releases."""
    from gpulint.estimator.serving.sglang import profile as sglang
    from gpulint.estimator.serving.vllm import profile as vllm

    yield "Defaults that affect memory and changed between releases. The newest is assumed if no version is stated by"
    yield "`[versions]` in the settings, `--set-version NAME=VERSION`, an image's tag or `pip install NAME==VERSION`."
    yield ""
    yield "| package | release | defaults |"
    yield "| --- | --- | --- |"
    told: dict[tuple[str, str], list[str]] = {}
    for row in _defaults():
        releases = f"before {row.until}" if not row.since else f"from {row.since}, before {row.until}"
        told.setdefault((row.package, releases), []).append(f"{row.name} {_value(row.value)}")
    for (package, releases), values in told.items():
        yield _row(package, releases, ", ".join(values))
    yield _row("peft", "from 0.7 to 0.11", "adapters over unquantized 16-bit weights have their dtype, not float32")
    shares = "of mem_fraction_static, chunked_prefill_size, captured batches and pools of sliding layers"
    yield _row(
        "sglang",
        "from 0.3.0 to 0.5.23",
        f"{1 + len(sglang.table()['profiles'])} sets {shares} (`linter/gpulint/estimator/serving/sglang/sglang.json`)",
    )
    before = ""
    for release in ("0", *(row["since"] for row in vllm.table()["profiles"])):
        profile = vllm.profile(release)
        tiers = "; ".join(f"{seqs} requests, {tokens} tokens from {gib} GiB on" for gib, seqs, tokens in profile.tiers)
        now = f"gpu_memory_utilization {profile.utilization}; {tiers}"
        if now != before:
            yield _row("vllm", "from the first on" if release == "0" else f"from {release} on", now)
            before = now


def _defaults() -> Iterator[Default]:
    """The defaults that moved, in the order of their modules, and of their first releases."""
    from gpulint import upstream
    from gpulint.upstream.behaviour import Default

    for module in pkgutil.walk_packages(upstream.__path__, f"{upstream.__name__}."):
        for value in vars(import_module(module.name)).values():
            rows = [row for row in value if isinstance(row, Default)] if isinstance(value, tuple) else []
            yield from sorted(rows, key=lambda row: [int(part) for part in row.until.split(".")])


def _value(value: Any) -> str:
    """A default, or one by objective: `(sft 1024, others 512)`."""
    if not isinstance(value, dict):
        return json.dumps(value)
    return "(" + ", ".join(f"{name or 'others'} {json.dumps(part)}" for name, part in value.items()) + ")"


def _row(*cells: object) -> str:
    return "| " + " | ".join(re.sub(r"\s+", " ", str(cell)).replace("|", "\\|") for cell in cells) + " |"


def _sentence(function: Callable[..., Any]) -> str:
    text = inspect.getdoc(function) or ""
    return text.partition("\n\n")[0]


def _keys(name: str) -> int | str:
    """Keys of the format's schema at every depth."""
    from gpulint.formats.core.keys import load

    try:
        schema = load(name)
    except FileNotFoundError:
        return ""
    parts = [schema, *schema.get("$defs", {}).values()]
    return sum(len(found) for part in parts for found in _properties(part))


def _properties(part: Any) -> Iterator[dict[str, Any]]:
    if isinstance(part, dict):
        found = part.get("properties")
        if isinstance(found, dict):
            yield found
            for child in found.values():
                yield from _properties(child)
        for key in ("items", "additionalProperties", "anyOf"):
            yield from _properties(part.get(key))
    elif isinstance(part, list):
        for item in part:
            yield from _properties(item)


def _writes(name: str) -> bool:
    """Whether the format has edits of its own: by its table, in a module for them, or beside the reader."""
    from importlib import import_module
    from importlib.util import find_spec

    from gpulint.formats.core.registry import find

    if find(name).table is not None:
        return True
    path = find(name).read.__module__
    module = import_module(path)
    package, _, stem = path.rpartition(".")
    edits = f"{package}.edits" if stem == "format" else f"{path}_edits"
    return hasattr(module, "VOCABULARY") or hasattr(module, "_WORDS") or find_spec(edits) is not None
