"""What is said of keys belongs to the release that is stated or pinned, and of none between two that were read."""

import pytest

from gpulint.formats.core.format import Problem
from gpulint.formats.core.releases import of_release
from gpulint.repository.pins import Pin
from gpulint.source.node import Span
from gpulint.upstream.packages import DESCRIBED, GONE, gone, known_package

SPAN = Span(3, 1, 3, 9, 20, 28)


def removed(key="overwrite_output_dir", last="transformers 4.57.3", upstream="transformers 5.23.0, trl 1.16.0"):
    values = {"reason": f"last known to {last}", "upstream": upstream, "treatment": "refused", "stated": "no"}
    return Problem("deprecated-key", key, SPAN, values)


def told(problem, versions, pins=None):
    return [(item.values["upstream"], item.values["stated"]) for item in of_release([problem], versions, pins or {})]


@pytest.mark.parametrize(
    ("release", "said"),
    [
        ("4.52.3", []),
        ("4.57.3", []),
        ("4.58.0", []),  # between two that were read
        ("5.22.9", []),
        ("5.23.0", [("transformers 5.23.0", "yes")]),
        ("5.24", [("transformers 5.24", "yes")]),
        ("main", [("transformers 5.23.0, trl 1.16.0", "no")]),
        (None, [("transformers 5.23.0, trl 1.16.0", "no")]),
    ],
)
def test_a_key_that_went_between_two_releases(release, said):
    assert told(removed(), {"transformers": release} if release else {}) == said


@pytest.mark.parametrize(("release", "is_gone"), [("4.40.2", 0), ("4.50.3", 0), ("4.51.0", 1), ("4.57.1", 1)])
def test_a_key_whose_release_was_looked_up(release, is_gone):
    problem = removed("evaluation_strategy", "transformers 4.40.2", "llamafactory 0.9.5")
    assert len(told(problem, {"transformers": release})) == is_gone


@pytest.mark.parametrize(("release", "is_gone"), [("0.9.2", 0), ("0.10.0", 1)])
def test_a_dashed_option_whose_release_was_looked_up(release, is_gone):
    assert len(told(removed("enable-reasoning", "vllm 0.8.5", "vllm 0.33.0"), {"vllm": release})) == is_gone


@pytest.mark.parametrize(("tool", "said"), [("0.9.1", 0), ("0.9.5", 1), ("1.0", 1)])
def test_an_earlier_tool_runs_a_package_that_nobody_states(tool, said):
    problem = removed("evaluation_strategy", "transformers 4.40.2", "llamafactory 0.9.5")
    assert len(told(problem, {"llamafactory": tool})) == said


def pin(release, others=(), exact=True):
    return {"transformers": Pin("transformers", release, others, exact, "transformers", "requirements.txt", 3)}


@pytest.mark.parametrize(
    ("pins", "said"),
    [
        (pin("5.23.0"), [("transformers 5.23.0", "yes")]),
        (pin("5.23.0", exact=False), [("transformers 5.23.0", "no")]),
        (pin("5.23.0", ("4.52.3",)), []),
        (pin("5.23.0", ("5.24.0",)), [("transformers 5.23.0", "yes")]),
        (pin("4.52.3"), [("transformers 5.23.0", "yes")]),  # something nearer states another release
    ],
)
def test_a_pin_says_no_more_than_it_does(pins, said):
    assert told(removed(), {"transformers": "5.23.0"}, pins) == said


def test_a_key_that_a_tool_refuses_for_its_own_reason_is_left():
    problem = removed()
    problem.values["reason"] = "its validator stops the run"
    assert of_release([problem], {"transformers": "4.40.2"}, {}) == [problem]


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


def test_every_release_of_a_schema_is_one_that_was_read(root):
    import re

    for path in root.glob("schemas/*.json"):
        for package, release in re.findall(r"last known to (\w+) (\d[\w.]*)", path.read_text()):
            name = known_package(package)
            assert release in DESCRIBED[name][:-1], (path.name, package)


@pytest.mark.parametrize(("package", "key"), GONE)
def test_a_release_that_was_looked_up_lies_between_two_that_were_read(package, key):
    first = GONE[package, key]
    for last in DESCRIBED[package][:-1]:
        assert not gone(package, key, last, last)
        assert gone(package, "another", last, DESCRIBED[package][-1])
    assert gone(package, key, DESCRIBED[package][0], first)


@pytest.mark.parametrize(("name", "found"), [("vllm", "vllm"), ("PyTorch", "torch"), ("llama_factory", "llamafactory")])
def test_names_of_packages(name, found):
    assert known_package(name) == found


@pytest.mark.parametrize("name", ["llamafctory", "numpy", ""])
def test_a_package_that_no_job_is_made_of(name):
    with pytest.raises(ValueError, match="no job is made of"):
        known_package(name)
