from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def build():
    spec = importlib.util.spec_from_file_location("build", ROOT / "scripts" / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_nothing_generated_is_stale():
    assert build().main(["--check"]) == 0, "run python scripts/build.py"


def test_check_writes_nothing(tmp_path, monkeypatch, capsys):
    module = build()
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "GENERATORS", (lambda: iter([("a/b.txt", "text")]),))
    assert module.main(["--check"]) == 1
    assert not (tmp_path / "a").exists()
    assert module.main([]) == 0
    assert (tmp_path / "a" / "b.txt").read_text() == "text"
    assert module.main(["--check"]) == 0
    assert "a/b.txt" in capsys.readouterr().out
