"""What formats of frameworks with code of their own share: the file being read, and models given by dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .arguments import Arguments
from .decoder_config import decoder, multiple
from .format import JobBuilder, Problem, Reading
from .placeholders import is_blank

if TYPE_CHECKING:
    from ...source.document import Document
    from .arguments import Given
    from .format import Project

__all__ = ["DTYPES", "NativeConfig", "decoder", "known", "multiple", "optimizer_of", "shown"]

DTYPES = {
    "bf16": "bfloat16", "bfloat16": "bfloat16", "fp16": "float16", "float16": "float16", "half": "float16",
    "fp32": "float32", "float32": "float32", "float": "float32", "torch.bfloat16": "bfloat16",
    "torch.float16": "float16", "torch.float32": "float32", "amp_bf16": "bfloat16", "amp_fp16": "float16",
}  # fmt: skip
"""Spellings of dtypes."""

OPTIMIZERS = {
    "bitsandbytes.optim.PagedAdamW": "paged_adamw_32bit", "bitsandbytes.optim.PagedAdamW8bit": "paged_adamw_8bit",
    "bitsandbytes.optim.PagedAdamW32bit": "paged_adamw_32bit", "bitsandbytes.optim.AdamW8bit": "adamw_bnb_8bit",
    "bitsandbytes.optim.Adam8bit": "adamw_bnb_8bit", "bitsandbytes.optim.AdamW": "adamw_bnb_32bit",
    "bitsandbytes.optim.PagedAdam8bit": "paged_adamw_8bit", "bitsandbytes.optim.Lion8bit": "lion_8bit",
    "bitsandbytes.optim.PagedLion8bit": "paged_lion_8bit", "bitsandbytes.optim.Lion": "lion_32bit",
    "torch.optim.SGD": "sgd", "torch.optim.AdamW": "adamw_torch",
    "torch.optim.Adam": "adamw_torch", "torch.optim.Adagrad": "adagrad", "torch.optim.RMSprop": "rmsprop",
    "torch.optim.Adafactor": "adafactor",
    "torchao.optim.AdamW8bit": "ao_adamw_8bit", "torchao.optim.AdamW4bit": "ao_adamw_4bit",
    "torchao.prototype.low_bit_optim.AdamW8bit": "ao_adamw_8bit",
    "torchao.prototype.low_bit_optim.AdamW4bit": "ao_adamw_4bit",
}  # fmt: skip
"""Optimizer classes that configs name by their path, in the Transformers spelling."""

_DEFAULTS: dict[str, Any] = {
    "weights.quantization": None, "precision.autocast": None, "precision.master_weights": False, "reentrant": False,
    "padded": False, "packing": False, "liger_kernels": False, "compile": False, "rl.reference_model": False,
    "evaluation.micro_batch_size": None, "parallelism.zero": None, "parallelism.fsdp": None, "parallelism.tensor": 1,
    "loss.kernel": "torch", "activation_checkpointing": "none", "gradient_accumulation_steps": 1, "adapter": None,
    "method": "full", "attention": "sdpa", "optimizer.name": "adamw_torch",
}  # fmt: skip
"""Fields of a training job that a framework may have no key for, and what it then does."""


class NativeConfig:
    """One file being read: its keys, the Job they fill, and what was odd.

    `framework` is the estimator's name of the model code (estimator/frameworks/frameworks.json), None Transformers'.
    """

    __slots__ = ("builder", "document", "keys", "name", "project", "reading", "upstream")

    def __init__(
        self,
        name: str,
        upstream: str,
        document: Document,
        project: Project,
        framework: str | None,
        *,
        dashes: bool = False,
    ) -> None:
        self.name, self.upstream = name, upstream
        self.document, self.project = document, project
        self.builder = JobBuilder(document, upstream)
        self.reading = Reading(name, upstream, document, self.builder.job)
        self.keys = Arguments(document.root, dashes=dashes)
        tool, _, version = upstream.rpartition(" ")
        stated = {key: value for key, value in project.versions.items() if value}
        versions = {**({framework or tool: version} if version[:1].isdigit() else {}), **stated}
        self.builder.default("versions", versions, f"what {upstream} runs on")
        if framework is not None:
            self.builder.derived("framework", framework, f"{tool} runs model code of its own")

    def put(self, field: str, given: Given, value: Any = ..., note: str = "") -> None:
        """Set a Job field from a key of the file; to `value` where that differs from what is written."""
        self.builder.from_entry(field, given.value if value is ... else value, given.entry, given.key, note)

    def count(self, field: str, given: Given | None, default: int | None, blank: Given | None = None) -> int | None:
        """Set a whole number from a key, a blank as not known, or the default; None as not stated."""
        if given is not None:
            self.put(field, given)
            return int(given.value)
        if blank is not None:
            unknown = default if default is not None and field not in REQUIRED else None
            self.builder.assumed(field, unknown, f"{blank.key} is filled in when the job starts")
            return unknown
        if default is None:
            self.builder.assumed(field, None, "no key says it")
        else:
            self.builder.default(field, default)
        return default

    def contradiction(self, given: Given, other: str, message: str) -> None:
        """Report a key that contradicts another; `message` says what follows."""
        values = {"value": shown(given), "other": other, "message": message, "upstream": self.upstream}
        self.reading.problems.append(Problem("contradiction", given.key, given.entry.value.span, values, _path(given)))

    def fill(self) -> None:
        """Give what no key of the format says its value and its origin."""
        origins = self.builder.job.origins
        for field, value in _DEFAULTS.items():
            if field not in origins and not any(key.startswith(f"{field}.") for key in origins):
                self.builder.default(field, value)


REQUIRED = frozenset({"model", "micro_batch_size", "sequence_length"})
"""Fields that nothing is assumed for."""


def _path(given: Given) -> str | None:
    return given.entry.key.path


def shown(given: Given) -> str:
    """A value as it is written."""
    return given.entry.value.raw or str(given.value)


def optimizer_of(path: str) -> str:
    """An optimizer class in the Transformers spelling; a name that is not known stays as it is."""
    return OPTIMIZERS.get(path) or OPTIMIZERS.get(f"torch.optim.{path}") or path.rpartition(".")[2].lower()


def known(given: Given | None) -> Given | None:
    """A key whose value is not a blank."""
    return given if given is not None and not is_blank(given.value) else None
