"""Generation with plain Transformers, and which engine answers for which job."""

from __future__ import annotations

import re
from statistics import mean, median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulint.estimator.estimate import NotEstimable
from gpulint.estimator.estimate_job import estimate_inference
from gpulint.hardware.catalogue import find
from gpulint.job.job import Job
from gpulint.models.model import UnknownModel
from gpulint.models.resolve import resolve
from gpulint.units import GIB, MIB

from .llama import LLAMA_8B

MAMBA = {
    "model_type": "mamba",
    "hidden_size": 768,
    "num_hidden_layers": 4,
    "state_size": 16,
    "conv_kernel": 4,
    "expand": 2,
    "vocab_size": 50280,
}

MIXTRAL = {
    "model_type": "mixtral",
    "hidden_size": 1024,
    "intermediate_size": 3584,
    "num_hidden_layers": 12,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}


def job(batch=1, prompt=1024, answer=128, weights=None, versions=None, parallelism=None, gpus=1, **fields) -> Job:
    return Job.validate(
        {
            "kind": "inference",
            "weights": {"dtype": "bfloat16", **(weights or {})},
            "versions": versions or {},
            "parallelism": parallelism or {},
            "hardware": {"gpus": gpus},
            "inference": {
                "engine": "transformers",
                "batch_size": batch,
                "prompt_length": prompt,
                "new_tokens": answer,
                **fields,
            },
        }
    )


def phases(job, config=LLAMA_8B, gpu=None):
    return {phase.name: phase for phase in estimate_inference(job, resolve(config), gpu).phases}


def run(job):
    return estimate_inference(job, resolve(LLAMA_8B), None)


def test_recorded_runs_are_met_within_a_percent(shared_data):
    """Peaks of prefill and decode, recorded tensor by tensor from transformers 5.23."""
    seen = 0
    for run in shared_data("oracle"):
        point = run["point"]
        if point.get("mode") != "infer":
            continue
        full = point.get("full_logits", False)
        plan = job(point["batch"], point["seq"], 2, full_prefill_logits=full)
        found = phases(plan, run["config"])
        for name, recorded in run["phase_peaks"].items():
            ours = found[name].allocated - found[name].components["buffers"]
            assert ours == pytest.approx(recorded, rel=0.01), (point, name)
            if name == "prefill":
                dynamic = recorded - run["params_bytes"]
                assert ours - run["params_bytes"] == pytest.approx(dynamic, rel=0.01), (point, name)
        seen += 1
    assert seen >= 17


def test_prefill_of_llama_is_weights_cache_and_the_widest_layer():
    prefill = phases(job(8, 1024))["prefill"]
    tokens, hidden, inner, keys = 8 * 1024, 4096, 14336, 1024
    assert prefill.components["weights"] == 2 * 8_030_261_248
    assert prefill.components["kv_cache"] == 4 * tokens * keys * 32
    assert prefill.components["activations"] == pytest.approx(6 * tokens * inner + 8 * tokens * hidden, rel=1e-3)


def test_old_transformers_keeps_the_logits_of_the_whole_prompt():
    old, new = ({"transformers": version} for version in ("4.38.2", "4.46.0"))
    prompt = 14336
    whole = phases(job(1, prompt, versions=old))["prefill"].components["logits"]
    assert whole == 6 * prompt * 128256
    assert phases(job(1, prompt, versions=new))["prefill"].components["logits"] == 0
    stated = phases(job(1, prompt, full_prefill_logits=True))["prefill"].components["logits"]
    assert stated == 2 * prompt * 128256


def test_old_transformers_keeps_rotary_tables_in_every_layer():
    config = {**LLAMA_8B, "model_type": "qwen2", "max_position_embeddings": 32768}
    old = phases(job(versions={"transformers": "4.38.2"}), config)["decode"].components["buffers"]
    new = phases(job(versions={"transformers": "4.46.0"}), config)["decode"].components["buffers"]
    assert old - new == 32 * 2 * 2 * 32768 * 128


