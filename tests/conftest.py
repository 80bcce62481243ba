"""Fixtures shared by all tests."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"


settings.register_profile("gpulint", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gpulint")

COMPILED = pytest.StashKey[str]()
"""The folder of this run's compiled modules."""


def pytest_configure(config):
    """Where Python is told to write no bytecode, a run compiles each module once, not once a process that it starts.

    The folder is the run's own: what was compiled of another state of the sources is never read.
    """
    if sys.dont_write_bytecode:
        folder = config.stash[COMPILED] = tempfile.mkdtemp(prefix="gpulint-compiled-")
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = folder
        sys.dont_write_bytecode = False


def pytest_unconfigure(config):
    """The folder goes with the run."""
    if folder := config.stash.get(COMPILED, None):
        shutil.rmtree(folder, ignore_errors=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """The tests of a file stay in one process, so that what they share is made once; `-n` alone would scatter them."""
    from xdist.scheduler import LoadFileScheduling

    return LoadFileScheduling(config, log) if config.getvalue("dist") == "load" else None


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of published figures and corpus files beside the checkout; tests that need it skip without it."""
    if not (SHARED / "data").is_dir():
        pytest.skip("../shared is not beside this checkout")
    return SHARED


@pytest.fixture(scope="session")
def shared_data(shared: Path):
    """A reader of `../shared/data/<name>.json`."""

    def read(name: str):
        return json.loads((shared / "data" / f"{name}.json").read_text())

    return read


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew; then read the diff")


@pytest.fixture
def golden(request):
    """Compare text with `tests/golden/<name>`; `--update-golden` writes it instead."""

    def compare(name: str, text: str) -> None:
        path = ROOT / "tests" / "golden" / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text + "\n", encoding="utf-8")
        assert text + "\n" == path.read_text(encoding="utf-8")

    return compare


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout's root."""
    return ROOT


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Writes files into a folder, which is the working directory, and returns it."""
    monkeypatch.chdir(tmp_path)

    def write(files):
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return tmp_path

    return write
