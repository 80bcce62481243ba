"""Facts that a config leaves open, in the interval of its estimate."""

from __future__ import annotations

import pytest

from gpulint.estimator import budget
from gpulint.estimator.allocator import runtime
from gpulint.estimator.allocator.allocator import segments
from gpulint.estimator.allocator.fragmentation import BEYOND, beyond
from gpulint.estimator.estimate import NotEstimable, verdict
from gpulint.estimator.estimate_job import estimate_job
from gpulint.estimator.training import estimate_training
from gpulint.estimator.uncertainty import gathered_anew, records, varies
from gpulint.hardware.catalogue import find
from gpulint.job.job import Job
from gpulint.job.origin import Origin
from gpulint.models.model import UnknownModel
from gpulint.models.resolve import resolve

MODEL = "gpt2-xl"


def job(**fields):
    return Job.validate(
        {
            "model": MODEL,
            "weights": {"dtype": "bfloat16"},
            "micro_batch_size": 8,
            "sequence_length": 1024,
            "packing": True,
            **fields,
        }
    )


def estimate(plan: Job, gpu: str | None = None):
    return estimate_job(plan, resolve(MODEL), find(gpu) if gpu else None)


def moved(found, field):
    return [item for item in found.assumptions if item.field == field and (item.low or item.high)]


def test_samples_of_any_length_leave_what_is_held_between_batches():
    packed, loose = estimate(job()), estimate(job(packing=False))
    (fact,) = moved(loose, "sequence_length")
    between = max(phase.allocated for phase in loose.phases if phase.name in ("load", "optimizer_step"))
    least = segments(between) + runtime.process_overhead(None, job()).low
    assert loose.per_gpu.low == least - beyond(least)
    assert fact.low * (1 - BEYOND) == pytest.approx(packed.per_gpu.low - loose.per_gpu.low, abs=2)
    assert fact.low > 0
    assert packed.per_gpu.process == loose.per_gpu.process
    assert loose.per_gpu.high == packed.per_gpu.high
    assert not moved(packed, "sequence_length")


@pytest.mark.parametrize(("torch", "open_"), [("2.5", True), ("2.13", False), (None, False)])
def test_what_an_older_torch_makes_of_a_compiled_step_is_open(torch, open_):
    """Two float32 copies of the largest tensor are counted: there may be none, or six."""
    versions = {"torch": torch} if torch else {}
    plan = job(optimizer={"name": "adamw_torch_8bit"}, activation_checkpointing="full", versions=versions)
    plan.micro_batch_size, plan.sequence_length = 1, 64
    found = estimate(plan)
    facts = moved(found, "versions.torch")
    assert bool(facts) is open_
    if open_:
        table = 4 * 50257 * 1600
        phases = {phase.name: phase.allocated for phase in found.phases}
        step, others = phases.pop("optimizer_step"), max(phases.values())
        peak = max(step, others)
        assert facts[0].low == peak - max(others, step - 2 * table)
        assert facts[0].high == step + 4 * table - peak


def test_a_gathered_tensor_that_is_no_whole_segment_opens_whole_ones():
    """32,001 x 4,096 elements of 2 B: 125.004 segments of 2 MiB, so 126."""
    (fact,) = gathered_anew(Job(), 2 * 32_001 * 4096)
    assert (fact.low, fact.high) == (0, 126 << 21)
    assert gathered_anew(Job(), 126 << 21)[0].high == 126 << 21
    assert gathered_anew(Job(), 0) == []


@pytest.mark.parametrize(
    ("rows", "longest", "said"), [(24, "fits", "fits"), (25, "tight", "tight"), (26, "exceeds", "tight")]
)
def test_uncut_rows_decide_where_the_longest_of_them_only_may_fit(rows, longest, said):
    """64 tokens fit in each case; rows as long as the model's 1,024 positions fit, may fit, and do not fit."""
    adapted = {"method": "lora", "adapter": {"r": 8, "targets": "all-linear"}, "activation_checkpointing": "full"}
    plan = job(micro_batch_size=rows, sequence_length=64, **adapted)
    assert estimate(plan, "l4").verdict == "fits"
    whole = plan.with_changes({"sequence_length": 1024})
    assert estimate_training(whole, resolve(MODEL), find("l4"), replay=False).verdict == longest
    plan.unstated = ["sequence_length"]
    assert estimate(plan, "l4").verdict == said


