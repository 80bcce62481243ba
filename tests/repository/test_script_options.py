"""The options of a script and what they feed, read from its text."""

from __future__ import annotations

import pytest

from gpulint.repository.script_feeds import UNKNOWN, feeds, trains
from gpulint.repository.script_options import UNSAID, script_options, source_of

PARSER = """\
import argparse
parser = argparse.ArgumentParser({made})
parser.add_argument("--bs", "-b", "--batch", type=int, default=3)
parser.add_argument("--ckpt", action="store_true")
parser.add_argument("--no_flash", dest="flash", action="store_false")
parser.add_argument("--pack", action=argparse.BooleanOptionalAction, default=True)
parser.add_argument("--rank", default=size())
parser.add_argument("model")
args = parser.{parse}
"""
CLASSES = """\
from dataclasses import dataclass, field
from typing import Optional
import transformers
from more import DataArguments

@dataclass
class ModelArguments(DataArguments):
    rank: int = 24
    ckpt: Optional[bool] = field(default=True, metadata={"help": "x"})
    names: list = field(default_factory=list)

@dataclass
class Training(transformers.TrainingArguments):
    model_max_length: int = field(default=1500)

parser = transformers.HfArgumentParser((ModelArguments, Training))
model_args, training_args = parser.parse_args_into_dataclasses(%s)
"""
MORE = "from dataclasses import dataclass\n@dataclass\nclass DataArguments:\n    meta: str = None\n"
CLICK = """\
import click
@click.command(%s)
@click.option("--bs", "-b", "batch", default=5)
@click.option("--ckpt/--no-ckpt", default=True)
@click.option("--quick", is_flag=True)
def main(batch, ckpt, quick):
    TrainingArguments(per_device_train_batch_size=batch, gradient_checkpointing=ckpt)
"""


@pytest.fixture
def script(project):
    def read(text, **files):
        root = project({"train.py": text, **{f"{name}.py": more for name, more in files.items()}})
        return script_options(str(root / "train.py"), str(root))

    return read


def parsed(made="", parse="parse_args()"):
    return PARSER.format(made=made, parse=parse)


def test_argparse(script):
    found = script(parsed())
    assert {name: (option.default, option.switch) for name, option in found.options.items()} == {
        "bs": (3, None),
        "ckpt": (False, True),
        "flash": (True, False),
        "pack": (True, True),
        "rank": (UNSAID, None),
    }
    assert (found.options["bs"].line, found.options["bs"].spellings) == (3, ("bs", "b", "batch"))
    assert found.named("batch").name == found.named("b").name == "bs"
    assert found.named("no-flash").name == "flash"


@pytest.mark.parametrize(
    ("text", "prefixes"), [(parsed(), True), (parsed("allow_abbrev=False"), False), (CLICK % "", False)]
)
def test_whether_the_beginning_of_an_option_stands_for_it(script, text, prefixes):
    assert script(text).prefixes is prefixes


@pytest.mark.parametrize(
    ("text", "refuses"),
    [
        (parsed(), True),
        (parsed(parse="parse_known_args()"), False),
        (parsed("parents=[other]"), False),
        (parsed() + "deepspeed.add_config_arguments(parser)\n", False),
        (parsed() + "def more(parser):\n    pass\nmore(parser)\n", True),
        (CLASSES % "", True),
        (CLASSES % "return_remaining_strings=True", False),
        ((CLASSES % "").replace("from more import", "from elsewhere import"), False),
        (CLICK % "", True),
        (CLICK % 'context_settings={"ignore_unknown_options": True}', False),
    ],
)
def test_whether_a_script_stops_at_an_option_that_it_does_not_declare(script, text, refuses):
    assert script(text, more=MORE).refuses is refuses


def test_dataclasses(script):
    found = script(CLASSES % "", more=MORE)
    assert {name: option.default for name, option in found.options.items()} == {
        "meta": None,
        "rank": 24,
        "ckpt": True,
        "names": UNSAID,
        "model_max_length": 1500,
    }
    assert found.inherits
    assert found.options["meta"].path.endswith("more.py")
    assert found.options["ckpt"].switch is True
    assert found.options["rank"].switch is None


def test_click_takes_options_in_full(script):
    found = script(CLICK % "")
    assert {name: (option.default, option.switch) for name, option in found.options.items()} == {
        "batch": (5, None),
        "ckpt": (True, True),
        "quick": (False, True),
    }
    assert found.named("quick").name == "quick"
    fed = feeds(found, {"batch": 7, "ckpt": False, "quick": False})
    assert (fed["per_device_train_batch_size"].value, fed["per_device_train_batch_size"].option) == (7, "batch")
    assert fed["gradient_checkpointing"].value is False


