"""The formulas of other estimators against their own published examples and arithmetic done by hand."""

from __future__ import annotations

import json

import pytest

from benchmarks.accuracy import peers, scores
from benchmarks.accuracy.case import GIB, Case
from benchmarks.peers import PEERS, accelerate, asking, cookbook, deepspeed, fitcheck, llamafactory, recorded, thumb
from benchmarks.peers.question import Question, Unrecorded, Unsaid
from gpulint.hardware.catalogue import find
from gpulint.job.job import Adapter, Fsdp, Inference, Job, Quantization, Zero
from gpulint.models.resolve import resolve

T5_3B, T5_3B_LAYER = 2_851_000_000, 32_000_000
LLAMA_7B = 6_738_415_616


def ask(job: Job, counter="allocated", gpu=None) -> Question:
    return Question(job, resolve(job.model), find(gpu) if gpu else None, counter)


def full(**fields) -> Job:
    job = Job(model="meta-llama/Llama-2-7b-hf", micro_batch_size=1, sequence_length=2048, **fields)
    job.weights.dtype = "bfloat16"
    return job


def lora(quantization=None, **adapter) -> Job:
    job = full(method="lora", adapter=Adapter(r=16, targets=["q_proj", "v_proj"], **adapter))
    job.weights.quantization = quantization
    return job


def generation(quantization=None) -> Job:
    job = Job(kind="inference", model="meta-llama/Llama-2-7b-hf")
    job.weights.dtype = "float16"
    job.weights.quantization = quantization
    job.inference = Inference(batch_size=2, prompt_length=1000, new_tokens=24)
    return job


@pytest.mark.parametrize(
    ("said", "published"),
    [
        (deepspeed.zero3(T5_3B, T5_3B_LAYER, 8, False, False), 6.09),
        (deepspeed.zero3(T5_3B, T5_3B_LAYER, 8, True, False), 0.78),
        (deepspeed.zero3(T5_3B, T5_3B_LAYER, 8, True, True), 0.12),
        (deepspeed.zero2(T5_3B, 8, offload=True), 5.31),
        (deepspeed.zero2(T5_3B, 8, offload=False), 11.28),
    ],
)
def test_deepspeed_as_its_documentation_prints(said, published):
    assert round(said / GIB, 2) == published


def test_deepspeed_takes_the_largest_module():
    model = resolve("meta-llama/Llama-2-7b-hf")
    assert deepspeed.largest(model) == 32000 * 4096
    job = full()
    job.parallelism.zero, job.hardware.gpus = Zero(stage=3), 4
    assert deepspeed.answer(ask(job)) == 4 * 32000 * 4096 + 18 * LLAMA_7B // 4


def test_zero_paper_figure_1():
    said = [thumb.mixed(7_500_000_000, stage, 64) / 1e9 for stage in range(4)]
    assert [round(size, 1) for size in said] == [120.0, 31.4, 16.6, 1.9]


def test_cookbook_by_hand():
    sizes = cookbook.Sizes(4096, 32, 32, 1.0, 3.5, 2, 51200, 4096)
    count = 2 * 51200 * 4096 + 4096 * 4096 + 8 * 4096 * 32 + 2 * 4096 + 4 * 32 * 4096**2 + 2 * 32 * 3.5 * 4096**2
    assert cookbook.parameters(sizes) == count
    activations = 4096 * 4096 * 32 * (34 + 5 * 32)
    assert cookbook.training(sizes, 1, 2, 1, 1, 1, False) == count * (2 + 4 + 12) + activations
    assert cookbook.training(sizes, 1, 2, 1, 1, 1, True) == count * 18 + 4096 * 4096 * 32 * 34
    sharded = count * 18 / 8 + 5e8 * 2 + 1e9 * 2 + 4096 * 4096 * 32 * 34
    assert cookbook.training(sizes, 1, 2, 3, 8, 1, True) == sharded
    cache = 2 * 4096 * 32 * (4096 + 10) * 3
    assert cookbook.serving(sizes, 3, 10, 2, 1) == count * 2 + 34 * 4096 * 3 * 4096 + cache


def test_blog_takes_the_larger_of_gradients_and_activations():
    few, many = thumb.peak(1_000_000_000, 1, 2), thumb.peak(1_000_000_000, 4096, 2)
    assert few == 8e9
    assert many == pytest.approx(2 * (3e9 + 4096 * (468_940 + 1_849_400)))


