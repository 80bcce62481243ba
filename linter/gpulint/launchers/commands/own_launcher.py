"""Programs that choose their launcher themselves: `axolotl train x.yaml --launcher torchrun -- --nproc_per_node 2`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .flags import read_flags
from .wrappers import manner_of

if TYPE_CHECKING:
    from ...source.document import Document
    from .wrappers import Unwrapped

_DEFAULT = "accelerate"
"""`--launcher` of `axolotl train` (axolotl 0.19.0 `cli/main.py`); what follows `--` are the launcher's options."""

_COMMANDS = {"accelerate": "accelerate launch", "torchrun": "torchrun"}


def with_launcher(program: Unwrapped, file: Document) -> Unwrapped:
    """The program with the launcher that it starts itself through, and without that launcher's options."""
    if program.head != "axolotl" or program.launchers or not program.words or program.words[0].text != "train":
        return program
    texts = [word.text for word in program.words]
    end = texts.index("--") if "--" in texts else len(texts)
    own = read_flags(program.words[1:end], file).document.root.get("launcher")
    name = str(own.value) if own is not None else _DEFAULT
    if name not in _COMMANDS:
        return program
    options = read_flags(program.words[end + 1 :], file, manner_of(_COMMANDS[name])).document
    words = [*program.words[:end]]
    for number, text in enumerate(texts[:end]):
        if text == "--launcher":
            del words[number : number + 2]
            break
        if text.startswith("--launcher="):
            del words[number]
            break
    return program._replace(words=tuple(words), launchers=((name, options),))
