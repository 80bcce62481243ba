"""The promise of the README's example: the seed finding at its line, and suggestions that hold when applied."""

from __future__ import annotations

import shutil
from collections import defaultdict

from gpulint.launchers.reading import open_jobs, recognise_file
from gpulint.run.check import check
from gpulint.settings.settings import Settings
from gpulint.source.edit.edit import apply

MEMORY = ("GPU1", "GPU2")


def test_a_full_fine_tune_of_8b_on_one_h100_gets_the_seed_finding(root, tmp_path):
    path = tmp_path / "train.yaml"
    shutil.copy(root / "examples" / "llama3-8b-full.yaml", path)
    settings = Settings(gpu="h100-80gb", gpus=1, root=str(tmp_path))
    report = check([str(path)], settings)
    (finding,) = [item for item in report.findings if item.rule == "GPU101"]
    text = path.read_text()
    span = finding.location.span
    assert text[span.start : span.end] == "adamw_torch"
    assert text.splitlines()[span.line - 1].startswith("optimizer:")
    assert any("qlora" in suggestion.text for suggestion in finding.suggestions)
    for suggestion in finding.suggestions:
        edits = defaultdict(list)
        for edit in suggestion.edits:
            edits[edit.path].append(edit)
        assert list(edits) == [str(path)]
        path.write_text(apply(text, edits[str(path)]))
        after = check([str(path)], settings)
        assert [item for item in after.findings if item.rule.startswith(MEMORY) and item.severity == "error"] == []
    path.write_text(text)


def test_the_other_examples_are_clean(root):
    names = (
        "llama3-8b-qlora.yaml", "serve-llama3-70b.yaml", "pretrain-1b.job.yaml", "slurm-trl", "kubernetes",
        "llamafactory", "torchtitan",
    )  # fmt: skip
    report = check([str(root / "examples" / name) for name in names])
    assert report.count("checked") == len(report.files) == 10
    assert [(item.location.path, item.rule) for item in report.findings] == []


def test_a_launcher_ties_its_files_together(root):
    """The Slurm script's GPUs, the accelerate file's sharding and the YAML's training are one job."""
    found = recognise_file(str(root / "examples" / "slurm-trl" / "train.sbatch"))
    (opened,) = open_jobs(found, Settings(root=str(root / "examples"))).opened
    job = opened.reading.job
    assert (job.hardware.gpu, job.hardware.gpus, job.hardware.nodes) == ("h100-80gb", 8, 1)
    assert (job.parallelism.fsdp.version, job.sequence_length) == (2, 4096)
    files = {document.path.rpartition("/")[2] for document in opened.reading.references.values()}
    assert {"train.sbatch", "accelerate.yaml"} <= files
