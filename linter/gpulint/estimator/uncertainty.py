"""Facts of a run that its config leaves open, and the bytes by which each moves the interval.

The interval low..high of a job whose facts are all known comes from the replay and the process's overhead
(allocator/fragmentation.py, allocator/runtime.py). What is here is added to it, a derivation for each fact; no
published figure is in any of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..upstream import megatron
from ..upstream.stack import Stack
from ..upstream.torch import INDUCTOR_AS_READ
from .allocator.allocator import segments
from .allocator.fragmentation import beyond
from .estimate import Assumption, Tiers
from .inputs.objectives import ONLINE
from .states.loading import PACKED_ON_LOAD, read_ahead
from .states.optimizer import of_job, specification
from .states.quantization import effective_quantization
from .terms import tier, total

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..job.job import Job
    from ..models.model import Model
    from .allocator.fragmentation import Held
    from .estimate import Phase
    from .states.parameter import Parameter

UNREPLAYED = ("cut_cross_entropy", "unsloth", "unsloth_cross_entropy")
"""Losses in Triton kernels of which the memory oracle has no run, so that slack.DEVIATION says nothing of them."""


def unstated(job: Job, optimizer: int) -> list[Assumption]:
    """What decides whether the job fits: an optimizer that nobody knows keeps `optimizer` bytes, none, or twice them.

    From plain SGD's no state, over the two that are counted, to four (Adam's two with a master copy and its average).
    """
    if job.kind != "training" or specification(job.optimizer.name).known or not optimizer:
        return []
    note = "unknown optimizer, taken to keep two states in the parameter's dtype as AdamW does"
    return [Assumption("optimizer.name", job.optimizer.name, note, optimizer, optimizer)]


def further_heads(job: Job, layers: int, resident: int, phases: Sequence[Phase]) -> list[Assumption]:
    """Layers of multi-token prediction, which are not derived: each may take what a layer and the loss take.

    A layer's share of `resident` bytes (weights, gradients, states) on a stage of `layers`, and the logits once more
    (Megatron-LM core/transformer/multi_token_prediction.py: a decoder layer with a projection, and the shared head).
    """
    if not job.further_heads:
        return []
    logits = max((phase.components["logits"] for phase in phases if phase.name in MICRO), default=0)
    more = job.further_heads * (resident // max(1, layers) + logits)
    note = "layers of multi-token prediction are not counted, only bounded by a decoder layer and a loss each"
    return [Assumption("further_heads", str(job.further_heads), note, 0, more)]


MICRO = ("forward", "loss", "backward")


STEP_KEEPS = 6
"""The most that such a step may keep at once, in float32 copies of a tensor: both moments, and the codes of both in
int64. In one kernel it keeps none."""


def compiled_step(job: Job, phases: Sequence[Phase], temporary: int) -> list[Assumption]:
    """What the Inductor of an older torch makes of a compiled step: from none of `temporary` bytes to STEP_KEEPS."""
    spec, stated = of_job(job), job.versions.get("torch")
    if not spec.compiled or not temporary or INDUCTOR_AS_READ.at(stated):
        return []
    step = max(phase.allocated for phase in phases if phase.name == "optimizer_step")
    others = max(phase.allocated for phase in phases if phase.name != "optimizer_step")
    peak = max(step, others)
    most = int(temporary * STEP_KEEPS / max(spec.largest))
    less, more = peak - max(others, step - temporary), max(0, step - temporary + most - peak)
    note = "which operations of the compiled step are one kernel is up to the release of torch"
    return [Assumption("versions.torch", str(stated), note, less, more)] if less or more else []


def compiled_loss(job: Job, model: Model, phases: Sequence[Phase]) -> list[Assumption]:
    """What the Inductor of an older torch makes of Megatron's fused loss: a float32 copy of the logits more.

    4 T V/t bytes: a graph whose result does not take the bytes of its input has both at once, in the forward pass what
    follows the float32 logits, in the backward pass the product with the loss's gradient. How a graph is cut into
    kernels goes with the release, the shapes and the GPU's multiprocessors (megatron.fused).
    """
    stated = job.versions.get("torch")
    if not Stack(job).runs(megatron.NAME) or not job.loss.compiled or INDUCTOR_AS_READ.at(stated):
        return []
    rows = (job.micro_batch_size or 0) * (job.sequence_length or 0) // max(1, job.parallelism.context)
    copy = 4 * rows * -(-model.shape.vocabulary // job.parallelism.tensor)
    losses = [phase.allocated for phase in phases if phase.name in MICRO and phase.components["logits"]]
    more = max(losses, default=0) + copy - max(phase.allocated for phase in phases)
    note = "which graphs of the compiled loss work in place is up to the release of torch"
    return [Assumption("loss.compiled", str(stated), note, 0, more)] if losses and more > 0 else []


def waiting(
    job: Job, model: Model, found: Sequence[Parameter], phases: Sequence[Phase], visiting: int
) -> list[Assumption]:
    """What waits in main memory for its turn, counted as if it came at once: the run may need less by what that saves.

    states    `visiting` bytes that the step may take layer by layer (AReaL's `per_layer_optim_step`) and not whole
              (prime-rl trainer/optim/state_offload.py)
    packed    checkpoints that their own library reads, before FSDP shards them
    layers    frozen weights of decoder layers, of which three are on the GPU at once: the one that computes, the one
              that is fetched ahead and the one that is sent back (axolotl core/trainers/mixins/layer_offloading.py)
    """
    assumed = []
    if visiting:
        less = _less(phases, visiting, tuple(phase.name for phase in phases if phase.name != "optimizer_step"))
        note = "states wait in main memory between steps; the step is counted as if it took all of them at once"
        assumed.append(Assumption("optimizer.states_offloaded_between_steps", "True", note, less, 0))
    if job.weights.frozen_layers_offloaded:
        frozen: dict[int, int] = {}
        for item in found:
            for layer in item.layers or ():
                if not item.trainable and item.part == "base":
                    frozen[layer] = frozen.get(layer, 0) + item.allocated // max(1, item.copies)
        away = min(sum(sorted(frozen.values())[:-_LAYERS_AT_ONCE]), phases[0].components["weights"])
        note = "frozen layers wait in main memory for their turn; counted as if they stayed"
        assumed.append(Assumption("weights.frozen_layers_offloaded", "True", note, _less(phases, away, ("load",)), 0))
    fsdp, quantization = job.parallelism.fsdp, effective_quantization(job, model)
    if fsdp is not None and quantization is not None and not fsdp.cpu_ram_efficient_loading:
        on_gpu = quantization.method.startswith((*PACKED_ON_LOAD, *ON_GPU))
        peak = max(phase.allocated for phase in phases)
        less = 0 if on_gpu else peak - max(phase.allocated for phase in phases if phase.name != "load")
        note = "read onto each GPU whole before they are sharded, unless the library leaves them in main memory"
        assumed.append(Assumption("weights.quantization.method", quantization.method, note, less, 0))
    return [item for item in assumed if item.low]


_LAYERS_AT_ONCE = 3

ON_GPU = ("gptq",)
"""Packed checkpoints that are read onto the GPU: AutoGPTQ's device map names it (fms-acceleration's plugin)."""


def _less(phases: Sequence[Phase], away: int, but: tuple[str, ...]) -> int:
    """By how much the peak falls where `away` bytes are gone from every phase `but` some."""
    peak = max(phase.allocated for phase in phases)
    return peak - max(phase.allocated - (0 if phase.name in but else away) for phase in phases)


def while_loading(job: Job, found: Sequence[Parameter], load: int, high: int) -> list[Assumption]:
    """Whether weights are read faster than they are packed: loading, of `load` bytes, may then pass the run's `high`.

    All of them in 16 bits take the place of the packed ones.
    """
    ahead = read_ahead(found, job)
    more = load - sum(item.allocated for item in found if item.packed) + ahead - high
    if not ahead or more <= 0:
        return []
    note = "transformers 5.0 to 5.3 read weights onto the GPU ahead of their packing, from one tensor to all of them"
    return [Assumption("versions.transformers", job.versions["transformers"], note, 0, more)]


def gathered_anew(job: Job, size: int) -> list[Assumption]:
    """The largest tensor that ZeRO-3 gathers, of `size` bytes, in a segment of its own each time.

    Which gathered tensors lie where is not replayed. Once the embedding is freed, layers are cut from its block, and
    those within `max_reuse_distance` are still there when the head is asked for: a block of that size is not whole any
    more, and no memory that torch could give back. Expandable segments map what is missing.
    """
    if not size or job.allocator.expandable_segments:
        return []
    note = "gathered tensors may lie in the block that the largest of them gave back, which is then asked for anew"
    return [Assumption("parallelism.zero.stage", "3", note, 0, segments(size))]


def at_run_time(
    job: Job, found: Sequence[Parameter], phases: Sequence[Phase], held: Held, counted: int
) -> list[Assumption]:
    """What does not decide whether the longest batch that the config admits fits, but what a run of it shows.

    `counted` bytes of a batch are off `low` already.

    data      batches that are neither packed nor padded to a length are as long as their longest sample, and answers
              that a policy writes as long as it writes them, which are only laid end to end. Whatever
              the data, a run holds what it does between batches: low is the largest instant outside of them. The
              longest one comes after shorter ones, whose blocks cannot hold it (`records`): high is what that leaves.
    kernels   where hand-written kernels take the place of code that was replayed, what comes and goes may each have a
              free twin (fragmentation.packed).
    sharding  what FSDP shards from the GPU leaves free segments there, which torch keeps until the card is full.
    """
    return [
        *_data(job, phases, held, counted),
        *_kernels(job, held),
        *_before_sharding(job, found),
    ]


def kept_logits(job: Job, more: int) -> list[Assumption]:
    """Logits that a script's own metric may keep, or that nothing moves: `more` bytes of two steps, the least."""
    if not more:
        return []
    note = "every step's logits stay on the GPU until the evaluation ends or `eval_accumulation_steps` moves them"
    return [Assumption("evaluation.keeps_logits", str(job.evaluation.keeps_logits), note, 0, more)]


