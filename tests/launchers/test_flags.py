"""Flags of a command line as a document."""

from __future__ import annotations

import pytest

from gpulint.launchers.commands.flags import Manner, overlaid, read_flags
from gpulint.launchers.shell.script import Script
from gpulint.launchers.shell.shell import commands
from gpulint.source.document import Document
from gpulint.source.read import parse


def flags(line: str, manner: Manner | None = None):
    (command,) = commands(Script(line, range(len(line))))
    return read_flags(command.words[1:], Document("run.sh", "shell", line, [], [], []), manner)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("p --a 1 --b=2.5 --c x --d True", {"a": 1, "b": 2.5, "c": "x", "d": True}),
        ("p --a 2e-4 --b -1 --c -0.5", {"a": 2e-4, "b": -1, "c": -0.5}),
        ("p --bf16 --no-cache --x", {"bf16": True, "cache": False, "x": True}),
        ("p --t q_proj v_proj --r 8", {"t": ["q_proj", "v_proj"], "r": 8}),
        ("p --a 1 --a 2", {"a": 2}),
        ("p --m $M", {"m": "$M"}),
        ('p --m x "$@"', {"m": "x"}),
        ("p --m x $EXTRA_ARGS --n 1", {"m": "x", "n": 1}),
        ("p --m x ${MORE[@]}", {"m": "x"}),
        ("p --m $PARAMETER", {"m": "$PARAMETER"}),
        ("p --json '{\"a\": 1}'", {"json": '{"a": 1}'}),
    ],
)
def test_values(line, expected):
    assert flags(line).document.root.plain() == expected


def test_words_that_are_no_flags_are_left_or_named():
    assert [word.text for word in flags("p train.py --a 1").rest] == ["train.py"]
    named = flags("p org/model --a 1", Manner(positionals=("model",)))
    assert named.document.root.plain() == {"model": "org/model", "a": 1}


def test_a_switch_leaves_the_next_word_alone():
    manner = Manner(switches={"fast"}.__contains__, positionals=("model",))
    assert flags("p --fast org/model", manner).document.root.plain() == {"fast": True, "model": "org/model"}
    assert flags("p --fast false", manner).document.root.plain() == {"fast": False}


def test_a_short_flag_keeps_the_fields_behind_its_dots():
    assert flags("p -cc.pass_config.fuse=true", Manner(short={"cc": "compilation-config"})).document.root.plain() == {
        "compilation-config.pass_config.fuse": True
    }


def test_short_nested_and_override_words():
    assert flags("p -tp 4", Manner(short={"tp": "tensor-parallel-size"})).document.root.plain() == {
        "tensor-parallel-size": 4
    }
    nested = flags("p --train.micro_batch_size 4 --train.epochs 1", Manner(nested=True))
    assert nested.document.root.plain() == {"train": {"micro_batch_size": 4, "epochs": 1}}
    hydra = flags("p a.b=1 +c=x a.d=2", Manner(overrides=True))
    assert hydra.document.root.plain() == {"a": {"b": 1, "d": 2}, "c": "x"}


def test_entries_stand_where_their_words_do():
    line = "p --learning_rate 1e-5"
    (entry,) = flags(line).document.root.entries()
    assert line[entry.key.span.start : entry.key.span.end] == "learning_rate"
    assert line[entry.value.span.start : entry.value.span.end] == "1e-5"
    assert entry.value.path == "run.sh"


def test_flags_win_over_the_file_they_are_laid_over():
    base = parse("a: 1\nb: {c: 2, d: 3}\n", "config.yaml", "yaml")
    over = flags("p --a 5 --b.c 6", Manner(nested=True)).document
    merged = overlaid(base, over)
    assert merged.root.plain() == {"a": 5, "b": {"c": 6, "d": 3}}
    assert base.root.plain() == {"a": 1, "b": {"c": 2, "d": 3}}
    assert merged.path == "config.yaml"
    assert merged.root.entry("a").value.path == "run.sh"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("--max-num-batched-token", "max-num-batched-tokens"),
        ("--max_num_batched", "max_num_batched_tokens"),
        ("--max-num", "max-num"),
        ("--max-num-seqs", "max-num-seqs"),
        ("--other", "other"),
        ("-max-num-seq", "max-num-seq"),
    ],
)
def test_the_beginning_of_one_option_stands_for_it(written, expected):
    manner = Manner(options=frozenset({"max_num_batched_tokens", "max_num_seqs", "max_model_len"}))
    assert flags(f"p {written} 4", manner).document.root.plain() == {expected: 4}


def test_a_flag_names_another_component_and_leaves_its_arguments():
    """`tune run ... optimizer=torch.optim.AdamW`."""
    base = parse(
        "optimizer:\n  _component_: bitsandbytes.optim.PagedAdamW8bit\n  fused: true\nepochs: 3\n", "c.yaml", "yaml"
    )
    over = flags("tune optimizer=torch.optim.AdamW epochs=1", Manner(overrides=True, nested=True)).document
    merged = overlaid(base, over).root.plain()
    assert merged["optimizer"] == {"_component_": "torch.optim.AdamW", "fused": True}
    assert merged["epochs"] == 1
