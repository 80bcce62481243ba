"""What a program of no format asks of the card: the image that holds its kernels, the number format of its flags."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...job.origin import Origin
from ...source.places import places_of
from ..shell.script import place
from .flags import Manner, read_flags

if TYPE_CHECKING:
    from ...source.document import Document
    from ...source.node import Node
    from ..launch import Resources
    from .wrappers import Unwrapped

_ENGINES = {
    "text-embeddings-router": "tei",
    "lightllm.server.apiserver": "lightllm",
    "lightllm.server.api_server": "lightllm",
}
"""Programs that are read no further, and what rules call them."""

_DTYPES = ("data_type", "dtype", "torch_dtype", "model_dtype", "mixed_precision", "precision")
_BFLOAT16 = frozenset({"bf16", "bfloat16", "torch.bfloat16", "bf16-mixed", "bf16-true"})
_ON = frozenset({"true", "1", "yes"})


def tell_demands(resources: Resources, program: Unwrapped, file: Document) -> bool:
    """Note them; whether there are any."""
    engine = _ENGINES.get(program.name.text if program.module else program.head, "")
    if not engine and not (program.head.endswith(".py") or program.module or program.head == "swift"):
        return False
    if _CONVERTS.search(program.name.text.rpartition("/")[2]):
        return False
    if engine:
        resources.tell("demands.engine", engine, file.path, engine, place(places_of(file.text), program.name.at))
    _image(resources, program.image, file)
    flags = read_flags(program.words, file, Manner(underscored=True)).document.root
    said = [_dtype(resources, flags, file), _model(resources, flags, file), _diffusion(resources, program, flags, file)]
    return bool(engine) or any(said)


def _image(resources: Resources, image: str, file: Document) -> None:
    """Where the image stands in the file."""
    at = file.text.find(image) if image else -1
    if at >= 0:
        span = place(places_of(file.text), tuple(range(at, at + len(image))))
        resources.told["container.image"] = (image, Origin("file", "", file.path, "image", span, span))


_MODELS = ("pretrained_model_name_or_path", "model_name_or_path", "model_id", "model_path", "model_dir", "ckpt_dir",
           "model", "checkpoint_path", "base_model")  # fmt: skip
_PACKS = re.compile(r"quant|load_in|[48]_?bit|int[48]|awq|gptq|fp8|weight_only|offload|cpu")
_SPREADS = re.compile(
    r"tensor_parallel|pipeline|^tp$|^pp$|tp_size|pp_size|world_size|num_gpus|device_map|deepspeed|fsdp"
)
_CONVERTS = re.compile(r"convert|merge|prepar|preproc|tokeni|download|export|upload|quanti|split|api_client|bench")


def _model(resources: Resources, flags: Node, file: Document) -> bool:
    """The model that a flag names, and whether another one may have it packed or spread."""
    entry = next((found for name in _MODELS if (found := flags.entry(name))), None)
    if entry is None or not isinstance(entry.value.value, str) or not entry.value.value:
        return False
    resources.tell("demands.model", entry.value.value, file.path, str(entry.key.value), entry.value.span)
    keys = [key.lower() for key in map(str, flags.keys())]
    packed = any(_PACKS.search(key) or _SPREADS.search(key) for key in keys)
    resources.told["demands.packed"] = (packed, Origin("derived", "the flags"))
    return not packed


def _diffusion(resources: Resources, program: Unwrapped, flags: Node, file: Document) -> bool:
    """How a trainer of diffusers trains: an adapter, or all of the transformer or UNet with an Adam of 8 or 32 bits.

    Scripts of diffusers' `examples`; those whose processes shard or offload are left out.
    """
    name = program.head.rpartition("/")[2]
    found = re.fullmatch(r"train_(dreambooth|text_to_image)(_\w+)?\.py", name)
    keys = set(map(str, flags.keys()))
    wrapped = {key for _, options in program.launchers for key in map(str, options.root.keys())}
    if found is None or any(_SPREADS.search(key) or key == "config_file" for key in wrapped | keys):
        return False
    optimizer = flags.entry("optimizer")
    low = "use_8bit_adam" in keys or (optimizer is not None and "8bit" in str(optimizer.value.value))
    way = "lora" if "lora" in name else "full-8bit" if low else "full"
    resources.tell("demands.diffusion", way, file.path, name, place(places_of(file.text), program.name.at))
    checkpoints = "gradient_checkpointing" in keys
    resources.told["demands.checkpointing"] = (checkpoints, Origin("derived", "the flags"))
    return True


def _dtype(resources: Resources, root: Node, file: Document) -> bool:
    """`--bf16 True` and `--data_type bf16`; `other` where another dtype is stated."""
    switch = root.entry("bf16")
    if switch is not None and (switch.value.value in (True, None) or str(switch.value.value).lower() in _ON):
        resources.tell("demands.dtype", "bfloat16", file.path, "bf16", switch.value.span)
        return True
    for name in _DTYPES:
        entry = root.entry(name)
        if entry is not None and isinstance(entry.value.value, str):
            wanted = "bfloat16" if entry.value.value.lower() in _BFLOAT16 else "other"
            resources.tell("demands.dtype", wanted, file.path, name, entry.value.span)
            return wanted == "bfloat16"
    return False