def test_the_longest_batch_finds_blocks_of_shorter_ones_too_small():
    """LLaMA-Factory issue 7409: 26.1 GB at 2,048 tokens of Qwen2-7B, whose longest batch alone takes 20."""
    rows = {"method": "lora", "adapter": {"r": 8, "targets": "all-linear"}, "activation_checkpointing": "full"}
    plans = [job(packing=False, allocator={"expandable_segments": given}, **rows) for given in (False, True)]
    loose, grown = (estimate(plan, "h100-80gb") for plan in plans)
    assert loose.verdict == "fits"
    assert not moved(estimate(plans[0]), "sequence_length")[0].high
    (fact,) = moved(loose, "sequence_length")
    transient = loose.peak.components["activations"] + loose.peak.components["logits"]
    assert transient < fact.high < 4 * transient
    assert sum(item.high for item in moved(grown, "sequence_length")) < fact.high / 2


def test_each_record_halves_what_is_left_to_the_limit():
    assert records(job(packing=False)) == [512, 768, 896, 960, 992, 1008]
    assert records(job(packing=False, sequence_length=1)) == [1]


def test_the_replays_of_shorter_batches_are_no_steps_of_a_search():
    before = budget.spent()
    estimate(job(sequence_length=1023), "h100-80gb")
    steady = budget.spent() - before
    estimate(job(sequence_length=1022, packing=False), "h100-80gb")
    assert budget.spent() - before - steady < 1.1 * steady


@pytest.mark.parametrize("field", ["packing", "padded", "longest_batch_first"])
def test_a_stated_length_is_not_up_to_the_data(field):
    assert varies(job(packing=False))
    assert not varies(job(**{"packing": False, field: True}))
    assert not varies(job(packing=False, framework="litgpt"))


def test_short_samples_do_not_make_a_config_safe():
    """The longest batch that the config admits may fail; who fills every row with that many tokens, fails."""
    large = {"micro_batch_size": 64, "packing": False}
    found = estimate(job(**large), "rtx-4090")
    assert found.verdict == "tight"
    assert found.per_gpu.low < found.capacity.usable < found.per_gpu.high
    assert estimate(job(**{**large, "packing": True}), "rtx-4090").verdict == "exceeds"


@pytest.mark.parametrize("gpu", ["t4", "rtx-4090"])
@pytest.mark.parametrize("packing", [False, True])
@pytest.mark.parametrize("rows", [1, 26, 64])
@pytest.mark.parametrize("open_", [[], ["sequence_length"], ["optimizer.foreach", "activation_checkpointing"]])
def test_the_verdict_is_that_of_the_printed_interval(gpu, packing, rows, open_):
    plan = job(micro_batch_size=rows, packing=packing, sequence_length=333)
    plan.unstated = open_
    found = estimate(plan, gpu)
    assert found.verdict == verdict(found.per_gpu, find(gpu))


def test_kernels_that_were_never_replayed_may_scatter_what_they_free():
    plain, fused = estimate(job()), estimate(job(loss={"kernel": "cut_cross_entropy"}))
    (fact,) = moved(fused, "loss.kernel")
    assert fact.high > 0 == fact.low
    assert fused.per_gpu.high - fused.per_gpu.process > fact.high
    assert not moved(plain, "loss.kernel")


def test_what_fits_takes_no_more_than_the_card():
    found = estimate(job(loss={"kernel": "cut_cross_entropy"}, micro_batch_size=2), "rtx-4090")
    wide = estimate(job(loss={"kernel": "cut_cross_entropy"}, micro_batch_size=2))
    assert found.verdict == "fits"
    assert found.per_gpu.high <= found.capacity.usable < wide.per_gpu.high


def test_an_unknown_optimizer_may_keep_nothing_or_twice_as_much():
    known, unknown = estimate(job()), estimate(job(optimizer={"name": "nobodys_optimizer"}))
    (fact,) = moved(unknown, "optimizer.name")
    assert fact.low == fact.high == unknown.peak.components["optimizer"] > 0
    assert unknown.per_gpu.high - unknown.per_gpu.low > known.per_gpu.high - known.per_gpu.low


def test_rows_padded_to_the_longest_of_a_batch_are_up_to_the_data():
    """What axolotl does with several rows a batch; `pad_to_sequence_len` sets the field from the file."""
    stated, derived = job(packing=False, padded=True), job(packing=False, padded=True)
    derived.origins["padded"] = Origin("derived", "rows of a batch are padded to its longest")
    assert varies(derived)
    assert not varies(stated)


