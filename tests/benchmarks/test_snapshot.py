"""A snapshot tells what changed, and nothing of what did not."""

from __future__ import annotations

import json

import pytest

from benchmarks.corpus.snapshot import files
from benchmarks.corpus.snapshot.__main__ import main
from benchmarks.corpus.snapshot.items import Part
from benchmarks.corpus.snapshot.plain import Item

AXOLOTL = """base_model: meta-llama/Llama-3.1-8B
datasets: [{path: a}]
micro_batch_size: 3
sequence_len: 2050
gradient_checkpointing: maybe
"""
FACTS = {
    "jobs": {"@#1": {"job": {"loop": 3, "model": None}, "origins": {"rl.loop": {"kind": "default", "key": "a.b"}}}},
    "findings": {"GPU101 @a.b.yaml:3:1#1": {"severity": "error"}},
}
WORDS = {"findings": {"GPU101 @a.b.yaml:3:1#1": {"message": "needs 3 GiB"}}}


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "corpus"
    (folder / "one").mkdir(parents=True)
    (folder / "one" / "a.yaml").write_text(AXOLOTL)
    (folder / "one" / "b.yaml").write_text("services: {}\n")
    (folder / "c.yaml").write_text("base_model: a\nadapter: lora\nmicro_batch_size: [\n")
    rows = [{"path": path, "format": "axolotl", "hardware": {}} for path in ("one/a.yaml", "one/b.yaml", "c.yaml")]
    (folder / "INDEX.json").write_text(json.dumps(rows))
    return folder


def compared(tmp_path, capsys, old, new, *options):
    """Exit code and output of a comparison of some items, each (key, facts, words)."""
    paths = []
    for name, items in (("old", old), ("new", new)):
        paths.append(tmp_path / f"{name}.jsonl.gz")
        files.write(paths[-1], ["corpus"], Part(), [Item(*item) for item in items])
    code = main(["compare", *map(str, paths), *options])
    return code, capsys.readouterr().out


def changed(tree, path, value):
    """A copy of a tree with one leaf changed."""
    copy = json.loads(json.dumps(tree))
    *parents, last = path
    into = copy
    for name in parents:
        into = into[name]
    into[last] = value
    return copy


def test_a_corpus_is_written_whole_and_alike_whatever_the_processes(corpus, tmp_path, capsys):
    one, two = tmp_path / "one.jsonl.gz", tmp_path / "two.jsonl.gz"
    assert main(["write", str(corpus), str(one), "--kind", "corpus", "--jobs", "1"]) == 0
    assert main(["write", str(corpus), str(two), "--kind", "corpus", "--jobs", "2"]) == 0
    assert one.read_bytes() == two.read_bytes()
    lines = files.read(one).lines
    assert list(lines) == ["corpus:c.yaml", "corpus:one/a.yaml", "corpus:one/b.yaml"]
    assert str(tmp_path) not in "".join(lines.values())
    broken, config, unknown = map(files.parsed, lines.values())
    status = [found.facts["checked"]["files"]["#1"]["status"] for found in (broken, config, unknown)]
    assert status == ["skipped", "checked", "skipped"]
    assert (broken.facts["jobs"]["error"], unknown.facts["jobs"]["error"]) == ("SourceError", "UnrecognisedError")
    job = config.facts["jobs"]["@#1"]
    assert (job["job"]["micro_batch_size"], job["job"]["hardware"]["gpus"]) == (3, 8)
    assert job["origins"]["micro_batch_size"] == {
        "file": "one/a.yaml", "key": "micro_batch_size", "key_span": "3:1-3:17 (58-74)", "kind": "file",
        "span": "3:19-3:20 (76-77)", "values": [],
    }  # fmt: skip
    estimate = job["estimate"]
    held = [size for name, size in estimate["components"].items() if name != "runtime"]
    assert sum(held) == estimate["per_gpu"]["allocated"]
    weights = [term["size"] for name, term in estimate["terms"].items() if name.startswith("weights#")]
    assert sum(weights) == estimate["components"]["weights"]
    facts, words = config.facts["checked"]["findings"], config.words["checked"]["findings"]
    assert facts.keys() == words.keys()
    assert all("message" in words[name] and "message" not in facts[name] for name in facts)
    assert facts
    capsys.readouterr()
    assert main(["compare", str(one), str(two)]) == 0
    said = "facts differ: 0 items; words differ: 0 items; missing: 0; new: 0; compared: 3\n"
    assert capsys.readouterr().out == said


def test_equal_snapshots_say_nothing(tmp_path, capsys):
    items = [("corpus:a", FACTS, WORDS)]
    assert compared(tmp_path, capsys, items, items) == (
        0, "facts differ: 0 items; words differ: 0 items; missing: 0; new: 0; compared: 1\n",
    )  # fmt: skip


