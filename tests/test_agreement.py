"""One answer: every command and output says of a job what `check` says, and the verdict is what the interval says."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpulint.commands.outputs import exit_code
from gpulint.editor.lens import lenses
from gpulint.editor.reading import read_file
from gpulint.estimator.estimate import NotEstimable
from gpulint.launchers.reading import open_jobs, recognise_file
from gpulint.report.data import json_estimate, json_plan, json_report
from gpulint.report.html import html
from gpulint.report.text import compare
from gpulint.report.text import estimate as text_estimate
from gpulint.report.text import plan as text_plan
from gpulint.report.verdict import told, word
from gpulint.rules.facts.facts import Facts
from gpulint.rules.load import load_rules
from gpulint.rules.suggest import suggest
from gpulint.rules.suggest.plan import plan_of
from gpulint.run import whatif
from gpulint.run.check import check
from gpulint.run.comparison import differences
from gpulint.run.estimated import estimated
from gpulint.run.overview import cards
from gpulint.settings.settings import Settings

MODELS = ["Qwen/Qwen2.5-0.5B", "meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-70B", "nobody/nothing", "$MODEL"]
GPUS = [None, "t4", "rtx-4090", "a100-80gb", "h100-80gb"]


@pytest.fixture(autouse=True)
def without_searches(monkeypatch):
    """What is suggested, and what other settings need, takes most of the time and decides no verdict."""
    monkeypatch.setattr(suggest, "suggestions_for", lambda *_: ())
    monkeypatch.setattr(whatif, "GRID_STEPS", -1)


def size(*values, blank="$SIZE"):
    """A number of a config, now and then filled in when the job starts or left out."""
    return st.one_of(st.sampled_from(values), st.sampled_from(values), st.sampled_from([None, blank]))


def flags(**options):
    return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in options.items() if value is not None)


def lines(**keys):
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in keys.items() if value is not None)


@st.composite
def served(draw):
    """`vllm serve`, on the GPUs that Slurm gives or CUDA_VISIBLE_DEVICES shows, or on nobody knows how many."""
    options = flags(
        tensor_parallel_size=draw(size(1, 2, 4, 8)),
        pipeline_parallel_size=draw(st.sampled_from([None, None, 2])),
        data_parallel_size=draw(st.sampled_from([None, None, 2])),
        max_model_len=draw(size(2_048, 32_768, 131_072)),
        gpu_memory_utilization=draw(st.sampled_from([None, 0.5, 0.97])),
    )
    head = draw(st.sampled_from(["", "#SBATCH --gpus-per-node=2", "export CUDA_VISIBLE_DEVICES=0,1,2,3"]))
    return "run.sh", f"#!/bin/bash\n{head}\nvllm serve {draw(st.sampled_from(MODELS))} {options}\n"


@st.composite
def trained_by_flags(draw):
    """A trainer of Transformers or TRL under torchrun."""
    batch, length = draw(size(1, 3, 16)), draw(size(512, 2_048, 16_384))
    options = flags(
        per_device_train_batch_size=batch,
        max_length=length,
        gradient_checkpointing=draw(st.sampled_from([None, "true", "false"])),
        bf16=draw(st.sampled_from([None, "true"])),
        use_peft=draw(st.sampled_from([None, "true"])),
    ).replace("-train-batch-", "_train_batch_")
    options = " ".join(word.replace("-", "_").replace("__", "--", 1) for word in options.split(" "))
    head = draw(st.sampled_from(["", "#SBATCH --nodes=1 --gpus-per-node=2", "#SBATCH --gpus-per-node=4"]))
    processes = draw(size(1, 2, 8, blank="$NPROC"))
    model = draw(st.sampled_from(MODELS))
    start = f"torchrun --nproc_per_node {processes}" if processes else "accelerate launch"
    return "run.sh", f"#!/bin/bash\n{head}\n{start} -m trl.scripts.sft --model_name_or_path {model} {options}\n"


@st.composite
def trained_by_megatron(draw):
    options = flags(
        tensor_model_parallel_size=draw(size(1, 2, 8)),
        pipeline_model_parallel_size=draw(st.sampled_from([None, 2, 4])),
        micro_batch_size=draw(size(1, 3)),
        seq_length=draw(size(2_048, 8_192)),
    )
    rest = "--num-layers 16 --hidden-size 2048 --num-attention-heads 16 --max-position-embeddings 8192 --bf16"
    return "run.sh", f"torchrun --nproc_per_node {draw(st.sampled_from([2, 8]))} pretrain_gpt.py {rest} {options}\n"


@st.composite
def axolotl(draw):
    return "axolotl.yaml", lines(
        base_model=draw(st.sampled_from(MODELS)),
        datasets=[{"path": "tatsu-lab/alpaca", "type": "alpaca"}],
        sequence_len=draw(size(512, 4_096, 65_536)),
        micro_batch_size=draw(size(1, 3, 16)),
        sample_packing=draw(st.booleans()),
        adapter=draw(st.sampled_from([None, "lora", "qlora"])),
        load_in_4bit=draw(st.sampled_from([None, True])),
        tensor_parallel_size=draw(st.sampled_from([None, None, 4])),
        gradient_checkpointing=draw(st.booleans()),
        bf16=True,
    )


@st.composite
def llamafactory(draw):
    return "sft.yaml", lines(
        model_name_or_path=draw(st.sampled_from(MODELS)),
        stage=draw(st.sampled_from(["sft", "dpo"])),
        do_train=True,
        dataset="alpaca_en_demo",
        template="llama3",
        finetuning_type=draw(st.sampled_from(["lora", "full", "freeze"])),
        cutoff_len=draw(size(1_024, 8_192)),
        per_device_train_batch_size=draw(size(1, 5)),
        bf16=draw(st.booleans()),
    )


JOBS = st.one_of(served(), served(), trained_by_flags(), trained_by_megatron(), axolotl(), llamafactory())


def agree(path, options):
    """Hold everything that is said of the jobs of a file against what `check` says of them."""
    report = check([path], options)
    (file,) = [item for item in report.files if item.path == path]
    if file.status != "checked":
        return
    opened = open_jobs(recognise_file(path), options).started
    results = file.jobs[: len(opened)]
    pages, read = cards(report, options), read_file(path, options)
    shown_here = [card for card in pages if card.path == path]
    assert len(opened) == len(results) == len(read.jobs) == len(shown_here)
    page, shown = html.render(report, pages, "0"), "\n".join(lenses(read))
    for item, result, card, plan in zip(opened, results, shown_here, read.jobs, strict=True):
        same_answer(item, result, card, plan, page, shown)
    alone = len(opened) == 1 and not report.suppressed
    if alone:
        found, _ = estimated_or_reason(opened[0])
        holds(report, results[0], found and found.estimate)
    assert exit_code(report, options) == int(any(item.severity == "error" for item in report.findings))


def estimated_or_reason(opened):
    try:
        return estimated(opened), ""
    except NotEstimable as error:
        return None, str(error)


def same_answer(opened, result, card, plan, page, shown):
    """`estimate`, `plan`, `compare`, the page and the editor about one job that `check` gives a result."""
    facts = Facts(opened.reading, opened.project, opened.gpu)
    planned = plan_of(facts, load_rules(Settings()), steps=1)
    found, reason = estimated_or_reason(opened)
    if found is None:
        assert result.verdict == "not-checked"
        # without a GPU `check` says that first, and asks no further
        assert reason == card.reason == plan.reason
        assert reason == result.unchecked or result.why == "no GPU is named"
        assert planned is None
        return
    assert found.result == card.result == plan.result == result
    verdict = found.estimate.verdict
    assert planned is not None
    assert planned.now.verdict == card.estimate.verdict == plan.estimate.verdict == verdict
    assert planned.now.per_gpu == found.estimate.per_gpu
    if result.verdict == "refuses":
        assert verdict == "exceeds"
    elif result.verdict != "not-checked":
        assert verdict == result.verdict
    (told_json,) = json.loads(json_estimate.render([("a", found.estimate, found.result)]))["estimates"]
    (plan_json,) = json.loads(json_plan.render([("a", planned)], "rank"))["plans"]
    for said in (told_json, plan_json["now"]):
        assert (said["verdict"], said["why"], said["settles"]) == (verdict, result.why or None, result.settles or None)
        assert said["refusal"] == found.estimate.stops
    sides = json.loads(compare.as_json(("a", found), ("b", found), differences(found, found)))
    assert sides["before"]["verdict"] == sides["after"]["verdict"] == verdict
    assert not sides["differences"]
    words = result.unchecked or word(found.estimate, result)
    assert words in text_estimate.render("a", found.estimate, result=found.result)
    assert words.split("(")[0].strip() in " ".join(text_plan.render("a", planned, "rank").split())
    assert html.text(words) in page
    assert told(found.estimate, result) in shown or shown.count("\n") == 7


def holds(report, result, estimate):
    """The verdict is what the interval says, and an error says that it exceeds, and only that."""
    errors = [item for item in report.findings if item.severity == "error"]
    of_memory = [item for item in errors if item.estimate is not None]
    if estimate is None or estimate.capacity is None:
        assert not of_memory
        return
    usable = estimate.capacity.usable
    if result.verdict == "fits":
        assert estimate.per_gpu.high <= usable
        assert estimate.stops is None or estimate.verdict == "fits"
    if result.verdict == "exceeds":
        assert estimate.per_gpu.low > usable
    if result.verdict == "refuses":
        assert estimate.stops
    assert not of_memory or result.verdict in ("exceeds", "refuses"), [item.message for item in of_memory]
    if result.verdict in ("exceeds", "refuses"):
        assert errors, (result.verdict, estimate.stops, [(item.rule, item.severity) for item in report.findings])
    told_json = json_report.as_object(report)
    assert [job["verdict"] for file in told_json["files"] for job in file["jobs"]] == [
        job.verdict for file in report.files for job in file.jobs
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("agreement")


@given(JOBS, st.sampled_from(GPUS), st.sampled_from([None, None, 1, 2, 8]))
@settings(max_examples=30)
def test_every_road_says_the_same_of_a_job(folder, job, gpu, gpus):
    name, text = job
    (folder / name).write_text(text)
    agree(str(folder / name), Settings(gpu=gpu, gpus=gpus, root=str(folder)))


def sample(shared, every):
    rows = json.loads((shared / "corpus" / "INDEX.json").read_text())
    return [str(shared / "corpus" / row["path"]) for row in rows][::every]


def test_every_road_says_the_same_of_published_configs(shared):
    for path in sample(shared, 149):
        agree(path, Settings(gpu="a100-80gb", fills_in=True, skip_unknown=True))
