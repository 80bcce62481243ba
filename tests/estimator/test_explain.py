"""The derivation of an estimate: its lines sum to the components, and their arithmetic is right."""

from __future__ import annotations

import importlib
import itertools
import json
import re
from collections import Counter

import pytest

from gpulint.estimator.activations import replay
from gpulint.estimator.allocator.memory_levels import MANAGED
from gpulint.estimator.estimate import FULL
from gpulint.estimator.estimate_job import estimate_job
from gpulint.estimator.explain import tensors
from gpulint.estimator.explain.explain import explained
from gpulint.estimator.forward.network import network
from gpulint.estimator.layer_expansion import placed
from gpulint.estimator.tape import recording
from gpulint.estimator.tape.labels import labelled
from gpulint.estimator.tape.recording import Recording
from gpulint.hardware.catalogue import find
from gpulint.job.job import Adapter, Evaluation, Fsdp, Inference, Job, Offload, Quantization, Zero
from gpulint.models.resolve import resolve

LLAMA = {
    "model_type": "llama", "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 12,
    "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 32000, "tie_word_embeddings": False,
}  # fmt: skip
GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257, "n_positions": 1024}
GEMMA = {
    "model_type": "gemma2", "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 6, "head_dim": 64,
    "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 64000, "sliding_window": 256,
}  # fmt: skip
MIXTRAL = {
    "model_type": "mixtral", "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 6,
    "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 8000, "num_local_experts": 4,
    "num_experts_per_tok": 2,
}  # fmt: skip

MODELS = {"llama": LLAMA, "gpt2": GPT2, "gemma2": GEMMA, "mixtral": MIXTRAL}
METHODS = ("full", "mixed", "lora", "qlora")


TIERS = ("reserved", "process", "low", "high")


def job(model="llama", method="full", checkpointing="none", batch=4, length=512, **changes) -> Job:
    made = Job(model=MODELS[model], micro_batch_size=batch, sequence_length=length)
    made.weights.dtype = "float32" if method == "mixed" else "bfloat16"
    made.precision.autocast = None if method == "full" else "bfloat16"
    made.activation_checkpointing = checkpointing
    if method in ("lora", "qlora"):
        made.method, made.adapter = "lora", Adapter(r=8, targets="all-linear", dropout=0.05)
    if method == "qlora":
        made.weights.quantization = Quantization("bnb-nf4", 4, double_quant=True)
    return made.with_changes(changes)


def explain(made: Job, gpu: str | None = "a100-80gb", spread="doubt"):
    """As rules ask; `spread="always"` for the line of batches of many lengths, which takes six more replays."""
    model, card = resolve(made.model), find(gpu) if gpu else None
    return explained(estimate_job(made, model, card, spread=spread), made, model)


def sums(estimate) -> Counter[str]:
    found: Counter[str] = Counter()
    for term in estimate.terms:
        found[term.component] += term.size
    return found


