"""AutoTrain configs and commands: tasks, parameters by task, quantisation, backends, keys and edits."""

import pytest

from gpulint.formats.core.format import NoJobError
from gpulint.formats.core.registry import recognise
from gpulint.source.read import parse

from .conftest import read_as

SFT = """task: llm-sft
base_model: meta-llama/Llama-3.1-8B
project_name: tuned
log: tensorboard
backend: local
data:
  path: some/rows
  train_split: train
  valid_split: test
  chat_template: null
  column_mapping: {text_column: text}
params:
  block_size: 2048
  batch_size: 1
  peft: true
  quantization: int4
  target_modules: all-linear
  mixed_precision: bf16
"""


def read(text, gpus=None):
    return read_as("autotrain", text, gpus)


def test_an_sft_run_is_read_with_the_place_of_each_key():
    reading = read(SFT)
    job = reading.job
    assert (job.objective, job.method, job.sequence_length, job.packing) == ("sft", "lora", 2048, True)
    assert (job.weights.quantization.method, job.weights.quantization.double_quant) == ("bnb-nf4", False)
    assert (job.adapter.r, job.adapter.alpha, job.adapter.targets) == (16, 32, "all-linear")
    assert (job.micro_batch_size, job.gradient_accumulation_steps) == (1, 4)
    assert (job.activation_checkpointing, job.reentrant, job.precision.autocast) == ("full", True, "bfloat16")
    assert (job.evaluation.micro_batch_size, job.versions["transformers"]) == (1, "4.48.0")
    origin = job.origins["weights.quantization.method"]
    assert (origin.key, origin.span.line) == ("params.quantization", 16)
    assert job.origins["gradient_accumulation_steps"].kind == "default"
    assert job.origins["precision.autocast"].key == "params.mixed_precision"
    assert reading.problems == []


def test_peft_without_a_word_on_quantization_is_four_bits():
    job = read(SFT.replace("  quantization: int4\n", "")).job
    assert job.weights.quantization.bits == 4
    assert job.origins["weights.quantization.bits"].key == "params.peft"


def test_quantization_does_nothing_without_peft():
    job = read(SFT.replace("peft: true", "peft: false")).job
    assert (job.method, job.weights.quantization, job.weights.dtype) == ("full", None, "float32")


def test_a_release_of_transformers_5_loads_in_the_dtype_of_the_checkpoint():
    document = parse(SFT.replace("quantization: int4", "quantization: null"), "config.yaml", "yaml")
    from gpulint.formats.core.format import Project
    from gpulint.formats.core.registry import find

    stated = Project("/nowhere", None, None, None, lambda *_: None, versions={"transformers": "5.0.0"})
    assert find("autotrain").read(document, stated).job.weights.dtype is None


def test_block_size_is_1024_unless_it_is_stated():
    job = read(SFT.replace("  block_size: 2048\n", "  block_size: -1\n  model_max_length: 8192\n")).job
    assert job.sequence_length == 1024


@pytest.mark.parametrize(
    ("task", "objective", "rows", "length"),
    [
        ("llm-dpo", "dpo", 2, 1024),
        ("llm-generic", "pretrain", 2, 1024),
        ("seq2seq", "seq2seq", 2, 128),
        ("text_classification", "classification", 8, 128),
        ("text-regression", "classification", 8, 128),
        ("token-classification", "token_classification", 8, 128),
        ("ext-qa", "question_answering", 8, 128),
        ("vlm:vqa", "sft", 2, None),
    ],
)
def test_a_task_has_its_own_parameters(task, objective, rows, length):
    text = f"task: {task}\nbase_model: google/flan-t5-base\nproject_name: x\nbackend: local\ndata: {{path: rows}}\n"
    job = read(text).job
    assert (job.objective, job.micro_batch_size, job.sequence_length) == (objective, rows, length)


@pytest.mark.parametrize("task", ["image-classification", "tabular", "st:pair"])
def test_what_trains_no_language_model_says_so(task):
    text = f"task: {task}\nbase_model: google/vit-base\nproject_name: x\nbackend: local\ndata: {{path: rows}}\n"
    with pytest.raises(NoJobError):
        read(text)


