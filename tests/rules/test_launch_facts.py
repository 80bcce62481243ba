"""Facts about the launch, and what an edit of the config keeps of them."""

from __future__ import annotations

import pytest

from gpulint.launchers.reading import Recognised, open_jobs
from gpulint.launchers.registry import recognise
from gpulint.rules.engine import run
from gpulint.rules.expression import UNKNOWN
from gpulint.rules.facts.facts import Facts
from gpulint.rules.load import load_rules
from gpulint.settings.settings import Settings
from gpulint.source.read import parse


def facts_of(text, name="run.sh", syntax="shell"):
    document = parse(text, name, syntax)
    opened = open_jobs(Recognised(document, None, recognise(document)), Settings(root=".")).opened[0]
    return Facts(opened.reading, opened.project, opened.gpu), opened


SERVE = "vllm serve Qwen/Qwen2.5-0.5B --max-model-len 4096 "


def test_nothing_is_known_of_a_launch_without_a_launcher(check):
    assert check("model: Qwen/Qwen2.5-0.5B\nmax-model-len: 4096\ntensor-parallel-size: 1\n").ids() == []


@pytest.mark.parametrize(("value", "count"), [("0,1", 2), ("3", 1), ("GPU-ab12", UNKNOWN), ("", UNKNOWN)])
def test_visible_devices_are_counted_where_they_are_numbers(value, count):
    facts, _ = facts_of(f"export CUDA_VISIBLE_DEVICES={value}\n{SERVE}\n")
    assert facts.get("gpus.visible") is count or facts.get("gpus.visible") == count


def test_a_server_on_each_node_is_offered_the_gpus_of_one():
    header = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=4\n"
    assert facts_of(f"{header}{SERVE} --tensor-parallel-size 4\n")[0].get("gpus.requested") == 4
    assert facts_of(f"{header}{SERVE} --tensor-parallel-size 8\n")[0].get("gpus.requested") == 8


def test_what_is_not_said_is_null_and_has_no_place():
    facts, _ = facts_of(SERVE + "\n")
    assert facts.get("launch.environment.NOTHING") is None
    assert not facts.has("launch.environment.NOTHING")


def test_a_suggestion_is_checked_against_the_gpus_that_were_asked_for():
    _, opened = facts_of(f"#!/bin/bash\n#SBATCH --gpus-per-node=2\n{SERVE} --tensor-parallel-size 4\n")
    findings = run(opened.reading, opened.project, opened.gpu, load_rules(Settings(preview=True)))
    (finding,) = [item for item in findings if item.rule == "GPU701"]
    assert any("tensor-parallel-size: 2" in item.text for item in finding.suggestions)


@pytest.mark.parametrize(
    ("image", "pinned"),
    [
        ("vllm/vllm-openai:v0.11.0", True), ("vllm/vllm-openai:latest", False), ("vllm/vllm-openai", False),
        ("vllm/vllm-openai:nightly-abc", False), ("registry:5000/vllm/vllm-openai", False),
        ("x/tgi-cu124.2-3.ubuntu", True), ("vllm/vllm-openai@sha256:" + "0" * 64, True),
    ],
)  # fmt: skip
def test_an_image_is_pinned_by_a_tag_that_stays_or_a_digest(image, pinned):
    facts, _ = facts_of(f"docker run --gpus all {image} --model Qwen/Qwen2.5-0.5B\n{SERVE}\n")
    facts.reading.launch["container.image"] = (image, facts.reading.launch["commands"][1])
    assert facts.get("image.pinned") is pinned
