"""Options of a script's own: read from its source where that is here, open where it is not."""

from __future__ import annotations

import pytest

from gpulint.job.weights import Quantization
from gpulint.run.check import check
from gpulint.settings.settings import Settings

SCRIPT = """\
import argparse
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, Trainer, TrainingArguments


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="Qwen/Qwen2.5-7B")
    parser.add_argument("--bs", type=int, default=3)
    parser.add_argument("--max_len", type=int, default=1500)
    parser.add_argument("--lr_rank", type=int, default=24)
    parser.add_argument("--load_4bit", action="store_true")
    parser.add_argument("--grad_ckpt", action="store_true")
    parser.add_argument("--no_lora", action="store_true")
    parser.add_argument("--lora_rr", default=0)
    return parser.parse_args()


def main():
    args = parse()
    quantization = None
    if args.load_4bit:
        quantization = BitsAndBytesConfig(load_in_4bit=args.load_4bit, bnb_4bit_quant_type="nf4")
    model = AutoModelForCausalLM.from_pretrained(args.model, torch_dtype=torch.bfloat16)
    tokenizer = AutoTokenizer.from_pretrained(args.model, model_max_length=args.max_len)
    if args.grad_ckpt:
        model.gradient_checkpointing_enable()
    if not args.no_lora:
        model = get_peft_model(model, LoraConfig(r=args.lr_rank, target_modules=["q_proj", "v_proj"]))
    training = TrainingArguments("out", per_device_train_batch_size=args.bs, gradient_accumulation_steps=48 // args.bs)
    Trainer(model=model, args=training).train()


if __name__ == "__main__":
    main()
"""


@pytest.fixture
def opened(launched):
    def read(options, script=SCRIPT, start="python train.py"):
        (found,) = launched(f"{start} {options}\n", "run.sh", {"train.py": script} if script else {}).opened
        return found

    return read


@pytest.fixture
def job(opened):
    return lambda *given, **named: opened(*given, **named).reading.job


def test_options_are_what_they_feed(job):
    found = job("--model Qwen/Qwen2.5-3B --bs 6 --grad_ckpt --max_len=700")
    assert (found.model, found.micro_batch_size, found.gradient_accumulation_steps) == ("Qwen/Qwen2.5-3B", 6, 8)
    assert (found.activation_checkpointing, found.sequence_length) == ("full", 700)
    assert (found.method, found.adapter.r, found.adapter.targets) == ("lora", 24, ["q_proj", "v_proj"])
    assert (found.weights.dtype, found.weights.quantization) == ("bfloat16", None)
    assert not {"weights.dtype", "weights.quantization", "activation_checkpointing"} & set(found.unstated)


@pytest.mark.parametrize(
    ("field", "file", "line"),
    [
        ("model", "run.sh", 1),
        ("micro_batch_size", "run.sh", 1),
        ("sequence_length", "train.py", 25),
        ("adapter.r", "train.py", 29),
        ("gradient_accumulation_steps", "train.py", 30),
        ("weights.dtype", "train.py", 24),
        ("activation_checkpointing", "train.py", 27),
    ],
)
def test_where_it_is_said(job, field, file, line):
    origin = job("--model Qwen/Qwen2.5-3B --bs 6").origins[field]
    assert (origin.kind, origin.file.rpartition("/")[2], origin.span.line) == ("file", file, line)


def test_defaults_of_the_script(job):
    found = job("--model Qwen/Qwen2.5-3B")
    assert (found.micro_batch_size, found.gradient_accumulation_steps, found.sequence_length) == (3, 16, 1500)
    assert found.activation_checkpointing == "none"


def test_switches(job):
    found = job("--model Qwen/Qwen2.5-3B --no_lora")
    assert (found.method, found.adapter) == ("full", None)
    found = job("--model Qwen/Qwen2.5-3B --load_4bit")
    assert (found.weights.quantization.method, found.method) == ("bnb-nf4", "lora")


