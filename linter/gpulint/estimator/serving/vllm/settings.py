"""What vLLM does with the arguments nobody gave: its defaults by version and card."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ....models.positions import usual_positions
from ....units import GIB, KIB
from ....upstream.serving import vllm
from ....upstream.stack import Stack
from ...states.quantization import effective_quantization
from ...terms import Product
from .profile import NO_SAMPLER, engine, profile, sampler, table

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ....hardware.gpu import Gpu
    from ....job.job import Inference, Job
    from ....models.model import Model
    from ...states.parameter import Parameter
    from .profile import Profile, Sampler


FLASHINFER = "flashinfer-python"
"""The package that a job states in `versions` where FlashInfer is installed."""


class Samplers(NamedTuple):
    """The sampler that `runs`, and those that may run in its place.

    An installation with FlashInfer may take the `least`. A feature or VLLM_USE_V2_MODEL_RUNNER may switch back to the
    first runner, which takes the `most`.
    """

    runs: Sampler
    least: Sampler
    most: Sampler


class Settings(NamedTuple):
    """What the `job` asks of the engine, and the arguments that it leaves open, resolved. Lengths in tokens.

    `profile` is what the release does, as far as it does so for this job and model. `in_flight` tokens may be scheduled
    and not yet settled, which windows keep beside what they show. Where neither the job nor the checkpoint's config
    says it, `max_model_len` is not the checkpoint's (`length_known`), and requests may be `longest` tokens.
    `whole_graphs` of the `graph_sizes` are captured once more. `sees`: whether a model's vision encoder runs.
    `version`: the release whose engine runs. `pools`: hidden states are the answer; no sampler runs.
    """

    job: Job
    profile: Profile
    samplers: Samplers
    utilization: float
    max_model_len: int
    length_known: bool
    longest: int
    max_num_seqs: int
    max_num_batched_tokens: int
    in_flight: int
    block_size: int
    graph_sizes: int
    whole_graphs: int
    sees: bool
    version: str | None
    pools: bool
    defaulted: tuple[tuple[str, str], ...]

    @property
    def given(self) -> Inference:
        """What the job states of serving."""
        return self.job.serving

    @property
    def modalities_off(self) -> tuple[str, ...]:
        """Kinds of input that no request brings."""
        return tuple(self.given.modalities_off or ())


class Graphs(NamedTuple):
    """Captured CUDA graphs: what is expected of all layers and batch sizes, and bytes at the least and at the most."""

    product: Product
    low: int
    high: int

    @property
    def expected(self) -> int:
        """Expected bytes."""
        return round(self.product.size)


def settings(job: Job, model: Model, gpu: Gpu | None) -> Settings | None:
    """The settings of a vLLM job; None when neither the job nor the model says how long a request may be.

    Defaults of `EngineArgs` and `get_batch_defaults` (vllm/engine/arg_utils.py): batches by device memory, cut to
    what `max_num_seqs` requests can fill; without chunked prefill a batch holds at least `max_model_len` tokens. In the
    mode `throughput` both defaults are twice as large (`performance_mode`, 0.22).
    """
    given = job.serving
    version = given.version or job.versions.get("vllm")
    row = profile(version, gpu)
    defaulted = []
    max_model_len = given.max_model_len
    stated = max_model_len is not None and max_model_len >= 1
    if max_model_len is None or max_model_len < 1:
        max_model_len = derived_length(model)
        if max_model_len is None:
            return None
        defaulted.append(("inference.max_model_len", str(max_model_len)))
    twice = 2 if given.performance_mode == "throughput" else 1
    tier_seqs, tier_tokens = (twice * size for size in _tier(row, gpu))
    max_num_seqs = given.max_num_seqs
    if max_num_seqs is None:
        max_num_seqs = tier_seqs
        defaulted.append(("inference.max_num_seqs", str(max_num_seqs)))
    batched = given.max_num_batched_tokens
    if batched is None:
        batched = tier_tokens
        if not _chunks(given, row, max_model_len, version):
            batched = max(batched, max_model_len)
        elif row.chunk is not None:
            batched = row.chunk
        batched = min(batched, max_num_seqs * max_model_len)
        defaulted.append(("inference.max_num_batched_tokens", str(batched)))
    if given.max_num_seqs is None:
        max_num_seqs = min(max_num_seqs, batched)
    utilization = given.gpu_memory_utilization
    if utilization is None:
        utilization = row.utilization
        defaulted.append(("inference.gpu_memory_utilization", str(utilization)))
    length_known = stated or model.shape.positions_stated
    return Settings(
        job=job,
        profile=_of_job(row, job, model),
        samplers=_samplers(row, job, model),
        utilization=utilization,
        max_model_len=max_model_len,
        length_known=length_known,
        longest=max_model_len if length_known else max(max_model_len, usual_positions(model.model_type)),
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=batched,
        in_flight=batched * (max(row.batches_in_flight, job.parallelism.pipeline) if row.batches_in_flight else 1),
        block_size=given.block_size or 16,
        graph_sizes=captured_sizes(given, row, max_num_seqs),
        whole_graphs=_whole_graphs(given, row, max_num_seqs),
        sees=sees(job, model),
        version=engine(version, gpu),
        pools=pools(job, model),
        defaulted=tuple(defaulted),
    )


def _of_job(row: Profile, job: Job, model: Model) -> Profile:
    """A release's profile without what it does not do for the job and its model."""
    return replace(
        row,
        graphs_in_budget=row.graphs_in_budget and (row.v2_graphs or not _on_v2_runner(row, job, model)),
        hybrid_cache=row.hybrid_cache
        and not _keeps_chunks_whole(model, job.serving.version or job.versions.get("vllm")),
        tries_kernels=row.tries_kernels and job.serving.compiles is not False,
    )


