"""What of a model's step is not read from its modelling code, and how far that widens an estimate."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..models.arch_spec import arch_spec, known
from ..models.model import text_config
from ..upstream import megatron
from ..upstream.stack import Stack
from .adapters.lora_kernels import parts
from .estimate import Assumption
from .frameworks.attention import FUSED_LAYERS
from .frameworks.frameworks import ACTIVATION_PACKAGES, MIXER_PACKAGES
from .inputs.image_inputs import vision_spec
from .states.parameters import base_dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..job.job import Job
    from ..models.model import Model
    from .estimate import Phase


LAYERS, OTHERS = "model.layers", "model.towers"
"""What an assumption is about: the decoder's own layers, or other towers."""

TOWERS = ("vision", "audio", "projector")
MIXING = ("ssm", "conv")
LEAST, MOST = 0.5, 3.0
"""Activations that are not derived may be half or three times what is counted: a bound, not a measurement."""

AGAIN = 1.0
"""What other towers may keep, as a share of the text decoder's activations: a bound, not a measurement."""


def gaps(job: Job, model: Model, activations: int, phases: Sequence[Phase] = ()) -> list[Assumption]:
    """What a training estimate of the model takes for granted: layers, towers and kernels.

    `activations` at the peak that are not derived move the bounds by LEAST, MOST times `passes` and AGAIN, and another
    of the `phases` may be the peak then; a kernel in the place of a composite path leaves LEAST of them.
    """
    found: list[Assumption] = []
    less, more = int(activations * (1 - LEAST)), int(activations * (MOST - 1))
    if not derived(model):
        further = MOST * passes(model) - 1
        peak = max((phase.allocated for phase in phases), default=0)
        grown = (phase.allocated - peak + further * phase.components.get("activations", 0) for phase in phases)
        more = int(max((further * activations, *grown)))
        note = f"how {model.model_type} computes is not read; its layers are taken to be llama's with its own modules"
        found.append(Assumption(LAYERS, model.model_type, note, less, more))
    elif _unread(job, model):
        note = "activations of vision, audio and projector modules are not counted, only the text decoder's"
        more = max(int(activations * AGAIN), tower(job, model))
        found.append(Assumption(OTHERS, model.model_type, note, 0, more))
    if job.rl.teacher is not None:
        note = "the divergence from the teacher's distribution is not replayed, only bounded by its tensors"
        found.append(Assumption("rl.teacher", job.rl.teacher, note, 0, divergence(job, model)))
    if job.loss.kernel in FUSED_LAYERS and job.activation_checkpointing == "none" and not parts(job):
        note = "the library that this loss is of has layers of its own, which keep less than those of transformers"
        found.append(Assumption("loss.kernel", job.loss.kernel, note, less))
    package = kernels(model)
    if package is not None and not Stack(job).runs(package):
        found.append(Assumption(f"versions.{package}", "absent", UNKERNELLED, less if derived(model) else 0))
    return found


UNKERNELLED = "its kernels are not stated to be installed: the composite path of transformers runs, which keeps more"


def with_kernels(job: Job, model: Model) -> Job | None:
    """The job with the package of the model's kernels, where it has one that the job does not state."""
    package = kernels(model)
    if package is None or Stack(job).runs(package):
        return None
    return replace(job, versions={**job.versions, package: ""})


def with_required(job: Job, model: Model) -> Job:
    """The job with the package without which Megatron's mixers raise (ssm/gated_delta_net.py, mamba_mixer.py)."""
    return (with_kernels(job, model) if Stack(job).runs(megatron.NAME) else None) or job


def kernels_perhaps(model: Model, phases: Sequence[Phase], fused: Phase | None) -> list[Assumption]:
    """How much less generation takes where the prompt's phase is the `fused` one; nothing where that is None."""
    if fused is None:
        return []
    less = max(p.allocated for p in phases) - max((fused if p.name == fused.name else p).allocated for p in phases)
    return [Assumption(f"versions.{kernels(model)}", "absent", UNKERNELLED, less)]


def passes(model: Model) -> int:
    """How many times as much as a plain layer's one of the model's may keep, by what its config says of it.

    `hc_mult` residual streams beside each other (transformers 5.23 models/deepseek_v4, hy_v4); a stack that runs
    `L_cycles` times and once more in each of `H_cycles` (models/hrm_text).
    """
    config = {**model.defaults, **text_config(model.config)}
    streams, outer, inner = (_whole(config.get(name)) for name in ("hc_mult", "H_cycles", "L_cycles"))
    if model.model_type == "hrm_text":
        outer, inner = outer or H_CYCLES, inner or L_CYCLES
    return max(1, streams) * max(1, outer * (inner + 1))


