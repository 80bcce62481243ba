"""The corpus benchmark counts what it says."""

from __future__ import annotations

import json

from benchmarks.corpus.__main__ import listed, outcomes, table
from gpulint.settings.settings import Settings

AXOLOTL = "base_model: meta-llama/Llama-3.1-8B\ndatasets: []\nmicro_batch_size: 1\nsequence_len: 2048\n"


def test_files_are_recognised_become_jobs_or_say_why_not(tmp_path):
    files = {"a.yaml": ("axolotl", AXOLOTL), "b.json": ("hf_model_config", '{"model_type": "llama", "hidden_size": 8}'),
             "c.yaml": ("axolotl", "services: {}\n")}  # fmt: skip
    for name, (_, text) in files.items():
        (tmp_path / name).write_text(text)
    rows = [{"path": name, "format": label} for name, (label, _) in files.items()]
    (tmp_path / "INDEX.json").write_text(json.dumps(rows))
    found = outcomes(tmp_path, Settings(gpu="h100-80gb", gpus=1))
    assert [(row.recognised, row.settled, row.jobs) for row in found] == [
        (True, True, 1), (True, True, 0), (False, False, 0),
    ]  # fmt: skip
    assert [line.split(":")[1].strip() for line in listed(found, "wrong")][-1] == "c.yaml"
    assert table(found)[-1].startswith("recognised ")


def test_a_corrected_label_is_what_counts(tmp_path):
    path = "xorbitsai__inference/xinference/thirdparty/fish_speech/a.yaml"
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text("trainer: {}\n")
    (tmp_path / "INDEX.json").write_text(json.dumps([{"path": path, "format": "hf_trl_yaml"}]))
    (row,) = outcomes(tmp_path, Settings())
    assert row.expected is None
    assert row.recognised
