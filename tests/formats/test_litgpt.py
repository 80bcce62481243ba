"""LitGPT configs: models as LitGPT builds them, precision, LoRA, sharding, batches and edits."""

import pytest

from gpulint.formats.core.format import NoJobError, Project
from gpulint.formats.native.litgpt import FORMAT
from gpulint.formats.native.litgpt_model import changed, hub_id, lora_targets
from gpulint.launchers.commands.flags import Manner, read_flags
from gpulint.launchers.shell.script import Script
from gpulint.launchers.shell.shell import commands
from gpulint.source.document import Document
from gpulint.source.edit.edit import apply
from gpulint.source.read import parse

from .conftest import read_as

QLORA = """checkpoint_dir: checkpoints/meta-llama/Llama-3.2-1B
precision: bf16-true
quantize: bnb.nf4
devices: 1
lora_r: 32
lora_key: true
train:
  global_batch_size: 8
  micro_batch_size: 2
  max_seq_length: 512
optimizer:
  class_path: torch.optim.AdamW
  init_args:
    lr: 0.0002
"""


def read(text, gpus=None):
    return read_as("litgpt", text, gpus)


def test_qlora_on_one_device():
    reading = read(QLORA)
    job = reading.job
    assert reading.problems == []
    assert job.framework == "litgpt"
    assert job.model["_name_or_path"] == "meta-llama/Llama-3.2-1B"
    assert job.model["tie_word_embeddings"] is False
    assert (job.weights.dtype, job.precision.autocast) == ("bfloat16", None)
    assert job.weights.quantization.method == "bnb-nf4"
    assert job.adapter.targets == ["q_proj", "k_proj", "v_proj"]
    assert (job.adapter.r, job.adapter.alpha) == (32, 16)
    assert job.optimizer.name == "paged_adamw_32bit"
    assert (job.micro_batch_size, job.gradient_accumulation_steps, job.sequence_length) == (2, 4, 512)
    assert job.hardware.gpus == 1
    assert job.activation_checkpointing == "none"


def test_samples_cut_at_a_length_may_reach_it_in_any_step():
    assert not read(QLORA).job.longest_batch_first
    assert read(QLORA.replace("  max_seq_length: 512\n", "")).job.longest_batch_first


def test_several_devices_shard_and_checkpoint():
    job = read(QLORA.replace("devices: 1", "devices: 4\nnum_nodes: 2").replace("quantize: bnb.nf4\n", "")).job
    assert (job.hardware.gpus, job.hardware.nodes) == (8, 2)
    assert job.parallelism.fsdp.version == 2
    assert job.activation_checkpointing == "full"
    full = QLORA.replace("devices: 1", "devices: 2").replace("quantize: bnb.nf4\n", "")
    full = full.replace("lora_r: 32\nlora_key: true\n", "")
    assert read(full).job.parallelism.fsdp.version == 1
    assert read(full).job.method == "full"


@pytest.mark.parametrize(
    ("old", "new", "other"),
    [
        ("precision: bf16-true", "precision: bf16-mixed", "precision is bf16-mixed"),
        ("devices: 1", "devices: 2", "there are 2 devices"),
    ],
)
def test_quantisation_that_litgpt_refuses(old, new, other):
    problems = [item for item in read(QLORA.replace(old, new)).problems if item.kind == "contradiction"]
    assert [(item.key, item.span.line, item.values["other"]) for item in problems] == [("quantize", 3, other)]


def test_mixed_precision_is_the_default():
    job = read(QLORA.replace("precision: bf16-true\nquantize: bnb.nf4\n", "")).job
    assert (job.weights.dtype, job.precision.autocast) == ("float32", "bfloat16")


def test_a_misspelt_key_is_refused():
    problems = read(QLORA.replace("lora_key", "lora_kye").replace("micro_batch_size", "micro_batchsize")).problems
    found = {item.key: (item.span.line, item.values["spelling"], item.values["treatment"]) for item in problems}
    assert found == {
        "lora_kye": (6, "lora_key", "refused"),
        "train.micro_batchsize": (9, "micro_batch_size", "refused"),
    }


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("checkpoints/google/gemma-2b", "google/gemma-2b"),
        ("Llama-3-8B-Instruct", "meta-llama/Meta-Llama-3-8B-Instruct"),
        ("pythia-14m", "EleutherAI/pythia-14m"),
        ("/data/checkpoints/my/own", "my/own"),
    ],
)
def test_checkpoints_are_found_by_name(reference, name):
    assert hub_id(reference) == name


def test_the_vocabulary_is_padded():
    assert changed({"vocab_size": 50432}, "stabilityai/stablelm-base-alpha-3b")["vocab_size"] == 50688
    assert lora_targets(["query"], "phi3") == ["q_proj", "qkv_proj"]


def test_flags_of_the_command():
    line = "litgpt finetune_full meta-llama/Llama-3.2-1B --devices 2 --train.micro_batch_size 3"
    (command,) = commands(Script(line, range(len(line))))
    manner = Manner(nested=True, positionals=("command", "checkpoint_dir"))
    document = read_flags(command.words[1:], Document("run.sh", "shell", line, [], [], []), manner).document
    job = FORMAT.read(document, Project("/nowhere", None, None, None, lambda *_: None)).job
    assert (job.method, job.micro_batch_size, job.hardware.gpus) == ("full", 3, 2)
    assert job.model["_name_or_path"] == "meta-llama/Llama-3.2-1B"


@pytest.mark.parametrize(
    ("command", "kind"), [("finetune_adapter", "llama-adapter"), ("finetune_adapter_v2", "llama-adapter-v2")]
)
def test_the_adapter_commands(command, kind):
    line = f"litgpt {command} meta-llama/Llama-3.2-1B --quantize bnb.nf4 --precision bf16-true"
    (found,) = commands(Script(line, range(len(line))))
    manner = Manner(nested=True, positionals=("command", "checkpoint_dir"))
    document = read_flags(found.words[1:], Document("run.sh", "shell", line, [], [], []), manner).document
    job = FORMAT.read(document, Project("/nowhere", None, None, None, lambda *_: None)).job
    assert (job.method, job.adapter.type, job.adapter.dtype) == ("adapter", kind, "bfloat16")
    assert (job.weights.quantization.method, job.optimizer.name) == ("bnb-nf4", "paged_adamw_32bit")


def test_commands_that_train_nothing():
    document = parse("command: serve\ncheckpoint_dir: x\ntrain: {max_seq_length: 1}\n", "config.yaml", "yaml")
    with pytest.raises(NoJobError, match="trains nothing"):
        FORMAT.read(document, Project("/nowhere", None, None, None, lambda *_: None))


@pytest.mark.parametrize(
    ("changes", "written"),
    [
        ({"micro_batch_size": 1, "gradient_accumulation_steps": 8}, "  micro_batch_size: 1\n"),
        ({"sequence_length": 256}, "  max_seq_length: 256\n"),
        ({"weights.dtype": "float32"}, "precision: 32-true\n"),
    ],
)
def test_changes_are_written_back(changes, written):
    reading = read(QLORA)
    assert FORMAT.describe(reading, changes)
    text = apply(QLORA, FORMAT.edits(reading, changes))
    assert written in text
    job = read(text).job
    assert {path: job.get(path) for path in changes} == changes


def test_what_litgpt_cannot_say_is_not_offered():
    assert FORMAT.edits(read(QLORA), {"parallelism.tensor": 2}) is None