def test_a_script_that_only_calls_another_module_has_its_options(script):
    found = script("from more import main\nmain()\n", more=parsed())
    assert found.path.endswith("more.py")
    assert "bs" in found.options


@pytest.mark.parametrize("text", ["def broken(:\n", "print('no options')\n", "\0"])
def test_no_options(script, text):
    assert script(text) is None


BODY = """\
args = parser.parse_args()
bs = args.bs
model = AutoModelForCausalLM.from_pretrained(args.model, torch_dtype=torch.float16)
ref_model = AutoModelForCausalLM.from_pretrained("other/model")
tokenizer = AutoTokenizer.from_pretrained(args.model)
if args.ckpt and not args.quick:
    model.gradient_checkpointing_enable()
config = LoraConfig(r=args.rank, lora_alpha=2 * args.rank) if args.lora else None
trainer = SFTTrainer(model, peft_config=config, args=SFTConfig(
    per_device_train_batch_size=int(bs), gradient_accumulation_steps=48 // args.bs, bf16=supported(),
    packing=args.packs == "yes", max_length=args.longest))
trainer.train()
"""
OPTIONS = "import argparse, torch\nparser = argparse.ArgumentParser()\n" + "".join(
    f'parser.add_argument("--{name}")\n'
    for name in ("bs", "model", "ckpt", "quick", "rank", "lora", "packs", "longest")
)
VALUES = {
    "bs": 6, "model": "m/n", "ckpt": True, "quick": False, "rank": 24, "lora": True, "packs": "yes",
    "longest": UNKNOWN,
}  # fmt: skip


@pytest.mark.parametrize(
    ("argument", "changed", "value", "option"),
    [
        ("model_name_or_path", {}, "m/n", "model"),
        ("dtype", {}, "float16", None),
        ("per_device_train_batch_size", {}, 6, "bs"),
        ("gradient_accumulation_steps", {}, 8, None),
        ("gradient_accumulation_steps", {"bs": 0}, UNKNOWN, None),
        ("gradient_checkpointing", {}, True, None),
        ("gradient_checkpointing", {"quick": True}, False, None),
        ("gradient_checkpointing", {"ckpt": UNKNOWN}, UNKNOWN, None),
        ("gradient_checkpointing", {"ckpt": UNKNOWN, "quick": True}, False, None),
        ("lora_r", {}, 24, "rank"),
        ("lora_alpha", {}, 48, None),
        ("use_peft", {}, True, None),
        ("use_peft", {"lora": False}, False, None),
        ("bf16", {}, UNKNOWN, None),
        ("packing", {}, True, None),
        ("packing", {"packs": "no"}, False, None),
        ("max_length", {}, UNKNOWN, "longest"),
    ],
)
def test_what_options_feed(script, argument, changed, value, option):
    fed = feeds(script(OPTIONS + BODY), {**VALUES, **changed})[argument]
    assert (fed.value, fed.option) == (value, option)


def test_what_two_places_say_otherwise_is_unknown(script):
    more = 'model = AutoModelForCausalLM.from_pretrained("m/o")\n'
    fed = feeds(script(OPTIONS + BODY + more), VALUES)
    assert fed["model_name_or_path"].value is UNKNOWN
    assert fed["lora_r"].value == 24


@pytest.mark.parametrize(
    ("text", "does"),
    [(BODY, True), (BODY.replace("trainer.train()", "model.train()"), False), ("model.train()\n", False)],
)
def test_whether_a_trainer_trains(script, text, does):
    assert trains(script(OPTIONS + text)) is does


@pytest.mark.parametrize(
    ("name", "module", "found"),
    [
        ("sub/a.py", False, "sub/a.py"),
        ("sub.a", True, "sub/a.py"),
        ("pack", True, "src/pack/__main__.py"),
        ("sub.b", True, None),
        ("../outside.py", False, None),
    ],
)
def test_where_a_source_is(project, name, module, found):
    root = project({"in/sub/a.py": "", "in/src/pack/__main__.py": "", "in/jobs/run.sh": "", "outside.py": ""}) / "in"
    path = source_of(name, module, str(root / "jobs" / "run.sh"), str(root))
    assert (path is None) if found is None else path == str(root / found)