def test_eager_attention_makes_the_scores():
    plan = job(1, 8192)
    plan.attention = "eager"
    scores = 32 * 8192 * 8192
    eager = phases(plan)["prefill"].components["activations"]
    assert eager > 8 * scores
    assert phases(job(1, 8192))["prefill"].components["activations"] < scores


def test_four_bit_weights_are_packed_when_they_load_and_unpacked_for_long_prompts():
    packed = {"quantization": {"method": "bnb-nf4", "bits": 4}}
    found = phases(job(1, 2048, weights=packed))
    largest = 4096 * 14336
    assert found["load"].components["buffers"] == 2 * largest
    whole = phases(job(1, 2048))["prefill"].components["activations"]
    assert found["prefill"].components["activations"] - whole == 2 * largest - 2 * 2048 * 14336
    longer, unpacked = (phases(job(1, 8192, weights=given))["prefill"] for given in (packed, None))
    assert longer.components["activations"] == unpacked.components["activations"]


def test_weights_that_torchao_packs_may_all_have_been_there_in_16_bits():
    """torchao's own generate.py puts the model on the GPU first; recording a CUDA graph gives back what is free."""
    packed = {"quantization": {"method": "torchao-int8", "bits": 8}}
    plain, found = run(job()).per_gpu, run(job(weights=packed)).per_gpu
    assert found.low < 0.7 * plain.low
    assert plain.low <= found.high < 1.2 * plain.high
    ready = {"quantization": {"method": "compressed-tensors", "bits": 8}}
    assert run(job(weights=ready)).per_gpu.high < 0.7 * plain.low


def test_a_compiled_step_may_have_been_tuned_and_recorded():
    """256 MiB of Triton's benchmark, a pool's segments and a cuBLAS workspace: the estimate itself does not move."""
    compiled = job()
    compiled.compile = True
    eager, graphs = run(job()).per_gpu, run(compiled).per_gpu
    assert (graphs.process, graphs.low) == (eager.process, eager.low)
    assert 278 * MIB < graphs.high - eager.high < 320 * MIB


def test_float16_over_four_bits_is_cast_to_the_default_compute_dtype():
    packed = {"dtype": "float16", "quantization": {"method": "bnb-nf4", "bits": 4}}
    versions = {"transformers": "4.35.0"}
    found = phases(job(1, 30, weights=packed, versions=versions))["prefill"].components["activations"]
    assert 6 * 4096 * 14336 < found < 6.1 * 4096 * 14336


def test_exllama_keeps_a_buffer_for_the_largest_weight():
    packed = {"dtype": "float16", "quantization": {"method": "gptq", "bits": 4, "group_size": 128}}
    old, new = (
        phases(job(weights=packed, versions={"transformers": version}))["decode"].components["buffers"]
        for version in ("4.46.0", "4.51.0")
    )
    assert old - new == 2 * 4096 * 14336


def test_eight_bit_gptq_unpacks_in_six_bytes_an_element():
    packed = {"dtype": "float16", "quantization": {"method": "gptq", "bits": 8, "group_size": 128}}
    versions = {"transformers": "4.46.0"}
    found, whole = (
        phases(job(1, 3000, weights=given, versions=versions))["prefill"].components["activations"]
        for given in (packed, {"dtype": "float16"})
    )
    assert found - whole == 6 * 4096 * 14336 - 4 * 3000 * 14336


def test_awq_unpacks_long_prompts_only():
    packed = {"dtype": "float16", "quantization": {"method": "awq", "bits": 4, "group_size": 128}}
    for prompt, extra in ((1000, 0), (1024, 2 * 4096 * 14336 - 2 * 1024 * 14336)):
        found, whole = (
            phases(job(1, prompt, weights=given))["prefill"].components["activations"]
            for given in (packed, {"dtype": "float16"})
        )
        assert found - whole == extra


def test_awq_files_hold_a_tied_head_until_it_is_tied():
    packed = {"dtype": "float16", "quantization": {"method": "awq", "bits": 4, "group_size": 128}}
    tied, untied = (
        phases(job(weights=packed), {**LLAMA_8B, "tie_word_embeddings": tie})["load"] for tie in (True, False)
    )
    assert tied.components["buffers"] == 2 * 128256 * 4096
    assert tied.allocated == untied.allocated


