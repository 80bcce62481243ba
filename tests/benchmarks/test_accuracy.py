"""The scorer of estimates against published figures."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import is_dataclass, replace

import pytest

from benchmarks.accuracy import (
    figures,
    fms_rows,
    fresh_rows,
    headline,
    listing,
    litgpt_rows,
    megatron_rows,
    pages,
    plain_rows,
    recipe_rows,
    record,
    scores,
    sources,
)
from benchmarks.accuracy.case import FAILED, GIB, Case, Inexpressible, gpu_of, read_rows, versions
from benchmarks.accuracy.scores import Score, Verdicts
from gpulint.job.job import Adapter, Inference, Job, Quantization


@pytest.fixture(scope="module")
def everything(shared):
    return sources.everything()


def job(**fields) -> Job:
    return Job(model="meta-llama/Llama-2-7b-hf", method="full", micro_batch_size=1, sequence_length=512, **fields)


def case(measured, outcome=None, figure="allocated", **fields) -> Case:
    made = job(**fields)
    made.hardware.gpu = "a100-80gb"
    return Case("row", "group", made, figure, measured, outcome)


def test_versions_are_read_from_a_sentence():
    text = "torch 2.4.1, transformers 4.45.2, lit-gpt commit 8641822, bitsandbytes==0.43.3+cu121"
    assert versions(text) == {"torch": "2.4.1", "transformers": "4.45.2", "bitsandbytes": "0.43.3"}
    assert versions(None) == {}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("H100 80GB (79.20 GiB)", "h100-80gb"),
        ("not stated in log", None),
        ("48GB class", None),
        ("Quantum 9000", None),
    ],
)
def test_gpu_names(name, expected):
    assert gpu_of(name) == expected


def test_error_is_relative_to_the_measured_value():
    estimate = figures.run(case(1).job)
    exact = case(float(estimate.per_gpu.allocated))
    double = case(estimate.per_gpu.allocated / 2)
    found, refused = scores.score_all([exact, double])
    assert [item.error for item in found] == [0.0, 1.0]
    assert not refused


def test_the_process_is_held_to_its_interval():
    process = scores.score_all([case(70 * GIB, figure="process")])[0][0]
    inside = process.estimate.per_gpu.low <= 70 * GIB <= process.estimate.per_gpu.high
    assert process.covered is inside


def test_what_is_allocated_is_held_to_what_the_assumptions_move_and_five_per_cent_about_it():
    given = case(1)
    size = figures.run(given.job).per_gpu.allocated
    near, far = scores.score_all([case(size * 1.04), case(size * 1.06)])[0]
    assert (near.covered, far.covered) == (True, False)
    given.job.optimizer.name = "nobody_s_optimizer"
    doubtful = figures.run(given.job)
    (moved,) = (item for item in doubtful.assumptions if item.field == "optimizer.name" and item.high)
    low, high = figures.interval(given, doubtful)
    assert low < (doubtful.per_gpu.allocated - moved.low) < (doubtful.per_gpu.allocated + moved.high) < high
    assert figures.interval(given._replace(figure="weights"), doubtful) is None


def test_what_is_reserved_on_a_full_card_leaves_room_for_the_least_overhead():
    given = case(1, figure="reserved")
    estimate = figures.run(given.job)
    outside = figures.process_overhead(figures.gpu(given.job), given.job)
    card = replace(estimate.capacity, usable=estimate.per_gpu.high)
    open_, full = (figures.interval(given, replace(estimate, capacity=found)) for found in (estimate.capacity, card))
    assert estimate.per_gpu.high < estimate.capacity.usable
    assert (open_[0], full[0]) == (estimate.per_gpu.low - outside.low,) * 2
    assert open_[1] == estimate.per_gpu.high - outside.high
    assert full[1] == estimate.per_gpu.high - outside.low


def test_a_counter_that_begins_anew_may_be_of_the_first_step_which_has_no_states():
    given = case(1)
    estimate = figures.run(given.job)
    states = estimate.components["optimizer"]
    once, anew = (figures.interval(given._replace(each_step=each), estimate) for each in (False, True))
    assert states > 0
    assert (once[0] - anew[0], once[1]) == (states, anew[1])


def test_what_the_estimator_refuses_is_listed_with_its_reason():
    unknown = case(1)._replace(job=Job(model="nobody/nothing", micro_batch_size=1, sequence_length=1))
    found, refused = scores.score_all([unknown])
    assert not found
    assert "nobody/nothing" in refused[0].reason


def test_summary_statistics():
    estimate = figures.run(case(1).job)
    size = estimate.per_gpu.allocated
    items, _ = scores.score_all([case(size), case(size / 1.1), case(size / 0.8)])
    total = scores.summary("x", items)
    assert total.n == 3
    assert total.mape == pytest.approx(0.1)
    assert total.median == pytest.approx(0.0)
    assert (total.over, total.under) == (pytest.approx(0.1), pytest.approx(-0.2))


def test_verdicts_count_missed_and_alarms():
    fits, oom = case(None, "fits"), case(None, "oom")
    items, _ = scores.score_all([fits, oom])
    answer = items[0].estimate.verdict
    whole = next(found for found in scores.verdicts(items) if found.name == "all")
    assert whole.counts == {"fits": {answer: 1}, "oom": {answer: 1}}
    assert whole.missed == (answer == "fits")
    assert whole.alarms == (answer == "exceeds")


def test_stages_of_a_layer_split_hold_a_share_each_and_the_head_once():
    made = Job(kind="inference", model="meta-llama/Llama-2-7b-hf")
    made.weights.dtype = "bfloat16"
    made.inference = Inference(batch_size=1, prompt_length=1024, new_tokens=16)
    made.hardware.gpus = 2
    whole = figures.run(made.with_changes({"hardware.gpus": 1})).per_gpu.allocated
    both = figures.FIGURES["allocated summed"](made, figures.run(made))
    one = figures.FIGURES["allocated summed"](made.with_changes({"hardware.gpus": 1}), figures.run(made))
    assert one == pytest.approx(whole, rel=0.001)
    assert whole < both < 1.1 * whole


def test_the_first_of_several_gpus_holds_the_prompts_logits_that_the_last_one_made():
    """Until 4.42 `generate` holds them in its second step, on the GPU that the prompt came from."""

    def both(version: str) -> float:
        made = Job(kind="inference", model="meta-llama/Meta-Llama-3-8B", versions={"transformers": version})
        made.weights.dtype = "bfloat16"
        made.inference = Inference(batch_size=1, prompt_length=8192, new_tokens=2)
        made.hardware.gpus = 2
        return figures.FIGURES["allocated summed"](made, figures.run(made))

    logits, cache, layer = 4 * 8192 * 128256, 2 * 2 * 8192 * 1024 * 32, 2 * 8192 * (4 * 4096 + 3 * 14336)
    more = both("4.41.2") - both("4.42.4")
    assert more == pytest.approx(logits + cache / 2 - layer, rel=0.05)


def test_a_worse_mean_a_smaller_group_and_a_missed_run_are_noticed():
    before = record.build([Score("a", 3, 0.10, 0, 0, 0, 0, None)], [Verdicts("all", {"fits": {}, "oom": {}})])
    same = record.build([Score("a", 3, 0.101, 0, 0, 0, 0, None)], [Verdicts("all", {"fits": {}, "oom": {}})])
    worse = record.build([Score("a", 3, 0.11, 0, 0, 0, 0, None)], [Verdicts("all", {"fits": {}, "oom": {"fits": 1}})])
    fewer = record.build([Score("a", 2, 0.01, 0, 0, 0, 0, None)], [Verdicts("all", {"fits": {}, "oom": {}})])
    assert not record.worse(before, same)
    assert len(record.worse(before, worse)) == 2
    assert len(record.worse(before, fewer)) == 1


def answers(*given):
    return [headline.Answer(*answer) for answer in given]


def test_a_line_counts_figures_intervals_and_verdicts_apart():
    found = headline.line(
        "x",
        answers(
            (0.02, True, "fits", "fits"),
            (-0.1, False, "fits", "exceeds"),
            (0.3, None, "oom", "tight"),
            (None, None, "oom", "fits"),
            (None, None, "oom", None),
        ),
    )
    assert found == headline.Line("x", 3, 0.1, 2, 1, 2, 1, 2, 1, 2)
    (cells,) = headline.cells([found])
    assert cells == ("x", "3", "10.0%", "67% of 3", "50% of 2", "1 of 2", "1 of 2")


def test_a_line_of_outcomes_alone_has_no_errors():
    (cells,) = headline.cells([headline.line("x", answers((None, None, "oom", "exceeds")))])
    assert cells == ("x", "0", "", "", "", "0 of 1", "")


def test_what_got_worse_in_a_line_is_noticed():
    before = headline.line("x", answers((0.1, True, None, None), (0.1, True, None, None)))

    def worse(after):
        return record.worse(record.build([], [], [before]), record.build([], [], [after]))

    assert worse(before) == []
    assert worse(before._replace(median=before.median + record.SLACK)) == []
    assert worse(before._replace(median=0.1021)) == ["x: median error 10.00% -> 10.21%"]
    assert worse(before._replace(inside=1)) == ["x: inside 2 of 2 -> 1 of 2"]
    assert worse(before._replace(n=1)) == ["x: 2 figures, now 1"]
    assert worse(before._replace(name="y")) == ["x: 2 figures, now 0"]


def kind(gpus=1, engine=None, adapter=None, quantized=False, **fields):
    made = Job(kind="inference" if engine else "training", inference=Inference(engine=engine) if engine else None)
    made.hardware.gpus, made.adapter = gpus, adapter
    made.weights.quantization = Quantization("bnb-nf4", 4.0) if quantized else None
    for name, value in fields.items():
        setattr(made.parallelism, name, value)
    return headline.kind(Case("row", "group", made, "process", 1.0))


def test_kinds_of_jobs():
    lora = Adapter("lora", 8)
    assert kind(engine="vllm", gpus=3) == "vLLM start"
    assert kind(engine="sglang") == "SGLang start"
    assert kind(engine="transformers") == "generation and other engines"
    assert kind(adapter=lora, quantized=True, gpus=3) == "QLoRA"
    assert kind(adapter=lora) == "LoRA and other adapters"
    assert kind() == "full training, one GPU"
    assert kind(gpus=3) == "full training, data parallel (DDP, ZeRO, FSDP)"
    for degree in ("tensor", "pipeline", "context", "expert"):
        assert kind(gpus=3, **{degree: 3}) == "full training, tensor, pipeline, context or expert parallel"


def test_first_answers_count_what_was_answered_first():
    row = {"id": "a", "group": "fresh x", "figure": "process", "measured": 100, "outcome": "oom"}
    said = {**row, "blind": {"value": 90, "low": 80, "high": 95, "verdict": "fits"}}
    part = {**row, "blind": {"value": 90, "figure": "weights", "verdict": "exceeds"}}
    silent = {**row, "blind": {"reason": "no such model"}}
    found = headline.first_answers([said, part, silent])
    assert found == answers(
        (pytest.approx(-0.1), False, "oom", "fits"), (None, None, "oom", "exceeds"), (None,) * 2 + ("oom", None)
    )


def test_the_newest_search_has_the_highest_number():
    rows = [{"group": name} for name in ("fresh a", "fresh b, set 9", "fresh c, set 10", "fresh d, set 10")]
    assert headline.newest(rows) == rows[2:]
    assert headline.newest(rows[:1]) == rows[:1]
    assert headline.newest([]) == []


def test_the_pages_of_accuracy_are_those_of_the_record(root):
    recorded = record.read()
    page = (root / "docs/accuracy.md").read_text(encoding="utf-8")
    assert pages.summary(page, recorded) == page
    assert pages.tables(recorded) == (root / "docs/accuracy-tables.md").read_text(encoding="utf-8")
    changes = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    assert pages.changelog(changes, recorded) == changes
    first, last = recorded["totals"][0], recorded["kinds"][-1]
    first["median"], last["missed"] = 0.777, 654
    changed = pages.summary(page, recorded)
    assert ("77.7%" in changed, "654 of" in changed) == (True, True)


def test_figures_in_the_words_of_the_page_are_in_its_tables_or_are_a_bound(root):
    page = (root / "docs/accuracy.md").read_text(encoding="utf-8")
    words = re.sub(r"<!-- (totals|kinds) -->.*?<!-- end -->", "", page, flags=re.DOTALL)
    assert set(re.findall(r"[\d.]+ ?%", words)) == {f"{figures.CLOSE * 100:.0f} %"}


def test_tables():
    rows = listing.score_rows([Score("a", 3, 0.1, -0.02, 0.2, 0.3, -0.4, 0.5)])
    assert rows == [("a", "3", "10.0%", "-2.0%", "20.0%", "+30.0%", "-40.0%", "50%")]
    assert listing.markdown(listing.HEAD, rows).splitlines()[2] == "| " + " | ".join(rows[0]) + " |"


def test_details_name_what_a_row_consists_of():
    text = listing.details(scores.score_all([case(70 * GIB, "fits")])[0][0])
    assert "70.000 GiB measured" in text
    assert "optimizer" in text
    assert "outcome fits" in text


def test_litgpt_head_is_never_tied():
    assert litgpt_rows.model_of("google/gemma-2b")["tie_word_embeddings"] is False
    assert litgpt_rows.model_of("microsoft/phi-1_5")["hidden_act"] == "gelu_pytorch_tanh"
    assert litgpt_rows.quantization("none") is None
    with pytest.raises(Inexpressible, match=r"bnb\.nf5"):
        litgpt_rows.quantization("bnb.nf5")


def test_bfloat16_is_not_taken_for_float16():
    row = {
        "model": "mistralai/Mistral-7B-v0.1", "attn_impl": "sdpa", "micro_batch": 1, "seq_len": 64, "lora": None,
        "precision_policy": "weights bfloat16; no autocast (pure bfloat16)", "quantization": None, "sharding": None,
        "fused_ce": "HF default CE (fp32 logits)", "gpu": None, "n_gpus": 1, "framework_version": None,
    }  # fmt: skip
    made = fms_rows.job_of(row)
    assert (made.weights.dtype, made.precision.autocast) == ("bfloat16", None)


def test_a_recipe_is_the_command_of_its_page(shared_data):
    rows = {row["id"]: row for row in shared_data("outcomes") if row["format"] == "vllm_recipe"}
    row = next(row for row in rows.values() if row["key_fields"]["model_id"] == "MiniMaxAI/MiniMax-M2.1")
    made = recipe_rows.case(row)
    assert (made.job.parallelism.tensor, made.job.hardware.gpu, made.outcome) == (4, "h100-80gb", "fits")


def test_every_row_is_scored_or_has_its_reason(everything, shared_data):
    cases, excluded = everything
    named = {item.id for item in [*cases, *excluded]}
    for table in ("measurements", "outcomes"):
        assert not {row["id"] for row in shared_data(table)} - named
    assert sum(item.group == "oracle" and item.figure == "allocated" for item in cases) == len(shared_data("oracle"))
    assert all(item.reason and not item.reason.startswith(FAILED) for item in excluded)


def test_a_row_in_words_that_no_reader_knows_is_left_out_and_says_so():
    rows = [{"id": "a", "kind": "known"}, {"id": "b", "kind": "other"}]
    found, (left,) = read_rows(rows, lambda row: row["kind"], {"known": lambda row: row["id"]})
    assert found == ["a"]
    assert left == ("b", "other", f"{FAILED}: KeyError 'other'")


def test_generation_of_a_new_source_is_read_by_its_columns(shared_data):
    """What a column leaves out is no guess; training is left out, whatever the columns say."""
    rows = {row["id"]: row for row in shared_data("measurements")}
    row = rows["qwen2.5-qwen2.5-72b-instruct-gptq-int4-in30720"]
    made = plain_rows.case({**row, "source_group": "a new one"})
    assert (made.group, made.figure) == ("a new one", sources.READERS["qwen_speed_benchmark"](row).figure)
    assert (made.job.weights.quantization.method, made.job.weights.quantization.bits) == ("gptq", 4)
    assert (made.job.attention, made.job.inference.prompt_length) == ("flash_attention_2", 30720)
    for column in ("seq_len", "weights_dtype"):
        with pytest.raises(Inexpressible, match="is not stated"):
            plain_rows.case({**row, column: None, "precision_policy": None})
    trained = next(row for row in shared_data("measurements") if row["category"] == "train_full")
    with pytest.raises(Inexpressible, match="no reader knows the source"):
        plain_rows.case(trained)


def test_accuracy_of_a_share_of_the_rows_does_not_get_worse(everything):
    """`python -m benchmarks.accuracy` compares all rows, which takes longer than the rest of the tests together."""
    found, _ = scores.score_all(filter(scores.is_tested, everything[0]))
    now = record.build(
        scores.by_group(found), scores.verdicts(found), headline.totals(found, []), headline.kinds(found)
    )
    assert len(found) > len(everything[0]) / scores.SHARE * 0.8
    assert not record.worse(record.read()["tested"], now)


def test_first_answers_of_the_searches_are_as_recorded():
    recorded = record.read()["scores"]
    blind = [*fresh_rows.blind(), *megatron_rows.blind()]
    now = record.build(blind, [])["scores"]
    assert now == {name: recorded[name] for name in now}
    assert len(now) > 100


def test_fresh_rows_say_where_they_come_from_and_what_was_first_answered():
    found = fresh_rows.rows()
    assert len({row["id"] for row in found}) == len(found) > 100
    for row in found:
        assert row["source"].startswith("https://"), row["id"]
        assert row["quote"], row["id"]
        assert len({"job", "command", "part"} & row.keys()) == 1, row["id"]
        said = "value" in row["blind"] or "reason" in row["blind"]
        assert said == (row["measured"] is not None or "reason" in row["blind"]), row["id"]


def test_no_log_is_scored_twice():
    """A pool in tokens is that of one start, to the last digit. `stated pool` rows ask another question of it."""
    found, _ = fresh_rows.all_cases()
    pools = [case for case in found if case.figure == "kv_tokens" and case.measured and "stated pool" not in case.group]
    starts = Counter((case.measured, case.job.hardware.gpu, str(case.job.model)) for case in pools)
    assert len(pools) > 100
    assert [start for start, count in starts.items() if count > 1] == []


def test_a_first_answer_has_its_figure_beside_it_where_the_row_s_was_corrected():
    for row in fresh_rows.rows():
        first = row["blind"]
        assert first.keys() <= {"value", "low", "high", "verdict", "reason", "figure"}, row["id"]
        assert first.get("figure") != row["figure"], row["id"]


def test_what_a_refused_start_had_left_is_scored_however_far_off():
    refused = {"gpt-oss-120b-h100-default-pool", "minimax-m2-4xa800-0.13-pool", "granite-8b-a10g-32768"}
    given = [row for row in fresh_rows.rows() if row["id"] in refused]
    scored, _ = scores.score_all(fresh_rows.cases(given)[0])
    assert {item.case.id for item in scored if item.case.outcome == "oom" and item.error is not None} == refused
    (blind,) = fresh_rows.blind(given)
    assert (blind.name, blind.n) == ("fresh vllm logs, set 4 / kv_bytes (blind)", 3)


def test_fresh_rows_are_read():
    cases, excluded = fresh_rows.all_cases()
    unread = {row["id"] for row in fresh_rows.rows() if "reason" in row["blind"]}
    assert {row.id for row in excluded} <= unread
    assert {case.group for case in cases} == {row["group"] for row in fresh_rows.rows()}


def lacking(given, found, path=""):
    """The keys of a Job that is written out that name no field."""
    for key, value in given.items():
        if not hasattr(found, key):
            yield path + key
        elif isinstance(value, dict) and is_dataclass(getattr(found, key)):
            yield from lacking(value, getattr(found, key), f"{path}{key}.")


def test_jobs_of_fresh_rows_name_fields_that_there_are():
    jobs = {row["id"]: (row["job"], Job.validate(row["job"])) for row in fresh_rows.rows() if "job" in row}
    assert {name: keys for name, both in jobs.items() if (keys := list(lacking(*both)))} == {}


def test_a_command_of_a_fresh_row_is_read_as_a_script_is():
    serve = "vllm serve Qwen/Qwen2-7B-Instruct --max-model-len 4096 -tp 2"
    read = fresh_rows.read_command({"command": serve, "gpus": 2})
    assert (read.inference.engine, read.inference.max_model_len, read.parallelism.tensor) == ("vllm", 4096, 2)
    with pytest.raises(Inexpressible):
        fresh_rows.read_command({"command": "echo nothing", "gpus": 1})


def test_a_command_of_a_fresh_row_is_read_beside_its_files():
    config = "base_model: Qwen/Qwen2-7B\nsequence_len: 4096\nmicro_batch_size: 3\noptimizer: adamw_torch\n"
    row = {"command": "axolotl train configs/c.yml", "files": {"configs/c.yml": config}, "gpus": 1}
    read = fresh_rows.read_command(row)
    assert (read.model, read.sequence_length, read.micro_batch_size) == ("Qwen/Qwen2-7B", 4096, 3)


@pytest.mark.parametrize(
    ("release", "share"), [({"release": "0.17.1"}, None), ({"release": "0.20.0"}, None), ({}, 0.92)]
)
def test_what_a_command_leaves_out_is_that_of_the_row_s_release(release, share):
    """The newest release's share is written into a job that states none; an older one's is the estimator's to know."""
    command = "vllm serve Qwen/Qwen2-7B-Instruct --max-model-len 4096"
    row = {"id": "a", "group": "b", "source": "", "gpu": "h100-80gb", "gpus": 1, "command": command}
    job = fresh_rows.case({**row, **release, "figure": "kv_tokens", "measured": 1}).job
    assert job.inference.gpu_memory_utilization == share