@pytest.mark.parametrize("card", ["a100-80gb", "rtx-3060-12gb", None])
@pytest.mark.parametrize("engine", ["vllm", "sglang", "tgi", "lmdeploy", "tensorrt-llm"])
def test_lines_of_an_engine_sum_to_what_it_holds(engine, card):
    served = Job(kind="inference", inference=Inference(engine=engine, max_model_len=2048))
    served.weights.dtype = "bfloat16"
    for model in (LLAMA, {**LLAMA, "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 24}):
        found = estimate_job(served, resolve(model), find(card) if card else None)
        lines = sums(found)
        assert {name: lines[name] for name in found.components} == found.components
        assert [term.size for term in found.terms if term.label == "cuBLAS workspace"]


def value(formula: str) -> float | None:
    """What a formula's arithmetic gives: factors joined by ` x `, and a divisor; None where it is no arithmetic."""
    product, _, divisor = formula.partition(" / ")
    found = 1.0
    for factor in [*product.split(" x "), *([divisor] if divisor else [])]:
        number = re.match(r"-?[\d,]+(\.\d+)?(e[+-]?\d+)?(?![\w.])", factor.strip())
        if number is None:
            return None
        each = float(number[0].replace(",", ""))
        found = found / each if factor is divisor else found * each
    return found


def check(estimate) -> None:
    held, tiers = sums(estimate), estimate.per_gpu
    assert {name: held[name] for name in estimate.components} == estimate.components
    assert [held[name] for name in TIERS] == [getattr(tiers, name) for name in TIERS]


@pytest.mark.parametrize(("model", "method"), list(itertools.product(MODELS, METHODS)))
@pytest.mark.parametrize("checkpointing", ["none", "full"])
def test_lines_sum_to_the_components(model, method, checkpointing):
    check(explain(job(model, method, checkpointing), spread="always"))


@pytest.mark.parametrize(
    "changes",
    [
        {"gradient_accumulation_steps": 4},
        {"attention": "eager"},
        {"loss.kernel": "liger", "liger_kernels": True},
        {"activation_checkpointing": "selective"},
        {"activation_checkpointing": "offload"},
        {"activation_checkpointing": "full", "reentrant": True},
        {"objective": "dpo"},
        {"micro_batch_size": None},
        {"hardware.gpus": 4},
        {"hardware.gpus": 4, "parallelism.pipeline": 4},
        {"hardware.gpus": 4, "parallelism.pipeline": 2, "gradient_accumulation_steps": 8},
        {"hardware.gpus": 4, "parallelism.tensor": 2},
        {"hardware.gpus": 4, "parallelism.zero": Zero(stage=2)},
        {"hardware.gpus": 4, "parallelism.zero": Zero(stage=3, offload_optimizer=Offload("cpu"))},
        {"hardware.gpus": 4, "parallelism.fsdp": Fsdp(wrap="transformer")},
        {"hardware.gpus": 4, "parallelism.fsdp": Fsdp(version=2, wrap="transformer")},
    ],
)
@pytest.mark.parametrize("method", METHODS[:3])
def test_lines_sum_whatever_the_plan(changes, method):
    check(explain(job(method=method, **changes)))


AWAY = Offload("cpu")
PLANS = [
    Zero(stage=0), Zero(stage=1), Zero(stage=2), Zero(stage=2, overlap_comm=True), Zero(stage=3),
    Zero(stage=2, offload_optimizer=AWAY), Zero(stage=3, offload_optimizer=AWAY, offload_parameters=AWAY),
    Zero(stage=3, offload_optimizer=Offload("cpu", ratio=0.5)), Zero(stage=1, library="megatron"),
    Fsdp(wrap="transformer"), Fsdp(version=2, wrap="transformer"), Fsdp(wrap="transformer", sharding="shard_grad_op"),
    Fsdp(wrap="none"), Fsdp(version=2, wrap="transformer", offload=True), None,
]  # fmt: skip


@pytest.mark.parametrize("batch", [1, 32])
@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_a_sharded_plan_s_peak_multiplies_out(plan, batch):
    """At the optimizer step with one short row, in backward with many: each line's arithmetic gives its size."""
    path = "zero" if isinstance(plan, Zero) else "fsdp"
    changes = {f"parallelism.{path}": plan, "hardware.gpus": 4, "precision.master_weights": isinstance(plan, Zero)}
    found = explain(job(checkpointing="full", batch=batch, length=64, **changes))
    check(found)
    for term in found.terms:
        given = value(term.formula)
        if given is not None and " x " in term.formula and "one before" not in term.formula:
            assert given == pytest.approx(term.size, rel=2e-4, abs=4096), term


def test_an_optimizer_that_steps_in_backward_has_one_gradient_in_hand():
    found = explain(job(batch=1, length=64, **{"optimizer.name": "adamw_torch_forloop", "optimizer.in_backward": True}))
    check(found)
    (line,) = [term for term in found.terms if term.component == "gradients"]
    assert "each is used up at once" in line.label


@pytest.mark.parametrize("version", [1, 2])
def test_scales_of_packed_shards_are_a_line_of_their_own(version):
    """What a rank has of the codes is told by its own arithmetic; scales hang on the tensor and stay whole."""
    packed = Quantization("bnb-nf4", 4, storage_dtype="bfloat16")
    plan = {"parallelism.fsdp": Fsdp(version=version, wrap="transformer"), "weights.quantization": packed}
    found = explain(job(method="qlora", **{"hardware.gpus": 4, **plan}))
    check(found)
    (codes,) = [term for term in found.terms if " packed " in term.formula]
    assert value(codes.formula) == pytest.approx(codes.size, rel=1e-3)
    assert [term for term in found.terms if term.label.startswith("scales and tables")]


@pytest.mark.parametrize("version", [1, 2])
def test_gradients_that_wait_for_the_last_micro_step_are_derived(version):
    deferred = {"parallelism.fsdp": Fsdp(version=version, wrap="transformer"), "gradient_accumulation_steps": 4}
    found = explain(job(checkpointing="full", batch=32, length=64, **{"hardware.gpus": 4, **deferred}))
    check(found)
    (line,) = [term for term in found.terms if term.component == "gradients"]
    assert value(line.formula) == line.size
    assert "no_sync" in line.label


@pytest.mark.parametrize("kept", [{}, {"keeps_logits": True}, {"keeps_logits": True, "accumulation_steps": 4}])
def test_an_evaluation_s_peak_is_derived_tensor_by_tensor(kept):
    found = explain(job(batch=1, length=64, evaluation=Evaluation(micro_batch_size=64, **kept)))
    assert found.peak_phase == "evaluation"
    check(found)
    logits = [term for term in found.terms if term.component == "logits"]
    assert all(" x " in term.formula or "earlier" in term.label for term in logits)


def test_what_a_card_s_end_takes_off_is_no_managed_memory():
    """A paged optimizer finds room beside what torch reserves; on a card that may be full a line is negative."""
    paged = job(batch=20, **{"optimizer.name": "paged_adamw_8bit"})
    roomy, full = (explain(paged, card) for card in ("h100-80gb", "rtx-3060-12gb"))
    for found in (roomy, full):
        (managed,) = (term for term in found.terms if term.label == MANAGED and term.component == "process")
        assert managed.size > 0
    assert not [term for term in roomy.terms if term.label == FULL]
    assert all(term.size < 0 for term in full.terms if term.label == FULL)
    assert full.per_gpu.high == find("rtx-3060-12gb").usable


@pytest.mark.parametrize("engine", ["transformers", "vllm"])
def test_lines_of_inference_sum(engine):
    made = Job(
        kind="inference", model=LLAMA, inference=Inference(engine=engine, batch_size=2, prompt_length=256, new_tokens=8)
    )
    made.weights.dtype = "bfloat16"
    check(explain(made))


@pytest.mark.parametrize(("model", "method"), list(itertools.product(MODELS, METHODS)))
def test_arithmetic_gives_the_size(model, method):
    pure = 0
    for checkpointing in ("none", "full"):
        for term in explain(job(model, method, checkpointing)).terms:
            found = value(term.formula)
            if found is not None:
                pure += 1
                assert found == pytest.approx(term.size, rel=2e-4, abs=4096), term
            if term.component in ("activations", "logits"):
                assert found == term.size
    assert pure > 20


@pytest.mark.parametrize("plan", [{"parallelism.fsdp": Fsdp(version=2)}, {"parallelism.zero": Zero(stage=3)}])
def test_arithmetic_of_experts_that_are_divided_twice(plan):
    """4 ranks divide them by 2, and 2 ranks what is left."""
    divided = {"hardware.gpus": 4, "parallelism.expert": 2, **plan}
    terms = [term for term in explain(job("mixtral", **divided)).terms if term.component in ("weights", "gradients")]
    assert {term.formula.rpartition("/ ")[2] for term in terms} >= {"2 GPUs", "4 GPUs"}
    for term in terms:
        if term.formula.endswith("GPUs"):
            assert value(term.formula) == pytest.approx(term.size, rel=2e-4, abs=4096), term


def test_arithmetic_of_the_test_itself():
    assert value("31 layers x 2 B x 4 x 2,048") == 31 * 2 * 4 * 2048
    assert value("100 B x 3 / 4 trainable elements") == 75
    assert value("cuBLAS workspaces") is None


def test_recording_changes_nothing():
    for model, method, checkpointing in itertools.product(MODELS, METHODS, ("none", "full", "selective")):
        made = job(model, method, checkpointing)
        whole = network(made, resolve(made.model))
        kinds, assigned = whole.kinds()
        named = Recording()
        plain = replay(whole, kinds)
        replay(whole, kinds, named)
        assert largest(placed(whole, named, kinds, assigned)) == largest(placed(whole, plain, kinds, assigned))
        assert [sum(alive.values()) for alive in named.at_events] == [event.live for event in named.events]
        for key, bound in named.begins.items():
            assert sum(named.at_begins[key].values()) == bound.live


def largest(found):
    """The largest instant of each phase. Leaves that are ready at once run in any order."""
    best = {}
    for instant in (item.candidate for item in found):
        held = best.get(instant.phase)
        if held is None or instant.activations + instant.logits > held.activations + held.logits:
            best[instant.phase] = instant
    return best


def test_nothing_is_recorded_unless_asked(monkeypatch):
    monkeypatch.setattr(tensors, "Recording", None)
    made = job()
    model = resolve(made.model)
    plain = estimate_job(made, model, None)
    assert any(term.component == "activations" for term in plain.terms)
    with pytest.raises(TypeError):
        explained(plain, made, model)


def test_what_is_alive_is_named():
    terms = explain(job(batch=1, length=512)).terms
    lines = {term.label: term for term in terms}
    up = lines["MLP up projection: output"]
    assert up.formula.endswith("layers x 2 B x 512 x 2,816")
    assert any("norm before attention: float32 copy" in label for label in lines)
    cast = [term for term in explain(job(method="mixed")).terms if term.label == "lm_head: weight cast by autocast"]
    assert [term.formula for term in cast] == ["2 B x 32,000 x 1,024"]
    checkpointed = explain(job(checkpointing="full", batch=16, length=512)).terms
    assert any(term.label == "residual stream: sum" and "layers x" in term.formula for term in checkpointed)


@pytest.mark.parametrize("family", ["mllama", "llava_onevision", "idefics3", "gemma4", "lfm2_vl"])
def test_a_vision_tower_is_told_from_what_else_is_before_the_layers(root, family):
    configs = json.loads((root / "tests/estimator/data/images.json").read_text())["configs"]
    made = Job(model=configs[family], micro_batch_size=1, sequence_length=2048, images=1)
    found = explain(made)
    labels = {term.label for term in found.terms}
    assert any(label.startswith("vision tower: ") for label in labels)
    assert "vision tower: run" not in labels
    assert sums(found)["activations"] == found.peak.components["activations"]


CODE = """
def named(tape):
    return tape.new(3, 2)

@labelled("{width} thing")
def stated(tape):
    return tape.new(3, 2)

@labelled("thing", part="own part")
def apart(tape):
    return tape.new(3, 4)

@labelled(by=("slot", {"1": "first slot"}))
def by_slot(tape, slot):
    return named(tape)

def inside(tape):
    return apart(tape)
"""


def test_a_tensor_is_called_what_the_code_that_makes_it_says():
    """The function's words before the module's part, and both before the function's name."""
    module = {"__name__": "gpulint.estimator.somewhere", "PART": "its module", "labelled": labelled}
    exec(CODE, module)
    tape = Recording()

    def label(function, *arguments):
        made = module[function](tape, *arguments)
        (found,) = tape.alive()
        del made
        return found.where, found.what

    assert label("named") == ("its module", "named")
    assert label("stated") == ("its module", "16-bit thing")
    assert label("apart") == ("own part", "thing")
    assert label("inside") == ("own part", "thing")
    del module["PART"]
    assert label("by_slot", 1) == ("first slot", "named")
    assert label("by_slot", "2nd_one") == ("2nd one", "named")
    assert label("named") == ("model", "named")


def test_plumbing_makes_tensors_for_others():
    assert all(importlib.import_module(name) for name in recording._PLUMBING)


def test_sources_of_measured_figures_are_told():
    terms = [term for term in explain(job()).terms if term.component == "runtime"]
    assert terms
    assert all(term.source and term.label.endswith("measured") for term in terms)
