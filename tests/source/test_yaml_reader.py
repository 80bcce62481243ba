from __future__ import annotations

import pytest
import yaml
from comparison import same, scalars
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpulint.source.document import Document, SourceError
from gpulint.source.limits import MAX_DEPTH
from gpulint.source.read import parse
from gpulint.source.yaml import parse as yaml_parse

CONFIG = """\
# a run
base_model: org/model-7b   # the model
learning_rate: 2e-4
modules:
- q_proj
- v_proj  # second
prompt: |  # kept as is
  # not a comment
  text

# deepspeed
zero:
    stage: 3
    offload: {device: cpu, pin: 'a # b'}
empty:
last: "x"
"""


def read(text: str) -> Document:
    return parse(text, "a.yaml", "yaml")


def refusal(text: str) -> SourceError:
    with pytest.raises(SourceError) as caught:
        read(text)
    return caught.value


@pytest.fixture(params=["libyaml", "python"])
def parser(request, monkeypatch):
    if request.param == "python":
        monkeypatch.setattr(yaml_parse, "CParser", None)
    elif yaml_parse.CParser is None:
        pytest.skip("PyYAML without libyaml")


def written(text: str, key: str) -> str:
    span = read(text).root.find(key).value.span
    return text[span.start : span.end]


def test_values_are_safe_loads(parser):
    assert read(CONFIG).root.plain() == yaml.safe_load(CONFIG)


def test_spans_cover_what_is_written(parser):
    assert written(CONFIG, "base_model") == "org/model-7b"
    assert written(CONFIG, "modules") == "- q_proj\n- v_proj"
    assert written(CONFIG, "prompt") == "|  # kept as is\n  # not a comment\n  text"
    assert written(CONFIG, "zero") == "stage: 3\n    offload: {device: cpu, pin: 'a # b'}"
    assert written(CONFIG, "zero.offload") == "{device: cpu, pin: 'a # b'}"
    assert written(CONFIG, "empty") == ""
    assert read(CONFIG).root.find("last").value.span == (16, 7, 16, 10, len(CONFIG) - 4, len(CONFIG) - 1)
    assert read(CONFIG).root.find("zero.stage").key.span[:4] == (13, 5, 13, 10)
    assert read(CONFIG).root.span[:4] == (2, 1, 16, 10)
    assert read(CONFIG).root.find("last").value.raw == '"x"'


def test_comments_are_found_outside_scalars_only(parser):
    assert read(CONFIG).comments == [
        (1, "a run"),
        (2, "the model"),
        (6, "second"),
        (7, "kept as is"),
        (11, "deepspeed"),
    ]


@pytest.mark.parametrize(
    ("text", "comments"),
    [
        ("a: b#c", []),
        ("a: b #c", ["c"]),
        ("a: 'x' #c\n#", ["c", ""]),
        ("a: [1, # one\n 2]", ["one"]),
        ("a: |\n  x\n# end\n", ["end"]),
        ("a: |\n  #x\n\n  #y\n", []),
        ("a: >- # h # i\n  t # u\n", ["h # i"]),
        ("a: 'it''s # no'", []),
        ('a: "\\" # no"', []),
        ("a: &x # anchored\n  b: 1", ["anchored"]),
        ("'#': '#' # '#'", ["'#'"]),
        ("? a # k\n: b # v", ["k", "v"]),
        ("--- # start\na: 1\n... # end\n", ["start", "end"]),
        ("a:\r\n  b # x\r\n", ["x"]),
        ("# only", ["only"]),
        ("## gpulint: gpu=h100", ["# gpulint: gpu=h100"]),
    ],
)
def test_comment_cases(parser, text, comments):
    assert [comment.text for comment in read(text).comments] == comments


@pytest.mark.parametrize(
    ("text", "piece"),
    [
        ("a: |\n  x\n\n\nb: 1\n", "|\n  x"),
        ("a: |+\n  x\n\n\n", "|+\n  x"),
        ("a: |\n  x  \n", "|\n  x  "),
        ("a: |\n  x\n    \n", "|\n  x\n    "),
        ("a: |\n  x\n    ", "|\n  x\n    "),
        ("a: >-\n\nb: 1\n", ">-"),
    ],
)
def test_a_block_scalar_ends_with_its_last_content(parser, text, piece):
    assert written(text, "a") == piece