def pools(job: Job, model: Model) -> bool:
    """Whether vLLM serves a pooling model: as it is told to, or a checkpoint without a head.

    vLLM finds those by sentence-transformers' files in the repository (0.12 config/model.py
    `_get_default_runner_type`).
    """
    asked = job.inference.pooling if job.inference is not None else None
    return model.headless if asked is None else asked


def derived_length(model: Model) -> int | None:
    """The longest request the model is made for: its positions times the factor of a rope scaling that stretches them.

    Source: vllm/config/model.py `_get_and_verify_max_len`.
    """
    length = model.shape.max_positions
    if length is None:
        return None
    scaling = model.config.get("rope_scaling") or model.config.get("rope_parameters") or {}
    kind = scaling.get("rope_type", scaling.get("type")) if isinstance(scaling, dict) else None
    factor = scaling.get("factor") if isinstance(scaling, dict) else None
    if kind in ("linear", "dynamic", "yarn") and isinstance(factor, (int, float)) and factor > 1:
        original = scaling.get("original_max_position_embeddings") if kind == "yarn" else None
        return int((original or length) * factor)
    return length


_EVERY = 32
"""Batch size up to which the mode `interactivity` captures every one."""


def captured_sizes(given: Inference, row: Profile, max_num_seqs: int) -> int:
    """How many batch sizes are captured: 1, 2, 4, every 8th, and every 16th from 256 on in newer versions.

    In the mode `interactivity` all up to 32 are. Source: vllm/config/vllm.py `_set_cudagraph_sizes` (0.22, 0.33).
    """
    if given.enforce_eager:
        return 0
    if given.cudagraph_capture_sizes is not None:
        return len(given.cudagraph_capture_sizes)
    largest, coarse = row.graph_sizes
    if coarse is not None or largest <= 256:
        largest = min(largest, 2 * max_num_seqs if coarse is not None else max_num_seqs)
    fine = min(largest, coarse if coarse is not None else largest)
    small = min(largest, _EVERY) if given.performance_mode == "interactivity" else 0
    first = small - small // 8 if small else sum(size <= largest for size in (1, 2, 4))
    return first + fine // 8 + max(0, largest - fine) // 16


def _whole_graphs(given: Inference, row: Profile, max_num_seqs: int) -> int:
    """How many of the captured sizes are captured whole too: those that no more requests than may run fill."""
    if not row.both_graphs or given.enforce_eager:
        return 0
    if given.cudagraph_capture_sizes is not None:
        return sum(size <= max_num_seqs for size in given.cudagraph_capture_sizes)
    largest, coarse = row.graph_sizes
    return captured_sizes(given, replace(row, graph_sizes=(min(largest, max_num_seqs), coarse)), max_num_seqs)


_LINKED = (7.0, 8.0, 9.0, 10.0, 10.3)
"""Compute capabilities of the cards that are sold with NVLink between all of a machine's (NVIDIA's data sheets of V100,
A100, H100, H200, B200 and B300; a catalogue row for both forms of a card is taken for SXM)."""

_BRIDGED = ("a30", "h100-80gb-pcie", "h100-nvl", "h200-nvl")
"""Cards of those capabilities that NVLink bridges join in twos, or fours (data sheets of A30, H100 PCIe and NVL)."""


def captures_nccl(job: Job, gpu: Gpu | None) -> bool:
    """Whether graphs hold NCCL's collectives: more than two cards without NVLink between all of them.

    Others reduce with vLLM's own kernel (distributed/device_communicators/custom_all_reduce.py).
    """
    return job.parallelism.tensor > 2 and unlinked(gpu)


def unlinked(gpu: Gpu | None) -> bool:
    """Whether the card is known to be sold without NVLink between all of a machine's; AMD's have links of their own."""
    if gpu is None or gpu.compute_capability is None or gpu.unified:
        return False
    return gpu.name in _BRIDGED or gpu.compute_capability not in _LINKED