def test_the_cache_exists_twice_where_generate_passes_tuples():
    old, new = (phases(job(1, 1, 2048, versions={"transformers": version}))["decode"] for version in ("4.41", "4.42"))
    one = 2 * 2 * 1024 * 32
    assert new.components["kv_cache"] == 2048 * one
    assert old.components["kv_cache"] == (2048 + 2047) * one


@pytest.mark.parametrize(
    ("attention", "version", "model_type", "repeats"),
    [
        ("flash_attention_2", "4.46.3", "qwen2", True),
        ("flash_attention_2", "4.48.0", "qwen2", False),
        ("flash_attention_2", "4.46.3", "llama", False),
        ("flash_attention_2", "4.57.1", "qwen2_moe", True),
        ("sdpa", "4.53.0", "llama", True),
        ("sdpa", "4.54.0", "llama", False),
        ("eager", "5.23.0", "llama", True),
    ],
)
def test_keys_and_values_are_repeated_for_every_query_head(attention, version, model_type, repeats):
    """16,384 tokens, 8 key heads for 32 of 128: 2 x 2 x 4,096 B a token where they are repeated, else keys again.

    Eager attention has 10 B a score beside them (`decoding.py`).
    """
    plan = job(1, 1, 16384, versions={"transformers": version})
    plan.attention = attention
    decode = phases(plan, {**LLAMA_8B, "model_type": model_type})["decode"]
    scores = 10 * 32 * 16384 if attention == "eager" else 0
    assert decode.components["activations"] == 16384 * 2 * (2 * 4096 if repeats else 1024) + scores


def test_one_key_head_is_a_view_of_all():
    plan = job(1, 1, 65536, versions={"transformers": "4.53.0"})
    one = phases(plan, {**LLAMA_8B, "num_key_value_heads": 1})["decode"]
    assert one.components["activations"] == 65536 * 2 * 128


@pytest.mark.parametrize(("version", "twice"), [("4.34.0", True), ("4.48.0", False)])
def test_what_gptq_leaves_unpacked_may_be_there_twice_while_autogptq_loads(version, twice):
    """1.8B with two tables of 151,936 x 2,048 in 16 bits: a short answer takes less than the file's own."""
    config = {
        **LLAMA_8B,
        "hidden_size": 2048,
        "num_hidden_layers": 4,
        "vocab_size": 151936,
        "tie_word_embeddings": False,
    }
    packed = {"dtype": "float16", "quantization": {"method": "gptq", "bits": 8, "group_size": 128}}
    found = estimate_inference(job(1, 1, 1, packed, {"transformers": version}), resolve(config), None)
    notes = [item for item in found.assumptions if "AutoGPTQ" in item.origin]
    assert bool(notes) is twice
    if twice:
        tables, norms = 2 * 2 * 151936 * 2048, 9 * 2 * 2048
        load = next(phase.allocated for phase in found.phases if phase.name == "load")
        more = load + tables + norms - found.per_gpu.allocated
        assert notes[0].high == pytest.approx(more, abs=1024)


GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257}
NEOX = {
    "model_type": "gpt_neox",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "vocab_size": 50304,
    "max_position_embeddings": 2048,
}
PHI3 = {
    "model_type": "phi3",
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "vocab_size": 32064,
}


def test_tuples_outlive_4_42_in_some_models():
    caches = [
        phases(job(1, 16, 1000, versions={"transformers": version}), GPT2)["decode"].components["kv_cache"]
        for version in ("4.46.0", "4.53.0")
    ]
    assert caches[0] == pytest.approx(2 * caches[1], rel=2e-3)


