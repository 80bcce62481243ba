"""What is said of keys belongs to the release that is stated or pinned, on both sides of every boundary."""

import json
import random
from contextlib import suppress
from itertools import pairwise

import pytest

from gpulint.formats.core.format import Problem, Project
from gpulint.formats.core.key_changes import UntakenKeyError
from gpulint.formats.core.keys import branches, is_old, key_problems, load
from gpulint.formats.core.releases import of_release, stating
from gpulint.formats.serving import vllm
from gpulint.repository.pins import Pin
from gpulint.run.check import check
from gpulint.settings.settings import Settings
from gpulint.source.node import Span
from gpulint.source.read import parse
from gpulint.upstream.behaviour import numbers, older
from gpulint.upstream.key_releases.table import (
    SOURCES,
    before,
    is_tabled,
    releases,
    spans,
    standing,
    tables,
    takes,
)
from gpulint.upstream.packages import Bound, known_package, representative

SPAN = Span(3, 1, 3, 9, 20, 28)


def told(schema, key, versions, pins=None, value="1"):
    """The problems of one key: kind, upstream, stated."""
    text = json.dumps({key: value})
    with stating(versions, pins or {}):
        problems = key_problems(parse(text, "a.json", "json"), schema)
    found = [item for item in problems if item.kind in ("unknown-key", "deprecated-key")]
    return [(item.kind, item.values["upstream"], item.values["stated"]) for item in found]


# read by hand in the files of the releases named: training_args.py, sft_config.py, engine/arg_utils.py,
# entrypoints/openai/cli_args.py, server_args.py, runtime/zero/config.py, hparams/finetuning_args.py,
# utils/schemas/config.py, launcher/src/main.rs, cli/train_ppo_ray.py
BY_HAND = [
    ("hf_trainer", "eval_strategy", "transformers", "4.40.2", "4.41.0", "comes"),
    ("hf_trainer", "evaluation_strategy", "transformers", "4.50.3", "4.51.0", "goes"),
    ("hf_trainer", "use_cache", "transformers", "4.57.6", "5.0.0", "comes"),
    ("hf_trainer", "max_seq_length", "trl", "0.19.1", "0.20.0", "goes"),
    ("hf_trainer", "vllm_mode", "trl", "0.17.0", "0.18.0", "comes"),
    ("vllm", "enable-reasoning", "vllm", "0.9.2", "0.10.0", "goes"),
    ("vllm", "kv-cache-dtype", "vllm", "0.2.7", "0.3.0", "comes"),
    ("vllm", "enable-expert-parallel", "vllm", "0.7.3", "0.8.0", "comes"),
    ("vllm", "num-scheduler-steps", "vllm", "0.10.0", "0.10.1", "goes"),
    ("sglang", "enable-ep-moe", "sglang", "0.5.4", "0.5.4.post1", "goes"),
    ("deepspeed", "zero_optimization.zero_hpz_partition_size", "deepspeed", "0.9.5", "0.10.0", "comes"),
    ("llamafactory", "new_special_tokens", "llamafactory", "0.9.2", "0.9.3", "goes"),
    ("axolotl", "context_parallel_size", "axolotl", "0.11.0", "0.12.0", "comes"),
    ("tgi", "max-batch-prefill-tokens", "tgi", "0.8.2", "0.9.0", "comes"),
    ("verl_sft", "data.micro_batch_size", "verl", "0.1", "0.2", "goes"),
]


@pytest.mark.parametrize(("schema", "key", "package", "last", "first", "way"), BY_HAND)
def test_a_boundary_that_was_read_by_hand(schema, key, package, last, first, way):
    earlier, later = (takes(schema, key, {package: release}) for release in (last, first))
    assert (earlier, later) == ((False, True) if way == "comes" else (True, False))


def test_what_an_older_trainer_took_is_not_missing_where_only_the_program_is_stated():
    key = "overwrite_output_dir"  # transformers dropped it in 5.0; LLaMA-Factory has had its own since
    assert standing("llamafactory", key, {"llamafactory": "0.7.1"}) is None
    found = standing("llamafactory", key, {"llamafactory": "0.7.1", "transformers": "5.0.0"})
    assert found is not None
    assert not found.taken