def test_columns_count_characters_not_bytes(parser):
    text = "\ufeffключ: 😀\r\nb: {é: ü}\r\nc:   x  # y\r\n"
    root = read(text).root
    assert root.entries()[0].value.span[:4] == (1, 7, 1, 8)
    assert root.find("b.é").value.span[:4] == (2, 8, 2, 9)
    assert root.find("c").value.span[:4] == (3, 6, 3, 7)
    assert all(text[node.span.start : node.span.end] == node.raw for node in scalars(root))
    assert written(text, "ключ") == "😀"


def test_other_line_breaks_of_yaml_do_not_shift_lines(parser):
    root = read("a: x\u2028\u2028b: 1\n").root
    assert root.find("b").value.span.line == 1


def test_anchors_and_tags_are_not_part_of_a_value(parser):
    text = "a: &x 1\nb: !!str 2\nc: &y\n  d: 3\ne: &z !!map # c\n  f: 4\ng: &e\nh: *x\n"
    assert [written(text, key) for key in "abceg"] == ["1", "2", "d: 3", "f: 4", ""]
    assert read(text).root.plain() == yaml.safe_load(text)


def test_aliases_share_their_node(parser):
    root = read("a: &x {k: 1}\nb: *x\nc: [*x, 2]\n").root
    assert root.get("a") is root.get("b") is root.get("c").items()[0]
    assert root.span.end == len("a: &x {k: 1}\nb: *x\nc: [*x, 2]")
    assert read("a: &x 1\nb: *x").root.span.end == len("a: &x 1\nb: *x")


MERGES = [
    "a: &a {rank: 1, alpha: 2}\nb: {<<: *a, rank: 3}\n",
    "a: &a {rank: 1}\nb: &b {alpha: 2, bias: 3}\nc: {<<: [*a, *b]}\nd:\n  <<: *a\n  <<: *b\n",
    "a: &a {rank: 1}\nb: &b {<<: *a, alpha: 2}\nc: {alpha: 5, <<: *b}\n",
    "a: {'<<': 1}\n",
    "a: {<<: {}}\n",
    "- &a {rank: 1}\n- !!map {<<: *a}\n",
    "a: {=: 1}\n",
]


@pytest.mark.parametrize("text", MERGES)
def test_merges_resolve_as_in_pyyaml(parser, text):
    assert read(text).root.plain() == yaml.safe_load(text)


# PyYAML is no measure of a key that is merged twice: since 6.0.4 (its pull request 937) `flatten_mapping` skips a key
# whose text has the id() of an earlier one, which one-letter keys share and longer ones do not, and no longer turns a
# list of mappings round, so that its last one wins for longer keys (its issue 953).
@pytest.mark.parametrize(
    ("merges", "merged"),
    [
        ("{<<: [*a, *b]}", {"rank": 1, "alpha": 3, "r": 1}),  # yaml.org/type/merge.html: the earlier mapping of a list
        ("{<<: [*b, *a]}", {"rank": 2, "alpha": 3, "r": 2}),
        ("{<<: [*b, *a], rank: 4}", {"rank": 4, "alpha": 3, "r": 2}),
        ("{<<: *a, <<: *b}", {"rank": 2, "alpha": 3, "r": 2}),  # a repeated key: the last one counts, as for any key
        ("{<<: *b, <<: *a}", {"rank": 1, "alpha": 3, "r": 1}),
    ],
)
def test_a_key_that_is_merged_twice_is_the_first_of_a_list_and_the_last_of_repeats(parser, merges, merged):
    text = f"- &a {{rank: 1, r: 1}}\n- &b {{rank: 2, alpha: 3, r: 2}}\n- {merges}\n"
    assert read(text).root.items()[2].plain() == merged


def test_merged_entries_are_counted_and_stand_where_they_are_written(parser):
    text = "a: &a {k: 1, l: 2}\nb:\n  <<: *a\n  k: 3\n"
    b = read(text).root.get("b")
    assert b.merged == 2
    assert b.get("l").span.line == 1
    assert b.get("k").span.line == 4
    assert text[b.span.start : b.span.end] == "<<: *a\n  k: 3"
    assert read(text).duplicates == []


