"""The catalogue of hub ids."""

from __future__ import annotations

import pytest

from gpulint.models import catalogue
from gpulint.models.catalogue import config_of, find, nearest, search
from gpulint.models.resolve import resolve


def test_an_id_is_found_whatever_its_case():
    row = find("META-LLAMA/meta-llama-3-8b")
    assert row.id == "meta-llama/Meta-Llama-3-8B"
    assert row.parameters == 8_030_261_248
    assert row.confidence in ("A", "B", "C")


def test_of_ids_that_differ_in_case_the_one_written_alike_is_taken():
    assert find("EleutherAI/gpt-j-6b").id == "EleutherAI/gpt-j-6b"
    assert find("EleutherAI/gpt-j-6B").id == "EleutherAI/gpt-j-6B"


@pytest.mark.parametrize("name", ["", "meta-llama", "meta-llama/Meta-Llama-3-8", "a/b/c", "x\ty", "\n"])
def test_what_is_not_an_id_is_not_found(name):
    assert find(name) is None


def test_a_config_can_be_changed_without_changing_the_catalogue():
    row = find("meta-llama/Meta-Llama-3-8B")
    config_of(row)["hidden_size"] = 1
    assert config_of(row)["hidden_size"] == 4096
    assert config_of(row)["model_type"] == "llama"


def test_a_lookup_parses_one_row_and_one_config(monkeypatch):
    parsed = []
    original = catalogue._row
    monkeypatch.setattr(catalogue, "_row", lambda line: parsed.append(line) or original(line))
    find("Qwen/Qwen2.5-7B")
    assert len(parsed) == 1


def test_search_wants_every_word_and_is_sorted():
    ids = [row.id for row in search("qwen2.5 7b instruct")]
    assert "Qwen/Qwen2.5-7B-Instruct" in ids
    assert all("7b" in name.lower() for name in ids)
    assert ids == sorted(ids, key=str.lower)
    assert search("no such model at all") == []


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("meta-llama/Meta-Lama-3-8B", "meta-llama/Meta-Llama-3-8B"),
        ("mistralai/Mistral-7b-v0.11", "mistralai/Mistral-7B-v0.1"),
        ("Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct"),
    ],
)
def test_did_you_mean(wrong, meant):
    assert meant in nearest(wrong)


def test_nothing_comes_near_nonsense():
    assert nearest("zzzz/qqqqqqqqqqqq") == []


def test_every_row_is_whole():
    rows = search("")
    assert len(rows) > 2500
    assert all(row.parameters and row.model_type and row.key for row in rows)
    assert {row.confidence for row in rows} == {"A", "B", "C"}
    keys = {row.key for row in rows}
    lines = catalogue._content("catalogue.jsonl").splitlines()
    assert len(lines) == len(keys)


def test_an_id_from_before_owners_is_found():
    found = find("gpt2-xl")
    assert found is not None
    assert found.id == "openai-community/gpt2-xl"
    assert find("no-such-model") is None


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("nvidia/DeepSeek-R1-NVFP4", None),
        ("unsloth/DeepSeek-R1-BF16", None),
        ("Qwen/Qwen3.6-27B", None),
        ("deepseek-ai/DeepSeek-R1-0528", "fp8"),
        ("moonshotai/Kimi-K2-Thinking", "compressed-tensors"),
    ],
)
def test_an_alias_has_the_quantisation_that_its_own_name_states(name, method):
    assert config_of(find(name)).get("quantization_config", {}).get("quant_method") == method


def test_checkpoints_whose_config_states_no_dtype_have_the_one_of_their_family():
    assert config_of(find("openai/gpt-oss-20b"))["torch_dtype"] == "bfloat16"
    assert config_of(find("mistralai/Mistral-Small-3.1-24B-Instruct-2503"))["torch_dtype"] == "bfloat16"


@pytest.mark.parametrize(
    ("name", "positions"),
    [
        ("togethercomputer/LLaMA-2-7B-32K", 32768),
        ("NousResearch/Yarn-Llama-2-7b-128k", 131072),
        ("zai-org/chatglm3-6b-32k", 32768),
        ("HuggingFaceH4/zephyr-7b-gemma-v0.1", 8192),
        ("mistralai/Mistral-7B-v0.1", 32768),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", 32768),
        ("unsloth/Llama-3.1-8B-Instruct", 131072),
        ("Qwen/Qwen3-4B-Base", 32768),
        ("Qwen/Qwen3-8B-AWQ", 40960),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507", 262144),
        ("Qwen/Qwen2.5-7B", 131072),
        ("Qwen/Qwen2.5-VL-7B-Instruct", 128000),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", 131072),
        ("deepseek-ai/DeepSeek-V2.5", 163840),
    ],
)
def test_positions_that_the_class_of_a_family_would_have_wrong(name, positions):
    """`vllm serve NAME` takes a request of as many tokens, where nothing else is asked for."""
    shape = resolve(name).shape
    assert (shape.positions_stated, shape.max_positions) == (True, positions)


def test_what_is_trained_from_gemma_is_a_gemma():
    for name in ("HuggingFaceH4/zephyr-7b-gemma-sft-v0.1", "HuggingFaceH4/zephyr-7b-gemma-v0.1"):
        model = resolve(name)
        assert (model.model_type, model.parameters) == ("gemma", resolve("google/gemma-7b").parameters)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("Qwen/Qwen3-Embedding-0.6B", 595_776_512),
        ("Qwen/Qwen3-Embedding-8B", 7_567_295_488),
        ("Qwen/Qwen3-VL-Embedding-8B", 8_144_793_840),
        ("Alibaba-NLP/gte-modernbert-base", 149_014_272),
        ("google/embeddinggemma-300m", 302_863_104),
        ("BAAI/bge-m3", 567_754_752),
    ],
)
def test_an_embedding_model_has_no_head(name, parameters):
    """The totals that MTEB publishes, `n_parameters` of mteb/models."""
    model = resolve(name)
    assert model.parameters == parameters
    assert not [tensor for tensor in model.tensors if tensor.role == "head"]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("BAAI/bge-reranker-v2-m3", 567_755_777),
        ("cross-encoder/ms-marco-MiniLM-L6-v2", 22_713_601),
        ("nvidia/llama-nemotron-rerank-1b-v2", 1_235_816_448),
        ("Qwen/Qwen3-Reranker-8B", 8_188_548_096),
    ],
)
def test_a_reranker_has_a_score_or_the_head_that_says_yes(name, parameters):
    """The totals of their files on the hub."""
    assert resolve(name).parameters == parameters


def test_a_classifier_of_modernbert_keeps_the_transform_and_drops_the_words():
    model = resolve("Alibaba-NLP/gte-reranker-modernbert-base")
    names = {tensor.name for tensor in model.tensors}
    assert {"head.dense.weight", "classifier.weight"} <= names
    assert not any(name.startswith(("decoder.", "pooler.")) for name in names)


def test_internvits_of_both_sizes_have_the_norms_and_biases_of_their_files():
    """Totals of the files on the hub: the 300M has biases on q, k and v, the 6B norms of queries and RMS norms."""
    assert resolve("OpenGVLab/InternVL2_5-8B").parameters == 8_075_365_376
    assert resolve("OpenGVLab/InternVL2_5-38B").parameters == 38_388_164_992
