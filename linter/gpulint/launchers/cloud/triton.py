"""Triton model repositories: `NAME/VERSION/model.json` of the vLLM backend and `model.yaml` of TensorRT-LLM's LLM API.

Sources: triton-inference-server/vllm_backend `src/model.py` (the JSON is AsyncEngineArgs), TensorRT-LLM 1.0
`triton_backend/all_models/llmapi/tensorrt_llm/1/model.yaml` (arguments of `LLM` and `triton_config`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ...formats.core.keys import load
from ..commands.flags import inside
from ..launch import Launch, Launcher, Resources, Started
from ..values import text

if TYPE_CHECKING:
    from ...formats.core.format import Project
    from ...source.document import Document

NAME = "triton"
_OF_TRITON = frozenset({"disable_log_requests", "disable_log_stats", "triton_config", "REPORT_CUSTOM_METRICS"})
_ENGINES = {"model.json": "vllm", "model.yaml": "trtllm"}


def recognise(document: Document) -> bool:
    """A file `model.json` or `model.yaml` in a folder named by a number, that gives an engine its model."""
    if not document.root.is_mapping or not text(document.root, "model"):
        return False
    folder, name = os.path.split(os.path.abspath(document.path))
    engine = _ENGINES.get(name)
    if engine is None or not os.path.basename(folder).isdigit():
        return False
    known = load(engine)["properties"]
    others = [str(key) for key in document.root.keys() if key != "model"]  # noqa: SIM118
    taken = [key for key in others if key.replace("_", "-") in known or key in known or key in _OF_TRITON]
    return len(taken) * 2 >= len(others)


def launches(document: Document, project: Project) -> Started:  # noqa: ARG001
    """The engine of the model."""
    folder, name = os.path.split(os.path.abspath(document.path))
    served = os.path.basename(os.path.dirname(folder))
    kept = [entry for entry in document.root.entries() if str(entry.key.value) not in _OF_TRITON]
    config = inside(document, kept, document.root)
    return Started([Launch(f"model {served}", _ENGINES[name], config, Resources())], [])


LAUNCHER = Launcher(NAME, "Triton model repository", "vllm_backend 26.08, TensorRT-LLM 1.0", recognise, launches)
