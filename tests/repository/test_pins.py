"""The release that a repository pins for a file: read from whatever file says it, the nearest first."""

import pytest

from gpulint.repository.pins import pins_for
from gpulint.source.read import read
from gpulint.source.referenced import holding

DECLARED = {
    "requirements.txt": "numpy==1.2\n# deepspeed==0.1\ndeepspeed==0.10.1\n",
    "requirements/train.txt": "-r base.txt\n\ndeepspeed==0.10.1\n",
    "requirements_gpu.txt": "accelerate\n\ndeepspeed==0.10.1",
    "constraints.txt": "\n\ndeepspeed==0.10.1",
    "pyproject.toml": '[project]\nname = "mine"\ndependencies = ["deepspeed==0.10.1"]\n',
    "setup.py": 'from setuptools import setup\n# "deepspeed==0.2"\n_deps = ["deepspeed==0.10.1", "pytest"]\nsetup()\n',
    "setup.cfg": "[options]\ninstall_requires =\n    deepspeed==0.10.1\n    numpy\n",
    "uv.lock": '[[package]]\nname = "deepspeed"\nversion = "0.10.1"\n',
    "poetry.lock": '[[package]]\nname = "deepspeed"\nversion = "0.10.1"\n',
    "Pipfile": '[packages]\n\ndeepspeed = "==0.10.1"\n',
    "environment.yml": "dependencies:\n  - python=3.10\n  - deepspeed=0.10.1\n",
    "Dockerfile": 'FROM python:3.10\nARG DS=0.10.1\nRUN apt-get update && pip install -q "deepspeed==${DS}"\n',
    "docker/train.Dockerfile": "FROM python:3.10\nRUN pip install torch \\\n    deepspeed==0.10.1\n",
    "install.sh": "#!/bin/bash\n# pip install deepspeed==0.2\npip install deepspeed==0.10.1 torch\n",
}
LINES = {"docker/train.Dockerfile": 2, "uv.lock": 3, "poetry.lock": 3, "deepspeed": 3}


def pinned(file="configs/ds.json"):
    return {name: pin.release for name, pin in pins_for(file, ".").items()}


@pytest.mark.parametrize("name", DECLARED)
def test_every_file_that_declares_requirements_is_read(project, name):
    project({name: DECLARED[name], "configs/ds.json": "{}"})
    pin = pins_for("configs/ds.json", ".")["deepspeed"]
    assert (pin.release, pin.exact, pin.others) == ("0.10.1", True, ())
    assert pin.origin.note == f"pinned in {name}:{LINES.get(name, 3)}"


def test_extras_groups_and_poetry_of_a_pyproject(project):
    project(
        {
            "pyproject.toml": (
                '[project.optional-dependencies]\nserve = ["vllm==0.8.5"]\n'
                '[dependency-groups]\ntune = ["peft==0.11.1"]\n'
                '[tool.poetry.dependencies]\ntrl = "0.9.6"\ntransformers = {version = "4.41.2", extras = ["x"]}\n'
                'accelerate = {git = "https://example.org/accelerate", tag = "v0.30.1"}\n'
                '[tool.poetry.group.gpu.dependencies]\ntorch = "2.3.1"\n'
            ),
            "configs/ds.json": "{}",
        }
    )
    assert pinned() == {
        "vllm": "0.8.5", "peft": "0.11.1", "trl": "0.9.6", "transformers": "4.41.2", "accelerate": "0.30.1",
        "torch": "2.3.1",
    }  # fmt: skip


def test_pip_inside_conda(project):
    project({"env.yaml": "dependencies:\n- pytorch=2.3.1\n- pip:\n  - trl==0.9.6\n- peft=0.11\n", "configs/x": ""})
    assert pinned() == {"torch": "2.3.1", "trl": "0.9.6", "peft": "0.11"}


def test_images_of_dockerfiles_and_charts(project):
    project({"Dockerfile": "ARG V=0.8.5\nFROM vllm/vllm-openai:v${V} AS base\n", "configs/x": ""})
    assert pinned() == {"vllm": "0.8.5"}
    project({"configs/values.yaml": "image:\n  repository: vllm/vllm-openai\n  tag: 'v0.10.2'\n"})
    assert pinned() == {"vllm": "0.10.2"}


