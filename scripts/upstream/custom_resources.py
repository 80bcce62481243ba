"""The fields of Kubernetes custom resources, from the definitions that their operators ship.

`kubectl` refuses a field that the definition lacks. What a resource takes from Kubernetes itself (pod templates,
affinities) is left open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from .schema import section, whole

if TYPE_CHECKING:
    from .schema import Json
    from .source import Source

FOLDERS = {
    "KubeAI": "manifests/crds/",
    "KAITO": "config/crd/bases/",
    "llmaz": "config/crd/bases/",
    "OME": "config/crd/full/",
    "production-stack": "operator/config/crd/bases/",
    "Kubeflow Trainer": "manifests/base/crds/",
    "KServe": "config/crd/full/",
}
"""Where each keeps its definitions."""

MAX_DEPTH = 6
_KUBERNETES = {
    "containers",
    "affinity",
    "tolerations",
    "nodeSelector",
    "valueFrom",
    "matchLabels",
    "fsGroup",
    "clientIP",
}
"""A section that has one of these fields is Kubernetes' own."""


def custom_resources(*sources: Source) -> Json:
    """`$defs` by `group/version/Kind`: the fields below `metadata`'s level, each with the operator that reads them."""
    definitions: dict[str, Json] = {}
    for source in sources:
        for path in source.below(FOLDERS[source.upstream.name], ".yaml"):
            content: Any = yaml.safe_load(source.need(path))
            spec = content.get("spec") if isinstance(content, dict) else None
            if not isinstance(spec, dict) or "names" not in spec:
                continue  # a patch
            for version in spec["versions"]:
                fields = version["schema"]["openAPIV3Schema"]["properties"]
                name = f"{spec['group']}/{version['name']}/{spec['names']['kind']}"
                made = {key: field(part, 1) for key, part in fields.items() if key not in ("metadata", "status")}
                top = {**made, "metadata": {}, "status": {}}
                definitions[name] = {**section(top, "refused"), "x-upstream": source.upstream.stamp}
    return whole("Kubernetes custom resources", {}, "", definitions=definitions)


def field(part: Json, depth: int) -> Json:
    """A field of an OpenAPI schema as one of ours."""
    kind, fields = part.get("type"), part.get("properties")
    if part.get("x-kubernetes-preserve-unknown-fields") or part.get("x-kubernetes-int-or-string"):
        return {}
    if kind == "object" and fields:
        if depth > MAX_DEPTH or _KUBERNETES & set(fields):
            return {"type": "object"}
        return section({name: field(item, depth + 1) for name, item in fields.items()}, "refused")
    if kind == "array":
        items = field(part.get("items", {}), depth + 1)
        return {"type": "array", "items": items} if items.get("properties") else {"type": "array"}
    return {"type": kind} if kind in ("object", "integer", "number", "boolean", "string") else {}
