"""Weights on the GPU: dtype, packing, what stays unpacked, and what parallelism leaves of them."""

from __future__ import annotations

import pytest

from gpulint import estimate
from gpulint.estimator.estimate import NotEstimable
from gpulint.estimator.states.adapter_parameters import expert_targets
from gpulint.estimator.states.parameters import allocated, elements, parameters
from gpulint.job.job import Adapter, Fsdp, Inference, Job, Parallelism, Quantization, Weights, Zero
from gpulint.models.resolve import resolve
from gpulint.units import GIB

LINEAR_8B = 32 * (2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14336 * 4096)
"""Elements of Llama-3-8B's linear layers, the head aside."""


def job(dtype="bfloat16", quantization=None, **changes):
    return Job(weights=Weights(dtype, quantization=quantization), **changes)


def of(items, role):
    return [item for item in items if item.role == role]


@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("bfloat16", 2), ("float16", 2)])
def test_unpacked_weights_take_their_dtype(llama_8b, dtype, size):
    items = parameters(job(dtype), llama_8b)
    assert elements(items) == llama_8b.parameters == 8_030_261_248
    assert sum(item.raw for item in items) == size * 8_030_261_248


def test_the_checkpoint_dtype_counts_where_the_job_names_none(decoder):
    assert {item.dtype for item in parameters(Job(), decoder(layers=1, dtype="float16"))} == {"float16"}
    assert {item.dtype for item in parameters(Job(), decoder(layers=1, dtype=None))} == {"float32"}


def test_a_tied_head_is_stored_once(decoder):
    tied, untied = (parameters(job(), decoder(layers=2, tied=tied)) for tied in (True, False))
    assert allocated(untied) - allocated(tied) == 2 * 128256 * 4096


@pytest.mark.parametrize(("double_quant", "each"), [(False, 0.5 + 4 / 64), (True, 0.5 + 1 / 64 + 4 / 64 / 256)])
def test_nf4_packs_linear_layers_but_not_embedding_head_and_norms(llama_8b, double_quant, each):
    items = parameters(job(quantization=Quantization("bnb-nf4", 4, double_quant=double_quant)), llama_8b)
    packed = [item for item in items if item.packed]
    assert elements(packed) == LINEAR_8B
    tables = 224 * (64 + 1024 + 4 if double_quant else 64)
    assert sum(item.raw for item in packed) == each * LINEAR_8B + tables
    assert {item.role for item in items if not item.packed} == {"embedding", "head", "norm"}


def test_preparation_for_k_bit_training_makes_the_rest_float32(llama_8b):
    adapter = Adapter(targets=["q_proj"], prepare_kbit=True)
    quantization = Quantization("bnb-nf4", 4, double_quant=True)
    items = parameters(job(quantization=quantization, method="lora", adapter=adapter), llama_8b)
    rest = [item for item in items if item.part == "base" and not item.packed]
    assert {item.dtype for item in rest} == {"float32"}
    assert sum(item.raw for item in rest) == 4 * (8_030_261_248 - LINEAR_8B)


def test_preparation_leaves_a_gptq_base_in_16_bits(llama_8b):
    adapter = Adapter(targets=["q_proj"], prepare_kbit=True)
    items = parameters(job(quantization=Quantization("gptq", 4), method="lora", adapter=adapter), llama_8b)
    assert {item.dtype for item in items if item.part == "base"} == {"bfloat16"}


def test_int8_adds_a_scale_an_output_row(llama_8b):
    items = parameters(job(quantization=Quantization("bnb-int8", 8)), llama_8b)
    (down,) = of(items, "down")
    assert down.pieces == (4096 * 14336, 4 * 4096)