def test_the_nearest_folder_counts_package_by_package(project):
    project(
        {
            "requirements.txt": "deepspeed==0.16.4\ntrl==0.9.6\n",
            "train/requirements.txt": "deepspeed==0.10.1\n",
            "train/configs/ds.json": "{}",
            "other/requirements.txt": "deepspeed==0.12.2\n",
        }
    )
    assert pinned("train/configs/ds.json") == {"deepspeed": "0.10.1", "trl": "0.9.6"}
    assert pinned("configs/ds.json") == {"deepspeed": "0.16.4", "trl": "0.9.6"}


def test_nothing_above_the_root_counts(project):
    project({"requirements.txt": "deepspeed==0.16.4\n", "train/ds.json": "{}"})
    assert pins_for("train/ds.json", "train") == {}


def test_a_lock_counts_before_a_requirement_and_that_before_an_image(project):
    project({"Dockerfile": "RUN pip install trl==0.7.1\n", "configs/x": "", "requirements.txt": "trl==0.9.6\n"})
    assert pinned() == {"trl": "0.9.6"}
    project({"uv.lock": '[[package]]\nname = "trl"\nversion = "0.11.1"\n'})
    assert pinned() == {"trl": "0.11.1"}


def test_what_several_files_of_a_kind_state_is_any_of_it(project):
    project({"requirements-a.txt": "trl==0.9.6\n", "requirements-b.txt": "trl==0.15.2\n", "configs/x": ""})
    pin = pins_for("configs/x", ".")["trl"]
    assert (pin.release, pin.others, pin.origin.kind) == ("0.9.6", ("0.15.2",), "assumed")
    assert pin.origin.values == ("0.9.6", "0.15.2")


@pytest.mark.parametrize(
    ("spec", "release"),
    [
        (">=4.30", None),  # allows the newest: nothing is said
        (">=4.30,<6", None),
        ("<5", "4.57.6"),
        ("<=4.57.3", "4.57.3"),
        ("<4.57.3", "4.57.2"),
        (">=4.41.2,<=4.43.4", "4.43.4"),
        (">=4.41.2,<4.43", "4.42.4"),
        ("~=4.43.1", "4.43.4"),
        ("<4.30", "4.29.2"),
        ("<4.20", None),  # no release is named or was read that it allows
    ],
)
def test_a_range_says_no_more_than_it_does(project, spec, release):
    project({"requirements.txt": f"transformers{spec}\n", "configs/x": ""})
    pin = pins_for("configs/x", ".").get("transformers")
    assert (pin.release if pin else None) == release
    assert pin is None or (not pin.exact and pin.origin.kind == "assumed")


@pytest.mark.parametrize("package", ["flash-linear-attention", "mamba-ssm", "flashinfer-python"])
def test_kernels_are_used_where_they_are_installed_and_no_pin_says_that_they_are(project, package):
    project({"requirements.txt": f"{package}==0.2.6\n", "configs/x": ""})
    assert pinned() == {}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("setup.py", "install_requires = ['trl==0.9.6'\n"),
        ("pyproject.toml", "[project\n"),
        ("requirements.txt", "\udcff"),
        ("environment.yml", "name: x\n- trl=0.9.6\n"),
    ],
)
def test_a_file_that_cannot_be_read_stops_nothing(project, tmp_path, name, text):
    project({"configs/x": ""})
    (tmp_path / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    assert set(pinned()) <= {"trl"}


def test_a_change_of_a_file_is_seen(project):
    project({"requirements.txt": "trl==0.9.6\n", "configs/x": ""})
    assert pinned() == {"trl": "0.9.6"}
    project({"requirements.txt": "trl==0.15.12\n"})
    assert pinned() == {"trl": "0.15.12"}


def test_files_that_are_held_in_memory_have_no_repository(project):
    project({"requirements.txt": "trl==0.9.6\n", "configs/x.json": "{}"})
    with holding({"x": read("configs/x.json")}):
        assert pinned() == {}
