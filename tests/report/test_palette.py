"""Every component has a colour of its own on both grounds."""

from __future__ import annotations

import pytest

from gpulint.estimator.estimate import COMPONENTS
from gpulint.report.html.palette import colours, style_sheet


@pytest.mark.parametrize("ground", ["light", "dark"])
def test_every_component_has_a_colour_of_its_own(ground):
    assert sorted(colours(ground)) == sorted(COMPONENTS)
    assert len(set(colours(ground).values())) == len(COMPONENTS)


def test_the_style_sheet_names_each_on_both_grounds():
    for component in COMPONENTS:
        assert style_sheet().count(f"--{component}: #") == 2
