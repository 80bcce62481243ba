"""What the tests of this folder share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

# In importlib mode pytest does not put a test's folder on the path; `comparison` lies there.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def config(tmp_path: Path):
    """Writes bytes or text to a file of a name, as they are, and gives its path."""

    def write(name: str, content: bytes | str) -> str:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return write
