"""KAITO: Workspace and InferenceSet (KAITO 0.12, `api/v1beta1`): a preset on an instance type, served with vLLM.

KAITO passes vLLM its own share of GPU memory, `max-model-len auto` and the parallel degrees, then the `vllm` section of
the ConfigMap that `inference.config` names, which wins (pkg/model/interface.go, inference_api.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....formats.core.coercion import as_integer
from ....job.origin import Origin
from ....units import GIB
from ...commands.flags import inside, overlaid
from ...launch import Launcher, Resources, Started
from ...machines import machine_of
from ...values import mapping_at, scalar, value_at
from ..command import Assembly
from ..manifests import launches, recogniser
from ..pod import jobs_of_pod
from .kaito_tuning import tune
from .presets import kaito_preset, table

if TYPE_CHECKING:
    from ....source.document import Document
    from ....source.node import Node
    from ...launch import Launch
    from ..manifests import Manifests, Object

NAME = "kaito"
_DATA_PARALLEL = 2
"""GPUs of a machine from which on KAITO thinks of data parallelism."""


def read(item: Object, manifests: Manifests) -> Started:
    """What a workspace, or each workspace of a set, serves or tunes."""
    if item.kind == "RAGEngine":
        return Started([], [], "a RAG engine, whose model is served elsewhere")
    root = value_at(item.root, "spec.template") if item.kind == "InferenceSet" else item.root
    if root is None:
        return Started([], [], "a set without a template")
    resources = _resources(root, manifests.file)
    tuning = root.get("tuning")
    if tuning is not None:
        return tune(tuning, item, manifests, resources).each(ships=table("kaito")["upstream"])
    inference = root.get("inference")
    pod = mapping_at(inference, "template.spec")
    if pod is not None:
        shared = (item.part, resources.nodes, resources)
        return jobs_of_pod(pod, manifests.file, manifests.project, *shared, mounts_shared_memory=True)
    name = value_at(inference, "preset.name")
    if inference is None or name is None or not isinstance(name.value, str):
        return Started([], [], "sets no preset")
    annotations = value_at(item.root, "metadata.annotations")
    if annotations is not None and getattr(annotations.get("kaito.sh/runtime"), "value", "vllm") == "transformers":
        return Started([], [], "serves with Transformers, whose memory KAITO's presets do not limit")
    return _serve(inference, name, item, manifests, resources, scalar(root, "resource.instanceType"))


def _serve(
    inference: Node, name: Node, item: Object, manifests: Manifests, resources: Resources, machine_name: str
) -> Started:
    row = kaito_preset(str(name.value))
    if row is None:
        return Started([], [], f"the preset {name.value} is not one of KAITO {table('kaito')['release']}")
    defaults = table("kaito")
    note = f"passed by KAITO {defaults['release']}"
    gpus = resources.gpus_per_node
    line = Assembly(manifests.file, name, "vllm serve")
    line.add("model", row["model"], f"the preset {str(name.value).strip()} of KAITO {defaults['release']}", "derived")
    line.add("max-model-len", "auto", note)
    section = _config(inference, manifests)
    machine = defaults["machines"].get(machine_name) if machine_name else None
    share = defaults["by_gpu"].get(machine[2], defaults["gpu_memory_utilization"]) if machine else None
    line.add("gpu-memory-utilization", share or defaults["gpu_memory_utilization"], note)
    _set_nodes(row, machine, section, resources)
    _parallel(line, row, resources, machine, gpus, note)
    short = row["model"].rpartition("/")[2].lower()
    for prefix, dtype in defaults["kv_cache_dtype"].items():
        if short.startswith(prefix):
            line.add("kv-cache-dtype", dtype, note)
    if short.startswith(tuple(defaults["expert_parallel"])):
        line.add("enable-expert-parallel", "true", note)
    if (adapters := inference.get("adapters")) is not None and adapters.items():
        line.switch("enable-lora")
    started = line.jobs(manifests.project, resources, item.part, {"vllm": defaults["vllm"]})
    started = started.each(ships=defaults["upstream"])
    return started._replace(launches=[_with_config(launch, section, manifests.file) for launch in started.launches])


def _set_nodes(row: dict[str, Any], machine: list[Any] | None, section: Node | None, resources: Resources) -> None:
    """The nodes that KAITO provisions, whatever `count` says (pkg/workspace/estimator/nodesestimator/estimator.go).

    GPUs = floor(1.02 W / ((0.84 M - 2.3 GiB - L T / n) / 1.05)) + 1, for weights of W bytes, M bytes and n GPUs in a
    node, L tokens of T bytes; L is `max-model-len` where the ConfigMap has it, else 2048.
    """
    if machine is None or not row.get("bytes") or not row.get("token_bytes"):
        return
    gpus, memory, _ = machine
    stated = value_at(section, "max-model-len")
    length = as_integer(stated.value) if stated is not None else None
    kept = 2.3 * GIB + max(length or 0, 0 if length else 2048) * row["token_bytes"] / gpus
    room = (memory / gpus * 0.84 - kept) / 1.05
    if room <= 0:
        return
    needed = int(row["bytes"] * 1.02 / room) + 1
    nodes = -(-needed // gpus)
    if nodes != (resources.nodes or 1):
        note = ", by the model and not by `count`" if resources.nodes is not None else ""
        resources.nodes = nodes
        resources.origins["nodes"] = Origin("derived", f"what KAITO {table('kaito')['release']} provisions{note}")


def _parallel(
    line: Assembly, row: dict[str, Any], resources: Resources, machine: list[Any] | None, gpus: int | None, note: str
) -> None:
    """Data parallel where half a GPU holds the weights, else tensor parallel in a node, and pipeline over nodes."""
    if gpus is None:
        return
    nodes = resources.nodes or 1
    memory = machine[1] / machine[0] if machine is not None else 0
    if nodes == 1 and gpus >= _DATA_PARALLEL and 0 < row.get("bytes", 0) * 2 < memory:
        line.add("data-parallel-size", gpus, note)
        line.add("tensor-parallel-size", 1, note)
        return
    line.add("tensor-parallel-size", gpus, note)
    if nodes > 1:
        line.add("pipeline-parallel-size", nodes, note)


def _config(inference: Node, manifests: Manifests) -> Node | None:
    """The `vllm` section of the ConfigMap that `inference.config` names."""
    config = manifests.embedded(inference.get("config"), "inference_config.yaml")
    return mapping_at(config.root, "vllm") if config is not None else None


def _with_config(launch: Launch, section: Node | None, file: Document) -> Launch:
    """The section with the flags behind it that it says nothing of."""
    if section is None:
        return launch
    said = {str(key).replace("_", "-") for key in section.keys()}  # noqa: SIM118  (a Node, not a dict)
    left = [entry for entry in launch.config.root.entries() if str(entry.key.value).replace("_", "-") not in said]
    config = overlaid(file._replace(roots=[section]), inside(launch.config, left, launch.config.root))
    implied = {flag: origin for flag, origin in launch.implied.items() if flag not in said}
    return launch._replace(config=config, implied=implied)


def _resources(root: Node, file: Document) -> Resources:
    """What `resource` asks for."""
    resources = Resources()
    resources.read("nodes", root.find("resource.count"), file.path, "resource.count")
    profile, name = value_at(root, "resource.partition.profile"), value_at(root, "resource.instanceType")
    machine = machine_of(name.value) if name is not None else None
    if profile is not None:
        resources.state("gpus_per_node", 1, file.path, "resource.partition.profile", profile.span)
    elif name is not None and machine is not None:
        where = (file.path, "resource.instanceType", name.span)
        resources.state("gpu", machine.gpu.name, *where, f"GPU of {name.value}")
        resources.state("gpus_per_node", machine.gpus, *where, f"GPUs of {name.value}")
    return resources


LAUNCHER = Launcher(NAME, "KAITO workspace", "KAITO 0.12", recogniser(NAME), launches, "`resource.instanceType`")