@pytest.mark.parametrize(("version", "ahead"), [("4.57.1", False), ("5.0.0", True), ("5.3.0", True), ("5.4.0", False)])
def test_weights_may_be_read_faster_than_they_are_packed(version, ahead):
    plan = Job.validate(
        {
            "model": "meta-llama/Llama-2-7b-hf",
            "method": "lora",
            "weights": {"dtype": "bfloat16", "quantization": {"method": "bnb-nf4", "bits": 4}},
            "adapter": {"targets": "all-linear"},
            "micro_batch_size": 1,
            "sequence_length": 512,
            "packing": True,
            "versions": {"transformers": version},
        }
    )
    model = resolve(plan.model)
    found = estimate_job(plan, model, None)
    assert bool(moved(found, "versions.transformers")) is ahead
    assert (found.per_gpu.high > 2 * model.parameters) is ahead
    assert found.per_gpu.process < 2 * model.parameters


def test_states_that_wait_in_main_memory_are_there_for_the_step_alone():
    usual = {phase.name: phase.components for phase in estimate(job()).phases}
    found = estimate(job(optimizer={"states_offloaded_between_steps": True}))
    phases = {phase.name: phase.components for phase in found.phases}
    assert phases["optimizer_step"] == usual["optimizer_step"]
    assert phases["backward"]["optimizer"] == 0 < usual["backward"]["optimizer"]
    assert phases["backward"]["activations"] == usual["backward"]["activations"]
    assert found.host_memory.train == usual["backward"]["optimizer"] == found.host_memory.pinned


def test_a_step_may_take_the_states_that_wait_layer_by_layer():
    """What the rest of the run needs is the least, where the step with all of them is the peak."""
    found = estimate(job(optimizer={"states_offloaded_between_steps": True}, micro_batch_size=1, sequence_length=16))
    (waiting,) = moved(found, "optimizer.states_offloaded_between_steps")
    assert found.peak.name == "optimizer_step"
    others = max(phase.allocated for phase in found.phases if phase.name != "optimizer_step")
    assert 0 < waiting.low <= found.peak.allocated - others
    assert waiting.high == 0


def test_frozen_layers_that_wait_in_main_memory():
    adapter = {"method": "lora", "adapter": {"type": "lora", "r": 8, "targets": "all-linear"}}
    found = estimate(job(**adapter, weights={"dtype": "bfloat16", "frozen_layers_offloaded": True}))
    (waiting,) = moved(found, "weights.frozen_layers_offloaded")
    assert 0 < waiting.low < found.peak.components["weights"]
    assert not moved(estimate(job(**adapter)), "weights.frozen_layers_offloaded")


def test_layers_that_are_trained_do_not_wait():
    found = estimate(job(weights={"dtype": "bfloat16", "frozen_layers_offloaded": True}))
    assert not moved(found, "weights.frozen_layers_offloaded")


@pytest.mark.parametrize(("method", "unknown"), [("gptq", True), ("bnb-nf4", False)])
def test_packed_weights_may_be_stays_replicated_gpu_before_they_are_sharded(method, unknown):
    def sharded(efficient):
        return job(
            method="lora",
            adapter={"r": 8, "targets": ["c_attn"]},
            weights={"dtype": "bfloat16", "quantization": {"method": method, "bits": 4, "storage_dtype": "bfloat16"}},
            hardware={"gpus": 2},
            parallelism={"fsdp": {"version": 1, "wrap": "transformer", "cpu_ram_efficient_loading": efficient}},
        )

    there, first = estimate(sharded(False)), estimate(sharded(True))
    assert first.per_gpu.reserved < there.per_gpu.reserved
    assert first.per_gpu.allocated == there.per_gpu.allocated
    found = moved(first, "weights.quantization.method")
    assert bool(found) is unknown
    assert not moved(there, "weights.quantization.method")
    if found:
        assert first.per_gpu.high >= there.per_gpu.reserved


def test_a_length_that_nobody_states_reaches_up_to_the_model_s_positions():
    """The expected figures stay a lower bound; `high` is that of the longest row, or what the card has."""
    loose, longest = estimate(job(sequence_length=None)), estimate(job())
    (fact,) = moved(loose, "sequence_length")
    assert fact.value == "up to 1024"
    assert loose.per_gpu.process < longest.per_gpu.process
    assert loose.per_gpu.high >= longest.per_gpu.process
    small = estimate(job(sequence_length=None, micro_batch_size=64), "rtx-4090")
    assert small.per_gpu.high <= max(find("rtx-4090").usable, small.per_gpu.process)
    assert not moved(estimate(job(sequence_length=None, micro_batch_size=None)), "sequence_length")


def test_further_heads_may_take_a_layer_and_a_loss_each():
    plain, found = estimate(job()), estimate(job(further_heads=2))
    (fact,) = moved(found, "further_heads")
    logits = max(phase.components.get("logits", 0) for phase in plain.phases)
    assert fact.high > 2 * logits > 0 == fact.low
    assert found.per_gpu.high == plain.per_gpu.high + fact.high
    assert found.per_gpu.process == plain.per_gpu.process


