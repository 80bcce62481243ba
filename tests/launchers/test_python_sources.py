"""Python files: the calls that they make become jobs, and what only running them tells is not known."""

import textwrap

import pytest

from gpulint.run.check import check
from gpulint.settings.settings import Settings

LOAD = """
import torch
from transformers import AutoModelForCausalLM as Auto, BitsAndBytesConfig
"""


def job(jobs_of, text, name="load.py", **options):
    (found,) = jobs_of(textwrap.dedent(text), name, **options)
    return found


def test_a_model_that_is_loaded_to_generate(jobs_of):
    found = job(
        jobs_of,
        LOAD
        + """
NAME = "Qwen/Qwen2.5-0.5B"
packed = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True)
model = Auto.from_pretrained(
    NAME, quantization_config=packed, torch_dtype=torch.float16, attn_implementation="eager", device_map="auto"
)
model.generate(max_new_tokens=67)
""",
    )
    assert (found.kind, found.inference.engine, found.model) == ("inference", "transformers", "Qwen/Qwen2.5-0.5B")
    assert (found.weights.quantization.method, found.weights.quantization.double_quant) == ("bnb-nf4", True)
    assert (found.weights.dtype, found.attention, found.parallelism.device_map) == ("float16", "eager", "auto")
    assert found.inference.new_tokens == 67
    origin = found.origins["attention"]
    assert (origin.key, origin.span.line) == ("attn_implementation", 8)


@pytest.mark.parametrize(
    ("call", "dtype"),
    [
        ('Auto.from_pretrained("Qwen/Qwen2.5-0.5B").half().cuda()', "float16"),
        ('Auto.from_pretrained("Qwen/Qwen2.5-0.5B").to("cuda", torch.bfloat16)', "bfloat16"),
        ('Auto.from_pretrained("Qwen/Qwen2.5-0.5B", torch_dtype=torch.half, device_map={"": 0})', "float16"),
    ],
)
def test_the_dtype_that_a_model_ends_up_with(jobs_of, call, dtype):
    found = job(jobs_of, f"{LOAD}model = {call}\n")
    assert found.weights.dtype == dtype
    assert found.parallelism.device_map is None


def test_a_model_on_the_cpu_is_no_job(launched):
    for call in ("Auto.from_pretrained('gpt2')", "Auto.from_pretrained('gpt2', device_map='cpu')"):
        jobs = launched(f"{LOAD}model = {call}\n", "load.py")
        assert not jobs.opened
        assert jobs.reason == "puts no model on a GPU that gpulint can tell"


def test_a_file_that_starts_nothing_is_skipped(tmp_path):
    (tmp_path / "plain.py").write_text("print(1)\n")
    report = check([str(tmp_path / "plain.py")], Settings(root=str(tmp_path)))
    assert [(item.status, item.reason) for item in report.files] == [("skipped", "starts no job that gpulint can read")]


def test_a_file_of_python_2_is_an_error(tmp_path):
    (tmp_path / "old.py").write_text("print 'x'\n")
    (found,) = check([str(tmp_path / "old.py")], Settings(root=str(tmp_path))).files
    assert (found.status, found.reason, found.line) == ("error", "not valid Python 3", 1)


@pytest.mark.parametrize("value", ["args.size", "sizes[0]", "f'{a}'", "int(os.environ['N'])", "chosen"])
def test_what_only_running_the_file_tells_is_not_known(jobs_of, value):
    text = f"""
    import os
    from transformers import TrainingArguments

    chosen = 1
    chosen = 2
    TrainingArguments("out", per_device_train_batch_size={value}, max_steps=7)
    """
    found = job(jobs_of, text)
    assert found.micro_batch_size is None
    assert found.origins["micro_batch_size"].kind == "assumed"


@pytest.mark.parametrize(
    ("lines", "value", "size"),
    [("SIZE = 7", "SIZE", 7), ("SIZE = 7", "SIZE * 3", 21), ("C = {'n': 11}", "C['n']", 11),
     ("class C:\n    n: int = 13", "C.n", 13), ("", "5 if True else 3", 5)],
)  # fmt: skip
def test_values_that_stand_in_the_file(jobs_of, lines, value, size):
    call = f"TrainingArguments('o', per_device_train_batch_size={value})"
    text = f"from transformers import TrainingArguments\n{lines}\n{call}\n"
    assert job(jobs_of, text).micro_batch_size == size


