"""A Model from `config.json` fields: defaults, spellings, loaders, and configs that make no model."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpulint.estimator.estimate import NotEstimable
from gpulint.estimator.states.parameters import trainable_parameters
from gpulint.job.job import Adapter, Job
from gpulint.models.build import build
from gpulint.models.fields import Fields
from gpulint.models.model import UnknownModel
from gpulint.models.resolve import resolve

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3,
        "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 100,
}  # fmt: skip


def tensors(config, auto_class=None):
    return {tensor.name: tensor for tensor in build(config, "m", "test", auto_class).tensors}


def test_a_config_of_a_type_alone_is_the_class_default():
    assert build({"model_type": "llama"}, "m", "test").parameters == 6_738_415_616


def test_missing_key_value_heads_mean_one_per_head_and_null_means_missing():
    without = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
    for config in (without, {**without, "num_key_value_heads": None}):
        assert tensors(config)["model.layers.{0}.self_attn.k_proj.weight"].shape == (64, 64)


def test_a_stated_head_width_wins_over_the_share_of_the_hidden_size():
    found = tensors({**LLAMA, "head_dim": 32})
    assert found["model.layers.{0}.self_attn.q_proj.weight"].shape == (128, 64)
    assert found["model.layers.{0}.self_attn.o_proj.weight"].shape == (64, 128)


def test_a_tied_head_is_counted_once():
    untied, tied = build(LLAMA, "m", "test"), build({**LLAMA, "tie_word_embeddings": True}, "m", "test")
    assert untied.parameters - tied.parameters == 100 * 64
    assert tied.shape.tied
    assert not untied.shape.tied


def test_biases_follow_their_switches():
    found = tensors({**LLAMA, "attention_bias": True})
    assert found["model.layers.{0}.self_attn.q_proj.bias"].elements == 3 * 64
    assert "model.layers.{0}.mlp.up_proj.bias" not in found


def test_conv1d_of_gpt2_is_linear_with_outputs_first():
    tensor = tensors({"model_type": "gpt2"})["transformer.h.{0}.attn.c_attn.weight"]
    assert tensor.linear
    assert tensor.shape == (2304, 768)


def test_gpt2_reads_the_other_spelling_of_its_fields():
    assert tensors({"model_type": "gpt2", "hidden_size": 64})["transformer.wte.weight"].shape == (50257, 64)


def test_experts_are_three_dimensional_and_not_linear():
    model = build({"model_type": "mixtral"}, "m", "test")
    experts = [tensor for tensor in model.tensors if tensor.role.startswith("expert")]
    assert {tensor.shape for tensor in experts} == {(8, 28672, 4096), (8, 4096, 14336)}
    assert not any(tensor.linear for tensor in experts)


def test_layers_that_differ_are_told_apart():
    found = tensors({"model_type": "qwen3_moe", "num_hidden_layers": 4, "mlp_only_layers": [1]})
    assert found["model.layers.{0}.mlp.up_proj.weight"].layers == (1,)
    assert found["model.layers.{0}.mlp.experts.down_proj"].layers == (0, 2, 3)


def test_legacy_schedules_are_read():
    nemotron = {"model_type": "nemotron_h", "hybrid_override_pattern": "M-M*-E", "num_hidden_layers": 6}
    assert build(nemotron, "m", "test").shape.layer_types == ("mamba", "mlp", "mamba", "full_attention", "mlp", "moe")
    llama4 = {"model_type": "llama4_text", "num_hidden_layers": 4, "interleave_moe_layer_step": 2}
    assert build(llama4, "m", "test").shape.sparse_layers == (1, 3)
    lfm2 = {"model_type": "lfm2", "num_hidden_layers": 4, "full_attn_idxs": [2]}
    assert build(lfm2, "m", "test").shape.layer_types == ("conv", "conv", "full_attention", "conv")


def test_auto_is_worked_out():
    jamba = {"model_type": "jamba", "hidden_size": 4096, "mamba_dt_rank": "auto", "num_hidden_layers": 2}
    assert tensors(jamba)["model.layers.{0}.mamba.dt_proj.weight"].shape == (8192, 256)


def test_remote_code_configs_are_translated():
    qwen = {"model_type": "qwen", "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32,
    "kv_channels": 128,
            "num_attention_heads": 32, "vocab_size": 151936, "no_bias": True, "tie_word_embeddings": False}  # fmt: skip
    assert build(qwen, "m", "test").parameters == 7_721_324_544
    internlm = {**LLAMA, "model_type": "internlm2", "bias": False}
    assert build(internlm, "m", "test").parameters == build(LLAMA, "m", "test").parameters


def test_a_base_class_has_a_head_where_the_repository_s_code_generates():
    """config.json of zai-org/chatglm3-6b: architectures ChatGLMModel, auto_map for AutoModelForCausalLM."""
    plain = {**LLAMA, "architectures": ["OwnModel"], "tie_word_embeddings": False}
    own = {**plain, "auto_map": {"AutoModelForCausalLM": "modeling_own.OwnForConditionalGeneration"}}
    head = LLAMA["vocab_size"] * LLAMA["hidden_size"]
    assert build(own, "m", "test").parameters - build(plain, "m", "test").parameters == head


def test_ling_has_the_experts_of_its_own_fields():
    """Ling-mini-2.0: 16,255,643,392 in its files, less a bias for each expert of 19 routers."""
    ling = {"model_type": "bailing_moe", "hidden_size": 2048, "intermediate_size": 5120, "num_hidden_layers": 20,
            "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 256,
            "num_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 512, "first_k_dense_replace": 1,
            "use_qk_norm": True, "vocab_size": 157184, "tie_word_embeddings": False}  # fmt: skip
    model = build(ling, "m", "test")
    assert model.parameters == 16_255_643_392 - 19 * 256
    assert (model.shape.experts, model.shape.experts_per_token) == (256, 8)
    assert model.shape.sparse_layers == tuple(range(1, 20))
    older = {key: value for key, value in ling.items() if key not in ("head_dim", "use_qk_norm")}
    assert "model.layers.{0}.self_attn.q_norm.weight" not in tensors(older)


@pytest.mark.parametrize(
    ("model", "targets", "trainable"),
    [
        ("baichuan-inc/Baichuan-7B", ["W_pack"], 32 * 8 * (4096 + 12288)),
        ("Qwen/Qwen-7B-Chat", ["c_attn"], 32 * 8 * (4096 + 12288)),
        ("zai-org/chatglm3-6b", None, 28 * 8 * (4096 + 4608)),
        ("internlm/internlm2-7b", ["wqkv"], 32 * 8 * (4096 + 6144)),
    ],
)
def test_remote_code_has_modules_of_its_own_names(model, targets, trainable):
    """What PEFT printed in published runs: 4,194,304 for Baichuan and Qwen, 1,949,696 for ChatGLM."""
    job = Job(method="lora", adapter=Adapter(r=8, targets=targets))
    assert trainable_parameters(job, resolve(model)) == trainable
    with pytest.raises(NotEstimable):
        trainable_parameters(Job(method="lora", adapter=Adapter(r=8, targets=["q_proj"])), resolve(model))


def test_a_multimodal_config_takes_its_text_decoder_from_the_nested_config():
    text = {key: value for key, value in LLAMA.items() if key != "model_type"}
    vision = {"model_type": "clip_vision_model", "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64,
              "num_attention_heads": 2, "image_size": 28, "patch_size": 14}  # fmt: skip
    model = build({"model_type": "llava", "text_config": text, "vision_config": vision}, "m", "test")
    found = {tensor.name: tensor for tensor in model.tensors}
    assert found["model.language_model.layers.{0}.mlp.up_proj.weight"].stack == "model.language_model.layers."
    assert found["model.vision_tower.encoder.layers.{0}.mlp.fc1.weight"].role == "vision"
    assert found["model.vision_tower.embeddings.position_embedding.weight"].shape == (5, 32)
    assert found["model.multi_modal_projector.linear_1.weight"].shape == (64, 32)
    assert model.shape.hidden == 64
    assert model.shape.layers == 3


def test_a_flat_vision_language_config_is_its_own_text_config():
    flat = {**LLAMA, "model_type": "qwen2_vl", "vision_config": {"depth": 2, "hidden_size": 64}}
    assert build(flat, "m", "test").shape.hidden == 64


@pytest.mark.parametrize("model_type", ["deepseek_v3", "glm4_moe_lite", "minicpm3", "mistral4", "youtu"])
def test_queries_of_latent_attention_without_a_rank_have_one_projection(model_type):
    sizes = {"hidden_size": 1024, "num_attention_heads": 16, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32}
    model = build({"model_type": model_type, **sizes, "q_lora_rank": None}, "m", "test")
    queries = {t.leaf: t.shape for t in model.tensors if t.leaf.startswith("q_")}
    assert queries == {"q_proj": (16 * (64 + 32), 1024)}


def test_the_loader_decides_what_is_built():
    config = {"model_type": "bert", "num_hidden_layers": 2}
    masked, bare = build(config, "m", "test", "MaskedLM"), build(config, "m", "test", "Model")
    assert any(tensor.name.startswith("cls.") for tensor in masked.tensors)
    assert any(tensor.name == "pooler.dense.weight" for tensor in bare.tensors)
    assert build({**config, "architectures": ["BertModel"]}, "m", "test").parameters == bare.parameters


def test_a_sequence_classifier_has_a_score_instead_of_a_head():
    model = build({**LLAMA, "architectures": ["LlamaForSequenceClassification"], "num_labels": 1}, "m", "test")
    assert [tensor.shape for tensor in model.tensors if tensor.role == "head"] == [(1, 64)]
    assert model.tensors[-1].name == "score.weight"


@pytest.mark.parametrize(
    ("config", "total"),
    [
        # transformers 5.23.0 on the meta device
        ({"model_type": "bert", "architectures": ["BertForSequenceClassification"], "num_labels": 3}, 109_484_547),
        ({"model_type": "roberta", "architectures": ["RobertaForSequenceClassification"]}, 124_646_402),
        ({"model_type": "distilbert", "architectures": ["DistilBertForSequenceClassification"]}, 66_955_010),
    ],
)
def test_a_classifier_on_an_encoder(config, total):
    assert build(config, "m", "test").parameters == total


def test_text_only_loading_of_a_multimodal_config():
    config = {"model_type": "qwen3_5", "text_config": {"num_hidden_layers": 4}, "vision_config": {"depth": 2}}
    whole, text = build(config, "m", "test"), build(config, "m", "test", "CausalLM")
    assert any(tensor.role == "vision" for tensor in whole.tensors)
    assert not any(tensor.role == "vision" for tensor in text.tensors)


@pytest.mark.parametrize(
    ("fields", "dtype"),
    [({"torch_dtype": "bfloat16"}, "bfloat16"), ({"dtype": "torch.float16"}, "float16"), ({"dtype": "auto"}, None),
    ({}, None),
     ({"text_config": {"torch_dtype": "float32"}}, "float32"), ({"dtype": 3}, None)],
)  # fmt: skip
def test_the_checkpoint_dtype(fields, dtype):
    assert build({**LLAMA, **fields}, "m", "test").dtype == dtype


def test_the_architecture_stands_in_for_a_missing_model_type():
    config = {key: value for key, value in LLAMA.items() if key != "model_type"}
    assert build({**config, "architectures": ["MistralForCausalLM"]}, "m", "test").exact
    assert build(config, "m", "test").exact is False


def test_an_unknown_llama_like_type_is_an_estimate():
    model = build({**LLAMA, "model_type": "brand_new"}, "m", "test")
    assert model.exact is False
    assert model.parameters == build(LLAMA, "m", "test").parameters


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"model_type": "brand_new"}, "not llama-like"),
        ({}, "without `model_type`"),
        ({**LLAMA, "model_type": "brand_new", "num_experts": 8}, "mixture of experts"),
        ({**LLAMA, "num_hidden_layers": 10**9}, "layers"),
        ({**LLAMA, "num_hidden_layers": -1}, "layers"),
        ({**LLAMA, "hidden_size": "64"}, "does not describe"),
        ({**LLAMA, "hidden_size": [64]}, "does not describe"),
        ({**LLAMA, "num_attention_heads": 0}, "does not describe"),
        ({**LLAMA, "vocab_size": 10**30}, "does not describe"),
        ({"model_type": "llava", "text_config": {"model_type": "nothing_known"}}, "nothing_known"),
        ({"model_type": ["llama"]}, "without `model_type`"),
    ],
)
def test_configs_that_make_no_model_say_why(config, reason):
    with pytest.raises(UnknownModel, match=reason) as caught:
        build(config, "m", "test")
    assert "\n" not in str(caught.value)


junk = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.text(max_size=5),
    st.floats(),
    st.lists(st.integers(), max_size=3),
)


@given(
    st.dictionaries(st.sampled_from([*LLAMA, "head_dim", "layer_types", "tie_word_embeddings", "text_config"]), junk)
)
@settings(max_examples=200)
def test_any_config_makes_a_model_or_is_unknown(fields):
    for base in ({"model_type": "llama"}, {"model_type": "gemma3"}, {"model_type": "deepseek_v3"}):
        try:
            model = build({**base, **fields, "model_type": base["model_type"]}, "m", "test")
        except UnknownModel:
            continue
        assert model.parameters > 0


@given(st.integers(1, 12), st.integers(1, 4), st.integers(1, 5000))
def test_parameters_are_the_sum_of_the_textbook_formula(layers, heads, vocabulary):
    hidden = 16 * heads
    config = {**LLAMA, "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": heads,
              "hidden_size": hidden, "vocab_size": vocabulary}  # fmt: skip
    layer = 4 * hidden * hidden + 3 * hidden * 128 + 2 * hidden
    assert build(config, "m", "test").parameters == layers * layer + 2 * vocabulary * hidden + hidden


def test_fields_have_a_fixed_precedence():
    table = {"alias": {"n_embd": "hidden_size"}, "defaults": {"hidden_size": 1, "depth": 7, "flag": True},
             "let": {"_half": "hidden_size//2"}, "derive": {"width": {"cases": [["flag",
                 "4*hidden_size"]]}}}  # fmt: skip
    fields = Fields({"n_embd": 8, "depth": None, "outer": {"inner": 3}}, table)
    assert fields.get("hidden_size") == 8
    assert fields.get("_half") == 4
    assert fields.get("width") == 32
    assert fields.get("depth") is None
    assert fields.get("flag") is True
    assert fields.get("outer.inner") == 3
    assert fields.get("nothing") is None
    assert Fields({"width": 5}, table).get("width") == 5
    assert Fields({"hidden_size": 2, "n_embd": 8}, table).get("hidden_size") == 2
