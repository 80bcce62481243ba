"""Whatever a config says, reading it gives a Job or a SourceError, and an edit gives the job it promises."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpulint.formats.axolotl import parallel as axolotl_parallel
from gpulint.formats.axolotl import weights as axolotl_weights
from gpulint.formats.core.keys import load
from gpulint.job.job import field_paths
from gpulint.source.document import SourceError

PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
WORDS = st.sampled_from(
    [
        "auto",
        "cpu",
        "none",
        "2",
        "1e9",
        "true",
        "lora",
        "qlora",
        "dpo",
        "grpo",
        "bf16",
        "FULL_SHARD",
        "liger",
        0,
        1,
        2,
        3,
        "deepspeed_configs/zero3.json",
        "ds_z2.json",
        "axolotl.integrations.liger.LigerPlugin",
        "DEEPSPEED",
        "FSDP",
        True,
    ]
)
VALUES = st.recursive(
    PLAIN | WORDS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6) | WORDS.map(str), inner, max_size=3)
    ),
    max_leaves=6,
)


def sections(name):
    """Mappings with keys of the format, sections with keys of theirs, and anything as values."""
    schema = load(name)

    def shaped(part):
        if "$ref" in part:
            part = schema["$defs"][part["$ref"].rpartition("/")[2]]
        branches = part.get("anyOf", [part])
        for branch in branches:
            if "$ref" in branch:
                return shaped(branch)
            if "properties" in branch:
                keys = sorted(branch["properties"])
                return VALUES | st.dictionaries(st.sampled_from(keys), VALUES, max_size=4)
        return VALUES

    parts = schema["properties"]
    weighted = [key for key in parts if "properties" in json.dumps(parts[key]) or "$ref" in json.dumps(parts[key])]
    keys = st.sampled_from(sorted(parts)) | st.sampled_from(weighted)
    entry = keys.flatmap(lambda key: st.tuples(st.just(key), shaped(parts[key])))
    return st.lists(entry, max_size=12).map(dict)


CORE = {
    "axolotl": {"base_model": "m", "datasets": [{"path": "a", "type": "b"}]},
    "deepspeed": {"zero_optimization": {"stage": 2}},
    "accelerate": {"distributed_type": "DEEPSPEED", "num_processes": 8},
}
RELEVANT = {
    "axolotl": [
        "adapter",
        "load_in_4bit",
        "bf16",
        "deepspeed",
        "fsdp",
        "fsdp_config",
        "fsdp_version",
        "plugins",
        "lora_r",
        "lora_target_modules",
        "lora_target_parameters",
        "micro_batch_size",
        "batch_size",
        "gradient_checkpointing",
        "rl",
        "trl",
        "vllm",
        "gradient_checkpointing_kwargs",
        "unfrozen_parameters",
        "val_set_size",
        "eval_steps",
        "dp_shard_size",
        "attn_implementation",
        "optimizer",
        "chunked_cross_entropy",
        "sequence_len",
        "bnb_config_kwargs",
        "peft_layers_to_transform",
        "lora_rank_pattern",
        "lora_modules_to_save",
        "tensor_parallel_size",
        "test_datasets",
    ],
    "deepspeed": [
        "zero_optimization",
        "bf16",
        "fp16",
        "optimizer",
        "train_batch_size",
        "tensor_parallel",
        "torch_autocast",
        "data_types",
    ],
    "accelerate": [
        "distributed_type",
        "num_processes",
        "deepspeed_config",
        "fsdp_config",
        "mixed_precision",
        "parallelism_config",
    ],
}


@pytest.fixture(autouse=True)
def no_models(monkeypatch):
    monkeypatch.setattr(axolotl_parallel, "hidden_size", lambda *_: 64)
    monkeypatch.setattr(axolotl_weights, "_is_prequantized", lambda *_: False)


@pytest.mark.parametrize("name", sorted(CORE))
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_reading_never_fails_otherwise_than_with_a_source_error(bench, name, data):
    config = dict(CORE[name])
    config.update(data.draw(sections(name)))
    config.update(data.draw(st.dictionaries(st.sampled_from(RELEVANT[name]), VALUES, max_size=5)))
    text = json.dumps(config)
    reader = bench(name, "json")
    try:
        reading = reader.read(text, gpus=data.draw(st.sampled_from([None, 1, 8])))
    except SourceError:
        return
    for path in field_paths():
        reading.job.get(path)
    for problem in reading.problems:
        assert all(isinstance(value, str) for value in problem.values.values())
        if problem.path is None:
            assert 0 <= problem.span.start <= problem.span.end <= len(text)


CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "micro_batch_size": st.integers(1, 64),
        "gradient_accumulation_steps": st.integers(1, 64),
        "sequence_length": st.sampled_from([512, 8192]),
        "activation_checkpointing": st.sampled_from(["full", "offload", "none"]),
        "optimizer.name": st.sampled_from(["adamw_8bit", "adafactor"]),
        "loss.kernel": st.sampled_from(["liger", "cut_cross_entropy", "chunked"]),
        "attention": st.sampled_from(["flash_attention_2", "sdpa", "eager"]),
        "parallelism.zero.stage": st.sampled_from([1, 2, 3]),
        "parallelism.zero.offload_optimizer.device": st.sampled_from(["none", "cpu"]),
        "adapter.r": st.sampled_from([8, 64]),
    },
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    keys=st.dictionaries(
        st.sampled_from(
            [
                "sequence_len: 4096",
                "micro_batch_size: 2",
                "gradient_checkpointing: true",
                "activation_offloading: true",
                "chunked_cross_entropy: true",
                "flash_attention: true",
                "deepspeed: deepspeed_configs/zero1.json",
                "plugins: [axolotl.integrations.liger.LigerPlugin]",
                "plugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]",
                "adapter: lora\nlora_r: 8",
                "fsdp_config: {}",
                "optimizer: lion_8bit  # small",
                "cut_cross_entropy: true",
            ]
        ),
        st.none(),
    ),
    changes=CHANGES,
)
def test_an_edited_file_is_the_changed_job(bench, keys, changes):
    text = "base_model: m\ndatasets:\n  - path: a\n    type: b\n" + "".join(f"{key}\n" for key in keys)
    changed = bench("axolotl").change(text, changes)
    if changed is None:
        return
    _, job = changed
    for path, value in changes.items():
        if path != "adapter.r" or job.adapter is not None:
            assert job.get(path) == value, (path, text)
