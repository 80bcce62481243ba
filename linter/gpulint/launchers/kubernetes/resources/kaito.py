"""KAITO: Workspace and InferenceSet (KAITO 0.12, `api/v1beta1`): a preset on an instance type, served with vLLM.

KAITO passes vLLM its own share of GPU memory, `max-model-len auto` and the parallel degrees, then the `vllm` section of
the ConfigMap that `inference.config` names, which wins (pkg/model/interface.go, inference_api.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....formats.core.coercion import as_integer
from ....job.origin import Origin
from ....source.node import Node
from ....units import GIB
from ...commands.flags import overlaid
from ...commands.jobs import jobs_of_commands
from ...embedded import embedded
from ...launch import Launcher, Resources, Started
from ..command import Assembly
from ..manifests import launches, recogniser
from ..pod import jobs_of_pod, machine_of
from .kaito_preset import preset
from .kaito_tuning import tune
from .presets import table

if TYPE_CHECKING:
    from ....source.document import Document
    from ....source.node import Entry
    from ...launch import Launch
    from ..manifests import Manifests, Object

NAME = "kaito"
_DATA_PARALLEL = 2
"""GPUs of a machine from which on KAITO thinks of data parallelism."""


def read(item: Object, manifests: Manifests) -> Started:
    """What a workspace, or each workspace of a set, serves or tunes."""
    root: Node | None = item.root
    if item.kind == "RAGEngine":
        return Started([], [], "a RAG engine, whose model is served elsewhere")
    if item.kind == "InferenceSet":
        template = item.root.find("spec.template")
        root = template.value if template is not None else None
    if root is None:
        return Started([], [], "a set without a template")
    resources = _resources(root, manifests.file)
    tuning = root.get("tuning")
    if tuning is not None:
        return tune(tuning, item, manifests, resources)
    inference = root.get("inference")
    pod = inference.find("template.spec") if inference is not None else None
    if pod is not None and pod.value.is_mapping:
        return jobs_of_pod(
            pod.value,
            manifests.file,
            manifests.project,
            item.part,
            resources.nodes,
            resources,
            mounts_shared_memory=True,
        )
    name = inference.find("preset.name") if inference is not None else None
    if inference is None or name is None or not isinstance(name.value.value, str):
        return Started([], [], "sets no preset")
    if _runtime(item.root) == "transformers":
        return Started([], [], "serves with Transformers, whose memory KAITO's presets do not limit")
    machine = root.find("resource.instanceType")
    return _serve(inference, name.value, item, manifests, resources, str(machine.value.value) if machine else "")


def _serve(
    inference: Node, name: Node, item: Object, manifests: Manifests, resources: Resources, machine_name: str
) -> Started:
    row = preset(str(name.value))
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
    versions = {"vllm": defaults["vllm"]}
    project = manifests.project
    started = jobs_of_commands([line.command()], manifests.file, project, resources, item.part, versions)
    return started._replace(
        launches=[
            _with_config(launch._replace(implied=line.implied), section, manifests.file) for launch in started.launches
        ]
    )


def _set_nodes(row: dict[str, Any], machine: list[Any] | None, section: Node | None, resources: Resources) -> None:
    """The nodes that KAITO provisions, whatever `count` says (pkg/workspace/estimator/nodesestimator/estimator.go).

    GPUs = floor(1.02 W / ((0.84 M - 2.3 GiB - L T / n) / 1.05)) + 1, for weights of W bytes, M bytes and n GPUs in a
    node, L tokens of T bytes; L is `max-model-len` where the ConfigMap has it, else 2048.
    """
    if machine is None or not row.get("bytes") or not row.get("token_bytes"):
        return
    gpus, memory, _ = machine
    stated = section.get("max-model-len") if section is not None else None
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
    name = inference.get("config")
    text = manifests.config_map(name.value, "inference_config.yaml") if name is not None else None
    config = embedded(manifests.file, text) if text is not None else None
    section = config.root.get("vllm") if config is not None else None
    return section if section is not None and section.is_mapping else None


def _with_config(launch: Launch, section: Node | None, file: Document) -> Launch:
    """The section with the flags behind it that it says nothing of."""
    if section is None:
        return launch
    said = {str(key).replace("_", "-") for key in section.keys()}  # noqa: SIM118  (a Node, not a dict)
    left = [entry for entry in launch.config.root.entries() if str(entry.key.value).replace("_", "-") not in said]
    flags = Node("mapping", left, launch.config.root.span)
    config = overlaid(file._replace(roots=[section]), launch.config._replace(roots=[flags]))
    implied = {flag: origin for flag, origin in launch.implied.items() if flag not in said}
    return launch._replace(config=config, implied=implied)


def _resources(root: Node, file: Document) -> Resources:
    """What `resource` asks for."""
    resources = Resources()
    section = root.get("resource")
    entry = section.entry("instanceType") if section is not None else None
    count = section.entry("count") if section is not None else None
    if count is not None:
        resources.state("nodes", as_integer(count.value.value), file.path, "resource.count", count.value.span)
    profile = section.find("partition.profile") if section is not None else None
    if profile is not None:
        resources.state("gpus_per_node", 1, file.path, "resource.partition.profile", profile.value.span)
        return resources
    machine = machine_of(str(entry.value.value)) if entry is not None else None
    if entry is None or machine is None:
        return resources
    _state(resources, entry, file, machine.gpu.name, machine.gpus)
    return resources


def _state(resources: Resources, entry: Entry, file: Document, gpu: str, gpus: int) -> None:
    note = f"of {entry.value.value}"
    resources.state("gpu", gpu, file.path, "resource.instanceType", entry.value.span, f"GPU {note}")
    resources.state("gpus_per_node", gpus, file.path, "resource.instanceType", entry.value.span, f"GPUs {note}")


def _runtime(root: Node) -> str:
    """The runtime that an annotation chooses; vLLM without one."""
    found = root.find("metadata.annotations")
    value = found.value.get("kaito.sh/runtime") if found is not None else None
    return str(value.value) if value is not None else "vllm"


LAUNCHER = Launcher(NAME, "KAITO workspace", "KAITO 0.12", recogniser(NAME), launches, "`resource.instanceType`")
