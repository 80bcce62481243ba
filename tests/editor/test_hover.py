"""The help at the pointer, and the line above the file."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulint.editor.hover import code, components_of, hover
from gpulint.editor.lens import lenses
from gpulint.estimator.estimate import COMPONENTS
from gpulint.hardware.catalogue import find, gpus
from gpulint.rules.facts.job_types import job_types

from .texts import AXOLOTL, DEEPSPEED, SCRIPT, SKYRL


@pytest.fixture
def helped(workspace, opened):
    """The help at the first place of a word in a text, and what it speaks of."""

    def help_(name: str, text: str, word: str):
        path = opened(name, text)
        found = hover(workspace.reading(path), path, text, text.index(word))
        return None if found is None else (found.text, text[found.start : found.end])

    return help_


def test_a_key_shows_its_meaning_type_default_release_and_cost(helped):
    text, at = helped("a.yaml", AXOLOTL, "micro_batch_size")
    assert at == "micro_batch_size: 2"
    assert "a whole number, default `1`; axolotl " in text
    assert "Samples per GPU per forward pass." in text
    assert "Affects: activations " in text
    assert " logits " in text


def test_a_value_shows_the_help_of_its_key(helped):
    assert helped("a.yaml", AXOLOTL, "2\noptimizer")[1] == "micro_batch_size: 2"


def test_a_key_that_says_nothing_here_shows_what_it_would_say(helped):
    text = SKYRL.replace("strategy: fsdp2", "strategy: megatron")
    said, at = helped("a.yaml", text, "sequence_parallel_size")
    assert at == "sequence_parallel_size: 2"
    assert "(`parallelism.context` of the job)" in said


def test_the_model_shows_the_estimate(helped):
    text, _ = helped("a.yaml", AXOLOTL, "base_model")
    assert "8.03 B parameters (8,030,261,248)" in text
    assert "verdict      fits on h100-80gb" in text


def test_a_first_line_without_keys_shows_the_estimate(helped):
    text, at = helped("run.sh", SCRIPT, "bin/bash")
    assert "(profile run)" in text or "(serving)" in text
    assert at == "#!/bin/bash"


def test_a_flag_of_a_command_is_a_key(helped):
    text, _ = helped("run.sh", SCRIPT, "--max-model-len")
    assert "**`max-model-len`**" in text
    assert "kv cache " in text


def test_a_nested_key_of_json(helped):
    text, at = helped("ds.json", DEEPSPEED, "overlap_comm")
    assert "**`zero_optimization.overlap_comm`**" in text
    assert "true or false" in text
    assert "DeepSpeed " in text
    assert at == '"overlap_comm": true'


def test_a_comment_has_no_help(helped):
    assert helped("a.yaml", AXOLOTL, "gpulint:") is None


def test_a_key_that_nothing_is_known_of_has_no_help(helped):
    assert helped("a.yaml", AXOLOTL + "nobody_knows: 1\n", "nobody_knows") is None


@given(st.text(st.sampled_from("ab`*[](\\_\n"), min_size=1, max_size=12))
def test_no_text_ends_its_code_span(text):
    span = code(text)
    fence = re.match("`+", span)[0]
    assert span.endswith(fence)
    assert fence not in re.findall("`+", span[len(fence) : -len(fence)])


def test_the_line_above_the_file(workspace, opened):
    path = opened("a.yaml", AXOLOTL)
    (line,) = lenses(workspace.reading(path))
    estimate = workspace.reading(path).jobs[0].estimate
    assert line == f"{estimate.needed / 2**30:.1f} GiB of 79.1 GiB on H100 80GB: fits"


def test_without_a_gpu_it_says_which_would_do(workspace, opened):
    path = opened("a.yaml", AXOLOTL.replace("# gpulint: gpu=h100-80gb gpus=1\n", ""))
    (line,) = lenses(workspace.reading(path))
    needed = workspace.reading(path).jobs[0].estimate.per_gpu
    name = re.fullmatch(r"[\d.]+ GiB per GPU; fits on (\S+) and larger; memory not checked: no GPU is named .*", line)[
        1
    ]
    smaller = [gpu for gpu in gpus() if gpu.usable < find(name).usable]
    assert find(name).usable >= needed.high > max(gpu.usable for gpu in smaller)


def test_an_unknown_model_has_a_reason_instead(workspace, opened):
    path = opened("a.yaml", AXOLOTL.replace("NousResearch/Meta-Llama-3-8B", "nobody/nothing"))
    (line,) = lenses(workspace.reading(path))
    assert line.startswith("memory not checked: nobody/nothing is unknown: ")


def test_a_config_without_a_model_has_no_line(workspace, opened):
    assert lenses(workspace.reading(opened("ds.json", DEEPSPEED))) == []


def test_every_row_of_the_table_names_a_field_and_components():
    from gpulint.editor.hover import _components

    for field, names in _components().items():
        assert not field or field in job_types()
        assert set(names) <= set(COMPONENTS)
    assert list(components_of("optimizer.state_dtype")) == ["optimizer"]
