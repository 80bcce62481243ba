"""torchtitan TOML: flavours, degrees, sharding, checkpointing and keys of the dataclass and the argparse days."""

import pytest

from gpulint.formats.core.format import NoJobError
from gpulint.formats.torchtitan.format import FORMAT
from gpulint.source.edit.edit import apply

from .conftest import read_as

NEW = """# NOTE: this toml config is a preset for 64 H100 GPUs.
[job]
dump_folder = "./outputs"
[model]
name = "llama3"
flavor = "70B"
converters = ["quantize.linear.float8"]
[optimizer]
name = "AdamW"
[training]
local_batch_size = 4
seq_len = 8192
[parallelism]
tensor_parallel_degree = 8
[activation_checkpoint]
mode = "full"
[compile]
enable = true
components = ["loss"]
"""

OLD = """[job]
dump_folder = "./outputs"
[model]
name = "llama2"
flavor = "7B"
tokenizer_path = "tokenizer.model"
[training]
batch_size = 8
seq_len = 2048
tensor_parallel_degree = 2
[activation_checkpoint]
mode = "selective"
selective_ac_option = "op"
"""


def read(text, gpus=None):
    return read_as("torchtitan", text, gpus, "toml")


def test_a_preset():
    reading = read(NEW)
    job = reading.job
    assert reading.problems == []
    assert job.framework == "torchtitan"
    assert job.model["intermediate_size"] == 28672
    assert job.model["num_key_value_heads"] == 8
    assert (job.hardware.gpus, job.hardware.gpu) == (64, "h100-80gb")
    assert (job.parallelism.tensor, job.parallelism.sequence) == (8, True)
    assert job.parallelism.fsdp.mixed_precision.param_dtype == "bfloat16"
    assert job.parallelism.fsdp.mixed_precision.reduce_dtype == "float32"
    assert job.weights.dtype == "float32"
    assert job.precision.compute == "float8"
    assert job.optimizer.name == "adamw_torch_fused"
    assert job.activation_checkpointing == "full"
    assert (job.compile, job.loss.compiled) == (False, True)
    assert job.parallelism.fsdp.sync_each_batch is True


def test_stated_degrees_make_the_world():
    text = NEW.replace("tensor_parallel_degree = 8", "tensor_parallel_degree = 4\ndata_parallel_shard_degree = 2")
    assert read(text).job.hardware.gpus == 8
    problems = read(text, gpus=16).problems
    assert [(item.kind, item.span.line) for item in problems] == [("contradiction", 15)]


def test_without_a_count_the_degrees_are_the_least():
    text = NEW.partition("\n")[2].replace(
        "tensor_parallel_degree = 8", "tensor_parallel_degree = 8\npipeline_parallel_degree = 4"
    )
    job = read(text).job
    assert (job.hardware.gpus, job.origins["hardware.gpus"].kind) == (32, "assumed")


@pytest.mark.parametrize(("replicas", "shards", "size", "steps"), [(1, 4, None, 5), (2, 4, 4, 2), (5, 3, 3, 1)])
def test_replicas_of_shards(replicas, shards, size, steps):
    """A group of shards divides the weights; all ranks of both divide the batch: 83 rows, 4 a rank."""
    degrees = f"data_parallel_replicate_degree = {replicas}\ndata_parallel_shard_degree = {shards}"
    text = NEW.replace("tensor_parallel_degree = 8", degrees).replace("seq_len", "global_batch_size = 83\nseq_len")
    job = read(text).job
    assert (job.hardware.gpus, job.data_parallel) == (replicas * shards, replicas * shards)
    assert (job.parallelism.fsdp.shard_size, job.gradient_accumulation_steps) == (size, steps)


def test_the_argparse_days():
    reading = read(OLD)
    job = reading.job
    assert reading.problems == []
    assert reading.upstream == "torchtitan 0.0.2"
    assert (job.micro_batch_size, job.parallelism.tensor) == (8, 2)
    assert job.model["vocab_size"] == 32000
    assert job.optimizer.name == "adamw_torch"
    assert (job.activation_checkpointing, job.checkpoint_policy) == ("selective", "every_second_matmul")
    assert (job.parallelism.fsdp.outer, job.parallelism.fsdp.keeps_last_layer_gathered) == ("root", True)


