"""A finished point as a row in the fields of the published measurements, with the whole job in `job`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import grid

if TYPE_CHECKING:
    from .grid import Point

GROUP = "own GPU runs"
CAVEAT = (
    "random weights built on the GPU: the load phase is not that of from_pretrained; process (cudaMemGetInfo) and"
    " nvidia_smi are the card's used memory less what was used before the run"
)


def job(point: Point, config: dict[str, Any], versions: dict[str, str]) -> dict[str, Any]:
    """The plan of a point as `gpulint: job/v1`."""
    plan: dict[str, Any] = {
        "gpulint": "job/v1",
        "kind": "training",
        "model": config,
        "weights": {"dtype": point.weights},
        "attention": point.attention,
        "hardware": {"gpus": 1},
        "versions": versions,
    }
    if point.method == "generate":
        shape = {"batch_size": point.batch, "prompt_length": point.length, "new_tokens": point.new_tokens}
        return {**plan, "kind": "inference", "inference": {"engine": "transformers", **shape}}
    plan |= {
        "method": "full" if point.method == "full" else "lora",
        "precision": {"autocast": point.autocast},
        "optimizer": {"name": point.optimizer},
        "micro_batch_size": point.batch,
        "sequence_length": point.length,
        "activation_checkpointing": point.checkpointing,
        "reentrant": False,
    }
    if point.method == "qlora":
        plan["weights"]["quantization"] = {"method": "bnb-nf4", "bits": 4, "double_quant": True}
    if point.method != "full":
        targets: Any = point.targets if point.targets == "all-linear" else point.targets.split(",")
        plan["adapter"] = {"type": "lora", "r": grid.RANK, "alpha": 2 * grid.RANK, "targets": targets}
        plan["adapter"]["prepare_kbit"] = point.method == "qlora"
    return plan


def row(name: str, point: Point, config: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """`result` is what `run.measure` returns: outcome, versions, device and bytes by phase; `name` the point's own."""
    phases: dict[str, dict[str, int | None]] = result["phases"]
    peaks = {name: _most(phases, name) for name in ("allocated", "reserved", "process")}
    measured = peaks["allocated"] if result["outcome"] == "ok" else None
    others = {name: result.get(name) for name in ("nvidia_smi", "failed_in")}
    return {
        "id": name,
        "source_group": GROUP,
        "source": "benchmarks/gpu",
        "category": "inference" if point.method == "generate" else f"train_{point.method}",
        "outcome": result["outcome"],
        "gpu": result["device"]["name"],
        "gpu_mem_gb": result["device"]["total"] and round(result["device"]["total"] / 2**30),
        "n_gpus": 1,
        "framework": "transformers",
        "framework_version": ", ".join(f"{name} {version}" for name, version in result["versions"].items()),
        "model": point.model,
        "model_arch": config,
        "method": point.method,
        "weights_dtype": point.weights,
        "precision_policy": point.precision,
        "optimizer": point.optimizer or None,
        "micro_batch": point.batch,
        "seq_len": point.length,
        "gen_len": point.new_tokens or None,
        "gradient_checkpointing": point.checkpointing != "none",
        "attn_impl": point.attention,
        "measured_value": measured,
        "unit": "bytes",
        "measured_gib": measured and round(measured / 2**30, 4),
        "counter": "torch.cuda.max_memory_allocated over two steps",
        "counter_class": "torch_peak_allocated",
        "scope": "the only GPU",
        "extra_measurements": {**peaks, **others, "phases": phases},
        "confidence": "high",
        "caveat": CAVEAT,
        "job": job(point, config, result["versions"]),
    }


def _most(phases: dict[str, dict[str, int | None]], name: str) -> int | None:
    return max((sizes[name] or 0 for sizes in phases.values()), default=0) or None