@pytest.mark.parametrize("value", ["1", "[1]", "x", ""])
def test_a_merge_of_no_mapping_is_refused_as_by_pyyaml(parser, value):
    with pytest.raises(yaml.YAMLError):
        yaml.safe_load(f"a: {{<<: {value}}}")
    assert "merge" in refusal(f"a: {{<<: {value}}}").reason


def test_duplicates_name_what_is_lost_and_what_counts(parser):
    document = read("a: 1\nb:\n  c: 1\n  c: 2\na: 2\na: 3\n")
    assert document.root.plain() == {"a": 3, "b": {"c": 2}}
    found = [(each.key, each.lost.line, each.kept.line) for each in document.duplicates]
    assert found == [("a", 1, 6), ("c", 3, 4), ("a", 5, 6)]


def test_several_documents_give_several_roots(parser):
    document = read("a: 1\n---\nb: 2\n---\n--- [x]\n")
    assert [root.plain() for root in document.roots] == [{"a": 1}, {"b": 2}, None, ["x"]]
    assert document.roots[1].find("b").key.span.line == 3
    assert refusal("a: &x 1\n---\nb: *x\n").line == 3


def test_unknown_tags_are_read_and_noted(parser):
    document = read("a: !env HOME\nb: !inc {c: 1}\nd: !!python/tuple [1]\ne: =\nf: <<\n")
    assert document.root.plain() == {"a": "HOME", "b": {"c": 1}, "d": [1], "e": "=", "f": "<<"}
    assert [(tag.name.rpartition(":")[2], tag.span.line) for tag in document.tags] == [
        ("!env", 1),
        ("!inc", 2),
        ("python/tuple", 3),
        ("value", 4),
        ("merge", 5),
    ]
    assert read("a: !!str 1\nb: !!set {c}\n").tags == ()


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("a: 1\n b: 2", 2, 3, "mapping values are not allowed"),
        ("a: [1\nb: 2", 2, 2, ""),
        ("a: 'x", 1, 6, "end of stream"),
        ("a:\tb", 1, 3, "a tab; YAML indents with spaces"),
        ("a: *x", 1, 4, "alias *x has no anchor"),
        ("a: &x 1\nb: &x 2", 2, 7, "anchor &x is defined twice"),
        ("a: &x [*x]", 1, 8, "contains itself"),
        ("&x a: {b: &y {c: *y}}", 1, 18, "contains itself"),
        ("{[a]: 1}", 1, 2, "key must be a scalar"),
        ("name: {{ value }}", 1, 8, "key must be a scalar"),
        ("a: \x00", 1, 4, "U+0000"),
        ('a: "\\UFFFFFFFF"', 1, 0, ""),
        ("a: @b", 1, 4, "cannot start any token"),
    ],
)
def test_errors_name_their_place(parser, text, line, column, words):
    error = refusal(text)
    assert error.line == line
    assert not column or not words or error.column == column
    assert words in error.reason


def test_errors_never_quote_the_file(parser):
    secret = "hf_abcdefghijklmnop"
    for text in (f"token: '{secret}", f"token: {secret}: x", f"token: [{secret}\nb: 1", f"a: 1\n{secret}"):
        assert secret not in str(refusal(text))


@pytest.mark.parametrize("opening", ["[", "{", "- ", "? ", "{a: ", "[[", "- - ", "!x [", "&a [", "a: [", "\t[", "[?"])
def test_a_deep_nest_is_refused(parser, opening):
    assert refusal(opening * (60_000 // len(opening))).reason


def test_depth_is_capped_exactly(parser):
    deep = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert read(deep).root.is_sequence
    assert "deeper" in refusal(f"[{deep}]").reason


def test_alias_bombs_are_refused(parser):
    wide = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    wide += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    assert "through aliases" in refusal("\n".join(wide)).reason
    deep = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 500)]
    assert "through aliases" in refusal("\n".join(deep)).reason
    merges = ["a0: &a0 {k: 1}"]
    merges += [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}" for i in range(1, 12)]
    assert refusal("\n".join(merges)).reason