def drawn():
    """Some rows of every table, those that come and go."""
    rows = []
    for package in tables():
        for group in sorted({group for sources in SOURCES.values() for name, group in sources if name == package}):
            changing = sorted(
                (key, steps) for key, steps in spans(package, group).items() if steps[-1:] not in ((), ("-",))
            )
            few = random.Random(f"{package}{group}").sample(changing, min(6, len(changing)))
            rows += [(package, group, key, steps) for key, steps in few]
    return rows


@pytest.mark.parametrize(("package", "group", "key", "steps"), drawn())
def test_both_sides_of_a_boundary(package, group, key, steps):
    schema = next(
        name for name, sources in SOURCES.items() if sources[0] == (package, group) or (package, group) in sources
    )
    alone = {other: "0" for other, _ in SOURCES[schema] if other != package}  # no other package has part in it
    for index, step in enumerate(steps):
        if step == "-":
            continue
        last = before(package, step)
        after = standing(schema, key, {**alone, package: step})
        assert after is None or after.taken == (index % 2 == 0) or after.package != package
        former = standing(schema, key, {**alone, package: last})
        assert former is None or former.taken == (index % 2 == 1) or former.package != package
        if former is not None and not former.taken and former.package == package:
            assert former.since == step


@pytest.mark.parametrize("package", tables())
def test_the_steps_of_a_table_are_releases_in_order(package):
    read = releases(package)
    assert list(read) == sorted(read, key=numbers)
    for group in {group for sources in SOURCES.values() for name, group in sources if name == package}:
        for key, steps in spans(package, group).items():
            bounds = [step for step in steps if step != "-"]
            assert set(bounds) <= set(read), key
            assert all(older(first, second) for first, second in pairwise(bounds)), key


@pytest.mark.parametrize("schema", SOURCES)
def test_no_key_is_both_known_and_gone_in_the_newest(schema):
    """A schema has as removed what its table has as gone, and what it takes is no removed key of the table unless the
    schema keeps a former tool's keys or an upstream release is newer than it."""
    whole = load(schema)
    for part in branches(whole, whole):
        for key, child in part.get("properties", {}).items():
            found = standing(schema, key, {})
            if str(child.get("x-removed", "")).startswith("taken before") and is_tabled(schema, key):
                assert found is not None
                assert not found.taken, key
                assert child["x-removed"].partition(";")[0].endswith(f" {found.until}"), key


@pytest.mark.parametrize("schema", ["vllm", "sglang", "hf_trainer", "llamafactory", "deepspeed", "lmdeploy"])
def test_what_a_schema_takes_its_newest_release_takes(schema):
    stamps = dict(text.split() for text in load(schema)["x-upstream"].split(", "))
    versions = {known_package(name): release for name, release in stamps.items()}
    for key, child in load(schema)["properties"].items():
        found = standing(schema, key, versions) if not is_old(child) else None
        assert found is None or found.taken or not found.release, key


@pytest.mark.parametrize(
    ("release", "found"),
    [
        ("0.9.2", []),
        ("0.10.0.dev3", []),  # may be before it went
        ("0.10.0", [("deprecated-key", "vllm 0.10.0", "yes")]),
        ("0.11.0", [("deprecated-key", "vllm 0.11.0", "yes")]),
        ("0.8.4", []),
        ("0.6.0", [("unknown-key", "vllm 0.6.0", "yes")]),
        ("main", [("deprecated-key", "vllm from 0.10.0 on", "no")]),
        (None, [("deprecated-key", "vllm from 0.10.0 on", "no")]),
    ],
)
def test_a_key_that_came_and_went(release, found):
    assert told("vllm", "enable-reasoning", {"vllm": release} if release else {}) == found


@pytest.mark.parametrize(
    ("release", "found"),
    [("0.7.3", [("unknown-key", "vllm 0.7.3", "yes")]), ("0.8.0", []), (None, [])],
)
def test_a_key_that_is_newer_than_the_release(release, found):
    assert told("vllm", "enable-expert-parallel", {"vllm": release} if release else {}) == found


def test_the_former_name_is_suggested_where_only_that_is_taken():
    with stating({"transformers": "4.40.2"}, {}):
        (item,) = key_problems(parse('{"eval_strategy": "no"}', "a.json", "json"), "hf_trainer")
    assert item.values["suggestion"] == "evaluation_strategy"
    assert item.values["since"] == "transformers 4.41.0"