def test_a_space_says_its_gpus():
    job = read(SFT.replace("backend: local", "backend: spaces-a10g-largex4")).job
    assert (job.hardware.gpu, job.hardware.gpus) == ("a10g", 4)
    assert job.origins["hardware.gpu"].key == "backend"
    assert read(SFT.replace("backend: local", "backend: spaces-l4x4"), gpus=2).job.hardware.gpus == 2


def test_deepspeed_shards_only_between_several_gpus():
    text = SFT + "  distributed_backend: deepspeed\n"
    assert read(text, 4).job.parallelism.zero.stage == 3
    assert read(text, 1).job.parallelism.zero is None
    assert read(SFT, 4).job.parallelism.zero is None


def test_unsloth_wraps_the_models_that_it_takes():
    job = read(SFT + "  unsloth: true\n").job
    assert (job.activation_checkpointing, job.loss.kernel) == ("offload", "cut_cross_entropy")
    other = SFT.replace("meta-llama/Llama-3.1-8B", "Qwen/Qwen3-8B") + "  unsloth: true\n"
    assert read(other).job.activation_checkpointing == "full"


def test_a_parameter_that_the_task_lacks_is_ignored_by_upstream():
    problems = read(SFT.replace("batch_size", "bach_size")).problems
    assert [(item.kind, item.key, item.values["suggestion"]) for item in problems] == [
        ("unknown-key", "params.bach_size", "params.batch_size")
    ]
    assert problems[0].values["treatment"] == "ignored"
    section = read(SFT.replace("train_split", "train_spilt")).problems
    assert [(item.key, item.span.line) for item in section] == [("data.train_spilt", 8)]


def test_other_files_with_a_task_are_not_autotrains():
    for text in ("task: lm_eval\nmodel: x\n", "task: train\nbase_model: x\nmicro_batch_size: 1\ndatasets: []\n"):
        found = recognise(parse(text, "config.yaml", "yaml"))
        assert found is None or found.name != "autotrain"


@pytest.mark.parametrize(
    ("changes", "written"),
    [
        ({"micro_batch_size": 2, "gradient_accumulation_steps": 2}, "batch_size: 2"),
        ({"sequence_length": 512}, "block_size: 512"),
        ({"optimizer.name": "paged_adamw_8bit"}, "optimizer: paged_adamw_8bit"),
        ({"activation_checkpointing": "none"}, "disable_gradient_checkpointing: true"),
        ({"precision.autocast": "float16"}, "mixed_precision: fp16"),
        ({"method": "full"}, "peft: false"),
        ({"weights.quantization.method": "bnb-int8"}, "quantization: int8"),
    ],
)
def test_a_change_is_written_and_read_back(bench, changes, written):
    after, job = bench("autotrain").change(SFT, changes)
    assert written in after
    assert {path: job.get(path) for path in changes} == changes


def test_zero_3_is_a_word_and_other_stages_are_not(bench):
    after, job = bench("autotrain").change(SFT, {"parallelism.zero.stage": 3}, gpus=4)
    assert "distributed_backend: deepspeed" in after
    assert job.parallelism.zero.stage == 3
    assert bench("autotrain").change(SFT, {"parallelism.zero.stage": 2}, gpus=4) is None


@pytest.mark.parametrize(
    ("flags", "objective"),
    [
        ("", "pretrain"), ("--trainer default", "pretrain"), ("--trainer generic", "pretrain"),
        ("--trainer DPO", "dpo"), ("--trainer sft", "sft"), ("--trainer orpo", "orpo"), ("--trainer reward", "reward"),
    ],
)  # fmt: skip
def test_a_command_names_its_trainer_by_a_flag(opened, flags, objective):
    text = f"autotrain llm --train --model Qwen/Qwen2.5-0.5B --data-path d --project-name p --batch-size 3 {flags}\n"
    job = opened("run.sh", text).reading.job
    assert (job.objective, job.micro_batch_size) == (objective, 3)
