"""The presets that serving operators ship: hub ids, images, profiles, arguments. Nothing upstream is run."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from .source import Source

SIZE = re.compile(r"(\d+(?:\.\d+)?)(Mi|Gi|Ti)")
_MACHINE = re.compile(r'SKU: "([^"]+)", GPUCount: (\d+), GPUMem: resource.MustParse\("(\w+)"\), GPUModel: "([^"]+)"')
UNITS = {"Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}


def _documents(source: Source, path: str) -> list[Any]:
    """The documents of a YAML file."""
    return [document for document in yaml.safe_load_all(source.need(path)) if document]


def kubeai(source: Source) -> dict[str, Any]:
    """Resource profiles and the images of vLLM by profile."""
    chart = _documents(source, "charts/kubeai/Chart.yaml")[0]
    values = _documents(source, "charts/kubeai/values.yaml")[0]
    profiles = {}
    for name, profile in values["resourceProfiles"].items():
        asked = {**profile.get("requests", {}), **profile.get("limits", {})}
        resource = next((key for key in asked if key.endswith("/gpu")), "")
        profiles[name] = {"image": profile.get("imageName", "default"), "resource": resource}
    return {
        "about": f"Resource profiles and vLLM images of the KubeAI chart {chart['version']} ({source.commit}).",
        "profiles": profiles,
        "images": values["modelServers"]["VLLM"]["images"],
    }


_TUNING = ("transformers", "torch", "peft", "bitsandbytes")
"""Packages of the image that decide a tuning job's memory."""


def kaito(source: Source) -> dict[str, Any]:
    """Hub ids, sizes and defaults of KAITO's presets."""
    chart = _documents(source, "charts/kaito/workspace/Chart.yaml")[0]
    supported = _documents(source, "presets/workspace/models/supported_models.yaml")[0]["models"]
    catalogue = _documents(source, "presets/workspace/models/model_catalog.yaml")[0]["models"]
    rows = {row["name"].lower(): row for row in catalogue}
    presets: dict[str, Any] = {}
    for row in supported:
        found = re.match(r"https://huggingface.co/([^/]+/[^/]+)/", row.get("version", ""))
        if found:
            presets[row["name"]] = {"model": found[1]}
    for name, target in re.findall(r'"([^"]+)":\s+"([^"]+/[^"]+)",', source.need("pkg/utils/plugin/plugin.go")):
        presets.setdefault(name, {"model": rows.get(target, {}).get("name", target)})
    for preset in [*presets.values()]:
        preset.update(_sizes(rows.get(preset["model"].lower())))
    for row in catalogue:
        presets.setdefault(row["name"].lower(), {"model": row["name"], **_sizes(row)})
    go = source.need("pkg/model/interface.go")
    pins = source.need("presets/workspace/dependencies/requirements.txt")
    share = re.search(r'defaultGPUMemoryUtilization = "([\d.]+)"', go)
    vllm = re.search(r"^vllm==([\d.]+)", pins, re.MULTILINE)
    generator = source.need("presets/workspace/generator/generator.go")
    machines = {}
    for path in ("pkg/sku/azure_sku_handler.go", "pkg/sku/aws_sku_handler.go"):
        for name, gpus, size, model in _MACHINE.findall(source.need(path)):
            machines[name] = [int(gpus), _bytes(size), model]
    by_gpu = re.search(r"gpuMemoryUtilizationByGPUModel = map\[string\]string\{(.*?)\n\}", go, re.DOTALL)
    if share is None or vllm is None or by_gpu is None:
        sys.exit("KAITO's defaults are not where they were")
    return {
        "about": f"Presets and defaults of KAITO {chart['version']} ({source.commit}): supported_models.yaml, "
        "model_catalog.yaml, plugin.go, interface.go, requirements.txt. bytes: of the weights, as KAITO counts them.",
        "release": chart["version"],
        "vllm": vllm[1],
        "tuning": {
            name: pin[1] for name in _TUNING if (pin := re.search(rf"^{name}\b.*==\s*([\d.]+)", pins, re.MULTILINE))
        },
        "gpu_memory_utilization": float(share[1]),
        "by_gpu": {name: float(value) for name, value in re.findall(r'"([^"]+)":\s*"([\d.]+)"', by_gpu[1])},
        "kv_cache_dtype": dict(_pairs(generator, "vllmKVCacheDtypePrefixMap", r'"([^"]+)"')),
        "expert_parallel": [
            name for name, on in _pairs(generator, "vllmExpertParallelEnabled", "(\\w+)") if on == "true"
        ],
        "machines": machines,
        "presets": dict(sorted(presets.items())),
    }


