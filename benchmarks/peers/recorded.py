"""Answers of tools that were run: `recorded.json`, with the tools' versions and the command that wrote it."""

from __future__ import annotations

import hashlib
import json
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .question import Unrecorded, Unsaid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpulint.models.model import Model

    from .question import Question

PATH = Path(__file__).parent / "recorded.json"
SCRIPT = Path(__file__).parent / "ask.py"
COMMAND = "python -m benchmarks.accuracy --peers --peers-venv DIR"


@cache
def answers() -> dict[str, Any]:
    """Tool -> the request's key -> what the tool said, or its refusal as a text."""
    if not PATH.exists():
        return {}
    found: dict[str, Any] = json.loads(PATH.read_text(encoding="utf-8"))["answers"]
    return found


def look_up(tool: str, key: str) -> dict[str, float]:
    """The recorded answer. Raises Unsaid with the tool's refusal, Unrecorded where it was never asked."""
    found = answers().get(tool, {}).get(key)
    if found is None:
        raise Unrecorded("not recorded (--peers-venv)")
    if isinstance(found, str):
        raise Unsaid(found)
    said: dict[str, float] = found
    return said


def label(model: Model) -> str:
    """A hub id, or the type and a digest of a config that is not on the hub."""
    if model.source.startswith("catalogue"):
        return str(model.id)
    text = json.dumps(model.config, sort_keys=True, default=str)
    return f"{model.model_type}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def record(venv: Path, questions: Iterable[Question]) -> None:
    """Put every question to the tools installed in `venv`, offline, and write `recorded.json`.

    `-I` keeps this folder, whose files are named after the tools, out of that interpreter's path.
    """
    from . import accelerate, fitcheck

    requests: dict[tuple[str, str], dict[str, Any]] = {}
    for question in questions:
        for tool in (fitcheck, accelerate):
            try:
                request = tool.request(question)
            except Unsaid:
                continue
            requests[request["tool"], request["key"]] = request
    done = subprocess.run(
        [venv / "bin" / "python", "-I", SCRIPT],
        input=json.dumps(list(requests.values())), stdout=subprocess.PIPE, text=True, check=True,
        env={"HF_HUB_OFFLINE": "1", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    PATH.write_text(_text(json.loads(done.stdout)), encoding="utf-8")
    answers.cache_clear()


def _text(said: dict[str, Any]) -> str:
    """One answer a line, in order."""
    tools = []
    for tool, found in sorted(said["answers"].items()):
        lines = (f"   {json.dumps(key)}: {json.dumps(value)}" for key, value in sorted(found.items()))
        tools.append(f"  {json.dumps(tool)}: {{\n" + ",\n".join(lines) + "\n  }")
    head = f' "command": {json.dumps(COMMAND)},\n "versions": {json.dumps(said["versions"], sort_keys=True)},\n'
    return "{\n" + head + ' "answers": {\n' + ",\n".join(tools) + "\n }\n}\n"
