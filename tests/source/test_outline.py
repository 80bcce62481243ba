"""The keys of files that cannot be read."""

from __future__ import annotations

import pytest

from gpulint.formats.core.registry import recognise
from gpulint.run.check import check
from gpulint.settings.settings import Settings
from gpulint.source.outline import outline

BROKEN = {
    "ds.json": ('{\n  "zero_optimization": {\n    "stage": 3,\n  },\n  "bf16": {"enabled": true}\n}\n', "deepspeed"),
    "axolotl.yml": ("base_model: a/b\ndatasets:\n  - path: x\nadapter: lora\n  micro_batch_size: 4\n", "axolotl"),
    "titan.toml": ('[job]\ndump_folder = "x\n[model]\nflavor = "8B"\n', None),
}
FOREIGN = {
    "tsconfig.json": '// settings of an editor\n{"compilerOptions": {}}\n',
    "rows.json": '{"a": 1}\n{"a": 2}\n',
    "chart.yaml": "name: {{ .Values.name }}\nlabels: {{- include }}\n",
    "utf16.yaml": "\x00a: b",
    "empty.json": "",
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_keys_tell_whose_file_it_is(tmp_path, name):
    text, tool = BROKEN[name]
    path = tmp_path / name
    path.write_text(text)
    found = outline(str(path))
    form = recognise(found) if found is not None else None
    assert (form.name if form is not None else None) == tool


@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_file_is_skipped_whatever_is_wrong_with_it(tmp_path, name):
    (tmp_path / name).write_text(FOREIGN[name])
    (result,) = check([str(tmp_path)], Settings(root=str(tmp_path))).files
    assert (result.status, result.format) == ("skipped", None)


@pytest.mark.parametrize("name", ["ds.json", "axolotl.yml"])
def test_a_config_that_cannot_be_read_is_told(tmp_path, name):
    (tmp_path / name).write_text(BROKEN[name][0])
    report = check([str(tmp_path)], Settings(root=str(tmp_path)))
    ((result,), (finding,)) = report.files, report.findings
    assert (result.status, finding.rule, finding.severity) == ("skipped", "GPU020", "error")
    assert finding.location.span.line == result.line > 0


@pytest.mark.parametrize("word", ["CONFIG_BATCH_SIZE", "{{ batch }}", "<batch>", "$BATCH"])
def test_a_template_is_no_broken_config(tmp_path, word):
    keys = f'"train_micro_batch_size_per_gpu": {word},\n  "zero_optimization": {{"stage": 2}}'
    (tmp_path / "ds.json").write_text(f'{{\n  {keys},\n  "bf16": {{"enabled": true}}\n}}\n')
    report = check([str(tmp_path)], Settings(root=str(tmp_path)))
    assert (report.files[0].status, report.findings) == ("skipped", [])
    assert word.strip("{} ") in report.files[0].reason


def test_a_file_that_is_named_is_told_in_any_case(tmp_path):
    path = tmp_path / "tsconfig.json"
    path.write_text(FOREIGN["tsconfig.json"])
    (result,) = check([str(path)], Settings(root=str(tmp_path))).files
    assert result.status == "error"


def test_a_file_that_is_not_there_has_no_outline(tmp_path):
    assert outline(str(tmp_path / "a.yaml")) is None
    assert outline(str(tmp_path / "a.txt")) is None