@pytest.mark.parametrize(("tool", "said"), [("0.9.1", 0), ("0.9.5", 1), ("1.0", 1)])
def test_an_earlier_tool_runs_a_package_that_nobody_states(tool, said):
    assert len(told("llamafactory", "evaluation_strategy", {"llamafactory": tool})) == said


def pin(release, others=(), exact=True):
    return {"vllm": Pin("vllm", release, others, exact, "vllm", "requirements.txt", 3)}


@pytest.mark.parametrize(
    ("pins", "found"),
    [
        (pin("0.11.0"), [("deprecated-key", "vllm 0.11.0", "yes")]),
        (pin("0.11.0", exact=False), [("deprecated-key", "vllm 0.11.0", "no")]),
        (pin("0.11.0", ("0.9.2",)), []),
        (pin("0.11.0", ("0.10.2",)), [("deprecated-key", "vllm 0.11.0", "yes")]),
        (pin("0.9.2"), [("deprecated-key", "vllm 0.11.0", "yes")]),  # something nearer states another release
    ],
)
def test_a_pin_says_no_more_than_it_does(pins, found):
    assert told("vllm", "enable-reasoning", {"vllm": "0.11.0"}, pins) == found


def test_a_key_that_a_tool_refuses_for_its_own_reason_is_left():
    assert told("axolotl", "rpo_alpha", {"axolotl": "0.19.0"}) == [("deprecated-key", "axolotl 0.19.0", "no")]


@pytest.mark.parametrize(
    ("bounds", "release"),
    [
        ((Bound("<", "5"),), "4.57.6"),
        ((Bound("<=", "4.51.0"),), "4.51.0"),
        ((Bound("<", "4.51"), Bound(">=", "4.46")), "4.50.3"),
        ((Bound(">=", "4.46"),), ""),
        ((Bound("<", "99"),), ""),
    ],
)
def test_the_release_that_stands_for_a_range(bounds, release):
    assert representative(bounds, "transformers") == release


@pytest.mark.parametrize(
    ("found", "expected", "release", "said"),
    [
        ("0.5", "a whole number", "0.10.1", 0),
        ("0.5", "a whole number or null", "0.19.7", 0),
        ("0.5", "a whole number", "0.19.8", 1),
        ("0.5", "a whole number", None, 1),
        ("two", "a whole number", "0.10.1", 1),
        ("0.5", "true or false", "0.10.1", 1),
    ],
)
def test_which_numbers_a_key_takes_is_a_matter_of_the_release(found, expected, release, said):
    values = {"found": found, "expected": expected, "upstream": "DeepSpeed 0.19.8"}
    problem = Problem("wrong-type", "fp16.min_loss_scale", SPAN, values)
    assert len(of_release([problem], {"deepspeed": release} if release else {}, {})) == said


@pytest.mark.parametrize(("name", "found"), [("vllm", "vllm"), ("PyTorch", "torch"), ("llama_factory", "llamafactory")])
def test_names_of_packages(name, found):
    assert known_package(name) == found


@pytest.mark.parametrize("name", ["llamafctory", "numpy", ""])
def test_a_package_that_no_job_is_made_of(name):
    with pytest.raises(ValueError, match="no job is made of"):
        known_package(name)


@pytest.mark.parametrize(
    ("release", "word", "taken"),
    [
        ("0.2.5", "gptq", False),
        ("0.2.6", "gptq", True),
        ("0.4.3", "bitsandbytes", False),
        ("0.5.0", "bitsandbytes", True),
        ("0.27.0", "bitsandbytes", True),
        ("0.28.0", "bitsandbytes", False),
    ],
)
def test_a_remedy_writes_no_value_that_the_release_does_not_take(release, word, taken):
    assert takes("vllm", "quantization", {"vllm": release}, word) == taken
    project = Project("/nowhere", None, None, None, lambda *_: None, versions={"vllm": release})
    reading = vllm.FORMAT.read(parse("model: a/b\n", "serve.yaml", "yaml"), project)
    if word == "bitsandbytes":
        method = {"weights.quantization.method": "bnb-nf4"}
        if taken:
            assert vllm.FORMAT.describe(reading, method) == "quantization: bitsandbytes"
        else:
            with suppress(UntakenKeyError):
                assert vllm.FORMAT.describe(reading, method) is None


