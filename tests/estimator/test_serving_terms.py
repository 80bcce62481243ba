"""What serving and generating take, told as arithmetic: every line multiplies out, and the lines sum."""

from __future__ import annotations

import itertools

import pytest

from gpulint.estimator.estimate_job import estimate_job
from gpulint.estimator.explain.explain import explained
from gpulint.hardware.catalogue import find
from gpulint.job.job import Job, Quantization
from gpulint.models.resolve import resolve

from .test_explain import LLAMA, MIXTRAL, sums, value

LATENT = {
    "model_type": "deepseek_v3", "hidden_size": 2048, "intermediate_size": 8192, "moe_intermediate_size": 1408,
    "num_hidden_layers": 6, "num_attention_heads": 16, "num_key_value_heads": 16, "n_routed_experts": 16,
    "n_shared_experts": 2, "num_experts_per_tok": 4, "first_k_dense_replace": 1, "kv_lora_rank": 512,
    "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 102400,
    "max_position_embeddings": 4096, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}  # fmt: skip
GEMMA = {
    "model_type": "gemma3_text", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 12,
    "head_dim": 128, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 262144, "sliding_window": 512,
    "max_position_embeddings": 32768,
}  # fmt: skip
T5 = {
    "model_type": "t5", "d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8, "vocab_size": 32128,
}  # fmt: skip
MODELS = {"llama": LLAMA, "mixtral": MIXTRAL, "latent": LATENT, "gemma": GEMMA}
MEASURED = ("runtime", "reserved", "process", "low", "high", "available_kv_cache_memory")
"""Sums of figures that have a line each elsewhere, or a measurement behind them."""


def job(engine: str, model: object, tensor: int = 1, **inference: object) -> Job:
    fields = {"engine": engine, "max_model_len": 4096, **inference}
    if engine == "transformers":
        fields = {"engine": engine, "batch_size": 2, "prompt_length": 512, "new_tokens": 16, **inference}
    made = Job.validate({"kind": "inference", "model": model, "inference": fields, "hardware": {"gpus": tensor}})
    made.parallelism.tensor = tensor
    made.weights.dtype = "bfloat16"
    return made


def explain(made: Job, gpu: str | None = "h100-80gb"):
    model, card = resolve(made.model), find(gpu) if gpu else None
    return explained(estimate_job(made, model, card), made, model)


def check(found) -> None:
    held, tiers = sums(found), found.per_gpu
    assert {name: held[name] for name in found.components} == found.components
    assert [held[name] for name in MEASURED[1:5]] == [tiers.reserved, tiers.process, tiers.low, tiers.high]
    for term in found.terms:
        given = value(term.formula)
        assert given is not None, term
        assert given == pytest.approx(term.size, rel=2e-4, abs=4096), term
        assert term.label or " x " in term.formula, term


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("engine", ["vllm", "sglang", "tgi", "lmdeploy", "tensorrt-llm"])
@pytest.mark.parametrize("tensor", [1, 4])
def test_every_line_of_an_engine_multiplies_out(engine, name, tensor):
    check(explain(job(engine, MODELS[name], tensor)))


@pytest.mark.parametrize("version", ["0.4.2", "0.6.3", "0.7.3", "0.8.5", "0.11.0", "0.14.0", "0.27.0"])
@pytest.mark.parametrize("name", ["mixtral", "latent"])
def test_every_line_of_an_older_vllm_multiplies_out(version, name):
    check(explain(job("vllm", MODELS[name], 2, version=version)))


@pytest.mark.parametrize(
    "fields",
    [
        {"kv_cache_memory_bytes": 1 << 30},
        {"cpu_offload_gb": 1.0},
        {"enable_lora": True, "max_lora_rank": 32},
        {"max_num_batched_tokens": 65536},
        {"gpu_memory_utilization": 0.1},
        {"enforce_eager": True},
    ],
)
def test_every_line_of_a_stated_engine_multiplies_out(fields):
    for engine in ("vllm", "sglang")[: 1 if "kv_cache_memory_bytes" in fields else 2]:
        check(explain(job(engine, {**LLAMA, "num_hidden_layers": 24, "hidden_size": 4096}, **fields)))


@pytest.mark.parametrize("name", ["Qwen/Qwen2.5-VL-7B-Instruct", "Qwen/Qwen3.5-9B", "deepseek-ai/DeepSeek-V4-Flash"])
def test_every_line_of_towers_and_compressed_caches_multiplies_out(name):
    check(explain(job("vllm", name, 4 if "DeepSeek" in name else 1), "h200"))


@pytest.mark.parametrize("gpu", ["h100-80gb", None])
def test_the_room_of_the_cache_is_the_budget_less_what_is_told(gpu):
    found = explain(job("vllm", LLAMA), gpu)
    room = [term for term in found.terms if term.component == "available_kv_cache_memory"]
    assert bool(room) == (gpu is not None)
    if room:
        assert sum(term.size for term in room) == found.components["kv_cache"]
        assert value(room[0].formula) == pytest.approx(0.92 * find(gpu).usable)
        assert all(term.size < 0 for term in room[1:])


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tgi"])
def test_a_token_s_cache_is_told_layer_by_layer(engine):
    """12 layers of 4 heads of 64, keys and values of 16 bits."""
    found = explain(job(engine, LLAMA))
    (token,) = [term for term in found.terms if term.component == "kv_token"]
    assert token.formula == "2 B x 12 layers x 4 heads x 128"
    assert token.size == found.kv_cache.bytes_per_token


def test_a_refusal_leaves_the_room_below_what_a_request_needs():
    found = explain(job("vllm", LLAMA, gpu_memory_utilization=0.01))
    held = sums(found)
    assert found.refusal
    assert held["available_kv_cache_memory"] < held["kv_request"] == found.components["kv_cache"]


def test_what_a_start_varies_by_is_told_part_by_part():
    found = explain(job("vllm", LLAMA, 4))
    told = {side: [term.label for term in found.terms if term.component == side] for side in ("low", "high")}
    assert any("profile run" in label for label in told["low"])
    assert any("CUDA graphs" in label for label in told["high"])
    assert not any(label.startswith("what else") for label in (*told["low"], *told["high"]))


@pytest.mark.parametrize(
    ("name", "version"), list(itertools.product(("llama", "mixtral", "gemma"), ("4.40.0", "4.51.0", None)))
)
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_every_line_of_generation_multiplies_out(name, version, attention):
    for new in (1, 4096):
        made = job("transformers", MODELS[name], new_tokens=new)
        made.attention = attention
        made.versions = {"transformers": version} if version else {}
        check(explain(made))


@pytest.mark.parametrize("method", ["bnb-nf4", "gptq", "awq"])
def test_every_line_of_packed_generation_multiplies_out(method):
    made = job("transformers", LLAMA)
    made.weights.quantization = Quantization(method, 4)
    made.versions = {"transformers": "4.46.0"}
    found = explain(made)
    check(found)
    assert any(term.label.startswith("scales and tables") for term in found.terms)


@pytest.mark.parametrize("new", [1, 512])
def test_every_line_of_an_encoder_decoder_multiplies_out(new):
    check(explain(job("transformers", T5, new_tokens=new)))


def test_a_replayed_prompt_is_told_tensor_by_tensor():
    found = explain(job("transformers", LLAMA, prompt_length=4096))
    assert found.peak_phase == "prefill"
    labels = [term.label for term in found.terms if term.component == "activations"]
    assert any(label.startswith("MLP") for label in labels)
    assert any("residual stream" in label for label in labels)
