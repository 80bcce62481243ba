"""What loading the weights needs on the GPU on top of the weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...units import GIB
from ...upstream import transformers
from ...upstream.stack import Stack
from ..allocator.runtime import process_overhead
from ..estimate import Assumption
from ..frameworks.frameworks import of_transformers
from ..terms import line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...hardware.gpu import Gpu
    from ...job.job import Job
    from ..terms import Term
    from .parameter import Parameter


PACKED_ON_LOAD = ("bnb", "torchao", "hqq", "quanto", "eetq", "int4", "int8")
"""Methods that pack 16-bit checkpoints as they are loaded; the others bring packed checkpoints."""


def loading(found: Sequence[Parameter], job: Job) -> int:
    """Bytes beside the weights while the last tensor is loaded.

    A bitsandbytes weight arrives in 16 bits on the GPU and is packed there, one tensor at a time
    (transformers 5.23 integrations/bitsandbytes.py `Bnb4bitQuantize.convert`): 2 B x the largest packed tensor.
    k-bit preparation makes a float32 copy of one 16-bit tensor at a time: 2 B x the largest of those, whose
    16-bit original is freed after the copy. What the tool makes float32 for a while comes on top of the weights.
    """
    widened = _widened(found, job)
    quantization = job.weights.quantization
    if quantization is None or not quantization.method.startswith(PACKED_ON_LOAD):
        return widened
    packed = max((2 * item.size for item in found if item.packed), default=0)
    upcast = max((2 * item.size for item in found if _was_upcast(item, found)), default=0)
    return max(packed, upcast, widened)


def loading_terms(found: Sequence[Parameter], job: Job) -> list[Term]:
    """`loading` as a term."""
    size = loading(found, job)
    return [line("buffers", size, LOADING, "transformers 5.23 integrations/bitsandbytes.py")] if size else []


LOADING = "what loading needs beside the weights"


def _widened(found: Sequence[Parameter], job: Job) -> int:
    """Bytes beside the weights while `weights.float32_once` are made float32 one after the other, and then narrowed.

    A tensor of n elements asks for 4 n before it gives its 2 n back, and the other way round: for a the first and b the
    last of them, 4 a at the least, 2 of all before plus 4 b, and 2 of all plus 2 a (axolotl loaders/model.py
    `_convert_embedding_modules_dtype`).
    """
    names = job.weights.float32_once
    sizes = [
        item.size * item.copies
        for item in found
        if item.part == "base"
        and not item.packed
        and item.dtype in ("bfloat16", "float16")
        and any(name in item.name for name in names)
    ]
    most = wide = 0
    for size in sizes:
        most, wide = max(most, wide + 4 * size), wide + 2 * size
    for size in sizes:
        most, wide = max(most, wide + 2 * size), wide - 2 * size
    return most


def read_ahead(found: Sequence[Parameter], job: Job) -> int:
    """Bytes by which weights that are packed as they are loaded may lie on a GPU in 16 bits before that.

    Under `READS_AHEAD` threads put tensors on the GPU as fast as the files are read, while one thread
    packs them: from none ahead to all. Pull request 44576 measured 13.47 GB of reserved memory for Qwen2.5-7B, whose
    16-bit weights are 15.2 GB, with the files in the page cache.
    """
    quantization = job.weights.quantization
    if quantization is None or not quantization.method.startswith(PACKED_ON_LOAD):
        return 0
    plan = job.parallelism
    if not of_transformers(job) or plan.fsdp is not None or (plan.zero is not None and plan.zero.stage == 3):
        return 0
    if not Stack(job).does(transformers.READS_AHEAD):
        return 0
    return sum(2 * item.elements for item in found if item.packed)


def retyped(found: Sequence[Parameter], job: Job, load: int, peak: int) -> list[Assumption]:
    """GPTQ weights that AutoGPTQ itself may load (`from_quantized`), where transformers is of its time (before 4.48).

    accelerate reads a safetensors file onto the one card whole and gives each tensor the dtype that the model has
    (accelerate 0.24 utils/modeling.py `load_state_dict`, `set_module_tensor_to_device`; auto_gptq 0.4.2
    modeling/_base.py passes no dtype): what is not packed is there twice until the file's own are dropped, where the
    file has bfloat16 and the model float16. Packed codes and their scales keep their dtype. `load` bytes are there
    once, `peak` at most later.
    """
    quantization = job.weights.quantization
    if quantization is None or quantization.method != "gptq" or not of_transformers(job):
        return []
    if job.parallelism.pipeline > 1 or not Stack(job).does(transformers.AUTO_GPTQ):
        return []
    more = load + sum(item.allocated for item in found if item.part == "base" and not item.packed) - peak
    if more <= 0:
        return []
    note = "AutoGPTQ may have loaded them from a file of another 16-bit type: what is not packed is there twice"
    return [Assumption("weights.quantization.method", quantization.method, note, 0, more)]


LEFT, LEFT_SHARE = 1.2 * GIB, 0.05
"""What of the card's free memory the block leaves before it is halved: bytes, and under `LEAVES_SHARE` a share."""


def warmed(found: Sequence[Parameter], job: Job, gpu: Gpu | None) -> int:
    """Bytes of the block that is asked for and freed before the weights are read, from which they are then cut.

    2 B / 2 an element of the base model, tied ones twice before `TIED_ONCE`; at most half of the card without its
    context and `LEFT`, and nothing where no card is known: whatever the card, it is never what fails.
    """
    quantization, stack = job.weights.quantization, Stack(job)
    if quantization is None or not quantization.method.startswith("bnb") or not of_transformers(job) or gpu is None:
        return 0
    plan = job.parallelism
    if plan.fsdp is not None or (plan.zero is not None and plan.zero.stage == 3):
        return 0
    if not stack.does(transformers.HALF_BLOCK):
        return 0
    twice = 2 if not stack.does(transformers.TIED_ONCE) and not any(item.role == "head" for item in found) else 1
    base = [item for item in found if item.part == "base"]
    size = sum(item.elements * (twice if item.role == "embedding" else 1) for item in base)
    free = gpu.usable - process_overhead(gpu, job).context
    left = LEFT_SHARE * free if stack.does(transformers.LEAVES_SHARE) else LEFT
    return max(0, min(size, int(free - left) // 2))


def _was_upcast(item: Parameter, found: Sequence[Parameter]) -> bool:
    return item.part == "base" and item.dtype == "float32" and any(other.packed for other in found)