def test_further_arguments_that_are_hidden_leave_no_verdict(jobs_of):
    text = "from vllm import LLM\nLLM(model='Qwen/Qwen2.5-0.5B', **options())\n"
    assert "**options()" in job(jobs_of, text).unread
    text = "from vllm import LLM\noptions = {'max_model_len': 4099}\nLLM(model='Qwen/Qwen2.5-0.5B', **options)\n"
    found = job(jobs_of, text)
    assert (found.unread, found.inference.max_model_len) == ("", 4099)


ENGINES = [
    ("from vllm import LLM\nLLM('Qwen/Qwen2.5-7B', tensor_parallel_size=4)", "vllm", 4),
    ("import sglang as sgl\nsgl.Engine(model_path='Qwen/Qwen2.5-7B', tp_size=2)", "sglang", 2),
    ("import lmdeploy as l\nl.pipeline('Qwen/Qwen2.5-7B', backend_config=l.PytorchEngineConfig(tp=2))", "lmdeploy", 2),
    ("import mii\nmii.serve('Qwen/Qwen2.5-7B', tensor_parallel=2)", "deepspeed-mii", 2),
]  # fmt: skip


@pytest.mark.parametrize(("text", "engine", "degree"), ENGINES)
def test_engines(jobs_of, text, engine, degree):
    found = job(jobs_of, text)
    assert (found.inference.engine, found.model, found.parallelism.tensor) == (engine, "Qwen/Qwen2.5-7B", degree)


def test_slots_of_a_hostfile_are_the_gpus_of_the_launch(jobs_of):
    text = "import mii\nmii.serve('Qwen/Qwen2.5-7B', tensor_parallel=8, replica_num=3, hostfile='hosts')"
    found = job(jobs_of, text, files={"hosts": "# two\na slots=8\nb slots=8\n"})
    assert (found.hardware.asked_gpus, found.hardware.gpus) == (16, 24)


TRAIN = """
from peft import LoraConfig
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B", dtype="bfloat16")
teacher = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")
lora = LoraConfig(r=24, target_modules=["q_proj"])
args = SFTConfig("out", per_device_train_batch_size=3, max_length=1031, packing=True)
SFTTrainer(model=model, args=args, peft_config=lora).train()
"""


def test_calls_of_one_training_run_come_together(jobs_of):
    found = job(jobs_of, TRAIN)
    assert (found.kind, found.objective, found.method, found.model) == ("training", "sft", "lora", "Qwen/Qwen2.5-0.5B")
    assert (found.adapter.r, found.adapter.alpha, found.adapter.targets) == (24, 8, ["q_proj"])
    assert (found.micro_batch_size, found.sequence_length, found.packing) == (3, 1031, True)
    assert found.weights.dtype == "bfloat16"


def test_without_an_adapter_that_is_put_on_all_is_trained(jobs_of):
    assert job(jobs_of, TRAIN.replace(", peft_config=lora", "")).method == "full"


@pytest.mark.parametrize(("name", "objective"), [("GRPO", "grpo"), ("DPO", "dpo"), ("Reward", "reward")])
def test_the_class_says_what_is_trained(jobs_of, name, objective):
    assert job(jobs_of, f"from trl import {name}Config\n{name}Config('out', max_steps=7)\n").objective == objective


def test_unsloth_packs_and_wraps_the_model(jobs_of):
    text = """
    from unsloth import FastLanguageModel
    from trl import SFTTrainer, SFTConfig

    model, tokenizer = FastLanguageModel.from_pretrained("Qwen/Qwen2.5-0.5B", max_seq_length=1031)
    model = FastLanguageModel.get_peft_model(model, r=24, use_gradient_checkpointing="unsloth")
    SFTTrainer(model=model, tokenizer=tokenizer, args=SFTConfig("out", per_device_train_batch_size=3)).train()
    """
    found = job(jobs_of, text)
    assert (found.framework, found.activation_checkpointing, found.adapter.r) == ("unsloth", "offload", 24)
    assert found.weights.quantization.method == "bnb-nf4"