def test_an_option_that_only_the_run_knows_is_open(job):
    found = job("--model Qwen/Qwen2.5-3B --bs $BS")
    assert found.micro_batch_size is None
    found = job("--model Qwen/Qwen2.5-3B", SCRIPT.replace("if args.grad_ckpt:", "if slow():"))
    assert found.origins["activation_checkpointing"].values == ("full", "none")
    assert "activation_checkpointing" in found.unstated


INHERITS = SCRIPT.replace(
    "def parse():",
    """@dataclass
class Training(TrainingArguments):
    longest_row: int = 900

def parse():
    HfArgumentParser(Training)""",
).replace("args.max_len", "args.longest_row")


@pytest.mark.parametrize(
    ("option", "script", "length"),
    [
        ("--max_l 700", SCRIPT, 700),
        ("--longest 700", INHERITS, 700),
        ("--max_l 700", SCRIPT.replace("ArgumentParser()", "ArgumentParser(allow_abbrev=False)"), 1500),
        ("--max_l 700", SCRIPT.replace("return", 'parser.add_argument("--max_lot")\n    return'), 1500),
    ],
)
def test_argparse_completes_the_beginning_of_one_option(job, option, script, length):
    assert job(f"--model Qwen/Qwen2.5-3B {option}", script).sequence_length == length


@pytest.mark.parametrize(
    ("option", "script", "told"),
    [
        ("--lr_rnk 4", SCRIPT, [("lr_rnk", "lr_rank")]),
        ("--warmup_ratio 0.1", INHERITS, []),
        ("--lora_rr 4", SCRIPT, []),
        ("--grad 1", SCRIPT, []),
        ("--lr_rnk 4", SCRIPT.replace("parse_args()", "parse_known_args()[0]"), []),
    ],
)
def test_an_option_that_the_source_does_not_declare(opened, option, script, told):
    found = opened(f"--model Qwen/Qwen2.5-3B {option}", script)
    problems = [item for item in found.reading.problems if item.kind == "unknown-key"]
    assert [(item.key, item.values["suggestion"]) for item in problems] == told
    assert all(item.values["stated"] == "yes" and item.values["upstream"].endswith("train.py") for item in problems)


def test_it_is_an_error_at_its_place(project):
    root = project({"train.py": SCRIPT, "run.sh": "python train.py --model Qwen/Qwen2.5-3B --lr_rnk 4\n"})
    (found,) = check([str(root / "run.sh")], Settings(root=str(root))).findings
    assert (found.rule, found.severity, found.location.span.column) == ("GPU002", "error", 43)


def test_a_script_without_a_trainer_is_not_known(launched):
    text = SCRIPT.replace(".train()", "")
    assert not launched("python train.py --bs 4\n", "run.sh", {"train.py": text}).opened
    assert not launched("python train.py --bs 4\n", "run.sh").opened


OWN = "python tune.py --model_name_or_path Qwen/Qwen2.5-7B --output_dir out --per_device_train_batch_size 4 --lora_r 8"


@pytest.mark.parametrize(
    ("option", "field", "value", "values"),
    [
        ("--grad_ckpt True", "activation_checkpointing", "full", ("full", "none")),
        ("--grad_ckpt False", "activation_checkpointing", "none", ("full", "none")),
        ("--layer_recompute 4", "activation_checkpointing", "none", ("full", "none")),
        ("--attn_backend x", "attention", "sdpa", ("flash_attention_2", "eager")),
        ("--optimizer_type lomo", "optimizer.name", "adamw_torch_fused", ("adamw_torch", "adamw_8bit", "adafactor")),
        ("--load_4bit", "weights.quantization", None, (None, Quantization("bnb-nf4", 4))),
        ("--gradient_checkpointing True --ckpt_dir x", "activation_checkpointing", "full", ()),
        ("--gradient_checkpointing False --grad_ckpt True", "activation_checkpointing", "none", ()),
    ],
)
def test_words_of_an_option_whose_source_is_not_here(job, option, field, value, values):
    found = job(option, None, OWN)
    assert found.get(field) == value
    assert found.origins[field].values == values
    assert (field in found.unstated) is bool(values)


