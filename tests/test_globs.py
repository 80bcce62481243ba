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
        ("x[12].yaml", "/p/x2.yaml", True),
        ("x[^12].yaml", "/p/x2.yaml", False),
        ("x[!12].yaml", "/p/x3.yaml", True),
        ("x[[]1].yaml", "/p/x[1].yaml", True),
        ("old", "/p/older/x.yaml", False),
        ("old.yaml/", "/p/old.yaml", False),
        ("old.yaml/", "/p/old.yaml/x.yaml", True),
        ("a/**", "/p/a", False),
        ("a/**/", "/p/a/x.yaml", False),
        ("a/**/", "/p/a/b/x.yaml", True),
        ("**/b/*.yaml", "/p/a/c/b/x.yaml", True),
        ("**/b/**/d/*.yaml", "/p/b/a/c/d/x.yaml", True),
        ("**/b/**/d/*.yaml", "/p/a/b/c/x.yaml", False),
    ],
)
def test_globs(glob, path, fits):
    assert matches(path, anchored(glob, "/p")) is fits


@pytest.mark.parametrize(
    ("globs", "fits"),
    [(("old", "!old/keep.yaml"), False), (("!old/keep.yaml", "old"), True), (("old", "!old/keep"), True)],
)
def test_last_glob_that_fits_decides(globs, fits):
    assert matches("/p/old/keep.yaml", *(anchored(glob, "/p") for glob in globs)) is fits


def test_signs_in_the_folder_of_the_settings_are_letters():
    assert matches("/p[1]*/old", anchored("old", "/p[1]*"))
    assert not matches("/p1x/old", anchored("old", "/p[1]*"))


def test_no_glob_takes_forever():
    """A regular expression with a group a star would try each of 10^12 ways to place these stars."""
    assert not matches("/p/" + "a" * 200, anchored("*a" * 40 + "b", "/p"))
    assert not matches("/p" + "/a" * 400, anchored("**/a/" * 40 + "b", "/p"))
