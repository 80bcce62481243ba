"""Where a model is looked for, in which order, and what is never read."""

from __future__ import annotations

import json

import pytest

from gpulint.models.model import UnknownModel
from gpulint.models.resolve import forget, resolve

TINY = {
    "model_type": "llama", "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "vocab_size": 11,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _fresh(monkeypatch, tmp_path_factory):
    forget()
    monkeypatch.setenv("HF_HOME", str(tmp_path_factory.mktemp("home")))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)


def write(path, fields):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(fields))
    return path


def wide(width):
    return {**TINY, "hidden_size": width}


def test_an_inline_mapping():
    model = resolve({**TINY, "_name_or_path": "org/tiny"})
    assert (model.id, model.source) == ("org/tiny", "inline config")
    assert resolve(TINY).id == "inline config"


@pytest.mark.parametrize("reference", ["models/tiny", "models/tiny/config.json", "./models/tiny", "models/tiny/"])
def test_a_path_beside_the_config(tmp_path, reference):
    write(tmp_path / "models" / "tiny" / "config.json", TINY)
    assert resolve(reference, str(tmp_path), str(tmp_path)).shape.hidden == 8


def test_the_config_s_folder_comes_before_the_root(tmp_path):
    write(tmp_path / "m" / "config.json", wide(8))
    write(tmp_path / "jobs" / "m" / "config.json", wide(16))
    assert resolve("m", str(tmp_path / "jobs"), str(tmp_path)).shape.hidden == 16
    assert resolve("../m", str(tmp_path / "jobs"), str(tmp_path)).shape.hidden == 8


def test_an_absolute_path_inside_the_root(tmp_path):
    path = write(tmp_path / "m" / "config.json", TINY)
    assert resolve(str(path), str(tmp_path), str(tmp_path)).shape.hidden == 8


@pytest.mark.parametrize(
    "reference", ["../outside", "{outside}", "{outside}/config.json", "link", "file-link/config.json"]
)
def test_nothing_outside_the_root_is_read(tmp_path, reference):
    outside = tmp_path / "outside"
    path = write(outside / "config.json", TINY)
    root = tmp_path / "root"
    (root / "file-link").mkdir(parents=True)
    (root / "link").symlink_to(outside)
    (root / "file-link" / "config.json").symlink_to(path)
    with pytest.raises(UnknownModel):
        resolve(reference.format(outside=outside), str(root), str(root))


def test_a_caller_without_a_project_may_name_any_path(tmp_path):
    path = write(tmp_path / "m" / "config.json", TINY)
    assert resolve(str(path)).shape.hidden == 8


def test_only_regular_files_are_opened(tmp_path):
    (tmp_path / "m" / "config.json").mkdir(parents=True)
    with pytest.raises(UnknownModel):
        resolve("./m", str(tmp_path), str(tmp_path))


@pytest.mark.parametrize("name", ["models/org/tiny/config.json", "models/org--tiny.json"])
def test_the_project_s_own_models_folder(tmp_path, name):
    write(tmp_path / name, TINY)
    model = resolve("org/tiny", str(tmp_path / "jobs"), str(tmp_path))
    assert model.shape.hidden == 8
    assert model.source.startswith("config.json at ")


