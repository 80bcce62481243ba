"""`gpulint rules test`: a team's rules held to their own examples, and told where they are wrong."""

from __future__ import annotations

import time

import pytest
from click.testing import CliRunner

from gpulint.cli import main

CONFIG = """\
base_model: NousResearch/Llama-3.2-1B
datasets: [{path: tatsu-lab/alpaca, type: alpaca}]
adapter: lora
lora_r: 16
lora_target_linear: true
micro_batch_size: 1
sequence_len: SIZE
"""
RULE = """\
id: TEAM001
name: too-long-for-us
since: "1.0"
status: stable
severity: warning
confidence: high
when: sequence_length > 4096
at: [sequence_length]
message: "{sequence_length} is more than our 4,096"
why: Our policy.
examples:
  - config: |
FIRING
    expect: [TEAM001 at sequence_len]
  - config: |
SILENT
    expect: []
"""


def indented(size):
    return "".join(f"      {line}\n" for line in CONFIG.replace("SIZE", str(size)).splitlines()).rstrip("\n")


RULE = RULE.replace("FIRING", indented(8192)).replace("SILENT", indented(2048))


def run(*arguments):
    return CliRunner().invoke(main, ["rules", "test", *map(str, arguments)], catch_exceptions=False)


@pytest.fixture
def rule(tmp_path):
    """Writes the rule with some text replaced, and tests its folder."""

    def write(old="", new="", name="rule.yaml"):
        assert old in RULE
        (tmp_path / name).write_text(RULE.replace(old, new, 1) if old else RULE)
        return run(tmp_path)

    return write


def test_a_rule_whose_examples_hold(rule):
    result = rule()
    assert result.output == "ok   TEAM001 too-long-for-us: 2 examples\n1 rule, 2 examples: all pass\n"
    assert result.exit_code == 0


def test_the_difference_is_shown(rule, tmp_path):
    result = rule("> 4096", "> 1024")
    assert result.exit_code == 1
    assert result.output.splitlines() == [
        f"FAIL TEAM001 too-long-for-us: {tmp_path}/rule.yaml",
        f"  example 2, {tmp_path}/rule.yaml:21:5",
        "    + found TEAM001 on line 7: 2,048 is more than our 4,096",
        "1 rule, 2 examples: 1 of the rules does not hold",
    ]
    result = rule("> 4096", "> 100000")
    assert "    - expected TEAM001 at sequence_len" in result.output
    assert "    found nothing" in result.output


def test_examples_that_cannot_be_run_are_told_at_their_place(rule, tmp_path):
    for old, new, reason in (
        ("    expect: []", "    gpu: h1000\n    expect: []", "h1000"),
        ("base_model: NousResearch/Llama-3.2-1B\n", "hello: 1\n", "no known format"),
        ("adapter: lora\n", "adapter: [\n", "expected"),
    ):
        result = rule(old, new)
        assert result.exit_code == 1
        line = next(line for line in result.output.splitlines() if reason in line)
        assert f"{tmp_path}/rule.yaml:" in line


def test_a_rule_needs_an_example_that_fires_and_one_that_does_not(rule):
    result = rule("[TEAM001 at sequence_len]", "[]")
    assert result.exit_code == 1
    assert "  missing: an example that fires" in result.output


def test_a_broken_rule_stops_no_other(rule, tmp_path):
    (tmp_path / "broken.yaml").write_text("id: [\n")
    result = rule()
    assert result.exit_code == 2
    assert [line[:4] for line in result.output.splitlines()] == ["FAIL", "ok  ", "2 ru"]


def test_two_rules_of_one_name_and_reserved_ids_are_refused(rule):
    rule(name="a.yaml")
    assert "TEAM001 is already defined" in rule(name="b.yaml").output
    assert "gpulint's own" in rule("TEAM001", "GPU999", name="b.yaml").output


def test_gpulints_own_rules_are_tested_the_same_way(root):
    result = run(root / "rules" / "schema" / "duplicate-key.yaml")
    assert result.output.startswith("ok   GPU003 duplicate-key: ")


def test_a_path_that_is_not_there_and_an_empty_folder_are_refused(tmp_path):
    for path in (tmp_path, tmp_path / "none.yaml"):
        result = run(path)
        assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)


FOLDED = """when: >
  sequence_length > 1
  and sequence_lenght > 4096"""


