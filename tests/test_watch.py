from __future__ import annotations

from itertools import islice

from gpulint.run import watch
from gpulint.settings.settings import Settings


def test_a_change_is_seen_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "x.yaml"
    path.write_text("a: 1\n")
    referenced = tmp_path / "zero.json"
    slept = []

    def sleep(_seconds):
        slept.append(None)
        if len(slept) == 2:
            path.write_text("a: 22\n")
        if len(slept) == 4:
            referenced.write_text("{}")

    monkeypatch.setattr(watch.time, "sleep", sleep)
    seen = [len(slept) for _ in islice(watch.changes([str(tmp_path)], Settings(), {str(referenced)}), 2)]
    assert seen == [2, 4]
