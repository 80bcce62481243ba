"""NeMo Automodel recipes: YAML whose sections name what they build with `_target_`, over Hugging Face models.

Facts from nemo_automodel 0.7.0 (`recipes/_dist_utils.py`, `recipes/llm/train_ft.py`, `recipes/vlm/finetune.py`,
`_transformers/auto_model.py`, `components/distributed/config.py`, `components/_peft/lora.py`), read statically.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...upstream import nemo_automodel
from ..core.format import Format, JobBuilder, NoJobError, Reading, written_by
from ..core.interpolation import interpolated
from ..core.keys import key_problems
from ..core.sections import Filling, Sections
from .automodel_model import set_adapter, set_loss, set_model, set_optimizer, set_trainable
from .automodel_parallel import set_parallelism

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.arguments import Given
    from ..core.format import Project

NAME = "nemo_automodel"
UPSTREAM = "nemo_automodel 0.7.0"
TRANSFORMERS = "5.12.1"
"""What its pyproject.toml pins."""

KERNELS = {"flash-linear-attention": "0.4.2"}
"""What its extra for mixtures of experts brings beside deep_ep."""

NULLS = frozenset({"none", "null"})
"""Strings that its loader reads as no value (`components/config/loader.py: translate_value`)."""

_LENGTHS = (
    "dataset.seq_length", "dataset.seq_len", "dataset.max_seq_length", "dataset.max_seq_len", "dataset.max_length",
    "dataloader.collate_fn.max_length", "dataloader.collate_fn.p_max_len",
)  # fmt: skip
"""Keys that bound a row: arguments of its data sets and collate functions."""


_UNCUT = (None, False, "do_not_truncate")
"""Values of `truncation` with which a tokenizer cuts nothing to `seq_length`: its data sets' default is one of them."""


def recognise(document: Document) -> bool:
    """A YAML file with a model section and a `step_scheduler`, or a target of the package."""
    root = document.root
    model = root.get("model")
    if document.syntax != "yaml" or model is None or not model.is_mapping:
        return False
    scheduler = root.get("step_scheduler")
    if scheduler is not None and scheduler.is_mapping and model.get("_component_") is None:
        return True
    target = model.get("_target_")
    return target is not None and str(target.value).startswith("nemo_automodel.")


def read(document: Document, project: Project) -> Reading:
    """The Job of a recipe."""
    filled = interpolated(document)
    builder = JobBuilder(filled, UPSTREAM)
    reading = Reading(NAME, UPSTREAM, document, builder.job)
    values = Sections(filled.root, skip=NULLS)
    recipe = values.text("recipe", "recipe._target_")
    if recipe and "Diffusion" in recipe.value and "LM" not in recipe.value:
        raise NoJobError(document.path, "trains a diffusion model, which is not estimated")
    filling = Filling(builder)
    builder.derived("kind", "training", "a training recipe")
    builder.derived("objective", "sft", "next-token prediction")
    usual = {"nemo-automodel": UPSTREAM.split()[1], "transformers": TRANSFORMERS}
    if values.integer("distributed.ep_size", least=2):
        usual |= KERNELS
    builder.versions(usual, project.versions, f"what {UPSTREAM} runs on")
    builder.derived("framework", nemo_automodel.NAME, "its own recipes around Transformers' models")
    set_model(filling, values)
    set_adapter(filling, values)
    set_trainable(filling, values)
    set_optimizer(filling, values)
    set_loss(filling, values)
    _set_length(filling, values)
    set_parallelism(filling, values, project)
    if builder.job.parallelism.pipeline == 1:
        builder.default("loss.kept", "step", "`_forward_backward_step` names the output to its end, behind backward")
    _set_evaluation(filling, values)
    reading.problems = [
        item
        for item in key_problems(document, NAME, known=("config", "nproc-per-node", "nproc_per_node"))
        if item.values.get("found", "").lower() not in NULLS
    ]
    return reading


def _set_length(filling: Filling, values: Sections) -> None:
    """Rows are as long as they come unless the data set, the collate function or packing bounds them."""
    builder = filling.builder
    packed = values.integer("packed_sequence.packed_sequence_size", "packed_sequence.pack_size", least=1)
    bound = values.integer(*_LENGTHS, least=1)
    if packed:
        filling.put("packing", packed, value=True)
        _set_pack(filling, values, packed)
    else:
        builder.default("packing", False)
        if bound:
            filling.put("sequence_length", bound)
            cut = values.raw("dataset.truncation")
            if bound.key == "dataset.seq_length" and (cut is None or cut.value in _UNCUT):
                builder.job.unstated.append("sequence_length")
        else:
            builder.assumed("sequence_length", None, "no key bounds the length of a row")
    padding = values.text("dataset.padding", "dataloader.collate_fn.padding")
    if padding and padding.value == "max_length" and not packed:
        filling.put("padded", padding, value=True)
    else:
        builder.default("padded", False, "rows are padded to the longest of a batch")


def _set_pack(filling: Filling, values: Sections, packed: Given) -> None:
    """A pack of pictures and text is filled to `packing_ratio` alone, and padded where its collater has a length.

    components/datasets/vlm/neat_packing_vlm.py `knapsack_capacity`, collate_fns.py `neat_packed_vlm_collater`
    """
    pictured = packed.key.endswith(".pack_size")
    padded = values.integer("packed_sequence.collate_max_length", least=1)
    ratio = values.number("packed_sequence.packing_ratio")
    if padded and pictured:
        filling.put("sequence_length", padded)
    elif ratio and pictured and 0 < ratio.value < 1:
        filling.put("sequence_length", packed, int(packed.value * ratio.value), f"filled to {ratio.value:g} of it")
    else:
        filling.put("sequence_length", packed)


def _set_evaluation(filling: Filling, values: Sections) -> None:
    """Validation runs over `validation_dataset*` with the training batch size."""
    named = next((key for key in list(values.root.keys()) if key.startswith("validation_dataset")), None)
    given = values.raw(named) if named else None
    builder = filling.builder
    if given is None or given.value is None:
        builder.default("evaluation.micro_batch_size", None, "no validation data set")
        return
    batch = values.integer("validation_dataloader.batch_size", least=1)
    if batch:
        filling.put("evaluation.micro_batch_size", batch)
    else:
        builder.derived(
            "evaluation.micro_batch_size", builder.job.micro_batch_size, "as in training", "micro_batch_size"
        )
    builder.derived("evaluation.keeps_logits", False, "only the loss is kept")


describe, edits = written_by("nemo.automodel_edits")


FORMAT = Format(
    NAME,
    "NeMo Automodel recipe",
    UPSTREAM,
    recognise,
    read,
    describe,
    edits,
    "`distributed` sizes; else `torchrun`, `benchmark.num_nodes`, `ci.nodes`",
)
