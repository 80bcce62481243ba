"""The signs of files that gpulint does not read and that have keys of some that it reads."""

from __future__ import annotations

from .claims import FLAGS
from .signs import FILES, OWN, SHARED, TELLING, Claim, any_of, claim, says, section

OTHERS: dict[str, tuple[Claim, ...]] = {
    "Kubernetes": (claim(any_of(OWN, "apiVersion"), any_of(OWN, "kind")),),
    "Docker Compose": (claim(section(OWN, "services")),),
    "Hydra": (claim(any_of(TELLING + 2 * SHARED, "defaults")),),
    "a part of a LLaMA-Factory run": (claim(any_of(OWN, "finetuning_type", "infer_backend", "export_dir")),),
    "a script with arguments or a launcher of its own": (
        claim(
            any_of(
                TELLING + 2 * SHARED,
                "base_model",
                "architectures",
                "checkpoint_dir",
                "trainer",
                "recipe",
                "apiVersion",
                "kind",
                "resources",
                "distributed_type",
                "compute_environment",
                "zero_stage",
                "_component_",
                "stage",
            ),
            syntaxes=FILES | FLAGS,
        ),
    ),
    "a script that makes its DeepSpeed config": (
        claim(
            any_of(OWN + SHARED, "output_dir", "model_name_or_path"),
            any_of(SHARED, "zero_optimization", "train_micro_batch_size_per_gpu"),
        ),
    ),
    "mergekit": (claim(any_of(2 * OWN, "merge_method", "slices", "models")),),
    "a model's config.json": (claim(any_of(2 * OWN, "architectures")),),
    "an adapter's adapter_config.json": (claim(any_of(OWN, "peft_type"), any_of(SHARED, "base_model_name_or_path")),),
    "realhf": (claim(any_of(2 * OWN, "actor.type", "model.type"), any_of(SHARED, "actor.path", "model.path")),),
    "mosaicml/examples' BERT": (claim(says(2 * OWN, "model.name", "_bert$")),),
}
"""Files of tools that gpulint does not read and that have keys of one that it reads."""
