"""`accelerate launch` options in a TRL config: `num_processes: 4`, `accelerate_config: zero3`.

`trl <trainer> --config` hands keys that its trainer does not know to `accelerate launch`; `accelerate_config` is a path
or the name of a config that TRL ships (trl 1.16.0 `cli/accelerate_config.py`, `accelerate_configs/*.yaml`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..origin import Origin
from . import references
from .arguments import Arguments, Given
from .deepspeed_config import apply
from .deepspeed_values import Reference
from .fsdp import FsdpDefaults, Section, apply_fsdp
from .training_arguments import mixed_precision
from .training_sharding import auto_values
from .world_size import Stated

if TYPE_CHECKING:
    from ..source.document import Document
    from .flavours import Flavour
    from .training_arguments import Run

SHIPPED_PROCESSES = 8
"""`num_processes` of every config that TRL ships."""

_WRAP = {"fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "fsdp_cpu_ram_efficient_loading": True,
         "fsdp_state_dict_type": "FULL_STATE_DICT", "fsdp_offload_params": False}  # fmt: skip

SHIPPED: dict[str, dict[str, Any]] = {
    "single_gpu": {"distributed_type": "NO"},
    "multi_gpu": {"distributed_type": "MULTI_GPU"},
    "zero1": {"distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": 1}},
    "zero2": {"distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": 2}},
    "zero3": {"distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": 3}},
    "fsdp1": {
        "distributed_type": "FSDP",
        "fsdp_config": {
            **_WRAP, "fsdp_version": 1, "fsdp_reshard_after_forward": "FULL_SHARD", "fsdp_use_orig_params": True,
            "fsdp_backward_prefetch": "BACKWARD_PRE", "fsdp_forward_prefetch": True,
        },
    },
    "fsdp2": {
        "distributed_type": "FSDP",
        "fsdp_config": {**_WRAP, "fsdp_version": 2, "fsdp_reshard_after_forward": True},
    },
}  # fmt: skip
"""The configs in `trl/accelerate_configs`, as far as they decide memory; all have 8 processes and bf16."""


class Launch:
    """How the file says that it is launched: the accelerate config it names and the processes it starts."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.given: Given | None = run.arguments.text("accelerate_config", "config_file")
        self.shipped = self.given is not None and self.given.value in SHIPPED
        self.document: Document | None = None
        if self.given is None:
            return
        if self.shipped:
            config = SHIPPED[self.given.value]
            processes = 1 if config["distributed_type"] == "NO" else SHIPPED_PROCESSES
            self.document = references.plain_document({**config, "num_processes": processes}, self.given.value)
            return
        found = references.find(self.given.value, run.builder.document.path, run.project)
        self.document = found.document
        if found.document is None:
            assumption = "plain data parallelism"
            run.reading.problems.append(
                references.unresolved(self.given.entry, self.given.key, self.given.value, found, assumption)
            )
        else:
            run.reading.references[self.given.key] = found.document

    @property
    def kind(self) -> str:
        """`distributed_type` of the accelerate config; "" without one."""
        entry = self.document.root.entry("distributed_type") if self.document is not None else None
        return str(entry.value.value) if entry is not None else ""

    @property
    def stated(self) -> Stated | None:
        """The processes that the file or its accelerate config starts, one a GPU."""
        own = self.run.arguments.integer("num_processes", least=1)
        if own:
            return Stated(own.value, own.entry, own.key, "one process a GPU")
        theirs = Arguments(self.document.root).integer("num_processes", least=1) if self.document else None
        if theirs and self.given:
            note = f"num_processes of {self.given.value}"
            return Stated(theirs.value, self.given.entry, self.given.key, note)
        return None

    def apply(self) -> None:
        """`parallelism.zero` or `parallelism.fsdp` from the accelerate config; origins are the key that names it."""
        if self.document is None or self.given is None:
            return
        run, given = self.run, self.given
        keys = Arguments(self.document.root)
        if self.kind == "DEEPSPEED":
            section = keys.mapping("deepspeed_config")
            stage = section.integer("zero_stage", least=0)
            zero: dict[str, Any] = {"stage": stage.value if stage else 2}
            for ours, theirs in (
                ("offload_optimizer", "offload_optimizer_device"),
                ("offload_param", "offload_param_device"),
            ):
                device = section.text(theirs)
                if device and device.value in ("cpu", "nvme"):
                    zero[ours] = {"device": device.value}
            document = references.plain_document({"zero_optimization": zero}, given.value)
            reference = Reference(given.entry, given.key, f"the accelerate config {given.value}")
            values = auto_values(run)._replace(client="accelerate")
            run.reading.problems += apply(run.builder, document, values, reference=reference)
        elif self.kind == "FSDP":
            config = self.document.root.get("fsdp_config")
            before = dict(run.builder.job.origins)
            word = {"bfloat16": "bf16", "float16": "fp16", None: "no"}[mixed_precision(run)[0]]
            apply_fsdp(run.builder, Section(config, "fsdp_config"), FsdpDefaults("accelerate 1.15.0"), word)
            for path, origin in run.builder.job.origins.items():
                if origin.kind == "file" and before.get(path) is not origin:
                    run.builder.job.origins[path] = origin._replace(
                        note=f"{origin.key} of {given.value}", key=given.key, file=run.builder.document.path,
                        span=given.entry.value.span, key_span=given.entry.key.span,
                    )  # fmt: skip


class UsualLaunch:
    """The launch that a program documents for a full fine-tune, where neither file nor user says another."""

    stated: Stated | None = None
    kind = "DEEPSPEED"

    def __init__(self, run: Run, flavour: Flavour) -> None:
        self.run = run
        self.flavour = flavour

    def apply(self) -> None:
        """`parallelism.zero` and its precision, all of it assumed."""
        job = self.run.builder.job
        before = dict(job.origins)
        document = references.plain_document({"zero_optimization": {"stage": self.flavour.zero_stage}}, "")
        apply(self.run.builder, document, auto_values(self.run)._replace(client="accelerate"))
        origin = Origin("assumed", f"{self.flavour.title}: {self.flavour.launch}")
        for path, found in job.origins.items():
            if before.get(path) is not found and found.kind != "default":
                job.origins[path] = origin
