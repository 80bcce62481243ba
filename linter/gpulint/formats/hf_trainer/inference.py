"""Models that a Python file loads with Transformers to generate, and those that it hands to DeepSpeed-MII.

Facts from transformers 5.23.0 (`modeling_utils.py` `from_pretrained`, `integrations/accelerate.py`) and deepspeed-mii
0.3.3 (`api.py`, `config.py`). The keys are those that `launchers/python/calls.json` gives the arguments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.bindings.kinds import POSITIVE, TEXT
from ..core.bindings.reader import Reader
from ..core.bindings.rows import NEVER, Default, Derived, Fixed, Key, Table, only
from ..core.format import Format, Reading
from ..core.world_size import set_hardware
from .loading import set_device_map, set_packing
from .peft_arguments import WEIGHTS
from .released_profile import released
from .trainer_profiles import flavour
from .training_arguments import ATTENTION, MODEL

if TYPE_CHECKING:
    from ...job.job import Job
    from ...source.document import Document
    from ..core.format import Project

NAME = "hf_inference"
UPSTREAM = "transformers 5.23.0"


def read(document: Document, project: Project) -> Reading:
    """The Job of a model that is loaded to generate."""
    profile = released(flavour("transformers"), project.versions)
    reader = Reader(document, project, NAME, profile.upstream, defaults=profile.defaults)
    reader.versions(profile.versions, project.versions, "what the file runs on")
    reader.bind(TABLE.rows)
    return reader.reading


def _set_gpus(reader: Reader) -> None:
    project, plan = reader.project, reader.job.parallelism
    set_hardware(reader, project, None, sharded=False)
    degrees = plan.tensor * (plan.data or 1)
    if project.gpus is None and degrees > 1:
        reader.derived("hardware.gpus", degrees, "tensor parallel size x replicas", "parallelism.tensor")
    elif project.gpus is None and project.asked:
        reader.derived("hardware.gpus", project.asked, "the GPUs that it sees")


def _set_offload(reader: Reader) -> None:
    """accelerate puts layers that find no room on the GPUs into main memory; packed ones it refuses to
    (`validate_environment` of bitsandbytes' quantizers)."""
    job = reader.job
    packed = job.weights.quantization is not None and not reader.on("llm_int8_enable_fp32_cpu_offload")
    if job.parallelism.device_map and not packed and not job.unread:
        job.unread = f"device_map {job.parallelism.device_map} leaves layers that find no room in main memory"


def _generates(job: Job) -> bool:
    return job.inference is not None and job.inference.engine == "transformers"


TABLE = Table(
    (
        Fixed("kind", Derived("inference", "a model that is loaded to generate")),
        Fixed("objective", Derived("sft", "nothing is trained")),
        Key("inference.engine", "engine", TEXT, "transformers", back=NEVER),
        *MODEL,
        *WEIGHTS,
        set_packing,
        *ATTENTION,
        Key("parallelism.tensor", ("tensor_parallel", "tensor_parallel.tp_size", "mp_size"), POSITIVE, 1),
        Key("parallelism.data", "replica_num", POSITIVE, 1),
        Fixed("parallelism.pipeline", 1),
        set_device_map,
        Fixed("parallelism.device_map", Default(None, "all of it in one place")),
        _set_gpus,
        *only(
            _generates,
            Key("inference.batch_size", "batch_size", POSITIVE, Default(None, "not said"), back=NEVER),
            Key("inference.new_tokens", "max_new_tokens", POSITIVE, Default(None, "not said"), back=NEVER),
            Fixed("inference.prompt_length", Default(None, "not said")),
            _set_offload,
        ),
    ),
)  # fmt: skip

FORMAT = Format.of_table(
    NAME, "Transformers model in a Python file", UPSTREAM, read, TABLE, "not in the file: all that it sees", serves=True
)