def test_the_cache_on_disk(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    folder = tmp_path / "hub" / "models--org--tiny"
    write(folder / "snapshots" / "aaa" / "config.json", wide(8))
    write(folder / "snapshots" / "bbb" / "config.json", wide(16))
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("aaa")
    assert resolve("org/tiny").shape.hidden == 8


def test_the_project_s_folder_comes_before_the_cache_and_the_cache_before_the_catalogue(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    name = "meta-llama/Meta-Llama-3-8B"
    assert resolve(name, str(tmp_path), str(tmp_path)).shape.hidden == 4096
    forget()
    write(tmp_path / "cache" / "models--meta-llama--Meta-Llama-3-8B" / "snapshots" / "a" / "config.json", wide(8))
    assert resolve(name, str(tmp_path), str(tmp_path)).shape.hidden == 8
    forget()
    write(tmp_path / "models" / "meta-llama" / "Meta-Llama-3-8B" / "config.json", wide(16))
    assert resolve(name, str(tmp_path), str(tmp_path)).shape.hidden == 16


def test_the_catalogue():
    model = resolve("Qwen/Qwen2.5-7B-Instruct")
    assert model.parameters == 7_615_616_512
    assert model.dtype == "bfloat16"
    assert model.source.startswith("catalogue, confidence ")
    assert model.exact


def test_a_second_look_is_the_same_object():
    assert resolve("Qwen/Qwen2.5-7B-Instruct") is resolve("Qwen/Qwen2.5-7B-Instruct")


def test_an_unknown_id_says_what_was_tried_and_what_comes_near():
    with pytest.raises(UnknownModel) as caught:
        resolve("meta-llama/Meta-Llama-3-8Bb")
    message = str(caught.value)
    assert "catalogue" in message
    assert "did you mean meta-llama/Meta-Llama-3-8B" in message
    assert "\n" not in message


def test_an_unknown_model_stays_unknown_at_the_second_call():
    for _ in range(2):
        with pytest.raises(UnknownModel, match="nowhere/nothing"):
            resolve("nowhere/nothing")


def test_an_adapter_names_its_base(tmp_path):
    write(tmp_path / "out" / "adapter_config.json", {"base_model_name_or_path": "org/base"})
    with pytest.raises(UnknownModel, match="PEFT adapter of org/base"):
        resolve("./out", str(tmp_path), str(tmp_path))


def test_gguf_has_no_config(tmp_path):
    (tmp_path / "gguf").mkdir()
    (tmp_path / "gguf" / "model-q4.gguf").write_bytes(b"GGUF")
    for reference in ("./gguf", "gguf/model-q4.gguf"):
        with pytest.raises(UnknownModel, match="GGUF"):
            resolve(reference, str(tmp_path), str(tmp_path))


@pytest.mark.parametrize("content", ["", "[1]", "{", "\x00\xff", "[" * 100_000, '"text"'])
def test_a_broken_config_is_unknown_not_an_error(tmp_path, content):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text(content, encoding="latin-1")
    with pytest.raises(UnknownModel):
        resolve("./m", str(tmp_path), str(tmp_path))


@pytest.mark.parametrize(
    "reference", ["", "  ", "a\0b", "..", "/", "../../etc/passwd", "~/x", "https://x/y", "x" * 5000]
)
def test_odd_references_are_unknown(tmp_path, reference):
    with pytest.raises(UnknownModel):
        resolve(reference, str(tmp_path), str(tmp_path))


def test_a_quantised_repository_says_so():
    stated = resolve("MiniMaxAI/MiniMax-M2")
    assert stated.config["quantization_config"]
    assert stated.named_quantization is None
    named = resolve("unsloth/llama-3-8b-bnb-4bit")
    assert "quantization_config" not in named.config
    assert named.named_quantization == "bnb-nf4"


def test_a_packed_copy_has_the_dimensions_of_the_model_it_is_named_for():
    """The total of an AutoAWQ checkpoint counts a tied head twice; a GPTQ one is not its base model."""
    awq, plain = (resolve(f"Qwen/Qwen2.5-1.5B-Instruct{suffix}") for suffix in ("-AWQ", ""))
    assert awq.shape.tied
    assert awq.parameters == plain.parameters
    assert awq.named_quantization == "awq"
    gptq = resolve("Qwen/Qwen2-0.5B-Instruct-GPTQ-Int4")
    assert gptq.shape.max_positions == resolve("Qwen/Qwen2-0.5B-Instruct").shape.max_positions


def test_a_checkpoint_that_states_its_quantisation_stands_for_itself():
    assert "quantization_config" in resolve("deepseek-ai/DeepSeek-V3").config


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("/data/models/Qwen2.5-7B-Instruct", "no config.json there"),
        ("someone/Qwen2.5-7B-Instruct", "not in the catalogue"),
        ("/data/models/Qwen2.5-7B-Instruct-AWQ", "no config.json there"),
    ],
)
def test_a_name_that_the_catalogue_knows_stands_for_a_folder_that_is_not_there(tmp_path, reference, reason):
    model = resolve(reference, str(tmp_path), str(tmp_path))
    assert model.id == reference
    assert model.parameters == 7_615_616_512
    assert model.namesake.startswith(f"{reason}: taken as Qwen/Qwen2.5-7B-Instruct")
    assert (model.named_quantization is not None) == reference.endswith("AWQ")


def test_a_folder_that_is_there_counts_for_itself(tmp_path):
    write(tmp_path / "Qwen2.5-7B-Instruct" / "config.json", TINY)
    model = resolve("./Qwen2.5-7B-Instruct", str(tmp_path), str(tmp_path))
    assert model.shape.hidden == 8
    assert model.namesake is None


def test_a_plain_copy_of_a_packed_checkpoint_is_not_packed():
    assert "quantization_config" in resolve("/nvme/DeepSeek-R1").config
    assert "quantization_config" not in resolve("/nvme/DeepSeek-R1-bf16").config