def _sizes(row: dict[str, Any] | None) -> dict[str, int]:
    """Bytes of the weights, and of the cache of one token in 16 bits (`calculateKVCacheTokenSize`)."""
    if row is None:
        return {}
    layers, heads = row["numHiddenLayers"], row["numAttentionHeads"]
    if row.get("kvLoraRank"):
        token = layers * (row["kvLoraRank"] + row.get("qkRopeHeadDim", 0)) * 2
    else:
        size = row.get("headDim") or row["hiddenSize"] // heads
        token = 2 * layers * (row.get("numKeyValueHeads") or heads) * size * 2
    return {"bytes": _bytes(row["modelFileSize"]), "token_bytes": token}


def _pairs(text: str, name: str, value: str) -> list[tuple[str, str]]:
    """The entries of a Go map of strings."""
    body = re.search(name + r" = map\[string\]\w+\{(.*?)\n\s*\}", text, re.DOTALL)
    if body is None:
        sys.exit(f"{name} is not where it was")
    return re.findall(r'"([^"]+)":\s*' + value, body[1])


def ome(source: Source) -> dict[str, Any]:
    """Hub ids of OME's base models, and what its runtimes start."""
    models, runtimes = {}, {}
    for path in source.below("config/models/", ".yaml", ".yml"):
        for item in _documents(source, path):
            uri = item.get("spec", {}).get("storage", {}).get("storageUri", "")
            if uri.startswith("hf://"):
                models[item["metadata"]["name"]] = uri[5:]
    for path in source.below("config/runtimes/", ".yaml", ".yml"):
        for item in _documents(source, path):
            engine = item.get("spec", {}).get("engineConfig") or {}
            leader = engine.get("leader") or engine
            runner = leader.get("runner")
            if item["kind"] != "ClusterServingRuntime" or not runner:
                continue
            limits = (runner.get("resources") or {}).get("limits") or {}
            words = [str(word) for word in [*(runner.get("command") or []), *(runner.get("args") or [])]]
            runtimes[item["metadata"]["name"]] = {
                "image": runner.get("image", ""),
                "gpus": int(limits.get("nvidia.com/gpu", 0)),
                "nodes": 1 + int((engine.get("worker") or {}).get("size") or 0),
                "words": words,
            }
    return {
        "about": f"Base models and runtimes that OME ships (config/models, config/runtimes of {source.commit}).",
        "models": dict(sorted(models.items())),
        "runtimes": dict(sorted(runtimes.items())),
    }


def llmaz(source: Source) -> dict[str, Any]:
    """llmaz's backends: what each starts, with which arguments."""
    values = _documents(source, "chart/values.global.yaml")[0]["backendRuntime"]
    backends = {}
    for path in source.below("chart/templates/backends/", ".yaml", ".yml"):
        text = re.sub(r"^\s*\{\{-.*$", "", source.need(path), flags=re.MULTILINE)
        text = re.sub(r"\{\{`(.*?)`\}\}", r"\1", text)
        text = re.sub(r"\{\{ (\.Values[^}]*) \}\}", r'"\1"', text)
        item = yaml.safe_load(text)
        image = values[item["metadata"]["name"].replace("-", "_")]["image"]
        backends[item["metadata"]["name"]] = {
            "image": image["repository"],
            "version": str(image["tag"]),
            "command": item["spec"].get("command", []),
            "configs": {
                config["name"]: {
                    "args": [str(word) for word in config.get("args", [])],
                    "shared_memory": config.get("sharedMemorySize", ""),
                    "memory": (config.get("resources", {}).get("limits") or {}).get("memory", ""),
                }
                for config in item["spec"]["recommendedConfigs"]
            },
        }
    return {"about": f"Backends of llmaz's chart ({source.commit}).", "backends": backends}


def _bytes(text: str) -> int:
    found = SIZE.fullmatch(text)
    if found is None:
        sys.exit(f"not a size: {text}")
    return int(float(found[1]) * UNITS[found[2]])