def test_first_answers_are_scored_as_they_were():
    row = {"id": "a", "group": "fresh x", "figure": "weights", "measured": 100, "blind": {"value": 90}}
    held = {**row, "figure": "process", "blind": {"value": 110, "low": 95, "high": 120}}
    weights, process = fresh_rows.blind([row, held, {**row, "measured": None, "blind": {"verdict": "fits"}}])
    assert (weights.name, weights.mape, weights.coverage) == ("fresh x / weights (blind)", pytest.approx(0.1), None)
    assert (process.over, process.coverage) == (pytest.approx(0.1), 1.0)


def test_megatron_s_tests_are_read_and_held_against_the_last_stage():
    found, excluded = megatron_rows.cases()
    assert not excluded
    assert len({case.id for case in found}) == len(found) > 100
    assert {case.figure for case in found} == {megatron_rows.FIGURE}
    dense = {case.id: case for case in found}
    case = dense["megatron-gpt3_7b_tp4_pp1_memory_speed-h100"]
    assert figures.FIGURES[case.figure](case.job, None) == pytest.approx(case.measured, rel=0.03)
    blind = {score.name: score for score in megatron_rows.blind()}
    assert blind["megatron tests / last stage (blind)"].n == sum(case.group == "megatron tests" for case in found)


def test_a_figure_of_no_stated_counter_may_be_older_than_the_first_evaluation():
    row = {
        "id": "a", "group": "fresh x", "gpu": "a100-80gb", "gpus": 1, "figure": "process", "measured": 1,
        "command": "swift sft --model Qwen/Qwen2.5-3B --tuner_type full --torch_dtype bfloat16 --max_length 8192"
        " --packing true --use_liger_kernel true --attn_impl flash_attn --per_device_eval_batch_size 1"
        " --split_dataset_ratio 0.01",
    }  # fmt: skip
    stated, silent = fresh_rows.case(row), fresh_rows.case({**row, "counted": False})
    estimate = figures.run(stated.job)
    assert estimate.peak.name == "evaluation"
    trained = max(phase.allocated for phase in estimate.phases if phase.name != "evaluation")
    assert figures.interval(silent, estimate)[0] <= trained < figures.interval(stated, estimate)[0]


