"""SkyRL: overrides of its trainer's config (`-m skyrl.train.entrypoints.main_base`), FSDP2 or Megatron with vLLM.

Facts from SkyRL 0.3.0 (`train/config/config.py`, `backends/skyrl_train/workers/fsdp/fsdp_worker.py`,
`distributed/fsdp_strategy.py`, `workers/model_wrapper.py`, `workers/worker_dispatch.py`), read statically; keys without
`inference_engine` are those of skyrl-train 0.4.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.backends.fsdp import fsdp2
from ..core.backends.gpus import gpus_of_nodes, model_ranks
from ..core.backends.lora import by_rank, lora
from ..core.backends.megatron import degrees, is_megatron, megatron_optimizer, offloaded_optimizer, recompute
from ..core.backends.plain import packages
from ..core.bindings.kinds import FLAG, NUMBER, POSITIVE, TEXT
from ..core.bindings.reader import Reader
from ..core.bindings.rows import NEVER, Default, Derived, Fixed, Key, Table, only, within
from ..core.format import Format, NoJobError, Problem, Reading
from ..core.interpolation import interpolated
from ..core.keys import key_problems
from ..core.typos import slip

if TYPE_CHECKING:
    from ...job.job import Job
    from ...source.document import Document
    from ..core.format import Project

NAME = "skyrl"
UPSTREAM = "SkyRL 0.3.0"
VERSIONS = {"transformers": "5.8.0", "vllm": "0.26.0", "torch": "2.11.0", "peft": "0.18.1"}
"""What its pyproject.toml pins, the newest where it gives a range."""

POLICY = "trainer.policy"
MEGATRON = f"{POLICY}.megatron_config"

_MINI, _SAMPLES = 256, 5
"""What upstream fills in: prompts per step of the optimizer, samples per prompt."""


def read(document: Document, project: Project) -> Reading:
    """The Job of the policy that is trained. Raises NoJobError for a strategy that is not known."""
    reader = Reader(interpolated(document), project, NAME, UPSTREAM, checked=document)
    reader.bind(TABLE.rows)
    reader.reading.problems = _key_problems(document, own=not project.program or _BASE in project.program)
    return reader.reading


def _on_fsdp(job: Job) -> bool:
    return not is_megatron(job)


def _set_strategy(reader: Reader) -> None:
    strategy = reader.value(TEXT, "trainer.strategy", default="fsdp2")
    if strategy not in ("fsdp", "fsdp2", "megatron"):
        raise NoJobError(reader.document.path, f"strategy {strategy}, which gpulint does not know of SkyRL")
    if strategy == "megatron":
        reader.derived("framework", "megatron", "strategy megatron")


def _length(job: Job) -> int:
    """Tokens of a row: prompt and answer. In several turns `max_input_length` bounds what the model reads."""
    return (job.rl.prompt_length or 0) + (job.rl.completion_length or 0)


def _rows_of(tokens: int, job: Job) -> int:
    return max(1, tokens // _length(job))


def _set_accumulation(reader: Reader) -> None:
    """Micro batches of a step; a mini batch counts prompts, each with its samples."""
    mini, job, ranks = reader.given(POSITIVE, "trainer.policy_mini_batch_size"), reader.job, model_ranks(reader.job)
    rows = (mini.value if mini else _MINI) * (job.rl.generations or _SAMPLES)
    steps = max(1, rows // (ranks * (job.micro_batch_size or 1)))
    reader.set("gradient_accumulation_steps", mini, steps, f"mini batch of {rows} rows over {ranks} ranks")


_SIZES = (
    *gpus_of_nodes("trainer.placement.policy_num_gpus_per_node", "trainer.placement.policy_num_nodes"),
    *only(is_megatron, *degrees(MEGATRON, back=NEVER)),
    Key("parallelism.context", f"{POLICY}.sequence_parallel_size", POSITIVE, default=1),
    Fixed("parallelism.tensor", 1),
    Fixed("parallelism.pipeline", 1),
    Fixed("parallelism.expert", 1),
    Fixed("parallelism.expert_tensor", None),
    Fixed(
        "parallelism.sequence",
        Default(True, "on where tensor parallelism is"),
        when=lambda job: is_megatron(job) and job.parallelism.tensor > 1,
    ),
    Fixed("parallelism.sequence", False),
)  # fmt: skip
"""The GPUs of the policy, and Megatron's degrees or Ulysses' between them."""

_WITH_FSDP = only(
    _on_fsdp,
    Fixed("weights.dtype", Derived("float32", "weights that are trained are loaded in float32")),
    Fixed("precision.autocast", None),
    *within(
        f"{POLICY}.fsdp_config",
        *fsdp2(
            reshard="reshard_after_forward", size="fsdp_size", offload="cpu_offload",
            param_dtype="mixed_precision.param_dtype", reduce_dtype="mixed_precision.reduce_dtype",
        ),
    ),
    Fixed("optimizer.name", Default("adamw_torch", "fsdp_strategy.py")),
    Key(
        "activation_checkpointing", "trainer.gradient_checkpointing", FLAG, "full", {True: "full", False: "none"},
    ),
    Key("reentrant", "trainer.gradient_checkpointing_use_reentrant", FLAG, default=False),
    Key("attention", "trainer.flash_attn", FLAG, "flash_attention_2", {True: "flash_attention_2", False: "sdpa"}),
)  # fmt: skip
"""Float32 weights, gathered in bfloat16 and reduced in float32; AdamW of PyTorch."""

_WITH_MEGATRON = only(
    is_megatron,
    Fixed("weights.dtype", "bfloat16"),
    Key(
        "precision.gradients", f"{MEGATRON}.ddp_config.grad_reduce_in_fp32", FLAG, "float32",
        {True: "float32", False: "bfloat16"},
    ),
    *megatron_optimizer(),
    offloaded_optimizer(
        f"{MEGATRON}.optimizer_config_kwargs.optimizer_cpu_offload",
        f"{MEGATRON}.optimizer_config_kwargs.optimizer_offload_fraction",
        usual=0.0,
    ),
    Fixed("optimizer.name", Default("fused_adam", "Megatron's FusedAdam")),
    *recompute(f"{MEGATRON}.transformer_config_kwargs.recompute_granularity", default="full", silent="none"),
    Fixed("reentrant", False),
    Fixed("attention", Default("flash_attention_2", "TransformerEngine's")),
)  # fmt: skip

_BATCHES = (
    Key("rl.prompt_length", ("generator.max_input_length", "trainer.max_prompt_length"), POSITIVE, default=512),
    Key("rl.completion_length", "generator.sampling_params.max_generate_length", POSITIVE, default=1024),
    Key("rl.generations", "generator.n_samples_per_prompt", POSITIVE, default=_SAMPLES),
    Key(
        "sequence_length", "generator.sampling_params.max_generate_length", POSITIVE,
        lambda reader: _length(reader.job), lambda _, job: _length(job), NEVER, note="prompt and answer",
    ),
    Key(
        "micro_batch_size", "trainer.max_tokens_per_microbatch", POSITIVE, to=_rows_of,
        back=lambda rows, job: rows * _length(job), note="rows of full length in its tokens", adds=False,
    ),
    Key("micro_batch_size", "trainer.micro_train_batch_size_per_gpu", POSITIVE, default=1),
    Fixed(
        "packing", Derived(False, "packing needs flash attention", "attention"),
        when=lambda job: job.attention == "sdpa",
    ),
    Key("packing", ("trainer.remove_microbatch_padding", "trainer.use_sample_packing"), FLAG, default=True),
    Fixed("padded", False),
    _set_accumulation,
    Fixed("evaluation.micro_batch_size", Default(None, "it generates, or scores without a backward pass")),
)  # fmt: skip
"""Rows of prompt and answer, or rows that fill the tokens of a micro batch."""


def _shares(job: Job) -> bool:
    return job.rl.vllm == "colocate"


_ELSEWHERE = "in main memory, or on GPUs of its own, while the policy trains"

_ROLLOUT = (
    Key(
        "rl.vllm", "trainer.placement.colocate_all", FLAG, Default("colocate", "colocate_all"),
        {True: "colocate", False: "server"},
    ),
    *only(
        _shares,
        Key(
            "rl.vllm_gpu_memory_utilization",
            ("generator.inference_engine.gpu_memory_utilization", "generator.gpu_memory_utilization"),
            NUMBER, default=0.8,
        ),
        Fixed("rl.vllm_sleep", Default(True, "colocated engines sleep while the policy trains")),
        Fixed("rl.policy_offload", Default(True, "the policy waits in main memory while the engines generate")),
    ),
    Fixed("rl.reference_model", Default(False, _ELSEWHERE)),
    *only(
        lambda job: job.objective == "ppo",
        Fixed("rl.value_model", Default("apart", _ELSEWHERE)),
        Fixed("rl.reward_model", Default("none", "rewards come from environments")),
    ),
)  # fmt: skip
"""WorkerDispatch brings one model of a colocated group to the GPU at a time; the engine sleeps meanwhile."""

TABLE = Table(
    (
        Fixed("kind", Derived("training", "a run of SkyRL's trainer")),
        _set_strategy,
        packages(VERSIONS, UPSTREAM),
        Key(
            "objective", "trainer.algorithm.advantage_estimator", TEXT, "grpo", {"gae": "ppo", "rloo": "rloo"},
            other="grpo",
        ),
        Key("model", f"{POLICY}.model.path", TEXT, default="Qwen/Qwen2.5-1.5B-Instruct"),
        Fixed("weights.quantization", None),
        Fixed("liger_kernels", False),
        Fixed("compile", False),
        Fixed("loss.kernel", "torch"),
        Key(
            "allocator.expandable_segments", "trainer.use_expandable_segments", FLAG,
            Default(True, "trainer.use_expandable_segments"),
        ),
        *_SIZES,
        *_WITH_FSDP,
        *_WITH_MEGATRON,
        Fixed("trainable", None),
        by_rank(f"{POLICY}.model.lora.rank", "lora.rank 0"),
        *within(
            f"{POLICY}.model.lora", *lora(rank="rank", alpha="alpha", dropout="dropout", targets="target_modules")
        ),
        *_BATCHES,
        *_ROLLOUT,
    ),
    ignored=frozenset({"gradient_accumulation_steps"}),
)  # fmt: skip


def _key_problems(document: Document, *, own: bool) -> list[Problem]:
    """Unknown keys and mistyped values. Entry points other than SkyRL's `own` derive configs with more keys: there only
    a slip of a known one is reported, as at the top. The value of an override is YAML: `[0]` is a list, `null` nothing.
    """
    return [
        item
        for item in key_problems(document, NAME)
        if not (item.kind == "wrong-type" and str(item.values["found"]).startswith(_YAML))
        and (
            item.kind != "unknown-key" or (own and "." in item.key) or slip(item.key, item.values["suggestion"] or "?")
        )
    ]


_BASE = "entrypoints.main_base"
_YAML = ("[", "{", "null")

FORMAT = Format.of_table(
    NAME, "SkyRL config", UPSTREAM, read, TABLE,
    "`trainer.placement.policy_num_gpus_per_node`, `policy_num_nodes`",
)  # fmt: skip