def graphs(model: Model, sizes: int, *, nccl: bool = False) -> Graphs:
    """What captured graphs take: measured KiB for each layer and captured batch size."""
    row = table()["graphs"]
    pieces = model.shape.layers * sizes * KIB
    counts = (model.shape.layers, "layers"), (sizes, "batch sizes")
    found = Product("CUDA graphs", row["expected_kib"] * KIB, counts, source=row["source"])
    return Graphs(found, row["low_kib"] * pieces, row["nccl_high_kib" if nccl else "high_kib"] * pieces)


def _keeps_chunks_whole(model: Model, version: str | None) -> bool:
    """Whether layers that attend in chunks (Llama 4) keep all tokens."""
    if "chunked_attention" not in model.shape.layer_types:
        return False
    return not vllm.CHUNKED_LAYERS.at(version) or vllm.CHUNKED_LAYERS_WHOLE.at(version)


def _on_v2_runner(row: Profile, job: Job, model: Model) -> bool:
    """Whether Model Runner V2 runs the model. Most ways of drafting tokens are the first one's."""
    given = job.inference
    if given is None or given.speculative_algorithm or given.speculative_model:
        return False
    if not row.v2_quantized and effective_quantization(job, model) is not None:
        return False
    dense = not model.shape.experts and not any(model.shape.recurrent_states)
    rest = {"none": False, "dense": dense, "all": True}
    return model.model_type in row.v2_types or rest[row.v2_others]


def _samplers(row: Profile, job: Job, model: Model) -> Samplers:
    """FlashInfer's sampler where the job asks for it, or where it is stated to be installed and then used unasked.

    Model Runner V2 has one of its own, in whose place none of another installation runs.
    """
    if pools(job, model):
        return Samplers(NO_SAMPLER, NO_SAMPLER, NO_SAMPLER)
    asked, installed = job.inference.flashinfer_sampler if job.inference else None, Stack(job).runs(FLASHINFER)
    if asked is not None:
        first = "pivot" if asked or row.sampler == "pivot" else "sort"
    else:
        first = row.sampler_may_be if installed else row.sampler
    usual = sampler(first)
    if _on_v2_runner(row, job, model):
        return Samplers(sampler(row.v2_sampler), sampler(row.v2_sampler), usual)
    known = asked is not None or installed
    return Samplers(usual, usual if known else sampler(row.sampler_may_be), usual)


def _tier(row: Profile, gpu: Gpu | None) -> tuple[int, int]:
    """Sequences and tokens of a batch by the card's memory; the smallest tier for an unknown card.

    NVML reports no total of memory that the processor shares, which vLLM takes for none (0.24 engine/arg_utils.py
    `get_batch_defaults`).
    """
    tiers = row.tiers
    small = gpu is None or gpu.unified or (row.a100_small and gpu.name.startswith("a100"))
    if gpu is None or small or (row.large and not gpu.name.startswith(row.large)):
        return tiers[-1][1], tiers[-1][2]
    return next((seqs, tokens) for least, seqs, tokens in tiers if gpu.total >= least * GIB)


def _chunks(given: Inference, row: Profile, max_model_len: int, version: str | None) -> bool:
    """Whether prompts are cut into batches: in later releases for contexts over 32k without being asked."""
    if given.chunked_prefill is not None:
        return given.chunked_prefill
    long = max_model_len > 32768 and vllm.CHUNKS_LONG_PROMPTS.at(version)
    return row.chunked_prefill or long


_IMAGES_ALONE = ("aya_vision", "gemma3", "llama4", "llava", "llava_next", "mistral3", "phi3_v", "pixtral")
"""Model types whose tower reads no videos (vllm 0.20 models/*.py `_mark_tower_model(vllm_config, "image")`)."""


def sees(job: Job, model: Model) -> bool:
    """Whether images or videos may come, so that the vision encoder is loaded and profiled.

    A tower is left out when all kinds of input that it reads are limited to none.
    """
    given = job.inference
    off = (given.modalities_off if given else None) or []
    version = (given.version if given else None) or job.versions.get("vllm")
    videos = "video" not in off and model.model_type not in _IMAGES_ALONE
    return not vllm.SKIPS_TOWERS.at(version) or "image" not in off or videos


def takes_items(model: Model, off: Collection[str]) -> bool:
    """Whether requests may bring what a model sees or hears, of the modalities that are not `off`.

    A model that may get some is given embeddings in place of tokens, whatever a request brings
    (v1/worker/gpu_model_runner.py `supports_mm_inputs`).
    """
    roles = {tensor.role for tensor in model.tensors}
    seen = ("image",) if model.model_type in _IMAGES_ALONE else ("image", "video")
    kinds = (seen if "vision" in roles else ()) + (("audio",) if "audio" in roles else ())
    return any(kind not in off for kind in kinds)


def loaded(found: Iterable[Parameter], job: Job, model: Model) -> tuple[Parameter, ...]:
    """The parameters without those of the vision tower and its projector where it is left out."""
    if sees(job, model):
        return tuple(found)
    return tuple(item for item in found if item.role not in ("vision", "projector"))