@pytest.mark.parametrize(
    ("old", "new", "line", "column", "reason"),
    [
        (
            "sequence_length > 4096",
            "sequence_length > 1 and sequence_lenght > 4096",
            7,
            31,
            "did you mean sequence_len",
        ),
        ("when: sequence_length > 4096", FOLDED, 9, 7, "unknown fact sequence_lenght"),
        (
            "when: sequence_length > 4096",
            "when:\n  - packing\n  - \"packing and not 'x'.lower()\"",
            9,
            22,
            "can be called",
        ),
        ("when: sequence_length > 4096", "when: 'lower(\"it''s\") == oops'", 7, 26, "unknown fact oops"),
        ("sequence_length > 4096", "gpu.usable > 4096", 7, 20, "80 * GiB"),
        ("sequence_length > 4096", "packing and ) or x", 7, 19, "not an expression"),
        ('"{sequence_length} is', '"{packing} {sequence} is', 9, 22, "unknown fact sequence"),
        ('"{sequence_length} is', '"é {sequence_length is', 9, 13, "a { without its }"),
        ("[sequence_length]", "[sequence_lengthh]", 8, 6, "did you mean sequence_length"),
        ("severity: warning", "severity: warn", 5, 11, "one of error, warning, info"),
        ("at:", "each: problems.typo\nat:", 8, 7, "not a kind of problem"),
        ("at:", "applies: {formats: [axolot]}\nat:", 8, 21, "did you mean axolotl"),
        ("why:", "suggest: [{set: {micro_batch_size: many}}]\nwhy:", 10, 36, "takes whole number"),
        ("why:", "suggest: [{set: {micro_batch: 1}}]\nwhy:", 10, 18, "did you mean micro_batch_size"),
        ("why:", "suggest: [{set: {packing: '= factr > 1'}}]\nwhy:", 10, 30, "unknown fact factr"),
        ("sequence_length > 4096", "peak_if('pack', true) > 0 * GiB", 7, 7, "and pack is none"),
        ("sequence_length > 4096", "factor > 2", 7, 7, "factor can be used only in"),
    ],
)
def test_a_fault_is_told_at_its_line_and_column(rule, tmp_path, old, new, line, column, reason):
    result = rule(old, new)
    assert result.exit_code == 2
    first = result.output.splitlines()[0]
    assert first.startswith(f"FAIL {tmp_path}/rule.yaml:{line}:{column}: ")
    assert reason in first


BOMB = "bomb: &a0 [x, x]\n" + "".join(f"k{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
HOSTILE = {
    "deep": ("when: sequence_length > 4096", f"when: {'(' * 300}1{')' * 300}"),
    "deep brackets": ("sequence_length > 4096", "-" * 900 + "1"),
    "deep yaml": ("why: Our policy.", f"why: {'[' * 5000}"),
    "long": ("sequence_length > 4096", "1 + " * 100_000 + "1"),
    "attribute": ("sequence_length > 4096", "sequence_length.__class__.__mro__"),
    "versions": ("sequence_length > 4096", "versions.torch.upper"),
    "dunder": ("sequence_length > 4096", "versions.__class__"),
    "subscript": ("sequence_length > 4096", "config['a']['__class__'].x[0]"),
    "call": ("sequence_length > 4096", "__import__('os').system('touch pwned')"),
    "eval": ("sequence_length > 4096", "eval('1')"),
    "comprehension": ("sequence_length > 4096", "[x for x in [1]]"),
    "generator": ("sequence_length > 4096", "max(x for x in [1])"),
    "lambda": ("sequence_length > 4096", "(lambda: 1)()"),
    "format": ("{sequence_length}", "{sequence_length.__class__!r:>99999999}"),
    "power": ("sequence_length > 4096", "9 ** 9 ** 9 ** 9"),
    "shift": ("sequence_length > 4096", "1 << 99999999"),
    "giant": ("sequence_length > 4096", "9" * 900 + " > 1"),
    "infinite": ("sequence_length > 4096", "1e999 > 1"),
    "repeat": ("sequence_length > 4096", "'a' @ 99999999"),
    "bomb": ("why: Our policy.\n", f"why: Our policy.\n{BOMB}"),
    "tag": ("why: Our policy.", "why: !!python/object/apply:os.system ['touch pwned']"),
    "recipe": ("why: Our policy.", "why: Our policy.\nsuggest: [[[search]]]"),
    "factors": ("why: Our policy.", "why: x\nsuggest: [{set: {micro_batch_size: 1}, factors: [0]}]"),
    "many factors": ("why: Our policy.", f"why: x\nsuggest: [{{set: {{packing: true}}, factors: {[2] * 999}}}]"),
    "many conditions": ("when: sequence_length > 4096", f"when: {['packing'] * 9999}"),
    "long message": ("is more than", "x" * 9999),
    "many examples": ("examples:\n", "examples:\n" + "  - {config: {}, expect: []}\n" * 999),
    "set part": ("why: Our policy.", "why: x\nsuggest: [{set: {weights: {__class__: 1}}}]"),
    "set dunder": ("why: Our policy.", "why: x\nsuggest: [{set: {__class__: 1}}]"),
    "null byte": ("sequence_length > 4096", '"a\\0"'),
    "surrogate": ("sequence_length > 4096", '"\\ud800 > 1"'),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_rule_file_is_refused_in_one_line_and_quickly(rule, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    start = time.process_time()
    result = rule(*HOSTILE[name])
    assert time.process_time() - start < 5
    assert result.exit_code == 2, result.output
    lines = result.output.splitlines()
    assert lines[0].startswith(f"FAIL {tmp_path}/rule.yaml:")
    assert len(lines) == 2
    assert len(lines[0]) < 400
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    "when",
    [
        "9223372036854775807 * " * 25 + "1 > 1",
        "1e308 * 1e308 > 1",
        "'a' * 99999999 == 'a'",
        "len('x' * sequence_length) > 1",
        "sequence_length % 0 == 1",
        "config.__class__ or config['__dict__']",
        "lower(sequence_length) == 'x'",
    ],
)
def test_what_may_be_written_and_means_nothing_never_fires(rule, when):
    result = rule("sequence_length > 4096", when.replace("'", "''").join(["'", "'"]))
    assert "    - expected TEAM001 at sequence_len" in result.output
    assert result.exit_code == 1
