from __future__ import annotations

import pytest

from gpulint.settings.layers import load
from gpulint.settings.settings import Settings, SettingsError, project_root


def test_defaults_without_a_file(tmp_path):
    assert load(directory=str(tmp_path)).fail_on == "error"


def test_gpulint_toml_is_read(tmp_path):
    text = 'gpu = "t4"\ngpus = 2\nignore = ["GPU001"]\nfail-on = "warning"\nrules = ["mine"]\n'
    (tmp_path / "gpulint.toml").write_text(text)
    settings = load(directory=str(tmp_path))
    assert (settings.configured_gpu, settings.configured_gpus, settings.ignore) == ("t4", 2, ("GPU001",))
    assert settings.fail_on == "warning"
    assert settings.rules == (str(tmp_path / "mine"),)


def test_pyproject_table_is_read(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\n\n[tool.gpulint]\ngpu = "t4"\n')
    assert load(directory=str(tmp_path)).configured_gpu == "t4"


def test_versions_of_packages(tmp_path):
    (tmp_path / "gpulint.toml").write_text('[versions]\ntransformers = "4.57"\n')
    assert load(directory=str(tmp_path)).versions == {"transformers": "4.57"}


def test_isolated_reads_nothing(tmp_path):
    (tmp_path / "gpulint.toml").write_text("broken [")
    assert load(directory=str(tmp_path), isolated=True) == Settings(root=project_root(str(tmp_path)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpuu = 1\n", "gpulint.toml:1:1: unknown key gpuu; did you mean gpu?"),
        ('x = 1\ngpus = "two"\n', "unknown key x; known are gpu, gpus, nodes"),
        ('gpus = "two"\n', 'gpulint.toml:1:8: gpus must be a whole number of 1 or more, not "two"'),
        ('fail-on = "sometimes"\n', 'fail-on must be one of error, warning, info, never, not "sometimes"'),
        ("ignore = [1]\n", "each item of ignore must be text, not 1"),
        ("gpus = \n", "gpulint.toml:1:"),
        ("head-room = 8\n", "did you mean headroom?"),
        ('fail_on = "error"\n', "did you mean fail-on?"),
        ('fail-on = "warnings"\n', "did you mean warning?"),
        ('headroom = "some"\n', 'headroom must be text like 2 GiB, 5%, not "some"'),
        ("extend = 1\n", "extend must be text, not 1"),
        ('extend = "other.toml"\n', "which is not there"),
        ('extend = "gpulint.toml"\n', "which extends this file"),
        ('[[overrides]]\ngpu = "t4"\n', "gpulint.toml:1:1: each item of overrides needs files"),
        ('[[overrides]]\nfiles = ["*"]\nfail-on = "error"\n', "unknown key fail-on; known are gpu, gpus, nodes"),
        ('overrides = "x"\n', 'overrides must be a list of tables, not "x"'),
        ('[[suppressions]]\nfile = "x"\n', "each item of suppressions needs rules"),
        (
            '[[suppressions]]\nfile = "x"\nrules = ["y"]\nwhy = "z"\n',
            "gpulint.toml:4:1: unknown key why; known are file, rules, key, reason",
        ),
        ("gpus = 0\n", "gpus must be a whole number of 1 or more, not 0"),
        ("gpus = true\n", "gpus must be a whole number"),
        ("gpus = 2.0\n", "gpus must be a whole number"),
        ("[[overrides]]\nfiles = []\n", "2:9: overrides.files must be a list of text with at least 1 items"),
        ('[severity]\nx = "errors"\n', 'severity.x must be one of error, warning, info, not "errors"; did you mean'),
        ('per-file-ignores = ["x"]\n', "per-file-ignores must be a table of lists, not a list"),
    ],
)
def test_a_bad_file_says_where(tmp_path, text, message):
    (tmp_path / "gpulint.toml").write_text(text)
    with pytest.raises(SettingsError) as error:
        load(directory=str(tmp_path))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_the_root_is_the_nearest_marked_folder(tmp_path):
    (tmp_path / ".git").mkdir()
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert project_root(str(inner)) == str(tmp_path.resolve())


def test_versions_are_strings(tmp_path):
    (tmp_path / "gpulint.toml").write_text("[versions]\ntrl = 1\n")
    with pytest.raises(SettingsError, match=r"2:7: versions\.trl must be text, not 1"):
        load(directory=str(tmp_path))


def test_without_a_mark_the_root_is_what_the_user_named_or_stands_in(tmp_path, monkeypatch):
    inner = tmp_path / "named" / "a"
    inner.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert project_root(str(inner)) == str(tmp_path.resolve())
    assert project_root(str(inner), [str(tmp_path / "named")]) == str((tmp_path / "named").resolve())
    monkeypatch.chdir(inner)
    assert project_root(str(tmp_path)) == str(tmp_path.resolve())