@pytest.mark.parametrize(("config", "tensors"), [(GPT2, 3), (NEOX, 4), (PHI3, 4)])
def test_a_prompts_cache_is_a_view_of_one_projection_until_4_56(config, tensors):
    """GPT-2 caches parts of queries, keys and values; the others those, for the values, and rotated keys of their own.

    Source: what `torch.cuda.max_memory_allocated` grew by from 512 to 768 and 1024 to 2048 tokens in the tables of
    GPT-2 and GPT-NeoX (docs/source/en/model_doc): 2.5 and 3 times keys and values, one of them the next step's.
    """
    held = [
        phases(job(2, 600, 1, versions={"transformers": version}), config)["prefill"].components["kv_cache"]
        for version in ("4.55.4", "4.56.0")
    ]
    assert held[0] == pytest.approx(held[1] * tensors / 2)


@pytest.mark.parametrize(("config", "gone"), [(NEOX, "4.49.0"), (GPT2, "5.0.0")])
def test_masks_for_all_positions_were_buffers(config, gone):
    layers = config.get("num_hidden_layers") or config["n_layer"]
    positions = config.get("max_position_embeddings", 1024)
    held, now = (
        phases(job(1, 16, 1, versions={"transformers": version}), config)["prefill"].components["buffers"]
        for version in ("4.48.0", gone)
    )
    assert held - now == layers * positions**2


def test_gpt_neox_took_its_softmax_in_16_bits_until_4_49():
    """Scores and their softmax in float16, 2 + 2 bytes; now a float32 result and its cast, 2 + 4 + 2."""
    widths = []
    for version in ("4.48.0", "4.49.0"):
        given = job(1, 2000, 1, {"dtype": "float16"}, {"transformers": version})
        given.attention = "eager"
        widths.append(phases(given, NEOX)["prefill"].components["activations"])
    assert widths[1] - widths[0] == pytest.approx(4 * 16 * 2000**2)


def test_bloom_made_the_logits_of_the_whole_prompt_until_5_and_never_in_float32():
    config = {"model_type": "bloom", "hidden_size": 64, "n_layer": 2, "n_head": 4, "vocab_size": 250880}
    made = [
        phases(job(1, 1024, versions={"transformers": version}), config)["prefill"].components["logits"]
        for version in ("4.38.2", "4.51.3", "5.0.0")
    ]
    assert made == [2 * 1024 * 250880, 2 * 1024 * 250880, 0]


def test_the_second_step_still_holds_the_logits_of_the_prompt():
    """Two tokens after 2,048: two caches, and 2,048 x 151,936 logits in float32."""
    config = {**LLAMA_8B, "vocab_size": 151936}
    decode = phases(job(1, 2048, 2, versions={"transformers": "4.41.2"}), config)["decode"]
    assert decode.components["logits"] == 4 * 2048 * 151936 + 6 * 151936
    assert decode.components["kv_cache"] == (2048 + 2049) * 2 * 2 * 1024 * 32


def test_the_first_token_comes_from_the_prompts_own_pass():
    for versions in ({"transformers": "4.35.0"}, {"transformers": "4.46.0"}, {}):
        assert set(phases(job(1, 2048, 1, versions=versions))) == {"load", "prefill"}
        assert set(phases(job(1, 2048, 2, versions=versions))) == {"load", "prefill", "decode"}


def test_qwens_own_code_keeps_queries_and_keys_behind_the_values_of_a_prompt():
    """Qwen-7B after 2,048 tokens: rotated keys, and values as views of queries, keys and values."""
    config = {**LLAMA_8B, "model_type": "qwen2", "num_key_value_heads": 32, "vocab_size": 151936}
    own, later = (
        phases(job(1, 2048, 1, versions={"transformers": version}), config)["prefill"].components["kv_cache"]
        for version in ("4.32.0", "4.37.0")
    )
    assert (own, later) == (4 * 2048 * 2 * 4096 * 32, 2 * 2048 * 2 * 4096 * 32)


def test_glm_makes_the_logits_of_one_token():
    """ChatGLM's own code passes `return_last_logit`, and the class of 4.46 came with `num_logits_to_keep`."""
    config = {**LLAMA_8B, "model_type": "glm", "vocab_size": 151552}
    found = phases(job(1, 32000, 512, versions={"transformers": "4.40.2"}), config)
    assert found["prefill"].components["logits"] == 0
    assert found["decode"].components["logits"] < 8 * 151552


