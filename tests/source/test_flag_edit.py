"""Edits of flags: in scripts, and as far as they read back as intended."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpulint.launchers.reading import open_jobs, recognise_file
from gpulint.settings.settings import Settings
from gpulint.source.edit.edit import EditError, apply, change


@pytest.fixture
def edited(tmp_path):
    def edit(script: str, values=None, remove=(), rename=None, name="run.sh"):
        path = tmp_path / name
        path.write_bytes(script.encode())
        (opened,) = open_jobs(recognise_file(str(path)), Settings(root=str(tmp_path))).opened
        return apply(script, change(opened.reading.config, values, remove, rename))

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


SERVE = "vllm serve m \\\n  --max-model-length 8192 \\\n  --dtype auto\n"


@pytest.mark.parametrize(
    ("script", "rename", "expected"),
    [
        (SERVE, {"max-model-length": "max_model_len"}, SERVE.replace("length", "len")),
        ("vllm serve m --max_len=8\n", {"max_len": "max-model-len"}, "vllm serve m --max_model_len=8\n"),
        ("vllm serve m --eager\n", {"eager": "enforce-eager"}, "vllm serve m --enforce-eager\n"),
    ],
)  # fmt: skip
def test_a_flag_is_renamed_in_the_style_of_its_neighbours(edited, script, rename, expected):
    assert edited(script, rename=rename) == expected


@pytest.mark.parametrize(
    ("script", "key", "expected"),
    [
        ("vllm serve m --max-model-len 8192 --dtype auto\n", "max-model-len", "vllm serve m --dtype auto\n"),
        ("vllm serve m --max-model-len=8192 --dtype auto\n", "max-model-len", "vllm serve m --dtype auto\n"),
        ("vllm serve m --dtype 'auto' &\n", "dtype", "vllm serve m &\n"),
        (SERVE, "max-model-length", "vllm serve m \\\n  --dtype auto\n"),
        (SERVE, "dtype", "vllm serve m \\\n  --max-model-length 8192\n"),
    ],
)
def test_a_flag_is_removed_with_its_value(edited, script, key, expected):
    assert edited(script, remove=(key,)) == expected


POD = """\
apiVersion: v1
kind: Pod
metadata: {name: serve}
spec:
  containers:
    - name: vllm
      image: vllm/vllm-openai:v0.11.0
      args:
        - --model=org/model   # which
        - "--max-model-len"
        - "8192"
        - --dtype=auto
"""


@pytest.mark.parametrize(
    ("text", "changes", "old", "new"),
    [
        (POD, {"remove": ("max-model-len",)}, '        - "--max-model-len"\n        - "8192"\n', ""),
        (POD, {"remove": ("dtype",)}, "        - --dtype=auto\n", ""),
        (POD, {"rename": {"dtype": "kv_cache_dtype"}}, "--dtype", "--kv-cache-dtype"),
        (POD, {"values": {"max-num-seqs": 4}}, "--dtype=auto\n", "--dtype=auto\n        - --max-num-seqs=4\n"),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_flags_of_a_manifest_keep_the_list_and_its_line_ends(edited, text, changes, old, new, newline):
    text, old, new = (part.replace("\n", newline) for part in (text, old, new))
    assert edited(text, changes.get("values"), changes.get("remove", ()), changes.get("rename"), name="pod.yaml") == (
        text.replace(old, new)
    )


def test_flags_of_a_list_on_one_line(edited):
    text = POD[: POD.index("      args")] + '      args: ["--model", "org/model", "--max-model-len", "8192"]\n'
    gone = edited(text, remove=("max-model-len",), name="pod.yaml")
    assert gone == text.replace(', "--max-model-len", "8192"', "")
    first = edited(text, remove=("model",), name="pod.yaml")
    assert first == text.replace('"--model", "org/model", ', "")


FLAGS = st.dictionaries(
    st.sampled_from(["max-model-len", "max-num-seqs", "dtype", "seed", "tensor-parallel-size"]),
    st.sampled_from(["1", "8192", "auto", "'auto'", '"a b"']),
    min_size=1,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(FLAGS, st.lists(st.sampled_from([" ", " \\\n  ", "   "]), min_size=6, max_size=6), st.booleans(), st.data())
def test_any_flag_is_set_removed_or_renamed_alone(edited, flags, gaps, equals, data):
    words = [f"--{name}{'=' if equals else ' '}{value}" for name, value in flags.items()]
    script = "# first\nvllm serve m" + "".join(map("".join, zip(gaps, words, strict=False))) + "  # last\n"
    name = data.draw(st.sampled_from(sorted(flags)))
    for changes in (
        {"values": {name: 7}},
        {"values": {"swap-space": 7}},
        {"remove": (name,)},
        {"rename": {name: "swap-space"}},
    ):
        try:
            after = edited(script, **changes)
        except EditError:
            continue
        expected = {key: shlex.split(value)[0] for key, value in flags.items()}
        if "rename" in changes:
            expected["swap-space"] = expected.pop(name)
        elif "remove" in changes:
            del expected[name]
        else:
            expected |= {key: str(value) for key, value in changes["values"].items()}
        given = shlex.split(after.replace("\\\n", " "), comments=True)[3:]
        pairs = (
            [word.partition("=")[::2] for word in given] if equals else list(zip(given[::2], given[1::2], strict=True))
        )
        assert {key.removeprefix("--"): value for key, value in pairs} == expected
        assert after.startswith("# first\nvllm serve m")
        assert after.endswith("  # last\n")
