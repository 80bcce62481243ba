"""Open texts are checked as they stand, with the files that they name; one bad file stops nothing."""

from __future__ import annotations

import pytest

from gpulint.editor import workspace as module
from gpulint.editor.workspace import Workspace
from gpulint.settings.file import Value
from gpulint.settings.layers import Layers

from .texts import AXOLOTL, DEEPSPEED


def rules(workspace, path):
    return {finding.name for finding in workspace.findings(path)}


def test_what_counts_is_the_open_text_and_not_the_file(workspace, opened):
    path = opened("a.yaml", AXOLOTL)
    assert "unknown-key-ignored" not in rules(workspace, path)
    workspace.put(path, AXOLOTL.replace("lora_r:", "lora_rank:"), 2)
    assert "unknown-key-ignored" in rules(workspace, path)


def test_a_file_that_was_never_saved_is_checked(workspace, opened):
    path = opened("new.yaml", AXOLOTL.replace("lora_r:", "lora_rank:"), disk=False)
    assert "unknown-key-ignored" in rules(workspace, path)


def test_a_config_follows_the_open_text_of_the_file_that_it_names(workspace, opened):
    path = opened("a.yaml", AXOLOTL + "deepspeed: ds.json\n")
    other = opened("ds.json", DEEPSPEED)
    before = workspace.reading(path).jobs[0].opened.reading.job.parallelism.zero.stage
    workspace.put(other, DEEPSPEED.replace('"stage": 2', '"stage": 3'), 2)
    after = workspace.reading(path).jobs[0].opened.reading.job.parallelism.zero.stage
    assert (before, after) == (2, 3)


def test_settings_of_the_closest_file_count_as_they_are_typed(workspace, opened):
    path = opened("a.yaml", AXOLOTL.replace("lora_r:", "lora_rank:"))
    settings = opened("gpulint.toml", "")
    assert "unknown-key-ignored" in rules(workspace, path)
    workspace.put(settings, 'ignore = ["unknown-key-ignored"]\n', 2)
    assert "unknown-key-ignored" not in rules(workspace, path)


def test_bad_settings_are_told_where_they_stand(workspace, opened):
    path = opened("gpulint.toml", 'gpu = "h100-80gb"\nignroe = []\n')
    workspace.check()
    (trouble,) = workspace.troubles
    assert (trouble.path, trouble.line) == (path, 2)
    assert "did you mean ignore" in trouble.reason


def test_a_config_that_can_no_longer_be_read_says_where(workspace, opened):
    path = opened("a.yaml", AXOLOTL)
    workspace.reading(path)
    workspace.put(path, AXOLOTL + "x: [1\n", 2)
    workspace.check()
    (trouble,) = workspace.troubles
    assert trouble.path == path
    assert trouble.line > AXOLOTL.count("\n")


def test_the_memory_stays_while_a_line_is_written(workspace, opened):
    path = opened("a.yaml", AXOLOTL)
    before = workspace.last(path).jobs[0].estimate
    workspace.put(path, AXOLOTL + "lora_al", 2)
    assert workspace.last(path).jobs[0].estimate == before
    workspace.put(path, "words: 1\n", 3)
    assert workspace.last(path).jobs == ()


def test_broken_files_of_others_are_left_to_others(workspace, opened):
    opened("tsconfig.json", '{\n  // comment\n  "compilerOptions": {}\n}\n')
    opened("ansible.yaml", "- hosts: all\n  tasks: [\n")
    workspace.check()
    assert workspace.troubles == []


def test_a_defect_in_one_file_leaves_the_others_checked(workspace, opened, monkeypatch):
    bad = opened("bad.yaml", AXOLOTL)
    good = opened("good.yaml", AXOLOTL.replace("lora_r:", "lora_rank:"))
    outcome = module.Run.outcome

    def broken(self, found):
        if found.path == bad:
            raise ZeroDivisionError("oh")
        return outcome(self, found)

    monkeypatch.setattr(module.Run, "outcome", broken)
    assert "unknown-key-ignored" in rules(workspace, good)
    (trouble,) = workspace.troubles
    assert trouble.path == bad
    assert "ZeroDivisionError" in trouble.reason


def test_a_closed_file_leaves_nothing_behind(workspace, opened):
    path = opened("a.yaml", AXOLOTL.replace("lora_r:", "lora_rank:"))
    assert list(workspace.check().findings)
    workspace.close(path)
    assert list(workspace.check().findings) == []
    assert workspace.reading(path) is None


@pytest.mark.parametrize("text", ["", "\n", "- a\n- b\n", "just words\n"])
def test_texts_that_are_no_configs_are_silent(workspace, opened, text):
    path = opened("a.yaml", text)
    assert workspace.check().findings == []
    assert workspace.troubles == []
    assert workspace.understood(path, 0) is None


def test_options_win_over_settings(tmp_path):
    layers = Layers({"ignore": Value(("unknown-key-ignored",), "--ignore")})
    workspace = Workspace(lambda: layers)
    path = str(tmp_path / "a.yaml")
    workspace.put(path, AXOLOTL.replace("lora_r:", "lora_rank:"), 1)
    assert "unknown-key-ignored" not in rules(workspace, path)
