"""Any Job that its declaration allows is estimated, with figures that agree, or says what is missing."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gpulint.estimator.estimate import NotEstimable
from gpulint.estimator.estimate_job import estimate, estimate_job
from gpulint.estimator.explain.explain import explained
from gpulint.job.job import Job
from gpulint.models.resolve import resolve

LLAMA = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 3,
    "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 1000, "max_position_embeddings": 2048,
}  # fmt: skip
T5 = {
    "model_type": "t5", "d_model": 128, "d_ff": 256, "d_kv": 16, "num_layers": 2, "num_decoder_layers": 2,
    "num_heads": 8, "vocab_size": 1000, "architectures": ["T5ForConditionalGeneration"],
}  # fmt: skip
SPARSE = {
    "model_type": "qwen3_moe", "hidden_size": 256, "intermediate_size": 512, "moe_intermediate_size": 128,
    "num_experts": 4, "num_experts_per_tok": 2, "num_hidden_layers": 3, "num_attention_heads": 8,
    "num_key_value_heads": 2, "vocab_size": 1000, "max_position_embeddings": 2048,
}  # fmt: skip
FP16, WIDE = ("float16", "bfloat16"), ("float32", "bfloat16", "float16")

ZERO = st.fixed_dictionaries(
    {"stage": st.sampled_from([0, 1, 2, 3])},
    optional={
        "offload_optimizer": st.sampled_from(["cpu", "nvme", {"device": "cpu", "ratio": 0.3, "pin_memory": True}]),
        "offload_parameters": st.just("cpu"),
        "library": st.just("megatron"),
        "init": st.just(False),
        "hpz_partition_size": st.just(2),
        "reduce_bucket_size": st.sampled_from([0, 1000]),
        "gather_16bit_weights_on_save": st.just(True),
    },
)
FSDP = st.fixed_dictionaries(
    {
        "version": st.sampled_from([1, 2]),
        "sharding": st.sampled_from(["full_shard", "shard_grad_op", "hybrid_shard", "no_shard"]),
        "wrap": st.sampled_from(["none", "transformer", "size"]),
    },
    optional={
        "offload": st.just(True),
        "use_orig_params": st.just(False),
        "mixed_precision": st.just("bf16"),
        "backward_prefetch": st.sampled_from(["BACKWARD_POST", "NO_PREFETCH"]),
        "reshard_after_forward": st.sampled_from([False, 2]),
        "state_dict_type": st.just("FULL_STATE_DICT"),
    },
)
PARALLELISM = st.fixed_dictionaries(
    {},
    optional={
        "tensor": st.sampled_from([2, 3]),
        "pipeline": st.sampled_from([2, 5]),
        "last_stage_layers": st.just(0),
        "context": st.just(2),
        "data": st.sampled_from([1, 4]),
        "zero": ZERO,
        "fsdp": FSDP,
    },
)
TRAINING = st.fixed_dictionaries(
    {"model": st.sampled_from([LLAMA, T5, SPARSE]), "hardware": st.sampled_from([{}, {"gpus": 8, "gpu": "t4"}])},
    optional={
        "micro_batch_size": st.sampled_from([1, 3]),
        "sequence_length": st.sampled_from([1, 7, 64]),
        "gradient_accumulation_steps": st.sampled_from([2, 5]),
        "weights": st.fixed_dictionaries(
            {"dtype": st.sampled_from(WIDE)},
            optional={"quantization": st.sampled_from([{"method": "bnb-nf4"}, {"method": "gptq", "bits": 4}])},
        ),
        "method": st.sampled_from(["full", "lora", "freeze"]),
        "adapter": st.sampled_from([{}, {"targets": "all-linear", "prepare_kbit": True}, {"type": "nonsense"}]),
        "objective": st.sampled_from(["sft", "dpo", "kto", "reward", "ppo", "grpo", "classification", "strange"]),
        "precision": st.fixed_dictionaries(
            {}, optional={"autocast": st.sampled_from(FP16), "master_weights": st.just(True)}
        ),
        "optimizer": st.fixed_dictionaries(
            {"name": st.sampled_from(["adamw_torch", "paged_adamw_8bit", "adafactor", "muon", "lomo", "nonesuch"])},
            optional={"in_backward": st.just(True)},
        ),
        "activation_checkpointing": st.sampled_from(["full", "selective", "offload"]),
        "attention": st.sampled_from(["eager", "flash_attention_2", "odd"]),
        "loss": st.sampled_from([{"kernel": name} for name in ("smoothed", "liger", "chunked", "cut_cross_entropy")]),
        "evaluation": st.sampled_from([{"micro_batch_size": 8}, {"micro_batch_size": 2, "keeps_logits": True}]),
        "parallelism": PARALLELISM,
        "framework": st.sampled_from(["torchtune", "torchtitan", "megatron", "unheard"]),
        "versions": st.sampled_from([{"transformers": "4.41", "torch": "1.13"}, {"transformers": "5.1"}]),
    },
)


@settings(max_examples=200)
@given(TRAINING)
def test_a_legal_job_is_estimated_or_says_what_is_missing(given_job):
    job = Job.validate(given_job)
    try:
        found = estimate(job)
    except NotEstimable:
        return
    tiers = found.per_gpu
    assert tiers.low <= tiers.process <= tiers.high
    assert tiers.allocated <= tiers.reserved
    assert min(size for phase in found.phases for size in phase.components.values()) >= 0
    told = explained(found, job, resolve(job.model))
    for name, size in found.components.items():
        assert sum(term.size for term in told.terms if term.component == name) == size


def test_a_translator_s_preferences_are_estimated_under_autocast():
    """What its encoder returns is copied behind the forward function, and nothing of the loss follows there."""
    model = {"model_type": "t5", "d_model": 128, "d_ff": 256, "d_kv": 16, "num_layers": 2, "num_decoder_layers": 2}
    model |= {"num_heads": 8, "vocab_size": 1000, "architectures": ["T5ForConditionalGeneration"]}
    sizes = {"micro_batch_size": 1, "sequence_length": 64, "objective": "dpo"}
    plans = [Job.validate({"model": model, **sizes, "precision": {"autocast": cast}}) for cast in ("bfloat16", None)]
    cast, plain = (estimate_job(plan, resolve(plan.model), None).per_gpu.allocated for plan in plans)
    assert cast > plain


def test_the_reference_of_an_adapted_router_is_the_router_alone():
    """Grouped experts merge an adapted router's weights; with adapters off there is nothing to merge."""
    given_job = {"model": SPARSE, "objective": "dpo", "method": "lora", "micro_batch_size": 1, "sequence_length": 64}
    given_job |= {"weights": {"dtype": "bfloat16"}, "adapter": {"targets": "all-linear"}}
    assert estimate(Job.validate(given_job)).components["adapter"]
