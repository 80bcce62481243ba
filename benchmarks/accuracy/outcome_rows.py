"""Published outcomes (it ran, or it ran out of memory), by the kind of config that led to them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from gpulint.job.job import Adapter, Job
from gpulint.models.adapter_types import MODELLED, kind_of

from . import litgpt_rows, nemo_rows, recipe_rows
from .case import GIB, SHARED, Case, Excluded, Inexpressible, Row, gpu_of, load, read_rows
from .config_rows import read_config, read_text

if TYPE_CHECKING:
    from collections.abc import Callable

GB = 10**9
CLASSES = {"24GB class": "rtx-4090", "48GB class": "rtx-a6000", "80GB class": "a100-80gb", "96GB class": "rtx-pro-6000"}
"""The largest card of a class: a run that it does not hold fits none of them."""


def cases() -> tuple[list[Case], list[Excluded]]:
    """The rows of outcomes.json."""
    return read_rows(load("outcomes"), lambda row: GROUPS.get(row["format"], "issues"), READERS)


MEASURED_WITH = {
    "axolotl-ai-cloud/axolotl examples/gpt-oss/README.md": {"accelerate": "1.10.0", "transformers": "4.55.2"},
}
"""What Axolotl's requirements.txt pinned when a figure was published (gpt-oss: ecbe8b2b6, August 2025)."""


def place(job: Job, row: Row) -> Job:
    """The GPU and the number of GPUs; a class of cards by its representative."""
    job.hardware.gpu = CLASSES.get(row["gpu"]) or gpu_of(row["gpu"])
    job.hardware.gpus = row["n_gpus"] or job.hardware.gpus or 1
    return job


def made(row: Row, group: str, job: Job, figure: str, measured: float | None = None) -> Case:
    """A case with the row's outcome."""
    return Case(row["id"], group, job, figure, measured, row["outcome"], bool(row["strict"]), row["confidence"])


def litgpt_cli(row: Row) -> Case:
    """The resource tables once more; their figures are scored with the measurements."""
    given = row["key_fields"]
    name = LITGPT_MODELS[given["model"], given["size"]]
    quantize = None if given["quantize"] == "None" else given["quantize"]
    if given["command"] == "generate":
        job = litgpt_rows.generation(name, quantize, litgpt_rows.PROMPT, 50)
    else:
        job = litgpt_rows.training(
            name, given["micro_batch_size"], given["longest_sample_tokens"], quantize, row["n_gpus"]
        )
        job.longest_batch_first, job.versions = True, {"litgpt": "0.1"}
        if given["command"].startswith("finetune_adapter"):
            litgpt_rows.llama_adapter(job, "v2" if given["command"].endswith("v2") else "v1")
        else:
            litgpt_rows.lora(job, name, 8, 0.05, ["q_proj", "v_proj"])
    return made(row, "litgpt outcomes", place(job, row), "allocated")


def litgpt_config(row: Row) -> Case:
    """A file of LitGPT's config hub. The samples of Alpaca2k are cut at `max_seq_length`, the longest comes first."""
    if not row.get("corpus_path"):
        raise Inexpressible("the length of the longest sample is not stated")
    given = yaml.safe_load((SHARED / "corpus" / row["corpus_path"]).read_text(encoding="utf-8"))
    train, name = given["train"], given["checkpoint_dir"].removeprefix("checkpoints/")
    batch, length = train["micro_batch_size"], train["max_seq_length"]
    job = litgpt_rows.training(name, batch, length, given.get("quantize"), given["devices"])
    job.versions = {"bitsandbytes": "0.42.0", "litgpt": "0.4"}
    if "lora_r" in given:
        chosen = [target for flag, targets in LITGPT_LORA.items() if given.get(flag) for target in targets]
        litgpt_rows.lora(job, name, given["lora_r"], given.get("lora_dropout", 0.0), chosen)
    elif quantized := job.weights.quantization:
        raise Inexpressible(f"full training over {quantized.method}")
    measured = row["measured_gb"] * GB if row["measured_gb"] else None
    place(job, row).hardware.gpus = given["devices"]
    return made(row, "litgpt config hub", job, "allocated", measured)


def torchtune(_: Row) -> Case:
    """Always refused: the README's tables are rows of the measurements too."""
    raise Inexpressible("the table is scored with the measurements; the flags of the rest are not stated")


def peft(row: Row) -> Case:
    """PEFT's method comparison: batches of 4, padded to their longest sample, which is at most `max_seq_length`.

    What an adapter's type has of its own is in `peft_experiments.json`, from experiments/*/adapter_config.json. What is
    published is the most that was reserved after a training step, in GB.
    """
    given = row["key_fields"]
    if "bdlora" in given["experiment"]:
        raise Inexpressible("a Job has no LoRA of diagonal blocks")
    job = Job(model=given["model_id"], attention="sdpa", padded=True)
    job.weights.dtype = given["dtype"]
    job.micro_batch_size, job.sequence_length = given["batch_size"], given["max_seq_length"]
    job.activation_checkpointing = "full" if given["use_gc"] else "none"
    job.optimizer.name = "adamw_torch"
    job.versions = {"transformers": "5.13.1", "torch": "2.13.0", "peft": "0.19.2"}
    if given["peft_type"] != "FULL":
        job.method = "lora"
        stated = _table("peft_experiments")[given["experiment"]]
        rank = stated.get("r", given["r"] or 8)
        options = {key: value for key, value in stated.items() if key != "r"}
        job.adapter = Adapter(given["peft_type"].lower(), rank, None, 0.0, given["target_modules"], options=options)
    if job.adapter is not None and kind_of(job.adapter) not in MODELLED:
        raise Inexpressible(f"adapters of type {given['peft_type']} are not modelled")
    found = made(row, "peft outcomes", place(job, row), "reserved", row["measured_gb"] * GB)
    unknown = "the longest padded batch, at most 768 tokens; an evaluation generates in between"
    return found._replace(unknown=unknown, confidence="medium", rounded=GB / 2000)


