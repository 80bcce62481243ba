"""The kinds of launcher files by name, and which one a document is of.

A kind is a module with a `LAUNCHER` and one row here. The row says what its files show at the top: keys of a mapping,
or the syntax of the whole file.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from .kubernetes.manifests import GROUPS, module_of, objects

if TYPE_CHECKING:
    from ..source.document import Document
    from .launch import Launcher


class _Sign(NamedTuple):
    """What a file of the kind shows: one of its syntaxes, one of the keys, an API group of its Kubernetes objects.

    `module` is where the kind is read, below `launchers`.
    """

    module: str
    syntax: tuple[str, ...] = ("yaml",)
    keys: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()


_MANIFEST = ("yaml", "json")

_KINDS: dict[str, _Sign] = {
    "shell_script": _Sign("cloud.shell_script", ("shell",)),
    "python": _Sign("python.python_source", ("python",)),
    "dockerfile": _Sign("cloud.dockerfile", ("dockerfile",)),
    **{
        name: _Sign(f"kubernetes.{module_of(name)}", _MANIFEST, groups=groups)
        for name, groups in GROUPS.items()
        if name != "kubernetes"
    },
    "kubernetes": _Sign("kubernetes.kubernetes", _MANIFEST, keys=frozenset({"apiVersion"})),
    "custom_pods": _Sign("kubernetes.custom_pods", _MANIFEST, keys=frozenset({"apiVersion"})),
    "compose": _Sign("cloud.compose", keys=frozenset({"services"})),
    "skypilot": _Sign("cloud.skypilot", keys=frozenset({"resources", "run"})),
    "vllm_recipe": _Sign("cloud.vllm_recipe", keys=frozenset({"variants", "deploy_type"})),
    "production_stack_values": _Sign(
        "kubernetes.production_stack_values",
        keys=frozenset({"servingEngineSpec", "routerSpec", "cacheserverSpec", "suite"}),
    ),
    "llm_d_values": _Sign("kubernetes.llm_d_values", keys=frozenset({"modelArtifacts"})),
    "app_template": _Sign("kubernetes.app_template", keys=frozenset({"controllers"})),
    "ray_serve": _Sign(
        "cloud.ray_serve",
        keys=frozenset({"applications", "llm_configs", "model_loading_config", "engine_config", "llm_engine"}),
    ),
    "truss": _Sign("cloud.truss", keys=frozenset({"model_name", "trt_llm", "docker_server"})),
    "dstack": _Sign("cloud.dstack", keys=frozenset({"type"})),
    "beaker": _Sign("cloud.beaker", keys=frozenset({"tasks"})),
    "gpu_recipe": _Sign("kubernetes.gpu_recipe", keys=frozenset({"workload", "dynamo"})),
    "triton": _Sign("cloud.triton", _MANIFEST, keys=frozenset({"model"})),
    "model_files": _Sign("cloud.model_files", ("json",)),
}

LAUNCHER_NAMES: tuple[str, ...] = tuple(_KINDS)


def find(name: str) -> Launcher:
    """The launcher kind of that module name. Raises KeyError for a name that is not in `LAUNCHER_NAMES`."""
    if name not in _KINDS:
        raise KeyError(name)
    launcher: Launcher = import_module(f".{_KINDS[name].module}", __package__).LAUNCHER
    return launcher


def recognise(document: Document) -> Launcher | None:
    """The kind that `document` is of, judged by any of its roots; None for a file that starts nothing known."""
    present = {str(entry.key.value) for root in document.roots for entry in root.entries()}
    groups = {item.group for item in objects(document)} if "apiVersion" in present else frozenset()
    for name, sign in _KINDS.items():
        if document.syntax not in sign.syntax or (sign.keys and sign.keys.isdisjoint(present)):
            continue
        if not sign.groups or not sign.groups.isdisjoint(groups):
            launcher = find(name)
            if launcher.recognise(document):
                return launcher
    return None