@pytest.mark.parametrize(
    ("method", "pieces"),
    [
        ("gptq", (64 * 256 // 2, 64 * 2 * 2, 64 * 2 // 2, 4 * 256)),
        ("awq", (64 * 256 // 2, 64 * 2 * 2, 64 * 2 // 2)),
        ("hqq", (64 * 256 // 2, 64 * 4 * 2, 64 * 4 * 2)),
        ("gguf-q8_0", (64 * 256 * 17 // 16,)),
        ("gguf-q4_k_m", (64 * 256 * 9 // 16,)),
        ("unheard-of", (64 * 256 // 2,)),
    ],
)
def test_other_packings(decoder, method, pieces):
    model = decoder(hidden=256, heads=4, kv_heads=1, layers=1, intermediate=512)
    items = parameters(job(quantization=Quantization(method, 4)), model)
    assert of(items, "k")[0].pieces == pieces


def test_skipped_modules_stay_unpacked(llama_8b):
    items = parameters(job(quantization=Quantization("bnb-nf4", 4, skip=["mlp", "q_proj"])), llama_8b)
    assert {item.role for item in items if item.packed} == {"k", "v", "o"}


def test_bitsandbytes_does_not_pack_fused_experts(decoder):
    items = parameters(job(quantization=Quantization("bnb-nf4", 4)), decoder(layers=2, experts=8))
    assert not any(item.packed for item in items if item.role.startswith("expert_"))
    assert all(item.packed for item in items if item.role in ("q", "k", "v", "o"))


@pytest.mark.parametrize(("method", "packed"), [("awq", False), ("gptq", False), ("bnb-nf4", True)])
def test_calibrated_checkpoints_leave_the_tower_in_16_bit(method, packed):
    """Qwen2-VL-2B-Instruct-AWQ loads 2.35 GiB, of which its tower are 1.24 (a vLLM 0.28 log)."""
    model = resolve("Qwen/Qwen2-VL-2B-Instruct")
    items = parameters(job("bfloat16", Quantization(method, 4)), model)
    assert any(item.packed for item in of(items, "q"))
    assert any(item.packed for item in of(items, "vision")) is packed


def test_mxfp4_packs_only_experts(decoder):
    items = parameters(job(quantization=Quantization("mxfp4", 4)), decoder(layers=2, experts=8))
    assert {item.role for item in items if item.packed} == {"expert_gate_up", "expert_down"}
    (up,) = of(items, "expert_gate_up")
    assert sum(up.pieces) == up.size * 4.25 / 8


def test_a_checkpoint_brings_its_own_quantisation(decoder):
    stored = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
    items = parameters(job(), decoder(layers=1, quantization_config=stored))
    assert of(items, "q")[0].packed
    experts = decoder(layers=1, experts=4, quantization_config={"quant_method": "mxfp4"})
    assert not any(item.packed for item in parameters(job(), experts))
    assert any(item.packed for item in parameters(job(kind="inference"), experts))


@pytest.mark.parametrize(
    ("config", "method"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "gptq"),
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, "awq"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "finegrained-fp8"),
        ({"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["self_attn"]}, "fp8"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "bnb-int8"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}},
            },
            "fp8",
        ),
    ],
)
def test_stored_quantisations_are_read(decoder, config, method):
    from gpulint.estimator.states.checkpoint import stored_quantization

    assert stored_quantization(decoder(layers=1, quantization_config=config)).method == method
    assert stored_quantization(decoder(layers=1)) is None


FLOAT_4 = {"num_bits": 4, "type": "float", "group_size": 16}
INTEGER_4 = {"num_bits": 4, "type": "int", "group_size": 128, "symmetric": True}


@pytest.mark.parametrize(
    ("config", "each"),
    [
        ({"config_groups": {"group_0": {"weights": FLOAT_4}}}, 4.5),
        ({"config_groups": {"group_0": {"weights": {**FLOAT_4, "group_size": 32}}}}, 4.25),
        ({"config_groups": {"group_0": {"weights": INTEGER_4}}}, 4.125),
        ({"config_groups": {"group_0": {"weights": {**INTEGER_4, "symmetric": False}}}}, 4.15625),
        ({"quant_method": "modelopt", "quantization": {"quant_algo": "NVFP4"}}, 4.5),
    ],
)
def test_4_bit_checkpoints_by_the_bits_of_an_element(decoder, config, each):
    model = decoder(layers=1, quantization_config={"quant_method": "compressed-tensors", **config})
    (query,) = of(parameters(job(kind="inference", inference=Inference("vllm")), model), "q")
    assert sum(query.pieces) == pytest.approx(query.size * each / 8, abs=4)


@pytest.mark.parametrize(("kind", "engine"), [("training", None), ("inference", "transformers")])
def test_transformers_unpacks_what_compressed_tensors_packed(decoder, kind, engine):
    """The first forward pass makes each weight 16 bits wide and keeps it so (compressed_tensors 0.9 to 0.20)."""
    config = {"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": INTEGER_4}}}
    model = decoder(layers=1, quantization_config=config)
    found = parameters(job(kind=kind, inference=Inference(engine) if engine else None), model)
    assert not any(item.packed for item in found)
    assert of(found, "q")[0].dtype == "bfloat16"


def test_a_name_does_not_tell_which_library_packed_the_weights():
    """llm-compressor writes AWQ checkpoints in the format of compressed-tensors, which Transformers unpacks."""
    adapter = {"type": "lora", "r": 8, "targets": ["q_proj"]}
    run = {"model": "someone/Qwen3-8B-AWQ", "method": "lora", "adapter": adapter}
    found = estimate(Job.validate({**run, "micro_batch_size": 1, "sequence_length": 64}))
    (unknown,) = (item for item in found.assumptions if item.field == "weights.stored")
    assert unknown.high > 2 * 6.5e9 - 0.6 * 6.5e9
    assert found.per_gpu.high - found.per_gpu.process >= unknown.high


def test_nvfp4_has_one_scale_of_16_and_one_of_the_tensor(decoder):
    model = decoder(hidden=256, heads=4, kv_heads=1, layers=1, intermediate=512)
    items = parameters(job(quantization=Quantization("nvfp4", 4)), model)
    assert of(items, "k")[0].pieces == (64 * 256 // 2, 64 * 256 // 16, 4)


def stored(skip, method="fp8"):
    return {"quant_method": method, "modules_to_not_convert": skip}


@pytest.mark.parametrize("skip", [["gate"], ["gate", "e_score_correction_bias", "lm_head"], ["up_proj"]])
def test_a_short_name_does_not_name_what_merely_contains_it(decoder, skip):
    items = parameters(job(kind="inference"), decoder(layers=2, experts=4, quantization_config=stored(skip)))
    assert of(items, "expert_down")[0].packed
    assert of(items, "expert_gate_up")[0].packed is ("up_proj" not in skip)


@pytest.mark.parametrize(
    ("pattern", "layers"),
    [
        ("model.layers.1.self_attn.q_proj", {1}),
        ("model.layers.1", {1}),
        ("model.layers.1.", {1}),
        ("model.layers.1*", {1}),
        ("model.layers.1.*", {1}),
        ("*.q_proj", set(range(12))),
        ("re:model.layers.1[01].*", {10, 11}),
        ("re:.*self_attn$", set()),
        ("re:layers", set()),
        ("re:(", set()),
        ("q_proj.weight", set(range(12))),
        ("q", set()),
        ("layers.12", set()),
    ],
)
def test_skip_patterns_name_whole_parts_layer_by_layer(decoder, pattern, layers):
    model = decoder(layers=12, quantization_config=stored([pattern]))
    found = of(parameters(job(kind="inference"), model), "q")
    assert {layer for item in found if not item.packed for layer in item.layers} == layers
    assert sorted(layer for item in found for layer in item.layers) == list(range(12))
    assert sum(item.elements for item in found) == 12 * 4096 * 4096


@pytest.mark.parametrize("leaf", ["gate_proj", "w1", "down_proj", "w2"])
def test_a_pattern_on_single_experts_names_the_fused_tensor(decoder, leaf):
    config = {"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": INTEGER_4}}}
    config["ignore"] = [f"re:model.layers.0.mlp.experts.*{leaf}"]
    run = job(kind="inference", inference=Inference("vllm"))
    items = parameters(run, decoder(layers=2, experts=4, quantization_config=config))
    role = "expert_down" if leaf in ("down_proj", "w2") else "expert_gate_up"
    assert {item.layers for item in of(items, role) if not item.packed} == {(0,)}


def test_experts_are_packed_by_bitsandbytes_where_asked_or_before_transformers_5(decoder):
    model = decoder(layers=2, experts=8)

    def packed(asked=False, version=None, model=model, **changes):
        versions = {"transformers": version} if version else {}
        items = parameters(job(quantization=Quantization("bnb-nf4", 4, experts=asked), versions=versions), model)
        return {item.role for item in items if item.packed and item.role.startswith("expert_")}

    both = {"expert_gate_up", "expert_down"}
    assert packed(asked=True) == both
    assert packed(version="4.57.1") == both
    assert packed(version="5.0.0") == packed() == set()
    assert packed(version="4.57.1", model=model._replace(model_type="llama4_text")) == set()


@pytest.mark.parametrize(("framework", "packed"), [(None, False), ("unsloth", True)])
def test_unsloth_packs_gpt_oss_experts(framework, packed):
    """A notebook of it peaks at 12.98 GiB on a T4 (Unsloth 2025.8.5, rank 8, one row); 16-bit experts are 35 GiB."""
    versions = {"unsloth": "2025.8.5", "transformers": "4.56.0"}
    packing = job(quantization=Quantization("bnb-nf4", 4), versions=versions, framework=framework)
    items = parameters(packing, resolve("openai/gpt-oss-20b"))
    assert {item.packed for item in of(items, "expert_gate_up") if len(item.shape) > 2} == {packed}


@pytest.mark.parametrize(
    ("name", "method", "stated"),
    [
        ("unsloth/tiny-bnb-4bit", "bnb-nf4", ("bnb-nf4", 4, True)),
        ("someone/tiny-bnb-4bit", "bnb-nf4", ("bnb-nf4", 4, False)),
        ("Qwen/tiny-FP8", "fp8", ("fp8", 8, False)),
        ("Qwen/tiny-AWQ", "awq", ("awq", 4, False)),
        ("Qwen/tiny-GPTQ-Int8", "gptq", ("gptq", 8, False)),
        ("nvidia/tiny-NVFP4", "nvfp4", ("nvfp4", 4, False)),
    ],
)
def test_a_name_states_the_quantisation_that_no_config_does(decoder, name, method, stated):
    from gpulint.estimator.serving.inference_assumptions import inference_assumptions
    from gpulint.estimator.states.quantization import effective_quantization

    model = decoder(layers=1)._replace(id=name, named_quantization=method)
    serve = job(kind="inference")
    found = effective_quantization(serve, model)
    assert (found.method, found.bits, found.double_quant) == stated
    assert of(parameters(serve, model), "q")[0].packed
    (line,) = [item for item in inference_assumptions(serve, model) if item.field == "weights.quantization.method"]
    assert name in line.origin
    assert line.value == method


def test_what_the_job_or_the_config_states_goes_before_the_name(decoder):
    from gpulint.estimator.states.quantization import effective_quantization
    from gpulint.estimator.training import assumptions

    model = decoder(layers=1)._replace(named_quantization="awq")
    assert effective_quantization(job(quantization=Quantization("bnb-nf4", 4)), model).method == "bnb-nf4"
    assert effective_quantization(job(adapter=Adapter()), model).method == "awq"
    assert any(line.field == "weights.quantization.method" for line in assumptions(job(adapter=Adapter()), model))
    full = job()
    assert effective_quantization(full, model) is None
    assert not any(line.field == "weights.quantization.method" for line in assumptions(full, model))
    unknown = model._replace(named_quantization="exl2")
    assert effective_quantization(job(kind="inference"), unknown) is None


def test_full_training_trains_everything_and_lora_only_the_adapter(llama_8b):
    assert all(item.trainable for item in parameters(job(), llama_8b))
    items = parameters(job(method="lora", adapter=Adapter(targets=["q_proj"])), llama_8b)
    assert {item.part for item in items if item.trainable} == {"adapter"}


def test_patterns_train_some_layers_only(llama_8b):
    items = parameters(job(method="freeze", trainable=[r"layers\.3[01]\.", "lm_head"]), llama_8b)
    trained = [item for item in items if item.trainable]
    assert {item.layers for item in trained} == {(30, 31), None}
    assert elements(items) == llama_8b.parameters
    assert elements(trained) == (LINEAR_8B // 32 + 2 * 4096) * 2 + 128256 * 4096


def test_the_adapter_is_float32_over_16_bits(llama_8b):
    items = parameters(job(method="lora", adapter=Adapter(r=16, targets=["q_proj", "v_proj"])), llama_8b)
    adapter = [item for item in items if item.part == "adapter"]
    assert elements(adapter) == 6_815_744
    assert sum(item.raw for item in adapter) == 4 * 6_815_744


def test_the_adapter_takes_the_dtype_it_is_given(llama_8b):
    items = parameters(job(method="lora", adapter=Adapter(targets=["q_proj"], dtype="bfloat16")), llama_8b)
    assert {item.dtype for item in items if item.part == "adapter"} == {"bfloat16"}


def test_deepspeed_casts_the_adapter_to_16_bits(llama_8b):
    plan = Job(
        weights=Weights("bfloat16"),
        method="lora",
        adapter=Adapter(targets=["q_proj"]),
        parallelism=Parallelism(zero=Zero(stage=2)),
    )
    plan.precision.master_weights = True
    assert {item.dtype for item in parameters(plan, llama_8b) if item.trainable} == {"bfloat16"}


def test_deepspeed_leaves_stage_3_alone_but_over_a_packed_checkpoint(llama_8b):
    """zero.Init has made the weights; over a checkpoint that is packed by itself from_pretrained skips it."""
    plan = job(method="lora", adapter=Adapter(targets=["q_proj"]), parallelism=Parallelism(zero=Zero(stage=3)))
    plan.precision.master_weights = True
    config = {**llama_8b.config, "quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}
    for model, dtype in ((llama_8b, "float32"), (llama_8b._replace(config=config), "bfloat16")):
        assert {item.dtype for item in parameters(plan, model) if item.trainable} == {dtype}


def test_modules_to_save_are_copied_and_trained(llama_8b):
    adapter = Adapter(targets=["q_proj"], modules_to_save=["embed_tokens", "lm_head"])
    items = parameters(job(method="lora", adapter=adapter), llama_8b)
    copies = [item for item in items if item.part == "copy"]
    assert elements(copies) == 2 * 128256 * 4096
    assert all(item.trainable for item in copies)
    assert elements(item for item in items if item.part == "base") == llama_8b.parameters


def test_fsdp_mixed_precision_keeps_trained_shards_in_float32(llama_8b):
    plan = job(parallelism=Parallelism(fsdp=Fsdp(upcast_trainable=True)))
    assert {item.dtype for item in parameters(plan, llama_8b)} == {"float32"}


def test_a_reward_model_has_no_vocabulary_head(llama_8b):
    items = parameters(job(objective="reward"), llama_8b)
    assert elements(items) == llama_8b.parameters - 128256 * 4096


def test_worked_example_llama_70b_in_16_bits_takes_140_gigabytes(decoder):
    model = decoder(hidden=8192, layers=80, heads=64, kv_heads=8, intermediate=28672, vocabulary=32000)
    assert model.parameters == 68_976_648_192
    size = allocated(parameters(job("float16"), model))
    assert size == pytest.approx(2 * 68.98e9, rel=1e-3)


def test_worked_example_lora_costs_2_bytes_and_qlora_half_a_byte_a_base_parameter(decoder):
    model = decoder(hidden=8192, layers=80, heads=64, kv_heads=8, intermediate=28672, vocabulary=32000)
    adapter = Adapter(targets="all-linear")
    lora = allocated(item for item in parameters(job(method="lora", adapter=adapter), model) if item.part == "base")
    nf4 = Quantization("bnb-nf4", 4, double_quant=True)
    plan = job(quantization=nf4, method="lora", adapter=adapter)
    qlora = allocated(item for item in parameters(plan, model) if item.part == "base")
    assert lora / model.parameters == pytest.approx(2.0, rel=1e-5)
    assert qlora / model.parameters == pytest.approx(0.527, rel=1e-2)


def test_only_what_is_trained_takes_the_trainable_dtype(llama_8b):
    weights = Weights("bfloat16", trainable_dtype="float32")
    items = parameters(Job(weights=weights, method="freeze", trainable=["lm_head"]), llama_8b)
    assert {item.role for item in items if item.dtype == "float32"} == {"head"}


def test_a_tied_head_that_is_saved_becomes_a_copy_of_its_own(decoder):
    adapter = Adapter(targets=["q_proj"], modules_to_save=["lm_head"])
    items = parameters(job(method="lora", adapter=adapter), decoder(layers=2, tied=True))
    (copy,) = [item for item in items if item.part == "copy"]
    assert (copy.role, copy.size, copy.trainable) == ("head", 128256 * 4096, True)


def test_targets_that_peft_refuses_cannot_be_estimated(llama_8b):
    with pytest.raises(NotEstimable, match="no_such_proj"):
        parameters(job(method="lora", adapter=Adapter(targets=["no_such_proj"])), llama_8b)


def test_dora_adds_a_magnitude_an_output(llama_8b):
    lora, dora = (
        parameters(job(method="lora", adapter=Adapter(kind, r=8, targets=["down_proj"])), llama_8b)
        for kind in ("lora", "dora")
    )
    trained = [elements(item for item in items if item.trainable) for items in (lora, dora)]
    assert trained[1] - trained[0] == 32 * 4096


def test_worked_example_octocoder_in_16_8_and_4_bits(shared_data):
    """15.5 B parameters (StarCoder's architecture): 29.03, 15.22 and 9.54 GiB at the peak of a short generation.

    In 4 bits the peak also holds a dequantised matrix in float32, bitsandbytes' default compute dtype.
    """
    measured = {row["id"]: row["measured_gib"] for row in shared_data("measurements")}
    model = resolve("bigcode/starcoder")
    assert model.parameters == pytest.approx(15.5e9, rel=3e-3)
    for quantization, name, beside in [
        (None, "hf-octocoder-bf16", 0),
        (Quantization("bnb-int8", 8), "hf-octocoder-int8", 0),
        (Quantization("bnb-fp4", 4), "hf-octocoder-nf4", 4 * 6144 * 24576),
    ]:
        size = allocated(parameters(job(quantization=quantization, kind="inference"), model))
        assert size <= measured[name] * GIB
        assert size + beside == pytest.approx(measured[name] * GIB, rel=0.05)


def test_an_indexer_is_trainable_and_gets_no_gradient():
    fields = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 97}
    model = resolve({"model_type": "deepseek_v32", **fields, "n_routed_experts": 4, "num_experts_per_tok": 2})
    found = parameters(job(), model)
    idle = [item for item in found if item.idle]
    assert idle
    assert all(".indexer." in item.name and not item.trainable for item in idle)
    flat = Parallelism(zero=Zero(stage=2))
    assert not any(item.idle for item in parameters(job(parallelism=flat), model))


@pytest.mark.parametrize(
    ("versions", "experts"),
    [
        ({}, "converted"),
        ({"transformers": "5.2.0", "peft": "0.18.1"}, "parameters"),
        ({"transformers": "4.57.0", "peft": "0.17.0"}, "modules"),
    ],
)
def test_releases_say_how_targets_meet_experts(versions, experts):
    mixtral, gpt_oss = resolve("mistralai/Mixtral-8x7B-v0.1"), resolve("openai/gpt-oss-20b")
    assert expert_targets(Job(versions=versions), mixtral) == experts
    assert expert_targets(Job(versions=versions, framework="megatron"), mixtral) == "fused"
    assert expert_targets(Job(versions=versions), gpt_oss) == ("parameters" if experts == "modules" else experts)


def test_a_lora_job_without_an_adapter_is_one_with_peft_s_defaults():
    """The reference model of its preference loss is the base with the adapter turned off, not a second copy."""
    given = {"model": "gpt2", "objective": "dpo", "method": "lora", "micro_batch_size": 1, "sequence_length": 64}
    silent, stated = (estimate(Job.validate({**given, **more})) for more in ({}, {"adapter": {}}))
    assert silent.per_gpu == stated.per_gpu
    assert silent.components["weights"] < 1.1 * 4 * silent.parameters
