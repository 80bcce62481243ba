"""One upstream's cases: written, checked, and compared with what its validators said."""

from __future__ import annotations

import json
import re
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from gpulint import check
from gpulint.settings.settings import Settings

from .changed_files import said

if TYPE_CHECKING:
    from gpulint.finding import Finding

LEAST = 0.95
"""The share of refusals that must be found at the key."""

HERE = Path(__file__).parent


class Outcome(NamedTuple):
    """A case: whether it was found at a key, or elsewhere; whether the twin is accused; no `text` if all is right."""

    found: bool
    elsewhere: bool
    accused: bool
    text: str


class Score(NamedTuple):
    """The cases of one upstream."""

    name: str
    release: str
    outcomes: list[Outcome]

    @property
    def found(self) -> int:
        """Cases found at the key."""
        return sum(item.found for item in self.outcomes)

    @property
    def accused(self) -> int:
        """Twins of which something is said."""
        return sum(item.accused for item in self.outcomes)

    @property
    def passes(self) -> bool:
        """Whether enough is found and no twin is accused."""
        return self.found >= LEAST * len(self.outcomes) and not self.accused

    @property
    def line(self) -> str:
        """The row that is printed."""
        whole, elsewhere = len(self.outcomes), sum(item.elsewhere and not item.found for item in self.outcomes)
        share = f"{100 * self.found / whole:.1f} %"
        return (
            f"{self.name:14} {self.release:16} {self.found:4} of {whole:4} refusals at the key ({share}), "
            f"{elsewhere} elsewhere, {self.accused} twins accused"
        )


def upstreams() -> list[str]:
    """The upstreams of which there are cases."""
    return sorted(path.stem for path in HERE.glob("*.json"))


def scored(name: str) -> Score:
    """All cases of one upstream, each in a folder of its own."""
    table = json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        outcomes = [_outcome(Path(folder, str(number)), table, case) for number, case in enumerate(table["cases"])]
    return Score(name, table["release"], outcomes)


def _outcome(folder: Path, table: dict[str, Any], case: dict[str, Any]) -> Outcome:
    base = table["bases"][case["base"]]
    if "lines" in base:
        return _of_file(folder, base, case)
    twin = {**table["bases"][case["base"]], **case["also"]}
    wrong = {key: value for key, value in {**twin, **case["set"]}.items() if key not in case["drop"]}
    findings, lines = _checked(folder / "wrong", table, case, wrong)
    found = any(item.severity == "error" and _at_key(item, lines, case["at"]) for item in findings)
    elsewhere = any(item.severity == "error" for item in findings)
    of_twin, lines = _checked(folder / "twin", table, case, twin)
    said = [
        item for item in of_twin
        if item.severity == "error" or (item.severity == "warning" and _at_key(item, lines, case["at"]))
    ]  # fmt: skip
    mistake = " ".join(
        [*(f"{key}={value!r}" for key, value in case["set"].items()), *(f"-{key}" for key in case["drop"])]
    )
    text = "" if found else f"missed {case['validator']}: {mistake} on {case['base']} | {case['answer'][:90]}"
    if elsewhere and not found:
        text += f" (elsewhere: {', '.join(sorted({item.rule for item in findings if item.severity == 'error'}))})"
    if said:
        text += f" twin of {case['validator']} ({mistake}) accused: {said[0].rule} {said[0].message[:90]}"
    return Outcome(found, elsewhere, bool(said), text)


def _of_file(folder: Path, base: dict[str, Any], case: dict[str, Any]) -> Outcome:
    """A case that is a file with one place changed."""
    result = said(folder, base, case)
    rules = ", ".join(sorted({item.rule for item in result.elsewhere}))
    mistake = "; ".join(new.strip() or f"without {old.strip()}" for old, new in case["replace"])
    text = "" if result.found else f"missed {case['base']}: {mistake[:110]!r} | {case['answer'][:90]}"
    if not result.found and rules:
        text += f" (elsewhere: {rules})"
    if result.of_twin:
        first = result.of_twin[0]
        text += f" twin of {case['base']} ({mistake[:90]!r}) accused: {first.rule} {first.message[:120]}"
    return Outcome(result.found, bool(result.elsewhere), bool(result.of_twin), text)


