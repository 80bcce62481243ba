"""A config that the script writes before it starts what reads it."""

from __future__ import annotations

import pytest

from gpulint.launchers.kubernetes.container import written
from gpulint.launchers.kubernetes.manifest import scalar_at
from gpulint.launchers.reading import Recognised, open_jobs, recognise_file
from gpulint.launchers.registry import recognise
from gpulint.launchers.shell.script import place
from gpulint.settings.settings import Settings
from gpulint.source.places import places_of
from gpulint.source.read import parse

CONFIG = "base_model: Qwen/Qwen2.5-7B-Instruct\nadapter: qlora\nload_in_4bit: true\nmicro_batch_size: $BATCH\n"
CONFIG += "sequence_len: 2048\n"


def opened(text):
    document = parse(text, "run.sh", "shell")
    return open_jobs(Recognised(document, None, recognise(document)), Settings(root=".")).opened


@pytest.mark.parametrize(
    "write", ["cat > conf/a.yaml <<EOF\n", "cat <<EOF > ./conf/a.yaml\n", "tee conf/a.yaml <<EOF > /dev/null\n"]
)
def test_a_here_document_is_the_file_that_it_is_written_to(write):
    (found,) = opened(f"BATCH=2\n{write}{CONFIG}EOF\naxolotl train conf/a.yaml\n")
    job = found.reading.job
    assert (job.model, job.method, job.micro_batch_size) == ("Qwen/Qwen2.5-7B-Instruct", "lora", 2)
    assert job.origins["sequence_length"].span.line == 7
    assert not [item for item in found.reading.problems if item.kind == "unresolved-reference"]


def test_another_file_is_still_missing():
    found = opened(f"cat > b.yaml <<EOF\n{CONFIG}EOF\naxolotl train a.yaml\n")
    assert "unresolved-reference" in {item.kind for job in found for item in job.reading.problems}


@pytest.mark.parametrize("write", ["python - > a.yaml <<EOF\n1\nEOF\n", "sed -e s/1/2/ base.yaml > ./a.yaml\n"])
def test_a_file_that_a_program_makes_is_nobodys_mistake(write):
    assert opened(f"{write}axolotl train a.yaml\n") == []


@pytest.mark.parametrize(
    "change", [f"cat >> a.yaml <<EOF\n{CONFIG}EOF\n", "sed -i s/2048/4096/ a.yaml\n", "yq -i '.a = 1' a.yaml\n"]
)
def test_a_made_file_that_is_changed_afterwards_is_not_what_was_written(change):
    written_first = f"cat > a.yaml <<EOF\n{CONFIG}EOF\n"
    assert len(opened(f"{written_first}axolotl train a.yaml\n")) == 1
    assert opened(f"{written_first}{change}axolotl train a.yaml\n") == []


@pytest.mark.parametrize(
    "write", ["envsubst < conf/t.yaml > a.yaml", "cp conf/t.yaml a.yaml", "cat conf/t.yaml > a.yaml"]
)
def test_a_copy_of_a_file_is_read_as_that_file(write, tmp_path):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "t.yaml").write_text(CONFIG)
    script = tmp_path / "run.sh"
    script.write_text(f"{write}\naxolotl train a.yaml\n")
    (found,) = open_jobs(recognise_file(str(script)), Settings(root=str(tmp_path))).opened
    job = found.reading.job
    assert (job.model, job.micro_batch_size) == ("Qwen/Qwen2.5-7B-Instruct", None)
    assert job.origins["model"].file.endswith("t.yaml")


@pytest.mark.parametrize("value", [123456, "longer than the node"])
def test_a_generated_value_ends_where_the_node_that_it_stands_at_does(value):
    document = parse("a: 8\nb: xyz\n", "f.yaml", "yaml")
    node = document.root.entry("b").value
    word = written(document, scalar_at(document, value, node), {})
    assert word.text == str(value)
    span = place(places_of(document.text), word.at)
    assert (span.start, span.end) == (node.span.start, node.span.end)