@pytest.mark.parametrize(
    ("job", "each"),
    [
        (lora(), 2.0),
        (lora(Quantization("bnb-nf4", 4)), 0.5),
        (lora(Quantization("bnb-int8", 8)), 1.0),
        (full(), 8.0),
        (full().with_changes({"precision.autocast": "bfloat16"}), 18.0),
    ],
)
def test_llama_factory_table(job, each):
    assert llamafactory.answer(ask(job)) == each * LLAMA_7B


def test_rules_of_thumb():
    assert thumb.load(ask(generation())) == 2 * LLAMA_7B
    assert thumb.serve(ask(generation(Quantization("gptq", 4)))) == pytest.approx(0.6 * LLAMA_7B)
    assert thumb.fine_tune(ask(full())) == 8 * LLAMA_7B
    assert thumb.adam(ask(full())) == 16 * LLAMA_7B


@pytest.mark.parametrize(
    ("peer", "job"),
    [
        ("DeepSpeed estimate_zero*", full()),
        ("EleutherAI cookbook", lora()),
        ("LLaMA-Factory README table", generation()),
        ("16 B/parameter with Adam", full().with_changes({"optimizer.name": "adafactor"})),
        ("2 or 4 GB per billion to load", generation(Quantization("awq", 4))),
        ("8 GB per billion to fine-tune", full().with_changes({"parallelism.fsdp": Fsdp(), "hardware.gpus": 8})),
        ("fitcheck-llm", full().with_changes({"loss.kernel": "liger"})),
        ("accelerate estimate-memory", lora()),
    ],
)
def test_what_an_estimator_has_no_words_for_is_unsaid(peer, job):
    with pytest.raises(Unsaid):
        PEERS[peer](ask(job))


def test_requests_name_the_closest_flags():
    asked = fitcheck.request(ask(lora(Quantization("bnb-nf4", 4, double_quant=True)), gpu="a100-80gb"))
    assert asked["gpu"] == "a100-80"
    assert asked["fields"]["quantization"] == "nf4"
    assert asked["fields"]["double_quant"] is True
    assert asked["fields"]["lora_targets"] == ["q_proj", "v_proj"]
    assert asked["fields"]["optimizer_dtype"] == "fp32"
    assert fitcheck.request(ask(full()))["fields"]["optimizer_dtype"] == "bf16"
    assert asked["key"].startswith("meta-llama/Llama-2-7b-hf training a100-80 precision=bf16")


def test_recorded_answers_are_in_the_units_of_the_rows():
    head = 32000 * 4096
    assert accelerate.answer(ask(generation())) == pytest.approx(2 * (LLAMA_7B - head), rel=1e-6)
    assert recorded.look_up("accelerate", "meta-llama/Llama-2-7b-hf")["train float32"] == pytest.approx(
        16 * (LLAMA_7B - head), rel=1e-6
    )
    sizes = [size for size in recorded.answers()["fitcheck-llm"].values() if not isinstance(size, str)]
    assert sizes
    assert all(0 < size["allocated"] < size["reserved"] < size["process"] for size in sizes)


def test_versions_and_command_are_recorded():
    found = json.loads(recorded.PATH.read_text(encoding="utf-8"))
    assert set(found["versions"]) == {"fitcheck-llm", "accelerate", "transformers", "torch"}
    assert found["command"] == asking.COMMAND


def test_what_was_never_asked_is_unsaid():
    with pytest.raises(Unrecorded):
        recorded.look_up("accelerate", "nobody/nothing")


def test_table_compares_on_the_rows_that_both_say():
    job = full()
    job.hardware.gpu = "a100-80gb"
    case = Case("row", "group", job, "allocated", 8.0 * LLAMA_7B, "fits")
    other = case._replace(job=lora())
    scored, _ = scores.score_all([case, other])
    said, _ = peers.answers(scored)
    rows = {row[1]: row for row in peers.table(scored, said) if row[0] == "group / allocated"}
    assert rows["8 GB per billion to fine-tune"][2:6] == ("1 of 2", "0.0%", "+0.0%", "+0.0%")
    assert rows["LLaMA-Factory README table"][2] == "2 of 2"
    found = {row[0]: row for row in peers.verdicts(said)}
    assert found["16 B/parameter with Adam"][3] == "1 of 1"
    assert found["8 GB per billion to fine-tune"][3] == "0 of 1"
