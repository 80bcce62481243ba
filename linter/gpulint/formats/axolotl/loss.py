"""The loss of an axolotl run and the plugins whose kernels replace it: Liger's, cut cross entropy, axolotl's chunks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..core.bindings.kinds import POSITIVE, WORDS
from ..core.keys import load

if TYPE_CHECKING:
    from typing import Any

    from ..core.bindings.reader import Reader
    from ..core.format import Reading
    from ..core.key_changes import Keys

_LIGER_PLUGIN = "axolotl.integrations.liger.LigerPlugin"
_CUT_PLUGIN = "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin"

_LIGER = {
    "liger_rope": "rope", "liger_rms_norm": "norm", "liger_rms_norm_gated": "norm", "liger_layer_norm": "norm",
    "liger_glu_activation": "mlp", "liger_swiglu": "mlp",
}  # fmt: skip
"""Keys of the Liger plugin by what they replace in a layer."""

_CHUNKS = 8
"""`CEWithChunkedOutputLoss` takes the loss in this many pieces of the sequence unless told otherwise."""

_LOSSES = ("cut_cross_entropy", "chunked_cross_entropy", "liger_cross_entropy", "liger_fused_linear_cross_entropy")


def _has_plugin(reader: Reader, name: str) -> bool:
    """Whether a plugin class of axolotl is loaded, by whatever module path."""
    loaded = reader.value(WORDS, "plugins", default=[])
    return any(plugin.startswith("axolotl.") and plugin.endswith(f".{name}") for plugin in loaded)


def own_plugins(reader: Reader) -> list[str] | None:
    """The loaded plugins under the names of the schema; None when one is not axolotl's, whose keys are unknown."""
    if any(not plugin.startswith("axolotl.integrations.") for plugin in reader.value(WORDS, "plugins", default=[])):
        return None
    shipped: list[str] = load("axolotl")["x-plugins"]
    return [name for name in shipped if _has_plugin(reader, name.rpartition(".")[2])]


def set_loss(reader: Reader) -> None:
    """`loss.kernel` and `liger_kernels`; a kernel whose plugin is not loaded does nothing.

    The cut cross entropy plugin is on unless switched off. `chunked_cross_entropy` makes the whole logits and takes
    the loss in `chunked_cross_entropy_num_chunks` pieces.
    """
    liger, chunked = _has_plugin(reader, "LigerPlugin"), reader.on("chunked_cross_entropy")
    reader.default("loss.kernel", "torch")
    reader.default("loss.logits", "whole", f"{reader.upstream} takes whole logits apart")
    if chunked:
        reader.default("loss.compiled", True)
    cut = reader.keys.flag("cut_cross_entropy")
    if "rl" in reader.keys and (fused := reader.on("dpo_use_liger_kernel", "trl.use_liger_loss")):
        reader.set("loss.kernel", fused, "liger")
    elif _has_plugin(reader, "CutCrossEntropyPlugin") and (cut is None or cut.value):
        note = "" if cut else "the plugin's default"
        reader.set("loss.kernel", cut or reader.keys.raw("plugins"), "cut_cross_entropy", note)
    elif liger and (fused := reader.on("liger_fused_linear_cross_entropy")):
        reader.set("loss.kernel", fused, "liger")
    elif liger and (plain := reader.on("liger_cross_entropy")):
        reader.set("loss.kernel", plain, "liger_cross_entropy")
    elif chunked:
        reader.set("loss.kernel", chunked, "chunked")
        _set_chunk(reader)
    kernels = [(part, flag) for key, part in _LIGER.items() if (flag := reader.on(key))]
    if kernels and liger:
        reader.set("liger_kernels", kernels[0][1], True)
        reader.set("liger_parts", kernels[0][1], sorted({part for part, _ in kernels}))
    else:
        reader.default("liger_kernels", False)


def _set_chunk(reader: Reader) -> None:
    job, number = reader.job, reader.given(POSITIVE, "chunked_cross_entropy_num_chunks")
    pieces = number.value if number else _CHUNKS
    tokens = math.ceil((job.sequence_length or 0) / pieces) * (job.micro_batch_size or 1)
    note = f"{pieces} pieces of the sequence"
    reader.set("loss.chunk", number, tokens, note if number else f"{note}, default of {reader.upstream}")


def loss_keys(reading: Reading, kernel: str) -> Keys | None:
    """One loss kernel and no other; the cut cross entropy plugin is on unless its key says no.

    Cut cross entropy wants bf16 or fp16 written down (`check_dtype_is_half` runs before defaults are filled in).
    """
    keys: Keys = dict.fromkeys(_LOSSES)
    if _joined(reading, _CUT_PLUGIN) == {}:
        keys["cut_cross_entropy"] = False
    if kernel == "liger":
        own = {"dpo": "dpo_use_liger_kernel", "grpo": "trl.use_liger_loss"}.get(reading.job.objective)
        fused = {**keys, **_joined(reading, _LIGER_PLUGIN), "liger_fused_linear_cross_entropy": True}
        return {own: True} if own else fused
    if kernel == "cut_cross_entropy":
        stated = any(reading.config.root.find(key) is not None for key in ("bf16", "fp16"))
        precision = {} if stated else {"bf16": "auto"}
        return {**keys, **_joined(reading, _CUT_PLUGIN), "cut_cross_entropy": True, **precision}
    return {**keys, "chunked_cross_entropy": True} if kernel == "chunked" else None


def _joined(reading: Reading, plugin: str) -> Keys:
    """`plugins` with one more, those that are there kept; nothing where it is loaded already."""
    node = reading.config.root.get("plugins")
    loaded: list[Any] = [item.value for item in node.items()] if node is not None else []
    name = f".{plugin.rpartition('.')[2]}"
    here = any(isinstance(item, str) and item.endswith(name) for item in loaded)
    return {} if here else {"plugins": [*loaded, plugin]}
