"""Every schema carries the version that is stated for it, names its generator, and the formats agree; no network."""

import json
import subprocess
import zipfile
from importlib import import_module
from pathlib import Path

import pytest

from gpulint.formats.core.keys import load
from gpulint.formats.core.registry import FORMAT_NAMES, find
from gpulint.formats.hf_trainer.trainer_profiles import flavours
from scripts import refresh
from scripts.upstream.schema import add_former, add_known, table, whole, written
from scripts.upstream.source import Source, Upstream

ROOT = Path(__file__).resolve().parents[2]
OUTPUTS = refresh.outputs()

OWN = {"estimate", "job", "plan", "report", "rule", "settings"}
"""Schemas of gpulint's own files."""


def test_every_schema_and_table_has_a_generator():
    made = {output.path for output in OUTPUTS}
    schemas = {f"schemas/{path.name}" for path in (ROOT / "schemas").glob("*.json") if path.stem not in OWN}
    tables = {path.relative_to(ROOT).as_posix() for path in (ROOT / "linter").rglob("presets_*.json")}
    assert schemas | tables <= made
    assert all((ROOT / path).is_file() for path in made)


@pytest.mark.parametrize("output", OUTPUTS, ids=lambda output: output.path)
def test_outputs_carry_the_stated_version(output):
    assert refresh.stamp_of(output.path) == output.stamp, "run scripts/refresh.py"
    module, _, function = output.make.partition(".")
    assert callable(getattr(import_module(f"scripts.upstream.{module}"), function))


def test_check_says_that_nothing_is_stale(capsys):
    assert refresh.main(["--check", "--offline"]) == 0
    assert f"{len(OUTPUTS)} of {len(OUTPUTS)} outputs" in capsys.readouterr().out


def test_check_names_what_is_stale(capsys, monkeypatch):
    monkeypatch.setattr(refresh, "stamp_of", lambda path: "tool 0.1")
    assert refresh.main(["--check", "--offline", "axolotl"]) == 1
    assert "stale schemas/axolotl.json: made from tool 0.1, stated axolotl" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (("abc1234", ""), "newer verl: abc1234"),
        (("1dda039b9ff", ""), ""),
        (("", "0.9.1"), ""),
        (("", "0.10.1"), "newer verl: 0.10.1"),
        (("", ""), "unknown verl"),
    ],
)
def test_what_git_cannot_say_is_asked_of_the_index(capsys, monkeypatch, answers, said):
    monkeypatch.setattr(refresh, "newest_of", lambda upstream: answers)
    assert refresh.check(refresh.outputs(["schemas/verl.json"]), offline=False) == 0
    told = capsys.readouterr().out.splitlines()[:-1]
    assert [line for line in told if line.startswith(said)] == told
    assert bool(told) == bool(said)


def test_the_last_release_of_its_kind_is_not_asked_about(capsys, monkeypatch):
    monkeypatch.setattr(refresh, "newest_of", lambda upstream: ("", "9.9"))
    refresh.check(refresh.outputs(["schemas/torchtitan.json"]), offline=False)
    assert "newer" not in capsys.readouterr().out


def test_a_wrong_name_is_said():
    with pytest.raises(SystemExit, match="no output or upstream is called axolotel"):
        refresh.outputs(["axolotel"])


@pytest.mark.parametrize("name", FORMAT_NAMES)
def test_formats_name_the_version_of_their_schema(name):
    try:
        stamp = load(name)["x-upstream"]
    except FileNotFoundError:
        pytest.skip(f"{name} has no schema of keys")
    assert find(name).upstream == stamp


def test_flavours_run_on_the_versions_of_the_schema():
    (output,) = refresh.outputs(["hf_trainer"])
    stated = {upstream.name: upstream.version for upstream in output.own}
    row = next(row for row in flavours() if row.name == "trl")
    assert {name: row.versions[name] for name in stated} == stated


def test_files_are_as_the_generators_write_them():
    for output in OUTPUTS:
        text = (ROOT / output.path).read_text(encoding="utf-8")
        assert text == (written if output.is_schema else table)(json.loads(text)), output.path


NAMES = {"replaced": {"old": "new"}, "hints": {"older": "say new"}}


def dropped(key):
    return f"tool {len(key)}.0"


def test_a_dropped_key_stays_as_a_removed_one():
    before = {
        "x-upstream": "tool 1",
        "properties": {"old": {"type": "string"}, "older": {"x-removed": "gone"}, "kept": {}},
    }
    made = whole("tool", {"kept": {}, "new": {}}, "refused")
    assert add_former(made, before, NAMES, dropped) == 2
    assert made["properties"]["old"] == {
        "deprecated": True, "x-removed": "taken before tool 3.0", "x-replacement": "new",
    }  # fmt: skip
    assert made["properties"]["older"]["x-removed"] == "taken before tool 5.0; say new"
    again = whole("tool", {"kept": {}, "new": {}}, "refused")
    add_former(again, {**made, "x-upstream": "tool 2"}, NAMES, dropped)
    assert again == made


def test_a_known_key_stays_known_at_its_depth():
    made = whole("tool", {"part": {"type": "object", "properties": {"new": {}}}}, "refused")
    before = {"properties": {"part": {"type": "object", "properties": {"old": {"type": "boolean"}}}, "top": {}}}
    assert add_known(made, before) == 2
    assert made["properties"]["part"]["properties"] == {"new": {}, "old": {"type": "boolean"}}


def test_a_wheel_and_a_repository_are_read_alike(tmp_path):
    with zipfile.ZipFile(tmp_path / "tool_kit-1.2-py3-none-any.whl", "w") as archive:
        archive.writestr("tool/config.py", "class A: pass")
        archive.writestr("tool/picture.png", "no")
        archive.writestr("other/config.py", "")
    (tmp_path / "kit" / "tool").mkdir(parents=True)
    (tmp_path / "kit" / "tool" / "config.py").write_text("class A: pass")
    git = ["git", "-C", str(tmp_path / "kit"), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"], ["tag", "v1.2"]):
        subprocess.run([*git, *words], check=True)
    wheel = Source(Upstream("tool", "1.2", package="tool-kit", root="tool/"), tmp_path)
    clone = Source(Upstream("tool", "1.2", repository="owner/kit", revision="v1.2", root="tool/"), tmp_path)
    for source in (wheel, clone):
        assert source.paths == ["config.py"]
        assert list(source.classes("config.py")) == ["A"]
        assert source.text("missing.py") is None
    with pytest.raises(FileNotFoundError, match=r"no archive of tool-kit 2\.0"):
        Source(Upstream("tool", "2.0", package="tool-kit"), tmp_path)


def test_a_wheel_s_data_folder_is_where_it_is_installed(tmp_path):
    with zipfile.ZipFile(tmp_path / "tool-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("tool-1.0.data/purelib/tool/arguments.py", "lr = 1\n")
    source = Source(Upstream("tool", "1.0", package="tool", root="tool/"), tmp_path)
    assert source.paths == ["arguments.py"]
    assert source.need("arguments.py") == "lr = 1\n"
