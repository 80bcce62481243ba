"""The counts find what they are named after, wherever the package lies."""

from __future__ import annotations

import pytest

from benchmarks.corpus.counts import circles, counts, imports, modules, package_folder

FILES = {
    "__init__.py": "",
    "loose.py": "if older(v, '0.9.1') or s.job or job.framework == 'trl': print('verl')\n",
    "formats/__init__.py": "from . import one\n",
    "formats/one.py": (
        "from typing import TYPE_CHECKING\n"
        "from .deep import two\n"
        "if TYPE_CHECKING:\n    from ..loose import x\n"
        "D = {'bf16': 'bfloat16', 'f32': 'float32'}\nE = {'f32': 'float32'}\n"
        "if given:\n    b.put('attention', given)\nelse:\n    b.default('attention', 1)\n"
        "if given:\n    b.put('optimizer.name', given)\nelse:\n    other()\n"
    ),
    "formats/deep/__init__.py": "",
    "formats/deep/two.py": "from gpulint.formats.one import D\nVERSION = '1.2'\nNONE = 'v1.2', '12'\n",
    "estimator/__init__.py": "",
    "estimator/three.py": "x = s.job, self.s.job, t.job\ny = 'verl', 'verl3'\nz = 'unsloth' in job.versions\n",
}


@pytest.fixture(params=["linter", "linter/gpulint"])
def package(request, tmp_path):
    for name, text in FILES.items():
        path = tmp_path / request.param / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return package_folder(tmp_path / "linter")


def test_each_thing_is_counted_in_its_files(package):
    found = {what: dict(where) for what, where in counts(modules(package)).items()}
    one, three = "formats/one", "estimator/three"
    assert found == {
        "older() calls": {"loose": 1},
        "version literals": {"loose": 1, "formats/deep/two": 1},
        "'tool' in versions": {three: 1},
        "comparisons of framework": {"loose": 1},
        "tool names in estimator and models": {three: 2},
        "s.job": {three: 2},
        "dtype spelling tables": {one: 1},
        "calls that set Job fields": {one: 3},
        "if given: set, else: default": {one: 1},
        "  of weights.dtype": {},
        "  of optimizer.name": {one: 1},
        "  of attention": {one: 2},
        "  of activation_checkpointing": {},
        "  of parallelism.fsdp": {},
    }


def test_circles_count_typing_imports_and_absolute_ones(package):
    graph = imports(modules(package))
    assert graph["formats", "one"] == {("loose",), ("formats", "deep", "two")}
    assert circles(graph) == [[("formats", "deep", "two"), ("formats", "one")]]


def test_a_folder_without_a_package_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no package"):
        package_folder(tmp_path)
