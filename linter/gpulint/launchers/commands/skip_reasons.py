"""Why the commands of a launcher give no job: the program they start, in one line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .images import elsewhere, not_estimated
from .programs import known, named

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .wrappers import Unwrapped

_ENGINES = {
    "sglang.launch_server": "SGLang", "sglang": "SGLang", "text-generation-launcher": "text-generation-inference",
    "trtllm-serve": "TensorRT-LLM", "tritonserver": "Triton", "ollama": "Ollama",
    "lmdeploy": "LMDeploy", "tune": "torchtune", "text-embeddings-router": "text-embeddings-inference",
    "infinity_emb": "Infinity", "mii": "DeepSpeed-MII", "faster-whisper-server": "faster-whisper",
}  # fmt: skip
"""Programs that do work on GPUs; one that a row of the program table knows never comes here."""

_NOTEBOOKS = re.compile(r".*\.ipynb")
_TOOLS = frozenset({"venv", "pip", "ensurepip", "http.server", "json.tool", "virtualenv"})
_JOINS = frozenset({"ray", "sshd", "dynamo"})
_PARALLEL = frozenset({"mpirun", "srun"})
_NAMED = re.compile(r"[^-*$\[\]\s]|\$.*\.py$")
"""How the name of a program begins: not as an option, a pattern, or a variable that may hold anything."""

SERVED = ("swift deploy", "swift infer", "swift app")
"""Commands of ms-swift that train nothing; their engine is read no further."""

NOTHING = "starts no program that gpulint knows"


def reason(programs: Iterable[Unwrapped]) -> str:
    """The engine or the training script that is started, or that none is."""
    scripts, joins = [], False
    for program in programs:
        device = elsewhere(program.image)
        if device:
            return not_estimated(device)
        if named(program) in SERVED:
            return f"{named(program)} is not a training command"
        if known(program) is not None:
            open_ = next((word.text for word in program.words if not word.known and word.text.startswith("$")), "")
            told = f"that {open_} decides" if open_ else "that is not in the project"
            return f"starts {program.head} with a config {told}"
        notebook = next((word.text for word in program.words if _NOTEBOOKS.fullmatch(word.text)), "")
        if notebook:
            return f"starts {program.head} on {notebook}, a notebook, which gpulint does not read"
        engine = _ENGINES.get(program.head)
        if engine is not None:
            return f"starts {engine}, whose flags gpulint does not read"
        joins = joins or program.head in _JOINS
        if program.head in _TOOLS or not _NAMED.match(program.name.text):
            continue
        if program.launchers or program.module or program.head.endswith(".py") or _parallel(program):
            scripts.append(program)
    if scripts:
        last = next((program for program in reversed(scripts) if program.launchers), scripts[-1])
        shown = last.name.text if len(last.name.text) <= 60 else last.head[:60]
        return f"starts {shown}, which gpulint does not know"
    return "only joins processes of another pod" if joins else NOTHING


def starts_ranks(program: Unwrapped) -> bool:
    """Whether several processes of a script are started, whatever it is: rules about launchers hold for it too."""
    if program.head in _TOOLS or program.head in _LOOKS or not _NAMED.match(program.name.text):
        return False
    return bool(program.launchers) or (program.head.endswith(".py") and _parallel(program))


def _parallel(program: Unwrapped) -> bool:
    """Whether it is started once for each process; what such a command prints or looks up is no job."""
    return any(name in _PARALLEL for name, _ in program.options) and program.head not in _LOOKS


_LOOKS = frozenset({"hostname", "nvidia-smi", "echo", "env", "true", "bash", "sh", "sleep", "printenv", "python", "ls"})
