"""What PEFT adapts and trains, counted by PEFT itself on meta models (`peft_counts.json`)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpulint.estimator.estimate import NotEstimable
from gpulint.estimator.states.parameters import trainable_parameters
from gpulint.job.job import Adapter, Job
from gpulint.models.build import build
from gpulint.models.lora import NotAdaptable, adapted
from gpulint.models.resolve import resolve

COUNTS = json.loads((Path(__file__).parent / "peft_counts.json").read_text())
PUBLISHED = json.loads((Path(__file__).parent / "published_trainable.json").read_text())


def model_of(name):
    entry = COUNTS["models"][name]
    return build(entry["config"], name, "test", entry["auto_class"])


def adapter_of(lora):
    return Adapter(
        type="dora" if lora.get("use_dora") else "lora",
        r=lora["r"],
        targets=lora.get("target_modules"),
        layers=lora.get("layers_to_transform"),
        rank_pattern=lora.get("rank_pattern", {}),
        modules_to_save=lora.get("modules_to_save", []),
    )


def job_of(lora):
    return Job(model="m", method="lora", adapter=adapter_of(lora))


@pytest.mark.parametrize("row", COUNTS["rows"], ids=lambda row: f"{row['model']} {json.dumps(row['lora'])[:60]}")
def test_trainable_parameters_are_those_that_peft_counts(row):
    model, job = model_of(row["model"]), job_of(row["lora"])
    if row["trainable"] is None:
        with pytest.raises(NotEstimable):
            trainable_parameters(job, model)
    else:
        assert trainable_parameters(job, model) == row["trainable"]


@pytest.mark.parametrize("row", PUBLISHED["rows"], ids=lambda row: f"{row['model']} r={row['r']}")
def test_published_counts(row):
    job = job_of({**row, "target_modules": row["targets"], "use_dora": row.get("type") == "dora"})
    assert trainable_parameters(job, resolve(row["model"])) == row["trainable"]


def test_a_module_says_its_width_its_layers_and_its_rank():
    model = model_of("llama3-8b")
    down = next(m for m in adapted(model, Adapter(r=4, targets=["down_proj"])) if m.name.endswith("down_proj"))
    assert (down.in_features, down.out_features, down.rank, down.copies) == (14336, 4096, 4, 32)
    assert down.layers == tuple(range(32))
    assert down.elements == 32 * 4 * (14336 + 4096)
    assert down.role == "down"


def test_names_the_model_lacks_are_skipped_and_none_at_all_is_refused():
    model = model_of("gpt2")
    assert len(adapted(model, Adapter(r=8, targets=["c_attn", "q_proj"]))) == 1
    with pytest.raises(NotAdaptable, match="q_proj, v_proj"):
        adapted(model, Adapter(r=8, targets=["q_proj", "v_proj"]))


def test_a_plain_name_given_as_text_is_a_regular_expression_over_the_whole_name():
    with pytest.raises(NotAdaptable):
        adapted(model_of("llama3-8b"), Adapter(r=8, targets="q_proj"))


def test_layers_select_and_do_not_touch_all_linear():
    model = model_of("llama3-8b")
    (only,) = adapted(model, Adapter(r=8, targets=["q_proj"], layers=[3, 5]))
    assert only.layers == (3, 5)
    assert len(adapted(model, Adapter(r=8, targets="all-linear", layers=[3]))[0].layers) == 32


def test_rank_pattern_gives_one_entry_a_rank():
    model = model_of("llama3-8b")
    found = adapted(model, Adapter(r=8, targets=["q_proj"], rank_pattern={"layers.0.self_attn.q_proj": 2}))
    assert {(module.rank, module.copies) for module in found} == {(2, 1), (8, 31)}


@pytest.mark.parametrize(
    "targets", ["(a+)+$", "(.*)*x", "(" * 60 + "a" + ")+" * 60, "[", ".*" * 40, "x" * 5000, "(?P<n>a)(?P<n>b)"]
)
def test_costly_or_broken_patterns_are_refused(targets):
    with pytest.raises(NotAdaptable):
        adapted(model_of("llama3-8b"), Adapter(r=8, targets=targets))


def test_a_type_without_default_targets_is_refused():
    with pytest.raises(NotAdaptable, match="phi3"):
        adapted(model_of("phi3"), Adapter(r=8))


def test_a_full_fine_tune_trains_everything():
    model = model_of("llama3-8b")
    assert trainable_parameters(Job(model="m"), model) == model.parameters


@pytest.mark.parametrize(
    "pattern", [r"model.language_model.layers.[\d]+.mlp.up_proj", r"model\.language_model\..*\.up_proj"]
)
def test_a_pattern_over_a_whole_model_finds_the_text_that_alone_is_known(pattern):
    model = resolve("mistralai/Ministral-3-3B-Base-2512")
    (found,) = adapted(model, Adapter(r=8, targets=pattern))
    assert (found.name, found.copies) == ("model.layers.{0}.mlp.up_proj", 26)
    with pytest.raises(NotAdaptable, match="finds no module"):
        adapted(resolve("Qwen/Qwen3-0.6B"), Adapter(r=8, targets=pattern))


def test_freezing_trains_what_the_patterns_name():
    model = model_of("llama3-8b")
    head = trainable_parameters(Job(model="m", method="freeze", trainable=["^lm_head.weight$"]), model)
    assert head == 128256 * 4096
    rows = trainable_parameters(
        Job(model="m", method="freeze", trainable=["^model.embed_tokens.weight$[:32000]"]), model
    )
    assert rows == 128256 * 4096
    last = trainable_parameters(Job(model="m", method="freeze", trainable=[r"model\.layers\.3[01]\."]), model)
    assert last == 2 * 218_112_000
    assert trainable_parameters(Job(model="m", method="freeze", trainable=["nothing"]), model) == 0


def test_excluded_modules_are_left_out():
    model = model_of("llama3-8b")
    every = adapted(model, Adapter(r=8, targets="all-linear"))
    named = adapted(model, Adapter(r=8, targets="all-linear", exclude=["down_proj"]))
    assert {m.name for m in every} - {m.name for m in named} == {"model.layers.{0}.mlp.down_proj"}
    (only,) = adapted(model, Adapter(r=8, targets=["q_proj"], exclude=r".*layers\.[0-9]\..*"))
    assert only.layers == tuple(range(10, 32))
    with pytest.raises(NotAdaptable):
        adapted(model, Adapter(r=8, targets=["q_proj"], exclude=["q_proj"]))


def test_target_parameters_adapt_every_expert():
    model = resolve("openai/gpt-oss-20b")
    (experts,) = adapted(model, Adapter(r=4, parameters=["mlp.experts.gate_up_proj"]))
    assert experts.copies == 24
    assert experts.elements == 24 * 32 * 4 * (2880 + 2 * 2880)


def test_a_name_with_another_type_s_config_has_that_type_s_targets():
    config = {"model_type": "gpt-sw3", "n_layer": 2, "n_embd": 64, "n_head": 2, "vocab_size": 97}
    (attention,) = adapted(build(config, "m", "test", "CausalLM"), Adapter(r=8))
    assert attention.name.endswith("c_attn")


MIXTRAL = {
    "model_type": "mixtral", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "num_local_experts": 8,
}  # fmt: skip


@pytest.mark.parametrize(
    ("targets", "each"),
    [
        (["w1", "w2", "w3"], 8 * 3 * (64 + 96)),
        (["w1"], 8 * (64 + 96)),
        (["gate"], 64 + 8),
        ("all-linear", 8 * 3 * (64 + 96) + (64 + 8) + 2 * (64 + 64) + 2 * (64 + 32)),
        (r".*experts\.\d+\.w2", 8 * (96 + 64)),
    ],
)
def test_transformers_4_adapts_each_expert_s_projections_by_themselves(targets, each):
    """r (in + out) of every nn.Linear (transformers 4.57 modeling_mixtral.py MixtralBlockSparseTop2MLP)."""
    found = adapted(build(MIXTRAL, "m", "test", "CausalLM"), Adapter(r=4, targets=targets), "modules")
    assert sum(module.elements for module in found) == 2 * 4 * each


def test_names_of_projections_reach_the_shared_expert_alone_before_peft_converts_them():
    """PEFT 0.19 takes `shared_expert.up_proj` for the experts' (`_convert_peft_config_moe`); before, it is a module."""
    model = resolve("Qwen/Qwen3-Next-80B-A3B-Instruct")
    adapter = Adapter(r=16, targets=["shared_expert.up_proj", "shared_expert.gate_proj"])
    converted = {module.role for module in adapted(model, adapter, "converted")}
    assert converted == {"expert_gate_up"}
    for experts in ("parameters", "modules"):
        assert {module.role for module in adapted(model, adapter, experts)} == {"shared_up", "shared_gate"}


def test_megatron_has_one_pair_for_an_expert_s_gate_and_up():
    model = build(MIXTRAL, "m", "test", "CausalLM")
    (one,) = adapted(model, Adapter(r=4, targets=["w1", "w3"]), "fused")
    assert one.elements == 2 * 8 * 4 * (64 + 2 * 96)


TIED = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000, "tie_word_embeddings": True,
}  # fmt: skip


def test_a_head_tied_to_the_embeddings_is_adapted_where_it_is_named():
    named = {module.name: module for module in adapted(resolve(TIED), Adapter(r=4, targets=["q_proj", "lm_head"]))}
    assert named["lm_head"].elements == 4 * (64 + 1000)
    every = adapted(resolve(TIED), Adapter(r=4, targets="all-linear"))
    assert "lm_head" not in {module.name for module in every}


def test_a_tied_head_and_its_embeddings_have_a_pair_each():
    named = {module.name: module for module in adapted(resolve(TIED), Adapter(targets=["embed_tokens", "lm_head"]))}
    assert sorted(named) == ["lm_head", "model.embed_tokens"]
    assert named["lm_head"].elements == named["model.embed_tokens"].elements == 8 * (64 + 1000)