H_CYCLES, L_CYCLES = 2, 3
"""HrmTextConfig's defaults (transformers 5.23 models/hrm_text/configuration_hrm_text.py)."""


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _unread(job: Job, model: Model) -> bool:
    """Whether the model has towers that run and are not replayed."""
    if vision_spec(model) is not None and not Stack(job).native:
        return any(tensor.role == "audio" for tensor in model.tensors)
    return job.images != 0 and any(tensor.role in TOWERS for tensor in model.tensors)


def derived(model: Model) -> bool:
    """Whether the model type's layers are written down in `arch_spec.json`, mixers without attention included."""
    config = text_config(model.config)
    if not known(model.model_type, config):
        return False
    found = arch_spec(model.model_type, config, model.shape.norm)
    return bool(found.mixer) or not any(tensor.role in MIXING and tensor.layers for tensor in model.tensors)


def mixing(model: Model) -> str:
    """The mixer of the model's layers that do not attend."""
    return arch_spec(model.model_type, text_config(model.config), model.shape.norm).mixer


def kernels(model: Model) -> str | None:
    """The package whose kernels the model's mixers or its activation function would use."""
    found = arch_spec(model.model_type, text_config(model.config), model.shape.norm)
    return MIXER_PACKAGES.get(found.mixer) or ACTIVATION_PACKAGES.get(found.activation)


DISTRIBUTIONS = 16
"""Tensors of tokens x vocabulary of a generalized Jensen-Shannon divergence beside the student's loss: both models'
logits, the scored rows of each, both over the temperature, their log-probabilities, the stack of two that the mixture
is the logsumexp of with its exponentials, the mixture, two divergences and an exponential, and the sum's gradient
(trl/experimental/gkd/gkd_trainer.py `generalized_jsd_loss`; ms-swift 3.6 trainers/rlhf_trainer/gkd_trainer.py)."""


def divergence(job: Job, model: Model) -> int:
    """Bytes that distillation keeps at most: DISTRIBUTIONS tensors in the width of the logits."""
    tokens = (job.micro_batch_size or 0) * (job.sequence_length or 0) // max(1, job.parallelism.context)
    width = 4 if base_dtype(job, model) == "float32" and job.precision.autocast is None else 2
    return DISTRIBUTIONS * width * tokens * -(-model.shape.vocabulary // job.parallelism.tensor)


MERGED = 2
"""Patches along each side of what makes one token, where a config does not say: the default of Qwen's towers
(transformers 5.23 configuration_qwen2_5_vl.py); towers that merge none keep less."""


def tower(job: Job, model: Model) -> int:
    """Bytes that a vision tower keeps where all tokens of a batch are an image's; 0 where its config names no widths.

    P patches, m x m of which make one token, h and f the widths, n layers, e bytes an element: with checkpointing
    e P n h of layer inputs and one layer, e P (8 h + 3 f); without it n such layers where the tower is trained, else
    one. A frozen tower keeps them too where its input is made to require gradients (ms-swift's
    `vit_gradient_checkpointing`, transformers `enable_input_require_grads`).
    """
    config = model.config.get("vision_config")
    if not isinstance(config, dict) or not job.micro_batch_size or not job.sequence_length:
        return 0
    hidden, layers = _stack(config)
    inner = _width(config, "intermediate_size") or 4 * hidden
    merged = (_width(config, "spatial_merge_size") or MERGED) ** 2
    patches = job.micro_batch_size * job.sequence_length * merged // max(1, job.parallelism.context)
    layer = patches * (8 * hidden + 3 * inner)
    if job.activation_checkpointing == "none" and job.method == "full":
        return 2 * layers * layer
    return 2 * (patches * layers * hidden + layer)


def tower_outputs(model: Model, patches: int, element: float) -> int:
    """Bytes of the outputs of all layers of a vision tower: element x patches x layers x width."""
    config = model.config.get("vision_config")
    hidden, layers = _stack(config) if isinstance(config, dict) else (0, 0)
    return round(element * patches * layers * hidden)


def _stack(config: dict[str, Any]) -> tuple[int, int]:
    """A tower's width, and how many layers it has."""
    hidden = _width(config, "embed_dim") if "embed_dim" in config else _width(config, "hidden_size")
    return hidden, _width(config, "depth") or _width(config, "num_hidden_layers")


def _width(config: dict[str, Any], name: str) -> int:
    value = config.get(name)
    return value if isinstance(value, int) else 0