def axolotl(row: Row) -> Case:
    """An Axolotl file read as gpulint reads it; the source says about how many GiB it uses, not what was counted."""
    if not row.get("corpus_path"):
        return issue(row)
    comment = row["key_fields"].get("comment", "")
    if "- target experts" in comment:
        raise Inexpressible("the figure is for an edited config")
    given = _table("axolotl").get(row["id"], {})
    job = _as_it_stood(row, given)
    job.versions |= next((found for source, found in MEASURED_WITH.items() if row["source"].startswith(source)), {})
    measured = row["measured_gb"] * GIB if row["measured_gb"] else None
    counter = given.get("counter")
    found = made(row, "axolotl", place(job, row), counter or "process", measured)
    unknown, rounded = _written_with(job, given), GIB / 2 / 10 ** _decimals(row["measured_gb"])
    return found._replace(unknown=unknown, counted=counter is not None, rounded=rounded)


def _decimals(figure: float | None) -> int:
    """How many decimals a figure was printed with."""
    text = f"{figure or 0:g}"
    return len(text.partition(".")[2])


def _as_it_stood(row: Row, given: dict[str, Any]) -> Job:
    """The file as it stood when its figure was written: today's, with the keys that have changed since (`then`), and
    the packages of that day."""
    path = SHARED / "corpus" / row["corpus_path"]
    gpu, then = CLASSES.get(row["gpu"]) or gpu_of(row["gpu"]), given.get("then")
    if then is None:
        return read_config(path, gpu, row["n_gpus"], given.get("versions"))
    config = yaml.safe_load(path.read_text(encoding="utf-8")) | then
    text = yaml.safe_dump({key: value for key, value in config.items() if value is not None})
    return read_text(text, "axolotl", gpu, row["n_gpus"], given.get("versions"))


def _written_with(job: Job, given: dict[str, Any]) -> str:
    """Set what axolotl pinned when the figure was written into its README; returns what stays unknown.

    The commit is the one that brought the figure (`axolotl.json`: its requirements.txt or pyproject.toml). Since 2025
    axolotl sets expandable segments, before torch 2.9 (October 2025) with sizes rounded to sixteenths of a power of
    two (axolotl/utils/__init__.py).
    """
    if not given:
        return ""
    job.allocator.expandable_segments = given["date"] >= "2025"
    job.allocator.roundup_power2_divisions = 16 if "2025" <= given["date"] < TORCH_29 else None
    return "the README says about how much it takes: neither the run's data, nor its torch, and mostly no counter"


def issue(row: Row) -> Case:
    """A run that an issue thread tells of, written down by hand in `issues.json` (`unknown`: what it does not say)."""
    given = _table("issues").get(row["id"])
    if given is None:
        raise Inexpressible("the thread does not say the settings that decide the memory")
    if isinstance(given, str):
        raise Inexpressible(given)
    unknown = given.get("unknown", "")
    return made(row, "issues", place(Job.validate(given), row), "process")._replace(unknown=unknown)


@cache
def _table(name: str) -> dict[str, Any]:
    table: dict[str, Any] = json.loads(Path(__file__).with_name(f"{name}.json").read_text(encoding="utf-8"))
    return table


TORCH_29 = "2025-10-15"
"""The day torch 2.9 came out."""

LITGPT_MODELS = {
    ("phi-1.5", "1.3 B"): "microsoft/phi-1_5",
    ("StableLM Alpha", "3 B"): "stabilityai/stablelm-base-alpha-3b",
    ("Llama 2", "7 B"): "meta-llama/Llama-2-7b-hf",
    ("Llama 2", "13 B"): "meta-llama/Llama-2-13b-hf",
    ("Llama 2", "70 B"): "meta-llama/Llama-2-70b-hf",
    ("CodeLlama", "34 B"): "codellama/CodeLlama-34b-hf",
    ("Falcon", "40 B"): "tiiuae/falcon-40b",
}
LITGPT_LORA = {
    "lora_query": ["q_proj"],
    "lora_key": ["k_proj"],
    "lora_value": ["v_proj"],
    "lora_projection": ["o_proj"],
    "lora_mlp": ["gate_proj", "up_proj", "down_proj", "gate_up_proj"],
    "lora_head": ["lm_head"],
}
GROUPS = {
    "litgpt-cli": "litgpt outcomes",
    "litgpt": "litgpt config hub",
    "peft-benchmark": "peft outcomes",
    "axolotl": "axolotl",
    "vllm_recipe": "vllm recipes",
    "nemo": "nemo",
    "torchtune": "torchtune outcomes",
}
READERS: dict[str, Callable[[Row], Case | list[Case]]] = {
    "litgpt outcomes": litgpt_cli,
    "litgpt config hub": litgpt_config,
    "peft outcomes": peft,
    "axolotl": axolotl,
    "vllm recipes": recipe_rows.case,
    "nemo": nemo_rows.case,
    "torchtune outcomes": torchtune,
    "issues": issue,
}
