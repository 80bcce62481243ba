"""Edits of flags: in scripts, and as far as they read back as intended."""

from __future__ import annotations

import pytest

from gpulint.reading import open_jobs, recognise_file
from gpulint.settings import Settings
from gpulint.source.edit import EditError, apply, change


@pytest.fixture
def edited(tmp_path):
    def edit(script: str, values=None, remove=()):
        path = tmp_path / "run.sh"
        path.write_text(script)
        (opened,) = open_jobs(recognise_file(str(path)), Settings(root=str(tmp_path))).opened
        return apply(script, change(opened.reading.config, values, remove))

    return edit


@pytest.mark.parametrize(
    ("script", "values", "expected"),
    [
        ("vllm serve m --max-model-len 8192\n", {"max-model-len": 4096}, "vllm serve m --max-model-len 4096\n"),
        ("vllm serve m --max-model-len=8192\n", {"max-model-len": 4096}, "vllm serve m --max-model-len=4096\n"),
        ("vllm serve m --dtype auto\n", {"max-model-len": 4096}, "vllm serve m --dtype auto --max-model-len 4096\n"),
        (
            "vllm serve m \\\n  --dtype auto &\n",
            {"max-num-seqs": 64},
            "vllm serve m \\\n  --dtype auto \\\n  --max-num-seqs 64 &\n",
        ),
        ("L=8192\nvllm serve m --max-model-len $L\n", {"max-model-len": 1}, "L=1\nvllm serve m --max-model-len $L\n"),
        ("vllm serve m --dtype auto\n", {"enforce-eager": True}, "vllm serve m --dtype auto --enforce-eager\n"),
    ],
)
def test_flags_are_set_in_the_form_of_the_others(edited, script, values, expected):
    assert edited(script, values) == expected


def test_a_switch_is_removed(edited):
    assert edited("vllm serve m --enforce-eager --dtype auto\n", remove=("enforce-eager",)) == (
        "vllm serve m --dtype auto\n"
    )


@pytest.mark.parametrize("script", ["N=1\nvllm serve m -tp $N -pp $N --dtype auto\n", "vllm serve m --dtype $(x)\n"])
def test_an_edit_that_would_change_more_is_refused(edited, script):
    values = {"tensor-parallel-size": 2} if "-tp" in script else {"dtype": "half x"}
    with pytest.raises(EditError):
        edited(script, values)
