import pytest

from gpulint.formats.core.format import Project
from gpulint.formats.core.references import find, hint_from_name
from gpulint.source.document import SourceError
from gpulint.source.read import parse


def project(opened):
    return Project("/nowhere", None, None, None, opened)


def nothing(_reference, _path):
    return None


def test_a_file_of_the_project_wins_over_a_shipped_one():
    document = parse('{"zero_optimization": {"stage": 1}}', "zero3.json", "json")
    found = find("deepspeed_configs/zero3.json", "c.yaml", project(lambda *_: document))
    assert found.document is document
    assert found.shipped == ""


@pytest.mark.parametrize(
    "reference",
    [
        "deepspeed_configs/zero3_bf16.json",
        "./deepspeed_configs/zero3_bf16.json",
        "/workspace/axolotl/deepspeed_configs/zero3_bf16.json",
    ],
)
def test_a_shipped_file_is_known_by_the_end_of_its_path(reference):
    found = find(reference, "c.yaml", project(nothing))
    assert found.shipped == "axolotl 0.19.0"
    assert found.document.root.find("zero_optimization.stage").value.value == 3


def test_llama_factory_files_are_known_too():
    found = find("examples/deepspeed/ds_z2_offload_config.json", "c.yaml", project(nothing))
    assert found.shipped.startswith("LLaMA-Factory")
    assert found.document.root.find("zero_optimization.offload_optimizer.device").value.value == "cpu"


def test_axolotls_zero2_offloads_the_optimizer():
    found = find("deepspeed_configs/zero2.json", "c.yaml", project(nothing))
    assert found.document.root.find("zero_optimization.offload_optimizer.device").value.value == "cpu"


@pytest.mark.parametrize("reference", ["zero3_bf16.json", "my_deepspeed_configs/zero3_bf16.json", "configs/ds.json"])
def test_other_names_are_not_known(reference):
    found = find(reference, "c.yaml", project(nothing))
    assert found.document is None
    assert found.reason == "not found"


def test_a_file_that_cannot_be_read_is_missing_with_its_reason():
    def broken(reference, _path):
        raise SourceError(reference, "not JSON", 3, 1)

    found = find("ds.json", "c.yaml", project(broken))
    assert found.document is None
    assert found.reason == "ds.json:3:1: not JSON"


@pytest.mark.parametrize(
    ("name", "stage", "offload"),
    [
        ("zero3.json", 3, False),
        ("ds_z2_offload_config.json", 2, True),
        ("configs/deepspeed_zero_stage_1.json", 1, False),
        ("stage3.json", 3, False),
        ("zero2_no_offload.json", 2, False),
        ("ds_config.json", None, False),
        ("size3.json", None, False),
        ("zero30.json", None, False),
    ],
)
def test_what_a_name_says(name, stage, offload):
    assert hint_from_name(name) == (stage, offload)
