"""What a variable is over the passes of a loop."""

from __future__ import annotations

import pytest

from gpulint.launchers.shell.loops import MAX_VALUES, expanded, over
from gpulint.launchers.shell.words import Word
from gpulint.run.check import check
from gpulint.settings.settings import Settings


def words(*texts):
    return [Word(text, (0,) * len(text)) for text in texts]


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ("plain", ["plain"]),
        ("{2048..8192..2048}", ["2048", "4096", "6144", "8192"]),
        ("{3..1}", ["3", "2", "1"]),
        ("m-{a,b}.yaml", ["m-a.yaml", "m-b.yaml"]),
        ("{a,b}{1..2}", ["a1", "a2", "b1", "b2"]),
        ("{alone}", ["{alone}"]),
        ("{5..9..0}", ["5", "6", "7", "8", "9"]),
    ],
)
def test_braces(text, texts):
    assert list(expanded(text)) == texts


def test_a_loop_over_one_word_has_its_value():
    assert over("x", words("7")).text == "7"
    assert over("x", words("{alone}")) is None


def test_a_loop_over_several_words_has_one_of_them():
    found = over("x", words("1", "2", "1"))
    assert (found.known, found.may_be) == (False, ("1", "2"))


@pytest.mark.parametrize(("most", "known"), [(MAX_VALUES, True), (MAX_VALUES + 1, False)])
def test_of_too_many_nothing_is_known(most, known):
    assert (over("x", words(f"{{1..{most}}}")) is not None) is known


def test_a_word_that_only_the_run_knows_leaves_all_unknown():
    assert over("x", [*words("1"), Word("$more", (0,) * 5, known=False)]) is None


@pytest.mark.parametrize(
    ("lengths", "severities"),
    [("{2048..8192..2048}", []), ("8192 131072", ["warning"]), ("98304 131072", ["error"])],
)
def test_what_holds_in_every_pass_is_an_error(tmp_path, lengths, severities):
    (tmp_path / "bench.sh").write_text(
        f"for len in {lengths}; do\n  vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len $len\ndone\n"
    )
    found = check([str(tmp_path / "bench.sh")], Settings(root=str(tmp_path), gpu="l4", gpus=1)).findings
    assert [item.severity for item in found if item.rule == "GPU201"] == severities
