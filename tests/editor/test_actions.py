"""What can be done about findings: the edits are applied and the texts checked again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpulint.editor.actions import actions, between, fix_all, has_safe_fix
from gpulint.source.edit.edit import apply

from .texts import AXOLOTL, DEEPSPEED

TYPO = AXOLOTL.replace("gradient_checkpointing:", "gradient_checkpointng:")


def done(workspace, path, title):
    """The text of a file after the first action of which the title begins so."""
    text = workspace.text(path)
    action = next(item for item in actions(workspace, path, 0, len(text)) if item.title.startswith(title))
    return action, apply(text, [edit for edit in action.edits if edit.path == path])


def names(workspace, path):
    return {finding.name for finding in workspace.findings(path)}


def test_a_typo_is_renamed(workspace, opened):
    path = opened("a.yaml", TYPO)
    _, text = done(workspace, path, "rename")
    assert text == AXOLOTL


def test_only_findings_at_the_cursor_count(workspace, opened):
    path = opened("a.yaml", TYPO)
    assert list(actions(workspace, path, 0, 3)) == []


def test_memory_after_the_fix_is_in_the_title(workspace, opened):
    text = AXOLOTL.replace("h100-80gb", "rtx-3090").replace("micro_batch_size: 2", "micro_batch_size: 16")
    path = opened("a.yaml", text)
    found = [item for item in actions(workspace, path, 0, 10_000) if " GiB per GPU" in item.title]
    workspace.put(path, apply(text, found[0].edits), 2)
    estimate = workspace.reading(path).jobs[0].estimate
    assert f"-> {estimate.needed / 2**30:.1f} GiB per GPU" in found[0].title


def test_a_finding_is_silenced_by_a_comment(workspace, opened):
    path = opened("a.yaml", TYPO)
    action, text = done(workspace, path, "Ignore unknown-key-ignored here")
    assert "# gpulint: ignore[unknown-key-ignored]\ngradient_checkpointng:" in text
    assert action.create == ""
    workspace.put(path, text, 2)
    assert "unknown-key-ignored" not in names(workspace, path)


def test_in_json_the_settings_silence_it(workspace, opened):
    path = opened("ds.json", DEEPSPEED.replace('"stage"', '"stagee"'))
    silenced = next(iter(names(workspace, path)))
    text = workspace.text(path)
    action = next(item for item in actions(workspace, path, 0, len(text)) if item.title.startswith("Ignore"))
    assert action.create.endswith("gpulint.toml")
    (edit,) = action.edits
    opened("gpulint.toml", edit.text)
    assert silenced in edit.text
    assert silenced not in names(workspace, path)


def test_an_entry_follows_what_the_settings_have(workspace, opened):
    path = opened("ds.json", DEEPSPEED.replace('"stage"', '"stagee"'))
    settings = opened("gpulint.toml", 'gpu = "h100-80gb"')
    action = next(item for item in actions(workspace, path, 0, 10_000) if item.title.startswith("Ignore"))
    assert action.create == ""
    assert apply(workspace.text(settings), action.edits).startswith('gpu = "h100-80gb"\n\n[[suppressions]]\n')


def test_every_safe_fix_at_once(workspace, opened):
    text = AXOLOTL.replace("lora_r: 16", "lora_r: 16 # gpulint: ignore[memory-tight, unknown-key-ignored]")
    path = opened("a.yaml", text)
    assert has_safe_fix(workspace, path)
    fixed = apply(text, fix_all(workspace, path))
    assert fixed == AXOLOTL
    workspace.put(path, fixed, 2)
    assert not has_safe_fix(workspace, path)


@given(st.text(st.sampled_from("ab\n\r"), max_size=20), st.text(st.sampled_from("ab\n\r"), max_size=20))
def test_edits_between_two_texts_lead_from_one_to_the_other(before, after):
    assert apply(before, list(between("x", before, after))) == after
