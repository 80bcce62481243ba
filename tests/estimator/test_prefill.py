"""Attention of a prompt and of one new token from shapes alone, beside what a replay of the layers says."""

from __future__ import annotations

import pytest

from gpulint.estimator.estimate_job import estimate_inference
from gpulint.estimator.serving.generation.decoding import attended
from gpulint.estimator.serving.generation.prefill import attention_products
from gpulint.estimator.terms import total
from gpulint.job.job import Job
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
    assert total(attended(plan, resolve(config), 64, 8001, 2.0)) == 2 * 2 * 16 * seen


STATES = {
    "model_type": "mamba2", "hidden_size": 256, "num_hidden_layers": 2, "num_heads": 8, "head_dim": 64,
    "state_size": 64, "expand": 2, "n_groups": 1, "vocab_size": 1000,
}  # fmt: skip


@pytest.mark.parametrize("release", ["4.50.0", "5.23.0"])
def test_layers_without_attention_have_neither_scores_nor_a_mask(release):
    found = []
    for attention in ("sdpa", "eager"):
        plan = job(8, 4096, versions={"transformers": release})
        plan.attention = attention
        found.append(activations(plan, STATES))
    assert found[0] == found[1] > 0
    assert total(attention_products(resolve(STATES), plan, 8, 4096, 2.0)) == 0


def test_a_scan_of_old_releases_makes_the_products_that_it_sums():
    tokens, chunk, heads, state, inner = 4 * 1024, 256, 8, 64, 512
    named, unnamed, contracted = (
        activations(job(4, 1024, versions={"transformers": release}), STATES)
        for release in ("5.14.0", "5.17.0", "5.18.0")
    )
    scores, values = 4 * tokens * chunk * heads * state, 4 * tokens * chunk * inner
    assert named == pytest.approx(scores + values, rel=0.15)
    assert unnamed == pytest.approx(max(scores, values), rel=0.25)
    assert contracted < unnamed < named


def test_kernels_that_may_be_there_widen_generation_downwards():
    plan = job(4, 1024, versions={"transformers": "4.57.6"})
    found = estimate_inference(plan, resolve(STATES), None)
    (note,) = (item for item in found.assumptions if item.field == "versions.mamba-ssm")
    plan.versions["mamba-ssm"] = "2.2"
    fused = estimate_inference(plan, resolve(STATES), None)
    assert found.peak.allocated - note.low == fused.peak.allocated
    assert not [item for item in fused.assumptions if item.field == "versions.mamba-ssm"]


def test_a_hybrid_s_layers_are_replayed_in_old_releases_too():
    config = {
        "model_type": "bamba", "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 3,
        "num_attention_heads": 8, "num_key_value_heads": 2, "mamba_n_heads": 16, "mamba_d_head": 64,
        "attn_layer_indices": [1], "vocab_size": 1000,
    }  # fmt: skip
    old, new = (activations(job(2, 1024, versions={"transformers": v}), config) for v in ("4.57.6", "5.14.0"))
    assert old == pytest.approx(new, rel=0.05)


def test_ranks_divide_keys_made_from_the_latent_once():
    config = {
        "model_type": "deepseek_v3", "hidden_size": 256, "intermediate_size": 512, "moe_intermediate_size": 128,
        "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 8, "kv_lora_rank": 64,
        "q_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32, "n_routed_experts": 8,
        "num_experts_per_tok": 2, "n_shared_experts": 1, "first_k_dense_replace": 1, "vocab_size": 1000,
    }  # fmt: skip
    whole, half = (job(1, 1, 4096, tensor=tensor) for tensor in (1, 2))
    one, two = (total(attended(plan, resolve(config), 1, 4096, 2.0)) for plan in (whole, half))
    assert one == 2 * two
