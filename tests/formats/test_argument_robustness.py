"""Whatever a config of these formats says, reading it gives a Job or a SourceError,
and an edit the job it promises."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpulint.formats.core.keys import load
from gpulint.formats.core.registry import recognise
from gpulint.formats.hf_trainer import sharding as training_sharding
from gpulint.formats.llamafactory import method as llamafactory_method
from gpulint.job.job import field_paths
from gpulint.source.document import SourceError
from gpulint.source.read import parse

PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
WORDS = st.sampled_from(
    [
        "auto", "cpu", "2", "1e9", "true", "no", "none", "lora", "full", "bf16", "fp8", "32k", "{", '{"a": 1}', "zero3",
        "ds_z3.json", "full_shard offload", "rank=8", "a,b", "all", 0, 1, 2, 4, 8, -1, 1e308, True,
    ]
)  # fmt: skip
VALUES = st.recursive(
    PLAIN | WORDS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6) | WORDS.map(str), inner, max_size=3)
    ),
    max_leaves=6,
)
CORE = {
    "hf_trainer": {"model_name_or_path": "m", "learning_rate": 1e-5, "per_device_train_batch_size": 2},
    "llamafactory": {"model_name_or_path": "m", "stage": "sft", "do_train": True, "template": "x"},
    "vllm": {"model": "m", "tensor-parallel-size": 2, "max-model-len": 4096},
    "job": {"gpulint": "job/v1", "model": "m"},
}
RELEVANT = {
    "hf_trainer": [
        "use_peft", "lora_r", "lora_target_modules", "lora_modules_to_save", "load_in_4bit", "load_in_8bit",
        "bf16", "fp16", "dtype", "torch_dtype", "deepspeed", "fsdp", "fsdp_config", "optim", "optim_args",
        "gradient_checkpointing", "gradient_checkpointing_kwargs", "model_init_kwargs", "num_generations", "beta",
        "loss_type", "use_vllm", "vllm_mode", "max_length", "max_prompt_length", "eval_strategy",
        "accelerate_config", "num_processes", "train_mode", "train_file", "max_seq_length", "with_tracking",
        "use_slow_tokenizer", "use_lora", "dataset_mixer", "liger_kernel_config", "packing",
    ],
    "llamafactory": [
        "finetuning_type", "quantization_bit", "quantization_method", "lora_rank", "lora_target",
        "additional_target", "add_tokens", "pure_bf16", "bf16", "use_galore", "galore_layerwise", "use_badam",
        "deepspeed", "fsdp", "fsdp_config", "cutoff_len", "packing", "freeze_trainable_layers",
        "freeze_trainable_modules", "freeze_extra_modules", "pref_loss", "flash_attn", "infer_backend",
        "export_dir", "export_device", "vllm_maxlen", "task", "batch_size", "reward_model",
        "tensor_model_parallel_size", "recompute_granularity", "use_distributed_optimizer",
    ],
    "vllm": [
        "speculative-config", "speculative_config", "compilation-config", "quantization", "dtype", "max_num_seqs",
        "kv-cache-dtype", "max-num-batched-tokens", "cudagraph-capture-sizes", "data_parallel_size", "swap-space",
        "disable-log-requests",
    ],
    "job": [
        "parallelism", "weights", "adapter", "loss", "optimizer", "inference", "hardware", "versions", "kind",
        "rl", "precision", "micro_batch_size", "activation_checkpointing", "trainable", "evaluation",
    ],
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_models(monkeypatch):
    monkeypatch.setattr(training_sharding, "hidden_size", lambda *_: 64)
    monkeypatch.setattr(llamafactory_method, "find_model", lambda *_: None)


@pytest.mark.parametrize("name", sorted(CORE))
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_reading_never_fails_otherwise_than_with_a_source_error(bench, name, data):
    config = dict(CORE[name])
    config.update(data.draw(st.dictionaries(st.sampled_from(sorted(load(name)["properties"])), VALUES, max_size=8)))
    config.update(data.draw(st.dictionaries(st.sampled_from(RELEVANT[name]), VALUES, max_size=6)))
    text = json.dumps(config)
    reader = bench(name, "json" if name != "vllm" else "yaml")
    recognise(parse(text, "config.json", "json"))
    try:
        reading = reader.read(text, gpus=data.draw(st.sampled_from([None, 1, 8])))
    except SourceError:
        return
    for path in field_paths():
        reading.job.get(path)
    for origin in reading.job.origins.values():
        if origin.file is not None and origin.file == reading.config.path:
            assert 0 <= origin.span.start <= origin.span.end <= len(text)
    for problem in reading.problems:
        assert all(isinstance(value, str) for value in problem.values.values())


LINES = {
    "hf_trainer": [
        "max_length: 4096", "per_device_train_batch_size: 2", "gradient_checkpointing: true",
        "activation_offloading: true",
        "use_peft: true\nlora_r: 8", "load_in_4bit: true", "deepspeed: {zero_optimization: {stage: 2}}",
        "fsdp: full_shard",
        "optim: lion_8bit  # small", "torch_dtype: bfloat16", "packing: true", "eval_strategy: steps", "fp16: true",
    ],
    "llamafactory": [
        "cutoff_len: 4096", "per_device_train_batch_size: 2", "disable_gradient_checkpointing: true",
        "use_unsloth_gc: true",
        "finetuning_type: full", "quantization_bit: 4", "deepspeed: examples/deepspeed/ds_z2_config.json",
        "use_galore: true",
        "optim: lion_8bit  # small", "bf16: true", "packing: true", "eval_strategy: steps", "flash_attn: fa2",
    ],
    "job": [
        "micro_batch_size: 2", "activation_checkpointing: full", "loss: torch", "attention: eager",
        "optimizer: {name: sgd}",
        "parallelism:\n  zero: {stage: 1}", "adapter:\n  r: 8", "method: lora", "precision: {autocast: bfloat16}",
        "weights:\n  dtype: bfloat16  # half",
    ],
}  # fmt: skip
START = {
    "hf_trainer": "model_name_or_path: m\ndataset_name: a/b\nlearning_rate: 1.0e-5\ndataset_text_field: text\n",
    "llamafactory": "model_name_or_path: m\nstage: sft\ndo_train: true\ntemplate: x\n",
    "job": "gpulint: job/v1\nmodel: m\n",
}
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "micro_batch_size": st.integers(1, 64),
        "gradient_accumulation_steps": st.integers(1, 64),
        "sequence_length": st.sampled_from([512, 8192]),
        "activation_checkpointing": st.sampled_from(["full", "offload", "none"]),
        "optimizer.name": st.sampled_from(["adamw_8bit", "adafactor"]),
        "loss.kernel": st.just("liger"),
        "attention": st.sampled_from(["flash_attention_2", "sdpa", "eager"]),
        "method": st.just("lora"),
        "weights.quantization.method": st.sampled_from(["bnb-nf4", "bnb-int8"]),
        "parallelism.zero.stage": st.sampled_from([2, 3]),
        "evaluation.micro_batch_size": st.integers(1, 8),
    },
)


@pytest.mark.parametrize("name", sorted(LINES))
@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), changes=CHANGES)
def test_an_edited_file_is_the_changed_job(bench, name, data, changes):
    lines = data.draw(st.lists(st.sampled_from(LINES[name]), unique=True))
    text = START[name] + "".join(f"{line}\n" for line in lines)
    if "weights.quantization.method" in changes:
        changes["method"] = "lora"
    before = bench(name).job(text)
    changes = {path: value for path, value in changes.items() if before.get(path) != value}
    changed = bench(name).change(text, changes) if changes else None
    if changed is None:
        return
    _, job = changed
    for path, value in changes.items():
        assert job.get(path) == value, (path, text, changes)
