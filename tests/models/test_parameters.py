"""Parameter counts and structure against models that Transformers 5.23 built on the meta device."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gpulint.models.build import build
from gpulint.models.catalogue import config_of, find, search
from gpulint.models.remote import own_code

CORRECTIONS = Path(__file__).parents[2] / "scripts" / "model_corrections.json"
CORRECTED = json.loads(CORRECTIONS.read_text())["rows"]
"""Ids whose row in the source is mended, each with a reason: tied heads counted twice, vision towers left out."""

PUBLISHED = [
    # configs as the hub has them, totals as the safetensors index or the model card states them
    (
        {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": False},
        8_030_261_248,
    ),
    (
        {"model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
         "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True},
        494_032_768,
    ),
    (
        {"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 8, "num_local_experts": 8, "vocab_size": 32000},
        46_702_792_704,
    ),
    ({"model_type": "gpt2"}, 124_439_808),
    # flan-t5-xxl and mt0-large less their LoRA, as PEFT printed them: the head is a matrix of its own
    (
        {"model_type": "t5", "d_ff": 10240, "d_kv": 64, "d_model": 4096, "feed_forward_proj": "gated-gelu",
         "num_heads": 64, "num_layers": 24, "tie_word_embeddings": False, "vocab_size": 32128},
        11_154_206_720 - 18_874_368,
    ),
    (
        {"model_type": "mt5", "d_ff": 2816, "d_kv": 64, "d_model": 1024, "feed_forward_proj": "gated-gelu",
         "num_heads": 16, "num_layers": 24, "tie_word_embeddings": False, "vocab_size": 250112},
        1_231_940_608 - 2_359_296,
    ),
]  # fmt: skip


def as_built(entry):
    """The config that Transformers 5 built from: it ties every T5 of which no checkpoint is read."""
    tied = {"tie_word_embeddings": True} if entry["model_type"] in ("t5", "mt5", "umt5") else {}
    return {**entry["config"], **tied}


def expanded(model):
    """{full name: shape} and {module: (out, in)} of every parameter and linear module."""
    shapes, linears = {}, {}
    for tensor in model.tensors:
        if tensor.buffer:
            continue
        for layer in tensor.layers if tensor.layers is not None else ("",):
            shapes[tensor.name.replace("{0}", str(layer))] = tensor.shape
            if tensor.linear:
                linears[tensor.module.replace("{0}", str(layer))] = tensor.shape
    return shapes, linears


def published(entry):
    """The same of an entry of the table of built models."""
    shapes = {name: tuple(shape) for name, shape in entry["top_level"]}
    linears = {}
    for stack, groups in entry["layers"].items():
        for group in groups:
            layers = group["layers"]
            if isinstance(layers, str):
                first, last = re.match(r"(\d+)\.\.(\d+)", layers).groups()
                layers = range(int(first), int(last) + 1)
            for layer in layers:
                for name, out, inner, bias in group["linears"]:
                    linears[f"{stack}.{layer}.{name}"] = (out, inner)
                    shapes[f"{stack}.{layer}.{name}.weight"] = (out, inner)
                    if bias:
                        shapes[f"{stack}.{layer}.{name}.bias"] = (out,)
                shapes.update({f"{stack}.{layer}.{name}": tuple(shape) for name, shape in group["other"]})
    return shapes, linears


@pytest.mark.parametrize(("config", "total"), PUBLISHED, ids=lambda value: str(value)[:30])
def test_published_totals(config, total):
    assert build(config, "m", "test").parameters == total


def test_every_built_architecture_is_exact(shared_data):
    wrong = []
    for entry in shared_data("parameters"):
        model = build(as_built(entry), entry["id"], "test", entry["auto_class"])
        if model.parameters != entry["parameters"] or not model.exact:
            wrong.append((entry["id"], model.parameters, entry["parameters"]))
    assert wrong == []


def test_configs_alone_are_exact_but_for_encoders_loaded_without_their_head(shared_data):
    wrong = [
        entry["id"]
        for entry in shared_data("parameters")
        if build(as_built(entry), entry["id"], "test").parameters != entry["parameters"]
    ]
    # the same config as google-bert/bert-base-uncased, which is counted with its masked-language head
    assert sorted(wrong) == [
        "BAAI/bge-base-en-v1.5", "BAAI/bge-large-en-v1.5", "BAAI/bge-m3", "BAAI/bge-small-en-v1.5",
        "sentence-transformers/all-MiniLM-L6-v2",
    ]  # fmt: skip


def test_every_tensor_has_the_name_and_shape_of_the_built_model(shared_data):
    wrong = []
    for entry in shared_data("parameters"):
        if entry["model_type"] == "zamba":  # lists the weights of its shared block again in every layer that uses it
            continue
        if (own_code(entry["config"], entry["id"]) or {}).get("modules"):  # listed by its table's names
            continue
        shapes, linears = expanded(build(as_built(entry), entry["id"], "test", entry["auto_class"]))
        expected, modules = published(entry)
        different = sorted(name for name in shapes.keys() | expected.keys() if shapes.get(name) != expected.get(name))
        inside = {name: shape for name, shape in linears.items() if re.search(r"\.\d+\.", name)}
        outside = sorted(name for name in inside.keys() | modules.keys() if inside.get(name) != modules.get(name))
        if different or outside:
            wrong.append((entry["id"], different[:2], outside[:2]))
    assert wrong == []


def test_norms_and_the_token_embedding_have_their_roles(shared_data):
    wrong = []
    for entry in shared_data("parameters"):
        model = build(entry["config"], entry["id"], "test", entry["auto_class"])
        rows = entry["embedding_parameters"]
        embeddings = {tensor.elements for tensor in model.tensors if tensor.role == "embedding"}
        if rows is not None and rows not in embeddings:
            wrong.append((entry["id"], rows, embeddings))
        if any(tensor.role in ("vision", "audio", "projector") for tensor in model.tensors):
            continue
        norms = sum(tensor.elements for tensor in model.tensors if tensor.role == "norm" and len(tensor.shape) == 1)
        if norms != entry["norm_parameters"]:
            wrong.append((entry["id"], norms, entry["norm_parameters"]))
    assert wrong == []


def test_every_catalogue_id_with_a_published_count_is_exact(shared_data):
    rows = {name: row for name, row in shared_data("models").items() if name not in CORRECTED}
    counted = {name: row["parameters"] for name, row in rows.items() if "parameters" in row}
    wrong = {name: count for name, count in counted.items() if find(name).parameters != count}
    assert len(counted) > 2000
    assert wrong == {}


def test_the_stored_counts_are_those_of_the_tables():
    rows = {(row.key, row.model_type, row.auto_class): row for row in search("")}
    wrong = [
        (row.id, row.parameters)
        for row in rows.values()
        if build(config_of(row), row.id, "test", row.auto_class).parameters != row.parameters
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("name", "total"),
    [
        # safetensors totals on the hub, less router biases (buffers) and plus nothing
        ("zai-org/GLM-4.5V", 107_710_933_120 - 45 * 128),
        ("moonshotai/Kimi-Linear-48B-A3B-Instruct", 49_122_681_728 - 26 * 256),
        ("LiquidAI/LFM2-VL-450M", 450_822_656),
        ("LiquidAI/LFM2-VL-1.6B", 1_584_804_000),
        ("HuggingFaceTB/SmolVLM2-2.2B-Instruct", 2_246_784_880),
        ("openbmb/MiniCPM5-1B", 1_080_632_832),
        ("tiiuae/Falcon-H1-34B-Base", 33_642_516_224),
        # models that transformers 5.23 builds on the meta device from the same config
        ("google/gemma-4-12B-it", 11_959_730_176),
        ("Qwen/Qwen2.5-0.5B-Instruct-AWQ", 494_032_768),
        ("unsloth/Llama-3.2-11B-Vision", 10_670_220_835),
    ],
)
def test_added_and_mended_rows_have_the_published_totals(name, total):
    assert find(name).parameters == total