def varies(job: Job) -> bool:
    """Whether the length of a batch is up to the data, as in the trainers of Transformers and TRL.

    `padded` that follows from the batch size says that rows are padded to the longest of a batch (axolotl). Frameworks
    fill their rows, but where the format says that rows are neither packed nor padded (Megatron-SWIFT).
    """
    origin = job.origins.get("padded")
    to_limit = job.padded and (origin is None or origin.kind != "derived")
    filled = Stack(job).native and (origin is None or job.padded)
    steady = job.packing or to_limit or job.longest_batch_first or filled
    return job.kind == "training" and not steady and bool(job.sequence_length)


RECORDS = 7
"""How often a batch is longer than all before it: of a thousand in random order the harmonic number, 7.5."""


def records(job: Job) -> list[int]:
    """The lengths of the batches that were the longest of their time, before one as long as the limit.

    Each halves what is left to the limit, as it does on average where all lengths are equally likely.
    """
    limit = job.sequence_length or 0
    return sorted({max(1, limit - (limit >> halved)) for halved in range(1, RECORDS)})


def _data(job: Job, phases: Sequence[Phase], held: Held, counted: int) -> list[Assumption]:
    written = job.packing and job.objective in ONLINE and bool(job.sequence_length)
    if not varies(job) and not written:
        return []
    between = max((phase.allocated for phase in phases if phase.name not in BATCH), default=0)
    less = segments(max(phase.allocated for phase in phases)) - segments(between) - counted
    more = max(0, held.growing - held.high)
    if less <= 0 and not more:
        return []
    note = "batches are padded to their longest sample: the estimate is for one that is as long as the limit"
    if written:
        note = "answers are as long as the policy writes them: the estimate is for answers of the full length"
    return [Assumption("sequence_length", f"up to {job.sequence_length}", note, max(0, less), more)]


