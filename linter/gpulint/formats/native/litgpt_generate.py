"""`litgpt generate` and its kin: one prompt is answered, token by token.

Facts from litgpt 0.5.13 at 26857050 (`generate/base.py`, `generate/sequentially.py`, `generate/tp.py`, `chat/base.py`):
weights of the precision, a cache for the prompt and `max_new_tokens` of one row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.bindings.kinds import FLAG, POSITIVE, TEXT, WHOLE_TEXT, Unsaid
from ..core.bindings.rows import Assumed, Default, Derived, Fixed, Key, Table, Written
from ..core.bindings.spelling import FABRIC
from ..core.world_size import Stated, set_hardware
from .litgpt_model import quantization_of, set_checkpoint

if TYPE_CHECKING:
    from ...job.job import Job
    from ..core.bindings.reader import Reader

GENERATES = frozenset(
    {
        "generate", "generate_full", "generate_adapter", "generate_adapter_v2", "generate_sequentially", "generate_tp",
        "chat",
    }
)  # fmt: skip
"""The commands that answer a prompt on the GPUs of one machine."""

_PROMPT = 8
"""Tokens of the prompt that is asked where none is given, "What food do llamas eat?", with the one that begins it."""

_LONGEST_WORD = 2
"""Tokens of a word of a prompt, at most in English text."""


def command_of(reader: Reader) -> str:
    """The command, such as "generate"."""
    node = reader.document.root.get("command")
    return node.value if node is not None and isinstance(node.value, str) else ""


def _set_gpus(reader: Reader) -> None:
    """One GPU, or all of them for the commands that split the model over them."""
    command = command_of(reader)
    if command not in ("generate_sequentially", "generate_tp"):
        reader.derived("hardware.gpus", 1, f"litgpt {command} runs on one device")
        reader.derived("parallelism.data", 1, f"litgpt {command}")
        return
    set_hardware(reader, reader.project, _devices(reader), sharded=True)
    reader.derived("parallelism.data", 1, f"litgpt {command}")
    if command == "generate_tp":
        reader.derived("parallelism.tensor", reader.job.hardware.gpus or 1, "all devices", "hardware.gpus")
    else:
        reader.derived("parallelism.device_map", "auto", "blocks are laid over the devices")


def _devices(reader: Reader) -> Stated | None:
    given = reader.given(POSITIVE, "devices")
    return Stated(given.value, given.entry, given.key, "devices") if given else None


def _prompt(text: str, _: Job) -> Written:
    return Written(_LONGEST_WORD * len(text.split()) + 1, "about two tokens a word")


TABLE = Table(
    (
        Fixed("kind", Derived("inference", "answers a prompt")),
        Fixed("objective", Derived("sft", "nothing is trained")),
        Fixed("inference.engine", Derived("transformers", "one token at a time, in torch")),
        Fixed("inference.version", None),
        lambda reader: set_checkpoint(reader, "checkpoint_dir"),
        Key(
            "weights.dtype", "precision", TEXT, Default("bfloat16", "bf16-true on GPUs that have it"),
            {word: said[0] for word, said in FABRIC.items()},
        ),
        Fixed("weights.quantization", None),
        Key("weights.quantization", "quantize", WHOLE_TEXT, to=lambda word, _: quantization_of(word) or Unsaid.OTHER),
        Fixed("attention", Default("sdpa", "scaled_dot_product_attention of litgpt/model.py")),
        Fixed("parallelism.pipeline", 1),
        Fixed("parallelism.tensor", 1),
        _set_gpus,
        Key("compile", "compile", FLAG, default=False),
        Fixed("inference.batch_size", Derived(1, "samples are made one after another")),
        Key("inference.new_tokens", "max_new_tokens", POSITIVE, 50),
        Key("inference.prompt_length", "prompt", WHOLE_TEXT, Assumed(_PROMPT, "its own question"), _prompt),
    )
)  # fmt: skip