def _checked(
    folder: Path, table: dict[str, Any], case: dict[str, Any], config: dict[str, Any]
) -> tuple[list[Finding], list[str]]:
    """The findings of a config: a file or, with `flags`, the options of a command, one a line."""
    folder.mkdir(parents=True)
    for path, text in table.get("files", {}).items():
        (folder / path).write_text(text, encoding="utf-8")
    program = table.get("programs", {}).get(case["base"], "")
    gpus = case.get("gpus", table.get("gpus", 1))
    start = table.get("command", table.get("flags", "")).format(gpus=gpus, program=program)
    if "flags" in table:
        exports = [f"export {name}={value}" for name, value in case.get("env", {}).items()]
        options = [_option(table, key, value) for key, value in config.items()]
        lines = [*exports, *(f"{line} \\" for line in (start, *options[:-1])), options[-1]]
        checked, text = folder / "train.sh", "\n".join(lines) + "\n"
    else:
        written = table.get("written", "yaml")
        checked, text = folder / table.get("file", f"config.{written}"), _file(written, config)
        lines = text.splitlines()
    checked.write_text(text, encoding="utf-8")
    if "command" in table:
        checked = folder / "train.sh"
        checked.write_text(start, encoding="utf-8")
    settings = Settings(
        root=str(folder),
        gpus=gpus,
        gpu=table.get("gpu", GPUS.get(case.get("capability", ""))),
        versions=table.get("versions", {table["upstream"]: case.get("release", table["release"])}),
    )
    return check([str(checked)], settings).findings, lines


def _option(table: dict[str, Any], key: str, value: object) -> str:
    """One option of a command: an override, a bare switch or a flag with its value."""
    if table.get("written") == "overrides":
        return f"{key}={value}"
    if value is True and (table["format"] == "megatron" or table.get("written") == "flags"):
        return f"--{key}"
    return f"--{key} {shlex.quote(json.dumps(value)) if isinstance(value, (dict, list)) else value}"


def _file(written: str, config: dict[str, Any]) -> str:
    """A config in its tool's notation; a key with dots stands inside the tables that it names."""
    nested: dict[str, Any] = {}
    for key, value in config.items():
        *tables, name = key.split(".")
        table = nested
        for each in tables:
            table = table.setdefault(each, {})
        table[name] = value
    if written == "json":
        return json.dumps(nested, indent=2) + "\n"
    if written == "toml":
        return "".join(
            f"[{table}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in items.items())
            for table, items in nested.items()
        )
    return yaml.safe_dump(nested, sort_keys=False)


GPUS = {"sm_70": "v100-32gb", "sm_75": "t4", "sm_80": "a100-80gb", "sm_90": "h100-80gb", "sm_100": "b200"}
"""A card of a compute capability, for the cases that have one."""


def _at_key(finding: Finding, lines: list[str], keys: list[str]) -> bool:
    """Whether a finding points at a line of one of the keys, or of a value inside one."""
    file = Path(finding.location.path)
    place = finding.location.span.line - 1
    if file.name == "train.sh" and place < len(lines):
        return re.split("[ =]", lines[place])[0].removeprefix("--") in keys
    if not file.stem.endswith("config"):
        return False
    return not keys_above(lines, place).isdisjoint(keys)


def keys_above(lines: list[str], place: int) -> set[str]:
    """The keys that a line of a file stands under, and its own: each alone and with the tables that it stands in."""
    names: list[str] = []
    while True:
        indent = _indent(lines[place])
        names.append(re.split("[:=]", lines[place].lstrip(" -"))[0].strip(' "'))
        above = [number for number in range(place) if _indent(lines[number]) < indent]
        header = [number for number in range(place) if lines[number].startswith("[")]
        if not above:
            break
        place = above[-1]
    if header:
        names.append(lines[header[-1]].strip("[]"))
    paths = [".".join(reversed(names[number:])).lstrip("{.") for number in range(len(names))]
    return {*names, *paths}


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" -"))