def test_too_many_values_are_refused():
    assert "more than 200000" in refusal("[" + "1," * 200_001 + "]").reason


SNIPPETS = [
    *("a", "b: ", "- ", "\n", "\n  ", "\n    ", "[", "]", "{", "}", ",", ", ", "'", '"', "|", "|-\n", ">+ \n", "#"),
    *(" #c", " ", "&x ", "*x", "!t ", "!!str ", "? ", ": ", ":", "---\n", "...\n", "%YAML 1.1\n", "\r\n", "é", "😀"),
    *("1", "k: v\n", "  - ", "\\n", "-", "\u2028", "\x85", "<<: ", "~", "!", "@", "`", "\t", "\ufeff", "=", "0x"),
    *("\x00", "\\ud800", "\r"),
]
YAML_LIKE = st.lists(st.sampled_from(SNIPPETS), max_size=16).map("".join) | st.text(max_size=30)


@settings(max_examples=300, deadline=None)
@given(YAML_LIKE)
@example("a: |\n\n\nb: 1")
@example("? |\n  x\n: 1")
@example("- |+\n  x\n\n\n")
def test_any_text_reads_or_raises_source_error(text):
    try:
        document = read(text)
    except SourceError:
        return
    try:
        theirs = list(yaml.safe_load_all(text.removeprefix("\ufeff")))
    except (yaml.YAMLError, ValueError, TypeError, OverflowError):
        theirs = None
    ours = [root.plain() for root in document.roots]
    if theirs is not None and "!!" not in text and "\\ud800" not in text:
        assert same(ours, theirs or [None])
    for root in document.roots:
        for node in scalars(root):
            span = node.span
            assert 0 <= span.start <= span.end <= len(text)
            assert text[span.start : span.end] == node.raw
            assert (span.line, span.column) <= (span.end_line, span.end_column)


PLAIN_TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=80, deadline=None)
@given(PLAIN_TREES, st.booleans(), st.sampled_from([None, False, True]))
def test_dumped_trees_read_back_and_every_span_reads_to_its_scalar(tree, unicode, style):
    text = yaml.safe_dump(tree, allow_unicode=unicode, default_flow_style=style)
    root = read(text).root
    assert same(root.plain(), yaml.safe_load(text))
    for node in scalars(root):
        piece = text[node.span.start : node.span.end]
        if "\n" in piece:
            assert same(read(piece).root.plain(), node.value)
        else:
            assert same(read(f"- {piece}").root.plain(), [node.value])


HARMLESS_IN_BLOCKS = st.sampled_from(
    ["why? ", "{a:}", "[a:]", " !", "!x ", r"\\ud800", "|#", "# no? ", "- ", "b: ", "  ", "a"]
)
LINES = st.lists(st.lists(HARMLESS_IN_BLOCKS, max_size=4).map("".join), min_size=1, max_size=5)


@settings(max_examples=300, deadline=None)
@given(LINES, st.sampled_from(["|", ">", "|-", ">2", "|+ # what? "]), st.sampled_from(["  ", "    "]), LINES)
def test_both_parsers_of_pyyaml_agree_on_what_stands_in_and_behind_a_block(lines, header, indent, others):
    block = "".join(f"{indent}{line}\n" for line in lines)
    same_tree(f"first:\n  held: {header}\n{block}second: {others[0]}\n")
    same_tree(f"held: {header}\n{block}" + "".join(f"{line}\n" for line in others))


@settings(max_examples=200, deadline=None)
@given(YAML_LIKE)
def test_both_parsers_of_pyyaml_give_one_tree(text):
    same_tree(text)


def same_tree(text):
    """What libyaml reads, as far as it is asked, is what PyYAML's own scanner reads."""
    if yaml_parse.CParser is None:
        pytest.skip("PyYAML without libyaml")

    def tree(parser):
        chosen, yaml_parse.CParser = yaml_parse.CParser, parser
        try:
            document = read(text)
        except SourceError:
            return None
        finally:
            yaml_parse.CParser = chosen
        spans = [(node.span, repr(node.value)) for root in document.roots for node in scalars(root)]
        return repr([root.plain() for root in document.roots]), spans, document.comments, document.tags

    assert tree(yaml_parse.CParser) == tree(None)
