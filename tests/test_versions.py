import pytest

from gpulint.versions import older


@pytest.mark.parametrize(
    ("version", "than", "expected"),
    [
        ("4.57.1", "5", True),
        ("5", "5.0", False),
        ("5.0", "5", False),
        ("5.0.0", "5.0.1", True),
        ("0.10", "0.9.2", False),
        ("v0.9", "0.10", True),
        ("nightly", "5", False),
        ("", "5", False),
    ],
)
def test_which_release_comes_first(version, than, expected):
    assert older(version, than) is expected
