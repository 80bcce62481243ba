import json

import pytest

from gpulint.formats.core.model_facts import find_model, hidden_size

LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


@pytest.fixture
def root(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(LLAMA))
    return tmp_path


def test_a_model_beside_the_config(root):
    assert hidden_size("model", str(root / "train.yaml"), str(root)) == 64
    assert hidden_size("model", str(root / "configs" / "train.yaml"), str(root)) == 64


@pytest.mark.parametrize("reference", ["no/such-model", "", None, 5, ["a"]])
def test_an_unknown_model_has_no_facts(root, reference):
    assert find_model(reference, str(root / "train.yaml"), str(root)) is None
    assert hidden_size(reference, str(root / "train.yaml"), str(root)) is None


def test_auto_in_a_deepspeed_file_is_filled_from_the_model(bench, root):
    axolotl = bench("axolotl")
    text = "base_model: model\ndatasets: [{path: a}]\ndeepspeed: deepspeed_configs/zero3_bf16.json\n"
    zero = axolotl.job(text).parallelism.zero
    assert (zero.reduce_bucket_size, zero.prefetch_bucket_size, zero.param_persistence_threshold) == (
        64 * 64,
        int(0.9 * 64 * 64),
        640,
    )


def test_a_prequantised_checkpoint_may_be_loaded_with_lora_in_4_bits(bench, root):
    quantised = {**LLAMA, "quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}
    (root / "model" / "config.json").write_text(json.dumps(quantised))
    text = "base_model: model\ndatasets: [{path: a}]\nadapter: lora\nload_in_4bit: true\nlora_r: 8\n"
    assert bench("axolotl").problems(text, "contradiction") == []