def test_a_changed_number_is_told_once_with_all_its_items(tmp_path, capsys):
    other = changed(FACTS, ("jobs", "@#1", "job", "loop"), 4)
    old = [(f"corpus:{name}", FACTS, WORDS) for name in "abc"]
    new = [("corpus:a", other, WORDS), ("corpus:b", FACTS, WORDS), ("corpus:c", other, WORDS)]
    code, said = compared(tmp_path, capsys, old, new)
    assert code == 1
    assert said.splitlines() == [
        "facts differ: 2 items; words differ: 0 items; missing: 0; new: 0; compared: 3",
        "",
        "facts",
        "  jobs..job.loop: 2 items, 1 changes, +33.333% to +33.333%",
        "        2 x  3 -> 4",
        "             corpus:a, corpus:c",
    ]


def test_a_changed_word_is_told_apart_from_the_facts(tmp_path, capsys):
    path = ("findings", "GPU101 @a.b.yaml:3:1#1", "message")
    old = [("corpus:a", FACTS, WORDS), ("corpus:b", FACTS, changed(WORDS, path, "needs 17.5 GiB"))]
    new = [("corpus:a", FACTS, changed(WORDS, path, "requires 3 GiB")),
           ("corpus:b", FACTS, changed(WORDS, path, "requires 17.5 GiB"))]  # fmt: skip
    code, said = compared(tmp_path, capsys, old, new)
    assert code == 1
    assert said.splitlines() == [
        "facts differ: 0 items; words differ: 2 items; missing: 0; new: 0; compared: 2",
        "",
        "words",
        "  findings.GPU101.message: 2 items, 1 changes",
        '        2 x  "needs 3 GiB" -> "requires 3 GiB"',
        "             corpus:a, corpus:b",
    ]
    assert "findings" not in compared(tmp_path, capsys, old, new, "--section", "facts")[1]


def test_missing_and_new_items_are_told(tmp_path, capsys):
    old, new = [("corpus:a", FACTS, WORDS)], [("corpus:b", FACTS, WORDS)]
    code, said = compared(tmp_path, capsys, old, new)
    assert code == 1
    assert said.splitlines() == [
        "facts differ: 0 items; words differ: 0 items; missing: 1; new: 1; compared: 0",
        "missing: corpus:a",
        "new: corpus:b",
    ]


def test_a_finding_that_goes_is_one_difference(tmp_path, capsys):
    code, said = compared(
        tmp_path, capsys, [("corpus:a", FACTS, WORDS)], [("corpus:a", {**FACTS, "findings": {}}, None)]
    )
    assert code == 1
    assert "  findings.GPU101: 1 items, 1 changes\n        1 x  {...} -> (absent)" in said
    assert "facts differ: 1 items; words differ: 1 items" in said


@pytest.mark.parametrize(
    ("names", "alike"),
    [
        ({"job.loop": "job.steps.loop", "rl.loop": "rl.steps.loop", "GPU101": "GPU102", "default": "upstream"}, True),
        ({"loop": "steps.loop", "GPU101": "GPU102", "default": "upstream"}, True),
        ({"oop": "steps.loop", "GPU101": "GPU102", "default": "upstream"}, False),
        ({"loop": "steps.loop", "GPU10": "GPU102", "default": "upstream"}, False),
        ({"loop": "steps.loop", "GPU101": "GPU102", "defaul": "upstream"}, False),
    ],
)
def test_whole_names_are_renamed_in_paths_keys_and_values(tmp_path, capsys, names, alike):
    (tmp_path / "renames.json").write_text(json.dumps(names))
    new = {
        "jobs": {
            "@#1": {"job": {"steps": {"loop": 3}}, "origins": {"rl.steps.loop": {"kind": "upstream", "key": "a.b"}}}
        },
        "findings": {"GPU102 @a.b.yaml:3:1#1": {"severity": "error"}},
    }
    words = {"findings": {"GPU102 @a.b.yaml:3:1#1": WORDS["findings"]["GPU101 @a.b.yaml:3:1#1"]}}
    items = [("corpus:GPU101 01", FACTS, WORDS)], [("corpus:GPU102 01", new, words)]
    code, _ = compared(tmp_path, capsys, *items, "--renames", str(tmp_path / "renames.json"))
    assert (code == 0) is alike


def test_parts_share_the_items_and_are_compared_with_the_same_of_the_whole(tmp_path, capsys):
    keys = [f"corpus:{number}" for number in range(40)]
    parts = [Part(number, 3) for number in (1, 2, 3)]
    assert sorted(key for part in parts for key in keys if part.holds(key)) == sorted(keys)
    assert all(sum(map(part.holds, keys)) > 5 for part in parts)
    files.write(tmp_path / "old.jsonl.gz", ["cases", "corpus"], Part(), [Item(key, FACTS, None) for key in keys])
    kept = [Item(key, FACTS, None) for key in keys if parts[1].holds(key)]
    files.write(tmp_path / "new.jsonl.gz", ["corpus"], parts[1], kept)
    assert main(["compare", str(tmp_path / "old.jsonl.gz"), str(tmp_path / "new.jsonl.gz")]) == 0
    files.write(tmp_path / "new.jsonl.gz", ["corpus"], parts[1], kept[1:])
    assert main(["compare", str(tmp_path / "old.jsonl.gz"), str(tmp_path / "new.jsonl.gz")]) == 1
    assert f"missing: {kept[0].key}\n" in capsys.readouterr().out