def test_gate_and_up_of_one_matrix_stay_together():
    fused = {**LLAMA_8B, "model_type": "phi3"}
    old = {"transformers": "4.46.0"}
    one, two = (
        phases(job(8, 1024, versions=old), config)["prefill"].components["activations"] for config in (fused, LLAMA_8B)
    )
    assert one - two == pytest.approx(2 * 8 * 1024 * 14336, rel=1e-6)


@pytest.mark.parametrize(("dtype", "each"), [("bfloat16", 10), ("float16", 8), ("float32", 8)])
def test_a_softmax_of_bfloat16_scores_copies_them(dtype, each):
    plan = job(1, 8192, weights={"dtype": dtype}, versions={"transformers": "4.40.0"})
    plan.attention = "eager"
    scores = 32 * 8192 * 8192
    assert phases(plan)["prefill"].components["activations"] == pytest.approx(each * scores, rel=0.08)


def test_experts_take_the_tokens_routed_to_them():
    found = phases(job(4, 1024), MIXTRAL)["prefill"].components["activations"]
    rows = 4 * 1024 * 2
    assert found > 2 * rows * (4 * 3584 + 1024)


def test_latent_attention_is_cached_whole_by_transformers_4():
    config = {
        "model_type": "deepseek_v3",
        "hidden_size": 256,
        "intermediate_size": 512,
        "moe_intermediate_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "kv_lora_rank": 128,
        "q_lora_rank": 64,
        "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 64,
        "v_head_dim": 32,
        "vocab_size": 1000,
        "first_k_dense_replace": 1,
    }
    latent = phases(job(1, 100, 0), config)["prefill"].components["kv_cache"]
    expanded = phases(job(1, 100, 0, versions={"transformers": "4.57.0"}), config)["prefill"].components["kv_cache"]
    assert latent == 4 * 100 * (128 + 64) * 2
    assert expanded == 4 * 100 * 8 * (32 + 64 + 32) * 2


def test_layers_spread_over_gpus_share_weights_and_cache():
    plan = job(1, 8192, 0, parallelism={"device_map": "auto"}, gpus=4)
    spread, whole = phases(plan)["decode"], phases(job(1, 8192, 0))["decode"]
    assert spread.components["kv_cache"] == whole.components["kv_cache"] // 4
    assert spread.components["weights"] < whole.components["weights"] / 2