@pytest.mark.parametrize(
    ("option", "unread"),
    [
        ("--sp_size 4", True),
        ("--sp_size 1", False),
        ("--sequence_parallel True", True),
        ("--cpu_offload False", False),
        ("--cpu_offload", True),
        ("--tokenizers_parallelism True", False),
        ("--colour 4", False),
    ],
)
def test_an_option_that_splits_the_job_leaves_no_verdict(job, option, unread):
    assert bool(job(option, None, OWN).unread) is unread


@pytest.mark.parametrize(
    ("command", "key", "meant"),
    [
        ("trtllm-serve Qwen/Qwen3-8B --tp 2", "tp", "tensor_parallel_size"),
        ("trtllm-serve Qwen/Qwen3-8B --max_batch 2", "max_batch", "max_batch_size"),
        ("text-generation-launcher --model-id Qwen/Qwen3-8B --max-total 99", "max-total", "max-total-tokens"),
        ("vllm serve Qwen/Qwen3-8B --tp 2", "tp", "tensor-parallel-size"),
        ("vllm serve Qwen/Qwen3-8B --pp-size 2", "pp-size", "pipeline-parallel-size"),
        ("lmdeploy serve api_server Qwen/Qwen3-8B --tensor-parallel-size 2", "tensor-parallel-size", "tp"),
    ],
)
def test_a_program_stops_at_words_of_another_one(launched, command, key, meant):
    (opened,) = launched(command + "\n", "run.sh").opened
    (problem,) = [item for item in opened.reading.problems if item.kind == "unknown-key"]
    assert (problem.key, problem.values["suggestion"], problem.values["slip"]) == (key, meant, "yes")
    assert bool(opened.reading.job.unread) is ("max" not in key)


@pytest.mark.parametrize(
    "command",
    [
        "trtllm-serve Qwen/Qwen3-8B --tp_size 2",
        "vllm serve Qwen/Qwen3-8B -tp 2",
        "vllm serve Qwen/Qwen3-8B --tensor-parallel 2",
        "python -m sglang.launch_server --model Qwen/Qwen3-8B --tp 2",
        "lmdeploy serve api_server Qwen/Qwen3-8B --tp 2",
    ],
)
def test_its_own_words_split_it(launched, command):
    (opened,) = launched(command + "\n", "run.sh").opened
    assert [item for item in opened.reading.problems if item.kind == "unknown-key"] == []
    assert (opened.reading.job.parallelism.tensor, opened.reading.job.unread) == (2, "")


@pytest.mark.parametrize(
    ("option", "told"),
    [("--log-verbose=1", []), ("--sp-size=2", []), ("--max-model-lenn=99", [("max-model-lenn", "ignored")])],
)
def test_a_server_that_passes_over_unknown_options(launched, option, told):
    command = f"python -m huggingfaceserver --model Qwen/Qwen3-8B {option}\n"
    (opened,) = launched(command, "run.sh").opened
    problems = [item for item in opened.reading.problems if item.kind == "unknown-key"]
    assert [(item.key, item.values["treatment"]) for item in problems] == told
    assert all(item.values["upstream"] == "huggingfaceserver" for item in problems)
    assert opened.reading.job.unread == ""


@pytest.mark.parametrize(
    ("option", "checkpointing"),
    [("", "full"), ("--grad_checkpoint False", "none"), ("--grad_checkpoint True", "full")],
)
def test_a_known_trainer_has_its_own_options(job, option, checkpointing):
    start = "torchrun --nproc_per_node 2 internvl/train/internvl_chat_finetune.py --output_dir out --bf16 True"
    options = f"--model_name_or_path OpenGVLab/InternVL2-8B --per_device_train_batch_size 4 {option}"
    found = job(options, None, start)
    assert (found.activation_checkpointing, found.weights.dtype) == (checkpointing, "bfloat16")
    assert (found.attention, found.sequence_length) == ("flash_attention_2", 8192)
    assert "activation_checkpointing" not in found.unstated
