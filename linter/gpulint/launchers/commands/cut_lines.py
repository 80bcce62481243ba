"""Shell text that does not do what it seems to: words and commands that a line's end joins or cuts.

Each is a `Problem` of the file: `joined-words`, `cut-command`, `unexported-variable`, `misspelt-variable`,
`option-and-value` and `expanded-too-early`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from ...formats.core.format import Problem
from ...formats.core.typos import nearest_word
from ...source.places import places_of
from ..shell.script import place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...source.document import Document
    from ..launch import Resources
    from ..shell.shell import Command, Word
    from .wrappers import Unwrapped

_JOINED = re.compile(r"\\\r?\n[ \t]*")
_NOTHING = re.compile(r"(?:\s|\\\r?\n|#[^\n]*(?:\n|$))*")
"""What may stand between two commands, or between an assignment and the command that it was meant for."""

_OPTION = re.compile(r"--?[A-Za-z][\w.-]*")
_CONTINUED = re.compile(r"[\"']?(?:[ \t]*\\\r?\n[ \t]*[A-Za-z_]\w*=[^\s\\]*)*[ \t]*\\[ \t]*\r?\n[ \t]*\r?\n")
_READ_BY_PROGRAMS = re.compile(
    r"CUDA_VISIBLE_DEVICES|NPROC_PER_NODE|FORCE_TORCHRUN|"
    r"PYTORCH_(?:CUDA_)?ALLOC_CONF|NCCL_[A-Z_]+|VLLM_[A-Z_]+"
)
"""Variables that launchers and engines look up in their environment, and that nobody needs otherwise."""

_VARIABLES = (
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "NVIDIA_VISIBLE_DEVICES",
    "PYTORCH_CUDA_ALLOC_CONF", "NCCL_P2P_DISABLE", "NCCL_IB_DISABLE", "NCCL_SOCKET_IFNAME", "NCCL_SHM_DISABLE",
    "NPROC_PER_NODE", "FORCE_TORCHRUN", "OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM", "HF_HUB_OFFLINE", "HF_ENDPOINT",
    "HUGGING_FACE_HUB_TOKEN", "VLLM_ATTENTION_BACKEND", "VLLM_WORKER_MULTIPROC_METHOD", "VLLM_ALLOW_LONG_MAX_MODEL_LEN",
    "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE", "GLOO_SOCKET_IFNAME", "NCCL_IB_HCA", "MASTER_ADDR",
    "MASTER_PORT", "VLLM_LOGGING_LEVEL", "VLLM_HOST_IP", "VLLM_USE_V1", "TORCH_CUDA_ARCH_LIST",
    "TRANSFORMERS_OFFLINE", "CUDA_DEVICE_MAX_CONNECTIONS", "HIP_VISIBLE_DEVICES",
)  # fmt: skip
"""Variables that CUDA, NCCL, torch, launchers and engines read, whose names are long enough to tell a slip."""

_TASK = re.compile(r"\$\{?(SLURM_(?:NODEID|PROCID|LOCALID))\b")


def joined(command: Command, file: Document) -> Iterator[Problem]:
    """A line that ends in a backslash without a blank in front, so that its last word goes on in the next line."""
    for word in command.words:
        for here in range(1, len(word.at)):
            before, behind = word.at[here - 1], word.at[here]
            gap = file.text[before + 1 : behind] if 0 <= before < behind else ""
            if not word.text.startswith("--", here) or _JOINED.fullmatch(gap) is None:
                continue
            option = _OPTION.match(word.text, here)
            if option is not None:
                values = {"value": word.text[:60]}
                span = place(places_of(file.text), word.at[here : option.end()])
                yield Problem("joined-words", option[0], span, values, file.path)


def cut(command: Command, behind: Command | None, file: Document) -> Iterator[Problem]:
    """A command that begins with an option: the line before it has lost its backslash, or has a blank behind it."""
    if behind is None or not behind.words or not _written(behind.words[0]) or not _written(command.words[-1]):
        return
    first, last = behind.words[0], command.words[-1]
    option = _OPTION.match(first.text)
    between = file.text[last.at[-1] + 1 : first.at[0]].lstrip("\"'")
    if option is None or file.text[first.at[0]] != "-" or "\n" not in between or not _NOTHING.fullmatch(between):
        return
    span = place(places_of(file.text), first.at[: option.end()])
    yield Problem("cut-command", option[0], span, {}, file.path)


def unexported(command: Command, file: Document, resources: Resources) -> Iterator[Problem]:
    """Variables that are set in the script, that only the environment of a program could use, and that do not reach it.

    In a job of Slurm CUDA_VISIBLE_DEVICES is exported already. A line that ends in a backslash and is followed by an
    empty one was meant to be a part of the command.
    """
    if command.exported is None or not command.words or not _written(command.words[0]):
        return
    start = command.words[0].at[0]
    for name, word in command.variables.items():
        if name in command.exported or not _written(word) or word.at[-1] >= start or not word.text:
            continue
        rest = file.text[word.at[-1] + 1 : start]
        continued = _CONTINUED.match(rest)
        if continued is not None and _NOTHING.fullmatch(rest[continued.end() :]):
            way = "the empty line behind the backslash ends the command that they stand in"
        elif (
            not _READ_BY_PROGRAMS.fullmatch(name)
            or _used(name, file)
            or (name == "CUDA_VISIBLE_DEVICES" and (resources.gpus_per_node is not None or "#SBATCH" in file.text))
        ):
            continue
        else:
            way = "it is set on a line of its own, without `export`"
        span = place(places_of(file.text), word.at)
        yield Problem("unexported-variable", name, span, {"reason": way}, file.path)


def misspelt(command: Command, file: Document) -> Iterator[Problem]:
    """Variables that nobody reads, whose name is but for a slip of letters one that CUDA, a launcher or an engine does.

    A name that the file fills in somewhere is one of its own.
    """
    for name, word in command.variables.items():
        meant = _meant(name) if _written(word) else ""
        start = file.text.rfind(name, 0, word.at[0]) if meant and word.text else -1
        if start >= 0 and re.search(rf"\$\{{?{name}\b", file.text) is None:
            span = place(places_of(file.text), tuple(range(start, start + len(name))))
            yield Problem("misspelt-variable", name, span, {"suggestion": meant}, file.path)


@lru_cache(maxsize=4096)
def _meant(name: str) -> str:
    """The variable meant by `name`, "" for one that is known; each command of a script asks for all before it."""
    return nearest_word(name, _VARIABLES) if name not in _VARIABLES else ""


def _used(name: str, file: Document) -> bool:
    """Whether the file fills it in somewhere, exports it, or exports everything."""
    pattern = rf"\$\{{?{name}\b|(?:export|declare -x)\b[^\n]*\b{name}\b|set -a|allexport"
    return re.search(pattern, file.text) is not None


def together(program: Unwrapped, file: Document) -> Iterator[Problem]:
    """An option and its value in one word, `"--model org/name"`, where the program expects two or an equals sign."""
    before = ""
    for word in program.words:
        match = _TOGETHER.match(word.text) if word.known and _written(word) else None
        option = before.startswith("-") and "=" not in before and " " not in before
        before = word.text
        if match is not None and not option:
            span = place(places_of(file.text), word.at)
            yield Problem("option-and-value", match[1], span, {"value": match[2]}, file.path)


_TOGETHER = re.compile(r"(--[A-Za-z][\w-]*)[ \t]+(\S+)")


def early(command: Command, program: Unwrapped, resources: Resources, file: Document) -> Iterator[Problem]:
    """A variable that srun sets for each task, in a word that the batch script's shell fills in: there it is 0."""
    if not any(name == "srun" for name, _ in program.options):
        return
    told = resources.told
    several = {
        "SLURM_NODEID": (resources.nodes or 1) > 1,
        "SLURM_PROCID": told.get("tasks.count", (1, None))[0] > 1,
        "SLURM_LOCALID": told.get("tasks.per_node", (1, None))[0] > 1,
    }
    names = [word.text.rpartition("/")[2] for word in command.words]
    for word in command.words[names.index("srun") + 1 :] if "srun" in names else ():
        for found in _TASK.finditer(word.text):
            at = word.at[found.start() : found.end()]
            if not several[found[1]] or word.known or not _written(word) or _quoted(word, found.start(), file):
                continue
            yield Problem("expanded-too-early", found[1], place(places_of(file.text), at), {}, file.path)


def _quoted(word: Word, here: int, file: Document) -> bool:
    """Whether single quotes or a backslash keep the shell from filling in a variable of the word."""
    lead = file.text[word.at[0] - 1 : word.at[here]] if word.at[0] < word.at[here] else ""
    return lead.endswith("\\") or lead.count("'") % 2 == 1


def _written(word: Word) -> bool:
    return bool(word.at) and word.at[0] >= 0
