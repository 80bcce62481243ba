"""Runs other estimators in their own virtual environment: requests as JSON on stdin, answers as JSON on stdout.

Nothing of gpulint is imported. Both tools fetch a model's `config.json` from the Hub; here they are handed the same
file from the request, and fitcheck the parameter count that the Hub would report.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any


def fitcheck(request: dict[str, Any], path: Path) -> dict[str, float] | str:
    """MiB by counter, or the tool's refusal."""
    from fitcheck import config_parser, estimator, gpu_db, overhead_db

    config_parser.hf_hub_download = lambda **_: str(path)
    config_parser._reported_param_count = lambda *_: request["parameters"]  # noqa: SLF001
    fields = request["fields"]
    try:
        config = config_parser.fetch_model_config(request["model"])
        card = gpu_db.get_gpu(request["gpu"]) if request["gpu"] else gpu_db.get_gpu(vram_mib=request["memory"])
        if request["kind"] == "inference":
            report = estimator.estimate_inference(config, estimator.ServingConfig(**fields), card)
        else:
            report = estimator.estimate(config, estimator.TrainingConfig(**fields), card)
    except ValueError as refusal:
        return str(refusal).splitlines()[0]
    flash = fields.get("flash_attn", False)
    profile = overhead_db.get_overhead_profile(gpu_db.gpu_key_for(card), flash, fields["quantization"])
    sizes = {
        "allocated": report.total_mib - report.overhead_mib,
        "reserved": report.total_mib - profile.base_context_mib,
        "process": report.total_mib,
    }
    return {name: round(size, 3) for name, size in sizes.items()}


def accelerate(_: dict[str, Any], path: Path) -> dict[str, float] | str:
    """Bytes by line of the tool's table, or why no model could be built."""
    import torch
    from accelerate import init_empty_weights
    from accelerate.commands.estimate import estimate_training_usage
    from accelerate.utils import calculate_maximum_sizes
    from transformers import AutoConfig, AutoModel

    try:
        config = AutoConfig.from_pretrained(path.parent)
        with init_empty_weights():
            model = AutoModel.from_config(config, torch_dtype=torch.float32)
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    total, _ = calculate_maximum_sizes(model)
    sizes = {"float32": total, "float16": total / 2, "int8": total / 4, "int4": total / 8}
    trained = {f"train {name}": max(estimate_training_usage(total, name).values()) for name in ("float32", "float16")}
    return {name: int(size) for name, size in {**sizes, **trained}.items()}


TOOLS = {"fitcheck-llm": fitcheck, "accelerate": accelerate}


def main() -> None:
    """Answer every request."""
    warnings.simplefilter("ignore")
    requests = json.load(sys.stdin)
    answers: dict[str, dict[str, Any]] = {tool: {} for tool in TOOLS}
    with contextlib.redirect_stdout(sys.stderr), tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        for request in requests:
            path.write_text(json.dumps(request["config"]), encoding="utf-8")
            answers[request["tool"]][request["key"]] = TOOLS[request["tool"]](request, path)
    packages = ("fitcheck-llm", "accelerate", "transformers", "torch")
    json.dump({"versions": {name: version(name) for name in packages}, "answers": answers}, sys.stdout)


if __name__ == "__main__":
    main()
