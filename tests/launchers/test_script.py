"""Scripts inside configs: each character's place in the file."""

from __future__ import annotations

import pytest

from gpulint.launchers.shell.script import of_scalar
from gpulint.source.read import parse


@pytest.mark.parametrize(
    "text",
    [
        "run: |\n  python a.py \\\n    --x 1\n  b\n",
        "run: >-\n  python a.py\n  --x 1\n",
        "run: python a.py --x 1\n",
        "run: 'it''s a.py'\n",
        'run: "a \\"b\\" \\t c"\n',
        "x: {run: [a.py --y]}\n",
    ],
)
def test_characters_stand_where_they_were_read(text):
    document = parse(text, "task.yaml", "yaml")
    node = document.root.get("run") or document.root.find("x.run").value.items()[0]
    script = of_scalar(document, node)
    assert len(script.text) == len(script.at)
    for char, place in zip(script.text, script.at, strict=True):
        if not char.isspace():
            assert text[place] == char