@pytest.mark.parametrize(
    ("mib", "rest"),
    [(9.5, 0), (10, 0), (11, 1), (12, 0), (12.5, 0), (13, 1), (13.5, 0.5), (21.75, 0.25)],
)
def test_a_rest_of_up_to_a_mebibyte_stays_with_a_large_weight(mib, rest):
    from gpulint.estimator.serving.generation.generation import unsplit_tails
    from gpulint.estimator.states.parameter import Parameter

    model, size = resolve(LLAMA_8B), round(mib * 2**20)
    weight = Parameter("w", (size // 2,), 3, (0, 1, 2), "q", "bfloat16", (size,))
    old = Job(kind="inference", versions={"transformers": "4.49.0"})
    assert unsplit_tails(old, model, [weight]) == 3 * rest * 2**20
    assert unsplit_tails(Job(kind="inference", versions={"transformers": "4.50.0"}), model, [weight]) == 0
    assert unsplit_tails(Job(kind="inference"), model, [weight]) == 0
    packed_on_load = old.with_changes({"weights.quantization.method": "bnb-nf4"})
    assert unsplit_tails(packed_on_load, model, [weight]) == 0


def test_the_estimate_adds_up_and_names_its_peak():
    estimate = estimate_inference(job(8, 2048, 512), resolve(LLAMA_8B), find("a100-80gb"))
    split = estimate.components
    assert sum(split.values()) - split["runtime"] == estimate.per_gpu.allocated
    assert estimate.peak in estimate.phases
    assert estimate.per_gpu.allocated <= estimate.per_gpu.reserved <= estimate.per_gpu.process
    assert estimate.per_gpu.low <= estimate.per_gpu.process <= estimate.per_gpu.high
    assert estimate.verdict == "fits"
    assert estimate.kv_cache is None
    assert all(term.formula and term.source for term in (*estimate.peak.terms, *estimate.beside))


def test_a_card_that_is_too_small_is_said_to_be():
    model = resolve(LLAMA_8B)
    assert estimate_inference(job(), model, find("t4")).verdict == "exceeds"
    assert estimate_inference(job(), model, find("l4")).verdict == "fits"
    assert estimate_inference(job(), model, None).verdict == "unknown"


def test_lengths_that_nobody_states_leave_a_lower_bound():
    estimate = estimate_inference(job(None, None, None), resolve(LLAMA_8B), find("a100-80gb"))
    assert estimate.verdict == "unknown"
    assert {item.field for item in estimate.assumptions} >= {
        "inference.batch_size",
        "inference.prompt_length",
        "inference.new_tokens",
    }
    assert estimate_inference(job(None, None, None), resolve(LLAMA_8B), find("t4")).verdict == "exceeds"


@given(st.integers(1, 8), st.integers(1, 20000), st.integers(0, 5000), st.integers(0, 5000))
def test_longer_answers_and_prompts_never_take_less(batch, prompt, answer, more):
    model = resolve(LLAMA_8B)

    def allocated(*sizes):
        return estimate_inference(job(*sizes), model, None).per_gpu.allocated

    assert allocated(batch, prompt, answer + more) >= allocated(batch, prompt, answer)
    assert allocated(batch, prompt + more, answer) >= allocated(batch, prompt, answer)
    assert allocated(batch + 1, prompt, answer) >= allocated(batch, prompt, answer)


def test_a_model_without_attention_has_no_keys_to_repeat():
    old = job(versions={"transformers": "4.50.0"})
    old.attention = "eager"
    assert estimate_inference(old, resolve(MAMBA), None).per_gpu.allocated > 0


def test_an_engine_that_is_not_known_is_refused():
    with pytest.raises(NotEstimable, match=r"llama\.cpp"):
        estimate_inference(job(engine="llama.cpp"), resolve(LLAMA_8B), None)
    with pytest.raises(NotEstimable):
        estimate_inference(Job(kind="inference"), resolve(LLAMA_8B), None)


QUANTISED = {"-GPTQ-Int4": ("gptq", 4), "-GPTQ-Int8": ("gptq", 8), "-AWQ": ("awq", 4)}


def _published(rows):
    """Qwen's own peaks of max_memory_allocated on one A100: (row, job, model id)."""
    for row in rows:
        stated = row["confidence"] == "high" and row["n_gpus"] == 1
        if row["source_group"] != "qwen_speed_benchmark" or not stated:
            continue
        model, weights = row["model"], {}
        for ending, (method, bits) in QUANTISED.items():
            if model.endswith(ending):
                model = model.removesuffix(ending)
                weights = {"quantization": {"method": method, "bits": bits, "group_size": 128}}
        version = re.search(r"transformers ([\d.]+)", row["framework_version"])[1]
        plan = job(1, row["seq_len"], row["gen_len"], weights, {"transformers": version})
        plan.attention = "flash_attention_2"
        yield row, plan, model


def test_published_peaks_of_qwen_are_met(shared_data):
    """Nothing is fitted to these rows; the bounds say where the derivation stands."""
    errors = []
    for row, plan, model in _published(shared_data("measurements")):
        try:
            resolved = resolve(model)
        except UnknownModel:
            continue
        ours = estimate_inference(plan, resolved, None).per_gpu.allocated / GIB
        errors.append(abs(ours / row["measured_gib"] - 1))
    assert len(errors) > 100
    assert mean(errors) < 0.025
    assert median(errors) < 0.01
    assert sorted(errors)[int(0.95 * len(errors))] < 0.06