def test_a_command_that_starts_the_file_says_the_processes(jobs_of):
    text = "torchrun --nproc_per_node=3 train.py\n"
    found = job(jobs_of, text, "run.sh", files={"train.py": TRAIN})
    assert (found.hardware.gpus, found.micro_batch_size, found.model) == (3, 3, "Qwen/Qwen2.5-0.5B")


WALKED = {
    "runs.py": "from vllm import LLM\nLLM(model='Qwen/Qwen2.5-0.5B')\n",
    "main.py": "from vllm import LLM\ndef f():\n    LLM('Qwen/Qwen2.5-0.5B')\nif __name__ == '__main__':\n    f()\n",
    "library.py": "from vllm import LLM\ndef make():\n    return LLM(model='Qwen/Qwen2.5-0.5B')\n",
    "unnamed.py": "from vllm import LLM\nLLM(model=find())\n",
    "options.py": "from vllm import LLM\np.add_argument('--n')\nLLM(model='Qwen/Qwen2.5-0.5B')\n",
    "test_it.py": "from vllm import LLM\nLLM(model='Qwen/Qwen2.5-0.5B')\n",
    "other.py": "LLM(model='Qwen/Qwen2.5-0.5B')\n",
}


def test_a_walk_takes_files_that_run_as_they_are(tmp_path):
    for name, text in WALKED.items():
        (tmp_path / name).write_text(text)
    report = check([str(tmp_path)], Settings(root=str(tmp_path)))
    assert [item.path.rpartition("/")[2] for item in report.files] == ["main.py", "runs.py"]


def findings(tmp_path, text, name="train.py", **settings):
    (tmp_path / name).write_text(text)
    report = check([str(tmp_path / name)], Settings(root=str(tmp_path), **settings))
    return {item.rule: item for item in report.findings}


SFT = "from trl import SFTConfig, SFTTrainer\nSFTTrainer('Qwen/Qwen2.5-0.5B', args=SFTConfig('o'), {}=1)\n"


@pytest.mark.parametrize(
    ("argument", "release", "refused"),
    [("max_seq_length", "0.12.2", False), ("max_seq_length", "0.13.0", True), ("tokenizer", "0.15.2", False),
     ("tokenizer", "0.16.0", True), ("peft_config", "1.16.0", False)],
)  # fmt: skip
def test_keywords_that_a_trainer_no_longer_takes(tmp_path, argument, release, refused):
    found = findings(tmp_path, SFT.format(argument), versions={"trl": release})
    assert ("GPU019" in found) == refused
    if refused:
        assert found["GPU019"].location.span.line == 2
        assert found["GPU019"].suggestions


def test_unsloth_takes_former_keywords_along(tmp_path):
    text = "from unsloth import FastLanguageModel\n" + SFT.format("max_seq_length")
    assert "GPU019" not in findings(tmp_path, text, versions={"trl": "0.16.0"})


def test_suggestions_speak_python_and_edit_nothing(tmp_path):
    text = "from trl import GRPOConfig\nGRPOConfig('o', num_generations=6, per_device_train_batch_size=5, bf16=True)\n"
    found = findings(tmp_path, text, gpus=1)["GPU316"]
    assert [item.text for item in found.suggestions] == ["per_device_train_batch_size=6", "num_generations=5"]
    assert not any(item.edits for item in found.suggestions)


def test_a_release_that_nobody_states_leaves_the_packing_of_experts_open(tmp_path):
    text = f"""{LOAD}
packed = BitsAndBytesConfig(load_in_4bit=True)
Auto.from_pretrained("mistralai/Mixtral-8x7B-v0.1", quantization_config=packed, device_map="cuda")
"""
    assert findings(tmp_path, text, gpu="rtx-pro-4500")["GPU202"].severity != "error"
    stated = findings(tmp_path, text, gpu="rtx-pro-4500", versions={"transformers": "5.23.0"})
    assert stated["GPU202"].severity == "error"
