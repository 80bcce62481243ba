"""`accelerate estimate-memory`, run offline on the same config.json: its sizes for loading and for training with Adam.

The tool builds `AutoModel` on the meta device (no language model head where that is a class of its own) and prints, by
dtype, the total size and the largest of weights, gradients, optimizer and step in "Training using Adam". A 16-bit run,
autocast or not, is read in the float16 line, which assumes mixed precision. It has no words for LoRA, batch, length,
sharding or quantised training; of inference it says what the weights take, in int8 and int4 too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .question import BYTES
from .recorded import label, look_up

if TYPE_CHECKING:
    from .question import Question

TOOL = "accelerate"
STANDS_IN = 1.01
"""A built model this much larger than the inventory was built from a config that only stands in for remote code."""
LINES = {32: "float32", 16: "float16", 8: "int8", 4: "int4"}


def answer(q: Question) -> float:
    """Bytes on one GPU. Raises Unsaid."""
    asked = request(q)
    said = look_up(TOOL, asked["key"])
    q.need(said["float32"] / 4 < STANDS_IN * q.parameters, "remote code: the config describes another class of model")
    if q.job.kind == "training":
        return said["train float32" if q.computed == "float32" else "train float16"]
    return said[LINES[int(q.bits)]]


def request(q: Question) -> dict[str, Any]:
    """What is asked, and the key that the answer is recorded under. Raises Unsaid."""
    q.whole_model()
    if q.job.kind == "training":
        q.full_training()
        q.adam()
    else:
        engine = q.job.inference.engine if q.job.inference else "transformers"
        q.need(engine == "transformers", f"{engine} takes what it is given")
        q.need(int(q.bits) in LINES and (q.job.weights.quantization is not None or q.stored in BYTES), "other widths")
    model = label(q.model)
    return {"tool": TOOL, "key": model, "model": model, "config": q.model.config}