def test_whether_the_argparse_days_compiled_the_loss_is_unstated():
    job = read(OLD.replace("seq_len = 2048", "seq_len = 2048\ncompile = true")).job
    assert (job.compile, job.loss.compiled, job.unstated) == (True, False, ["hardware.gpus", "loss.compiled"])
    assert read(OLD).job.unstated == ["hardware.gpus"]


MIDDLE = OLD.replace("batch_size = 8", "batch_size = 8\ncompile = true").replace(
    "tensor_parallel_degree = 2\n", "[parallelism]\ntensor_parallel_degree = 2\n"
)


@pytest.mark.parametrize("text", [MIDDLE, MIDDLE.replace("batch_size", "local_batch_size")])
def test_the_days_between_compile_by_a_switch_of_training(text):
    reading = read(text)
    job = reading.job
    assert (reading.problems, reading.upstream) == ([], "torchtitan 0.1.0")
    assert (job.micro_batch_size, job.parallelism.tensor) == (8, 2)
    assert (job.compile, job.loss.compiled, job.unstated) == (True, True, ["hardware.gpus"])
    assert job.optimizer.name == "adamw_torch_fused"
    assert (job.parallelism.fsdp.outer, job.parallelism.fsdp.keeps_last_layer_gathered) == ("root", True)


def test_a_key_that_stayed_behind_does_not_make_a_new_file_old():
    reading = read(NEW.replace("[training]\n", "[training]\ncompile = false\n"))
    assert reading.upstream == "torchtitan 0.2.2"
    assert reading.job.loss.compiled
    assert any("compile" in str(problem) for problem in reading.problems)


def test_every_second_layer_is_checkpointed_where_nothing_says_otherwise():
    job = read(NEW.replace('mode = "full"', 'mode = "selective"')).job
    assert (job.activation_checkpointing, job.checkpoint_every) == ("full", 2)


@pytest.mark.parametrize(
    ("name", "flavour", "kind", "parts"),
    [
        ("qwen3", "30B-A3B", "qwen3_moe", {"num_experts": 128, "num_experts_per_tok": 8}),
        ("deepseek_v3", "671B", "deepseek_v3", {"n_routed_experts": 256, "first_k_dense_replace": 3}),
        ("llama4", "17bx16e", "llama4_text", {"intermediate_size": 8192, "intermediate_size_mlp": 16384}),
        ("gpt_oss", "20b", "gpt_oss", {"num_local_experts": 32, "num_hidden_layers": 24}),
    ],
)
def test_flavours(name, flavour, kind, parts):
    text = NEW.replace('"llama3"', f'"{name}"').replace('"70B"', f'"{flavour}"')
    model = read(text).job.model
    assert model["model_type"] == kind
    assert {key: model[key] for key in parts} == parts


def test_a_misspelt_key_is_refused():
    problems = read(NEW.replace("local_batch_size", "local_batchsize")).problems
    assert [(item.key, item.span.line, item.values["spelling"], item.values["treatment"]) for item in problems] == [
        ("training.local_batchsize", 11, "local_batch_size", "refused")
    ]


def test_other_models_are_no_jobs():
    with pytest.raises(NoJobError, match="flux"):
        read(NEW.replace('"llama3"', '"flux"'))


def test_changes_are_said_and_written():
    reading = read(NEW)
    assert FORMAT.describe(reading, {"micro_batch_size": 2}) == "training.local_batch_size: 2"
    assert FORMAT.describe(reading, {"method": "lora"}) is None
    assert "local_batch_size = 2" in apply(NEW, FORMAT.edits(reading, {"micro_batch_size": 2}))


@pytest.mark.parametrize("name", ["batch_size", "local_batch_size"])
def test_changes_of_the_days_between_keep_their_words(name):
    reading = read(MIDDLE.replace("batch_size", name))
    changes = {"micro_batch_size": 2, "parallelism.tensor": 4, "compile": False}
    said = FORMAT.describe(reading, changes)
    assert said is not None
    assert f"training.{name}: 2" in said
    assert "parallelism.tensor_parallel_degree: 4" in said
    assert "training.compile: false" in said
    assert FORMAT.describe(reading, {"weights.dtype": "bfloat16"}) is None
    assert FORMAT.describe(reading, {"parallelism.fsdp.offload": True}) is not None