def test_a_figure_in_one_of_two_units_is_covered_by_either():
    estimate = figures.run(case(1).job)
    outside = case(float(2 * estimate.per_gpu.high))._replace(figure="process")
    (missed,), _ = scores.score_all([outside])
    assert missed.covered is False
    (held,), _ = scores.score_all([outside._replace(other=float(estimate.per_gpu.process))])
    assert held.covered is True
    rows = listing.outside_rows([missed._replace(case=outside._replace(unknown="the unit")), held])
    assert [(row[0], row[-1]) for row in rows] == [("group", "the unit")]


def test_the_tokens_of_a_cache_are_held_to_their_interval():
    made = Job(kind="inference", model="Qwen/Qwen3-8B", inference=Inference(engine="vllm", version="0.11.0"))
    made.hardware.gpu = "a100-80gb"
    row = Case("row", "group", made, "kv_tokens", 1.0)
    estimate = figures.run(made)
    low, high = figures.interval(row, estimate)
    assert low <= estimate.kv_cache.tokens <= high
    least, most = figures.interval(row._replace(figure="kv_bytes"), estimate)
    assert least <= figures.value(row._replace(figure="kv_bytes"), estimate) <= most
    made.inference.kv_cache_memory_bytes = GIB
    assert figures.interval(row, figures.run(made)) is None
