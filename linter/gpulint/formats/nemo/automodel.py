"""NeMo Automodel recipes: YAML whose sections name what they build with `_target_`, over Hugging Face models.

Facts from nemo_automodel 0.7.0 (`recipes/_dist_utils.py`, `recipes/llm/train_ft.py`, `recipes/vlm/finetune.py`,
`_transformers/auto_model.py`, `components/distributed/config.py`, `components/_peft/lora.py`), read statically.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...upstream import nemo_automodel
from ..core.bindings.kinds import NUMBER, POSITIVE, TEXT, integer
from ..core.bindings.reader import Reader
from ..core.bindings.rows import NEVER, Default, Derived, Fixed, Key, Table
from ..core.format import Format, NoJobError, Reading
from ..core.interpolation import interpolated
from ..core.keys import key_problems
from ..core.sections import Sections
from .automodel_model import ADAPTER, LOSS, OPTIMIZER, WEIGHTS
from .automodel_parallel import DEGREES, PARALLEL

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.arguments import Given
    from ..core.format import Project
    from ..core.key_changes import Keys

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


def read(document: Document, project: Project) -> Reading:
    """The Job of a recipe."""
    filled = interpolated(document)
    reader = Reader(filled, project, NAME, UPSTREAM, checked=document, keys=Sections(filled.root, skip=NULLS))
    recipe = reader.value(TEXT, "recipe", "recipe._target_", default="")
    if "Diffusion" in recipe and "LM" not in recipe:
        raise NoJobError(document.path, "trains a diffusion model, which is not estimated")
    reader.bind(TABLE.rows)
    reader.reading.problems = [
        item
        for item in key_problems(document, NAME, known=("config", "nproc-per-node", "nproc_per_node"))
        if item.values.get("found", "").lower() not in NULLS
    ]
    return reader.reading


def _set_versions(reader: Reader) -> None:
    kernels = KERNELS if reader.given(integer(2), "distributed.ep_size") else {}
    usual = {"nemo-automodel": UPSTREAM.split()[1], "transformers": TRANSFORMERS, **kernels}
    reader.versions(usual, reader.project.versions, f"what {UPSTREAM} runs on")


_PACKS = ("packed_sequence.packed_sequence_size", "packed_sequence.pack_size")


def _set_length(reader: Reader) -> None:
    """Rows are as long as they come unless the data set, the collate function or packing bounds them."""
    packed, bound = reader.given(POSITIVE, *_PACKS), reader.given(POSITIVE, *_LENGTHS)
    if packed:
        _set_pack(reader, packed)
    elif bound:
        reader.set("sequence_length", bound)
        cut = reader.keys.raw("dataset.truncation")
        if bound.key == "dataset.seq_length" and (cut is None or cut.value in _UNCUT):
            reader.job.unstated.append("sequence_length")
    else:
        reader.assumed("sequence_length", None, "no key bounds the length of a row")


def _set_pack(reader: Reader, packed: Given) -> None:
    """A pack of pictures and text is filled to `packing_ratio` alone, and padded where its collater has a length.

    components/datasets/vlm/neat_packing_vlm.py `knapsack_capacity`, collate_fns.py `neat_packed_vlm_collater`
    """
    pictured = packed.key.endswith(".pack_size")
    padded = reader.given(POSITIVE, "packed_sequence.collate_max_length")
    ratio = reader.value(NUMBER, "packed_sequence.packing_ratio", default=0.0)
    if padded and pictured:
        reader.set("sequence_length", padded)
    elif pictured and 0 < ratio < 1:
        reader.set("sequence_length", packed, int(packed.value * ratio), f"filled to {ratio:g} of it")
    else:
        reader.set("sequence_length", packed)


def _set_evaluation(reader: Reader) -> None:
    """Validation runs over `validation_dataset*` with the training batch size."""
    root = reader.document.root
    named = next((key for key in map(str, root.keys()) if key.startswith("validation_dataset")), "")
    data = reader.keys.raw(named) if named else None
    if data is None or data.value is None:
        reader.default("evaluation.micro_batch_size", None, "no validation data set")
        return
    as_trained = Derived(reader.job.micro_batch_size, "as in training", "micro_batch_size")
    reader.bind((Key("evaluation.micro_batch_size", "validation_dataloader.batch_size", POSITIVE, as_trained),))
    reader.derived("evaluation.keeps_logits", False, "only the loss is kept")


_PEFT = "nemo_automodel.components._peft.lora.PeftConfig"
_FUSED = "nemo_automodel.components.loss.linear_ce.FusedLinearCrossEntropy"
_MASKED = "nemo_automodel.components.loss.masked_ce.MaskedCrossEntropy"
_OFFLOAD = "torch.distributed.fsdp.CPUOffloadPolicy"


def _length_keys(reading: Reading, value: int) -> Keys | None:
    """The key that bounds rows in this file; a recipe without one has none that all data sets take."""
    origin = reading.job.origins.get("sequence_length")
    return {origin.key: value} if origin is not None and origin.kind == "file" and origin.key else None


def _method_keys(reading: Reading, value: str) -> Keys | None:
    if value == "full":
        return {"peft": None, "quantization": None}
    if value != "lora" or reading.job.method == "lora":
        return {} if value == "lora" else None
    return {"peft": {"_target_": _PEFT, "match_all_linear": True, "dim": 16, "alpha": 32}}


def _quantization_keys(_reading: Reading, value: str | None) -> Keys | None:
    if value is None:
        return {"quantization": None}
    if value not in ("bnb-nf4", "bnb-int8"):
        return None
    return {"quantization": {"load_in_4bit": True} if value == "bnb-nf4" else {"load_in_8bit": True}}


def _loss_keys(reading: Reading, value: str) -> Keys | None:
    """The fused loss needs a model that can leave its logits out, which pipelines cannot."""
    if value in ("cut_cross_entropy", "liger") and reading.job.parallelism.pipeline == 1:
        return {"loss_fn._target_": _FUSED, "loss_fn.fp32_upcast": None}
    return {"loss_fn._target_": _MASKED} if value == "torch" else None


def _offload_keys(_reading: Reading, value: bool) -> Keys | None:
    return {"distributed.offload_policy": {"_target_": _OFFLOAD} if value else None}


def _attention_keys(reading: Reading, value: str) -> Keys | None:
    if reading.config.root.find("model.backend.attn") is not None or value not in ("sdpa", "flash_attention_2"):
        return None
    return {"model.attn_implementation": value}


def _evaluation_keys(reading: Reading, value: int) -> Keys | None:
    return {"validation_dataloader.batch_size": value} if reading.job.evaluation.micro_batch_size else None


TABLE = Table(
    (
        Fixed("kind", Derived("training", "a training recipe")),
        Fixed("objective", Derived("sft", "next-token prediction")),
        _set_versions,
        Fixed("framework", Derived(nemo_automodel.NAME, "its own recipes around Transformers' models")),
        *DEGREES,
        *WEIGHTS,
        *ADAPTER,
        *OPTIMIZER,
        *LOSS,
        Key("packing", _PACKS, POSITIVE, False, lambda _size, _job: True),
        _set_length,
        Key(
            "padded", ("dataset.padding", "dataloader.collate_fn.padding"), TEXT, to={"max_length": True}, back=NEVER,
            when=lambda job: not job.packing,
        ),
        Fixed("padded", Default(False, "rows are padded to the longest of a batch")),
        *PARALLEL,
        Fixed(
            "loss.kept", Default("step", "`_forward_backward_step` names the output to its end, behind backward"),
            when=lambda job: job.parallelism.pipeline == 1,
        ),
        _set_evaluation,
    ),
    says={
        "sequence_length": _length_keys,
        "method": _method_keys,
        "weights.quantization.method": _quantization_keys,
        "loss.kernel": _loss_keys,
        "parallelism.fsdp.offload": _offload_keys,
        "attention": _attention_keys,
        "evaluation.micro_batch_size": _evaluation_keys,
    },
    total="step_scheduler.global_batch_size",
)  # fmt: skip

FORMAT = Format.of_table(
    NAME, "NeMo Automodel recipe", UPSTREAM, read, TABLE,
    "`distributed` sizes; else `torchrun`, `benchmark.num_nodes`, `ci.nodes`",
)  # fmt: skip