@pytest.mark.parametrize(
    ("torch", "compiled", "opens"), [("2.8.0", True, True), ("2.8.0", False, False), ("2.13.0", True, False)]
)
def test_an_older_inductor_may_copy_the_logits_of_megatron_s_fused_loss_once_more(torch, compiled, opens):
    given = job(framework="megatron", loss={"compiled": compiled}, versions={"torch": torch}, objective="pretrain")
    found = estimate(given)
    assert bool(moved(found, "loss.compiled")) is opens
    if opens:
        (fact,) = moved(found, "loss.compiled")
        assert 0 < fact.high <= 4 * 8 * 1024 * 50257
        assert fact.low == 0


def test_a_teacher_is_another_frozen_model_and_its_divergence_is_bounded():
    plain, taught = estimate(job()), estimate(job(rl={"teacher": MODEL}))
    weights = resolve(MODEL).parameters * 2
    assert taught.components["weights"] - plain.components["weights"] == pytest.approx(weights, rel=0.01)
    (fact,) = moved(taught, "rl.teacher")
    assert fact.high == 16 * 2 * 8 * 1024 * 50257
    unknown = estimate(job(rl={"teacher": "nobody/knows-this"}))
    assert unknown.components["weights"] == taught.components["weights"]


@pytest.mark.parametrize("objective", ["classification", "reward"])
def test_an_evaluation_without_a_vocabulary_makes_no_logits(objective):
    found = estimate(job(objective=objective, evaluation={"micro_batch_size": 64}))
    evaluated = next(phase for phase in found.phases if phase.name == "evaluation")
    assert not evaluated.components["logits"]


@pytest.mark.parametrize("name", ["Qwen/Qwen2.5-VL-7B-Instruct", "google/gemma-3-4b-it"])
def test_images_and_lengths_take_the_same_bytes_of_a_batch_off_once(name):
    fields = {
        "model": name, "method": "lora", "adapter": {"r": 8, "targets": "all-linear"}, "micro_batch_size": 2,
        "sequence_length": 2048, "packing": False, "weights": {"dtype": "bfloat16"},
    }  # fmt: skip
    low = [estimate_job(job(**fields, **more), resolve(name), None).per_gpu.low for more in ({}, {"images": 0})]
    assert low[0] == pytest.approx(low[1], rel=0.01)


@pytest.mark.parametrize(
    ("name", "fields", "said"),
    [
        ("meta-llama/Llama-3.2-11B-Vision-Instruct", {"objective": "classification"}, "no vocabulary embedding"),
        ("unsloth/gemma-3n-E2B-it", {"parallelism": {"pipeline": 4}, "hardware": {"gpus": 4}}, "pipeline stage"),
        ("Qwen/Qwen3.5-9B", {"framework": "litgpt"}, "without attention"),
    ],
)
def test_what_is_not_derived_is_said_in_words(name, fields, said):
    with pytest.raises((NotEstimable, UnknownModel), match=said):
        estimate_job(job(model=name, **fields), resolve(name), None)


@pytest.mark.parametrize(("method", "waits"), [("nvfp4", True), ("gptq", False), ("bnb-nf4", False)])
def test_a_packed_checkpoint_may_be_in_main_memory_before_it_is_sharded(method, waits):
    """Who reads it decides that: bitsandbytes and AutoGPTQ are known to read it onto the GPU."""
    given = job(
        method="lora",
        adapter={"r": 8, "targets": ["c_attn"]},
        weights={"dtype": "bfloat16", "quantization": {"method": method, "bits": 4, "storage_dtype": "bfloat16"}},
        parallelism={"fsdp": {"version": 2, "wrap": "transformer"}},
        hardware={"gpus": 8},
        micro_batch_size=1,
        sequence_length=16,
    )
    found = moved(estimate(given), "weights.quantization.method")
    assert [item.low > 0 for item in found] == ([True] if waits else [])


def test_rows_that_nothing_cuts_may_be_too_long_for_a_card_that_short_ones_already_fill():
    """Batches that get longer may fill the card anyway, and rows as long as the model's positions would not fit."""
    card = find("rtx-4090")
    given = {"sequence_length": 256, "packing": False, "micro_batch_size": 64, "activation_checkpointing": "full"}
    cut, uncut = (
        estimate_job(job(**given, optimizer={"name": "adamw_8bit"}, unstated=open_), resolve(MODEL), card)
        for open_ in ([], ["sequence_length"])
    )
    assert cut.verdict == "fits"
    assert uncut.verdict == "tight"
