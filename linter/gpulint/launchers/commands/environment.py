"""What environment variables decide about a job that a command starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...formats.core.coercion import as_boolean, as_integer
from ...job.origin import Origin
from ...source.places import places_of
from ..launch import Decided
from ..shell.script import place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...source.document import Document
    from ..launch import Resources
    from ..shell.shell import Word
    from .wrappers import Unwrapped

_ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
"""Where torch reads its allocator's settings, the newer name last, which wins (torch 2.13 c10/core/AllocatorConfig)."""

_SAMPLER = "VLLM_USE_FLASHINFER_SAMPLER"

_SIZES = ("max_split_size_mb", "roundup_power2_divisions")


def allocator(variables: Mapping[str, Word], file: Document) -> dict[str, Decided]:
    """`allocator.*` from `PYTORCH_ALLOC_CONF=expandable_segments:True,max_split_size_mb:128`.

    A setting that the variable leaves out is torch's default, whatever a tool would have set without it.
    """
    name = next((name for name in reversed(_ALLOCATOR) if _value(variables, name)), None)
    if name is None:
        return {}
    origin = _origin(variables[name], name, file)
    settings = {
        part.partition(":")[0].strip(): part.partition(":")[2].strip() for part in _value(variables, name).split(",")
    }
    found = {"allocator.expandable_segments": Decided(bool(as_boolean(settings.get("expandable_segments"))), origin)}
    for key in _SIZES:
        size = as_integer(settings.get(key))
        if size is not None and size > 0:
            found[f"allocator.{key}"] = Decided(size, origin)
    return found


def sampler(form: str, variables: Mapping[str, Word], file: Document) -> dict[str, Decided]:
    """`inference.flashinfer_sampler` from VLLM_USE_FLASHINFER_SAMPLER (vllm/envs.py)."""
    stated = as_boolean(_value(variables, _SAMPLER)) if form == "vllm" else None
    if stated is None:
        return {}
    return {"inference.flashinfer_sampler": Decided(stated, _origin(variables[_SAMPLER], _SAMPLER, file))}


def torchrun(resources: Resources, variables: Mapping[str, Word], file: Document) -> None:
    """The processes that `llamafactory-cli train` starts by itself (llamafactory 0.9.5 `launcher.py`).

    With FORCE_TORCHRUN, or on more than one GPU, it starts NPROC_PER_NODE processes, by default one a GPU, on NNODES
    nodes.
    """
    nodes, each = _number(variables, "NNODES"), _number(variables, "NPROC_PER_NODE")
    per_node = each or resources.gpus_per_node
    forced = as_boolean(_value(variables, "FORCE_TORCHRUN"))
    if not forced and (resources.gpus_per_node or 1) < 2:
        return
    if nodes and resources.nodes is None:
        origin = _origin(variables["NNODES"], "NNODES", file)
        resources.nodes, resources.origins["nodes"] = nodes, origin
    if per_node is None:
        return
    resources.processes = per_node * (nodes or resources.nodes or 1)
    if each:
        origin = _origin(variables["NPROC_PER_NODE"], "NPROC_PER_NODE", file)
        resources.origins["processes"] = origin._replace(note="processes x nodes")


def spread(form: str, resources: Resources, variables: Mapping[str, Word], *, launches: bool) -> dict[str, Decided]:
    """`parallelism.device_map` where ms-swift starts one process that sees several GPUs.

    Without NPROC_PER_NODE `swift sft` starts no torchrun (cli/main.py `use_torchrun`), and the module of a subcommand
    never does (`launches`). A process with two GPUs or more loads the model with `device_map: auto` (model/utils.py
    `get_default_device_map`, utils/env.py `is_mp`), which its DeepSpeed arguments refuse.
    """
    if form != "ms_swift" or resources.processes is not None or (resources.gpus_per_node or 1) < 2:
        return {}
    if launches and ("NPROC_PER_NODE" in variables or "NNODES" in variables):
        return {}
    seen = resources.gpus_per_node or 1
    resources.told["gpus_of_one_process"] = (seen, resources.origins.get("gpus_per_node", Origin("derived", "")))
    why = "the module ignores NPROC_PER_NODE" if "NPROC_PER_NODE" in variables else "NPROC_PER_NODE is not set"
    note = f"one process uses several GPUs and distributes the layers over them ({why})"
    return {"parallelism.device_map": Decided("auto", Origin("derived", note))}


def starts_its_ranks(program: Unwrapped) -> bool:
    """Whether a program reads NPROC_PER_NODE and starts the processes itself: a module of one of ms-swift's
    subcommands (`-m swift.cli.sft`, swift/cli/sft.py) does not, only `swift` does.
    """
    name = program.name.text.replace("\\", "/").replace("/", ".").removesuffix(".py")
    return "swift.cli." not in name or name.endswith((".main", "._megatron.main"))


def _value(variables: Mapping[str, Word], name: str) -> str:
    word = variables.get(name)
    return word.text.strip() if word is not None and word.known else ""


def _number(variables: Mapping[str, Word], name: str) -> int | None:
    number = as_integer(_value(variables, name))
    return number if number is not None and number > 0 else None


def _origin(word: Word, name: str, file: Document) -> Origin:
    if not word.at or word.at[0] < 0:
        return Origin("derived", f"{name} of the launcher's environment")
    span = place(places_of(file.text), word.at)
    return Origin("file", "", file.path, name, span, span)