BATCH = ("forward", "loss", "backward", "gather", "evaluation", "generation", "rollout")
"""The phases whose size depends on the batch."""


def _kernels(job: Job, held: Held) -> list[Assumption]:
    if job.loss.kernel not in UNREPLAYED:
        return []
    more = held.twins - held.high
    if more <= 0:
        return []
    note = "the order in which its kernels ask for memory is not replayed: freed blocks may be too scattered to serve"
    return [Assumption("loss.kernel", job.loss.kernel, note, 0, more)]


def _before_sharding(job: Job, found: Sequence[Parameter]) -> list[Assumption]:
    """Packed checkpoints that their own library reads: to main memory as `cpu_ram_efficient_loading` asks, or not.

    bitsandbytes' weights, which transformers packs itself, go there one by one (replay.py).
    """
    fsdp, quantization = job.parallelism.fsdp, job.weights.quantization
    if fsdp is None or quantization is None or not fsdp.cpu_ram_efficient_loading:
        return []
    if quantization.method.startswith(PACKED_ON_LOAD):
        return []
    whole = sum(segments(item.allocated) for item in found if item.packed)
    if not whole:
        return []
    note = "the library that reads packed weights may put them all on each GPU before they are sharded"
    return [Assumption("weights.quantization.method", quantization.method, note, 0, whole)]


MARGIN = "by which runs were found to differ from what is derived (estimator/allocator/fragmentation.py)"


def lowered(tiers: Tiers) -> Tiers:
    """The tiers with `low` as far below what is left of it as runs may lie (`beyond`): the last step of all."""
    return tiers._replace(low=(*tiers.low, *tier("low", (-beyond(total(tiers.low)), MARGIN))))
