"""Attention of a prompt and of one new token from shapes alone, beside what a replay of the layers says."""

from __future__ import annotations

import pytest

from gpulint.estimator.decoding import attended
from gpulint.estimator.inference import estimate_inference
from gpulint.estimator.prefill import attention_bytes
from gpulint.job import Job
from gpulint.models.resolve import resolve


def job(batch=1, prompt=1024, answer=128, versions=None, tensor=1) -> Job:
    return Job.validate(
        {
            "kind": "inference",
            "attention": "eager",
            "weights": {"dtype": "bfloat16"},
            "versions": versions or {},
            "parallelism": {"tensor": tensor},
            "hardware": {"gpus": tensor},
            "inference": {
                "engine": "transformers",
                "batch_size": batch,
                "prompt_length": prompt,
                "new_tokens": answer,
            },
        }
    )


def activations(plan, config):
    found = estimate_inference(plan, resolve(config), None).phases
    return next(phase.components["activations"] for phase in found if phase.name == "prefill")


@pytest.mark.parametrize("config", [
    {"model_type": "falcon", "hidden_size": 1024, "num_hidden_layers": 1, "num_attention_heads": 16,
     "vocab_size": 1000, "multi_query": True, "parallel_attn": True, "alibi": False, "bias": False},
    {"model_type": "gpt2", "n_embd": 1024, "n_layer": 2, "n_head": 16, "n_inner": 4096, "vocab_size": 1000,
     "n_positions": 4096},
])  # fmt: skip
def test_scores_of_their_own_width_take_what_a_replay_of_the_layers_takes(config):
    plans = [job(4, 4096, versions=versions) for versions in ({"transformers": "4.50.0"}, {})]
    old, new = (activations(plan, config) for plan in plans)
    assert old == pytest.approx(new, rel=0.03)


def test_one_new_token_has_scores_of_their_own_width():
    config = {"model_type": "gpt2", "n_embd": 1024, "n_layer": 2, "n_head": 16, "vocab_size": 1000, "n_positions": 8192}
    plan = job(64, 2, 8000, versions={"transformers": "4.50.0"})
    seen = 64 * 8001
    assert attended(plan, resolve(config), 64, 8001, 2.0) == 2 * 2 * 16 * seen


def test_layers_without_attention_have_no_scores():
    config = {
        "model_type": "mamba2", "hidden_size": 256, "num_hidden_layers": 2, "num_heads": 8, "head_dim": 64,
        "state_size": 64, "expand": 2, "n_groups": 1, "vocab_size": 1000,
    }  # fmt: skip
    found = []
    for attention in ("sdpa", "eager"):
        plan = job(8, 4096, versions={"transformers": "4.50.0"})
        plan.attention = attention
        found.append(activations(plan, config))
    mask = 2 * 8 * 4096**2
    assert 0 < found[0] <= found[1] <= found[0] + mask
    assert attention_bytes(resolve(config), plan, 8, 4096, 2.0) == 0


def test_ranks_divide_keys_made_from_the_latent_once():
    config = {
        "model_type": "deepseek_v3", "hidden_size": 256, "intermediate_size": 512, "moe_intermediate_size": 128,
        "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 8, "kv_lora_rank": 64,
        "q_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32, "n_routed_experts": 8,
        "num_experts_per_tok": 2, "n_shared_experts": 1, "first_k_dense_replace": 1, "vocab_size": 1000,
    }  # fmt: skip
    whole, half = (job(1, 1, 4096, tensor=tensor) for tensor in (1, 2))
    one, two = (attended(plan, resolve(config), 1, 4096, 2.0) for plan in (whole, half))
    assert one == 2 * two