@pytest.mark.parametrize(("release", "name"), [("0.9.0", "cuda-graph-sizes"), ("0.13.0", "cudagraph-capture-sizes")])
def test_a_remedy_uses_the_name_that_the_release_takes(release, name):
    project = Project("/nowhere", None, None, None, lambda *_: None, versions={"vllm": release})
    reading = vllm.FORMAT.read(parse("model: a/b\n", "serve.yaml", "yaml"), project)
    said = vllm.FORMAT.describe(reading, {"inference.cudagraph_capture_sizes": [3, 5]})
    assert said == f"{name}: [3, 5]"


@pytest.mark.parametrize(("option", "rules"), [("--model", set()), ("--moe-a2a-backend true", {"GPU002"})])
def test_an_option_that_the_release_completes_is_taken(tmp_path, option, rules):
    # sglang 0.4.8.post1 brought `--model` itself; before, argparse made `--model-path` of it
    (tmp_path / "requirements.txt").write_text("sglang==0.4.2.post4\n")
    text = f"python -m sglang.launch_server {option} Qwen/Qwen3-8B --host 0.0.0.0\n"
    (tmp_path / "run.sh").write_text(text.replace("true Qwen", "--model-path Qwen"))
    found = check([str(tmp_path / "run.sh")], Settings(root=str(tmp_path))).findings
    assert {item.rule for item in found if item.rule in ("GPU002", "GPU006", "GPU016")} == rules


def test_a_key_that_only_the_table_knows_is_unknown_since_its_release():
    assert told("vllm", "worker-use-ray", {"vllm": "0.6.6"}) == []
    with stating({}, {}):
        (item,) = key_problems(parse('{"max-paddings": 3}', "a.json", "json"), "vllm")
    assert (item.kind, item.values["until"], item.values["stated"]) == ("unknown-key", "vllm 0.4.0", "no")


@pytest.mark.parametrize(
    ("schema", "key", "value", "versions", "since"),
    [
        ("vllm", "kv-cache-dtype", "nvfp4", {"vllm": "0.6.0"}, True),
        ("vllm", "kv-cache-dtype", "fp8_e5m2", {"vllm": "0.6.0"}, False),
        ("vllm", "quantization", "squeezellm", {"vllm": "0.3.0"}, False),
        ("vllm", "quantization", "squeezellm", {"vllm": "0.33.0"}, True),
        ("sglang", "attention-backend", "triton", {"sglang": "0.5.23"}, False),
        ("sglang", "quantization", "fp8", {"sglang": "0.5.23"}, False),
        ("hf_trainer", "optim", "stable_adamw", {"transformers": "4.40.0"}, True),
        ("hf_trainer", "optim", "adamw_torch", {"transformers": "4.40.0"}, False),
    ],
)
def test_words_of_a_choice_belong_to_the_stated_release(schema, key, value, versions, since):
    with stating(versions, {}):
        problems = key_problems(parse(json.dumps({key: value}), "a.json", "json"), schema)
    wrong = [problem for problem in problems if problem.kind == "wrong-value"]
    assert [problem.values["found"] for problem in wrong] == ([value] if since else [])
    if since:
        (package, release), *_ = versions.items()
        assert wrong[0].values["upstream"] == f"{package} {release}"
        assert value not in wrong[0].values["expected"]


@pytest.mark.parametrize(
    ("key", "release", "taken"),
    [
        ("cuda-graph-scope", "0.11.0", False),
        ("cuda-graph-scope", "0.12.0", True),
        ("use_custom_fsdp", "0.13.1", True),
        ("use_custom_fsdp", "0.14.0", False),
        ("context-parallel-size", "0.16.0", True),
    ],
)
def test_megatrons_options_by_release(key, release, taken):
    from gpulint.formats.core.flat_keys import unknown_flat_keys

    document = parse(json.dumps({key: 2}), "a.json", "json")
    with stating({"megatron-core": release}, {}):
        problems = [*unknown_flat_keys(document, "megatron", "Megatron-LM core 0.20.0", lambda *_: True)]
    assert [problem.key for problem in problems] == ([] if taken else [key])
    assert takes("megatron", key.replace("-", "_"), {"megatron-core": release}) == taken
