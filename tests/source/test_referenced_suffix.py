"""A file that a config names is JSON by what it holds; one that is named to be checked, by its suffix."""

import pytest

from gpulint.source.read import UnknownKindError, read
from gpulint.source.referenced import open_referenced


@pytest.mark.parametrize(
    ("text", "stage"), [('{"stage": 3}', 3), ('\n  {"stage": 2}', 2), ("stage: 3", None), ("", None)]
)
def test_a_referenced_file_of_another_suffix(tmp_path, text, stage):
    (tmp_path / "ds.conf").write_text(text)
    if stage is None:
        with pytest.raises(UnknownKindError):
            open_referenced("ds.conf", str(tmp_path / "x.yaml"), str(tmp_path))
    else:
        found = open_referenced("ds.conf", str(tmp_path / "x.yaml"), str(tmp_path))
        assert found.root.get("stage").value == stage


def test_a_named_file_of_another_suffix(tmp_path):
    (tmp_path / "ds.conf").write_text('{"stage": 3}')
    with pytest.raises(UnknownKindError):
        read(str(tmp_path / "ds.conf"))
