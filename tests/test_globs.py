from __future__ import annotations

import pytest

from gpulint.settings.globs import anchored, matches


@pytest.mark.parametrize(
    ("glob", "path", "fits"),
    [
        ("old", "/p/old/x.yaml", True),
        ("old", "/p/a/old/x.yaml", True),
        ("old/", "/p/a/old/x.yaml", True),
        ("/old", "/p/a/old/x.yaml", False),
        ("a/old", "/p/a/old/x.yaml", True),
        ("a/old", "/p/b/a/old/x.yaml", False),
        ("*.yaml", "/p/a/b/x.yaml", True),
        ("a/*.yaml", "/p/a/b/x.yaml", False),
        ("a/**/*.yaml", "/p/a/b/c/x.yaml", True),
        ("a/**/*.yaml", "/p/a/x.yaml", True),
        ("a/**", "/p/a/b/x.yaml", True),
        ("x?.yaml", "/p/x1.yaml", True),
        ("x?.yaml", "/p/x10.yaml", False),
        ("x.yaml", "/p/xyyaml", False),
        ("x[1].yaml", "/p/x[1].yaml", True),
        ("old", "/p/older/x.yaml", False),
    ],
)
def test_globs(glob, path, fits):
    assert matches(path, anchored(glob, "/p")) is fits
