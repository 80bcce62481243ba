from __future__ import annotations

import os

import pytest

from gpulint.settings.file import Value
from gpulint.settings.layers import Layers


@pytest.fixture
def project(tmp_path):
    (tmp_path / ".git").mkdir()
    for folder in ("configs/t4", "other"):
        (tmp_path / folder).mkdir(parents=True)

    def write(name: str, text: str):
        (tmp_path / name).write_text(text)
        return tmp_path

    return write


def of(root, path, **given):
    return Layers({name: Value(value, f"--{name}") for name, value in given.items()}).of(str(root / path))


def test_the_closest_file_counts_alone(project):
    project("gpulint.toml", 'gpu = "h100-80gb"\ngpus = 8\n')
    root = project("configs/gpulint.toml", 'gpu = "t4"\n')
    assert (of(root, "configs/x.yaml").configured_gpu, of(root, "configs/x.yaml").configured_gpus) == ("t4", None)
    assert of(root, "other/x.yaml").configured_gpu == "h100-80gb"
    assert of(root, "configs/x.yaml").root == str(root)


def test_the_hidden_name_and_pyproject_count_too(project):
    project("pyproject.toml", "[tool.gpulint]\ngpus = 2\n")
    root = project("configs/.gpulint.toml", "gpus = 4\n")
    assert of(root, "configs/x.yaml").configured_gpus == 4
    assert of(root, "other/x.yaml").configured_gpus == 2


def test_a_pyproject_without_our_table_is_passed_over(project):
    project("gpulint.toml", "gpus = 2\n")
    root = project("configs/pyproject.toml", "[project]\nname = 'x'\n")
    assert of(root, "configs/x.yaml").configured_gpus == 2


def test_nothing_above_the_repository_is_read(project, tmp_path):
    (tmp_path / "inner" / ".git").mkdir(parents=True)
    root = project("gpulint.toml", "gpus = 2\n")
    assert of(root, "inner/x.yaml").configured_gpus is None


def test_extend_builds_on_another_file(project):
    project("gpulint.toml", 'gpu = "t4"\ngpus = 8\nignore = ["A"]\n[versions]\ntrl = "1.0"\npeft = "0.1"\n')
    root = project(
        "configs/gpulint.toml",
        'extend = "../gpulint.toml"\ngpus = 2\nextend-ignore = ["B"]\nversions = {trl = "2.0"}\n',
    )
    settings = of(root, "configs/x.yaml")
    assert (settings.configured_gpu, settings.configured_gpus) == ("t4", 2)
    assert settings.ignore == ("A", "B")
    assert settings.versions == {"trl": "2.0", "peft": "0.1"}


def test_a_list_replaces_and_its_extension_adds(project):
    project("gpulint.toml", 'extend-ignore = ["A"]\n')
    root = project("configs/gpulint.toml", 'extend = "../gpulint.toml"\nignore = ["B"]\n')
    assert of(root, "configs/x.yaml").ignore == ("B",)


def test_overrides_count_for_their_paths_and_the_last_wins(project):
    root = project(
        "gpulint.toml",
        'gpu = "h100-80gb"\n'
        '[[overrides]]\nfiles = ["configs/**"]\ngpu = "a100-40gb"\n'
        '[[overrides]]\nfiles = ["configs/t4/*.yaml", "small-*"]\ngpu = "t4"\nextend-ignore = ["GPU120"]\n',
    )
    assert of(root, "other/x.yaml").configured_gpu == "h100-80gb"
    assert of(root, "configs/x.yaml").configured_gpu == "a100-40gb"
    assert of(root, "configs/t4/x.yaml").configured_gpu == "t4"
    assert of(root, "other/small-x.yaml").ignore == ("GPU120",)


def test_options_win_and_some_add(project):
    root = project("gpulint.toml", 'select = ["A"]\nextend-select = ["B"]\nignore = ["C"]\nfail-on = "never"\n')
    settings = of(root, "x.yaml", select=("D",), ignore=("E",), fail_on="error")
    assert (settings.select, settings.extend_select) == (("D",), ())
    assert (settings.ignore, settings.fail_on) == (("C", "E"), "error")


def test_values_say_who_set_them(project, monkeypatch):
    root = project("gpulint.toml", 'gpus = 8\n\n[[overrides]]\nfiles = ["configs/*"]\ngpus = 2\n')
    monkeypatch.chdir(root)
    values = Layers({"gpu": Value("t4", "--gpu")}).values(os.path.join("configs", "x.yaml"))
    assert values["gpus"] == Value(2, "gpulint.toml:5")
    assert values["gpu"] == Value("t4", "--gpu")


def test_paths_are_relative_to_the_settings_file(project):
    root = project("gpulint.toml", 'rules = ["own"]\nmodels = ["m"]\nbaseline = "b.json"\n')
    settings = of(root, "configs/x.yaml")
    assert settings.rules == (str(root / "own"),)
    assert settings.models == (str(root / "m"),)
    assert settings.baseline == str(root / "b.json")


def test_models_of_the_team_are_found(project):
    import json

    from gpulint import check

    root = project("gpulint.toml", 'models = ["team-models"]\n')
    folder = root / "team-models" / "acme" / "tiny"
    folder.mkdir(parents=True)
    config = {
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "vocab_size": 1000, "max_position_embeddings": 512,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    path = root / "configs" / "x.yaml"
    path.write_text(
        "base_model: acme/tiny\ndatasets: [{path: a, type: alpaca}]\nmicro_batch_size: 1\nsequence_len: 64\n"
    )
    assert [item.name for item in check([str(path)], Layers()).findings if item.name == "unknown-model"] == []
    (root / "gpulint.toml").write_text("")
    assert [item.name for item in check([str(path)], Layers()).findings if item.name == "unknown-model"] != []


TWICE = "base_model: acme/tiny\ndatasets: [{path: a, type: alpaca}]\nmicro_batch_size: 1\nmicro_batch_size: 2\n"


def found(root, text: str) -> dict[str, str]:
    from gpulint import check

    path = root / "configs" / "x.yaml"
    path.write_text(text)
    return {item.name: item.severity for item in check([str(path)], Layers()).findings}


def test_extend_select_adds_preview_rules(project):
    text = TWICE + "trust_remote_code: true\n"
    root = project("gpulint.toml", "")
    assert "remote-code-unpinned" not in found(root, text)
    project("gpulint.toml", 'extend-select = ["GPU75"]\n')
    assert {"remote-code-unpinned", "duplicate-key"} <= set(found(root, text))
    project("gpulint.toml", 'select = ["GPU003"]\nextend-select = ["GPU751"]\n')
    assert set(found(root, text)) == {"remote-code-unpinned", "duplicate-key"}


def test_severities_are_the_users(project):
    root = project("gpulint.toml", '[severity]\nduplicate-key = "error"\n')
    assert found(root, TWICE)["duplicate-key"] == "error"


@pytest.mark.parametrize("text", ['extend-select = ["duplicate-kye"]\n', '[severity]\nduplicate-kye = "error"\n'])
def test_a_rule_that_is_not_there_is_told(project, text):
    from gpulint.rules.rule import RuleError

    root = project("gpulint.toml", text)
    with pytest.raises(RuleError, match="did you mean duplicate-key"):
        found(root, TWICE)
