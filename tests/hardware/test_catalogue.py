"""The catalogue of GPUs: what people type, and what the cards hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulint.hardware.catalogue import (
    UnknownGpu,
    ambiguity,
    counted,
    find,
    gpus,
    instance,
    of_size,
    parse,
)
from gpulint.units import GIB, MIB


@pytest.mark.parametrize(
    ("text", "name", "count"),
    [
        ("h100", "h100-80gb", None),
        ("H100-80GB", "h100-80gb", None),
        ("NVIDIA-H100-80GB-HBM3", "h100-80gb", None),
        ("H100_NVLINK_80GB", "h100-80gb", None),
        ("nvidia-h100-mega-80gb", "h100-80gb", None),
        ("NVIDIA H100 PCIe", "h100-80gb-pcie", None),
        ("NVIDIA-H100-NVL", "h100-nvl", None),
        ("h100-94gb", "h100-nvl", None),
        ("a100-40gb", "a100-40gb", None),
        ("a100_80", "a100-80gb", None),
        ("A100 80 GB", "a100-80gb", None),
        ("A100-80G", "a100-80gb", None),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb", None),
        ("NVIDIA-A100-80GB-PCIe", "a100-80gb", None),
        ("nvidia-tesla-a100", "a100-40gb", None),
        ("Tesla-T4", "t4", None),
        ("rtx4090", "rtx-4090", None),
        ("4090", "rtx-4090", None),
        ("4090 24GB", "rtx-4090", None),
        ("NVIDIA GeForce RTX 3090 Ti", "rtx-3090", None),
        ("NVIDIA GeForce RTX 5080", "rtx-5080", None),
        ("rtx3060", "rtx-3060", None),
        ("RTX6000-Ada", "rtx-6000-ada", None),
        ("V100-SXM2-32GB", "v100-32gb", None),
        ("NVIDIA GeForce RTX 3080", "rtx-3080", None),
        ("3080 Ti", "rtx-3080-ti", None),
        ("RTX 4060 Ti 16GB", "rtx-4060-ti-16gb", None),
        ("NVIDIA GeForce RTX 4070 Ti", "rtx-4070", None),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", "rtx-4070-ti-super", None),
        ("2x NVIDIA TITAN RTX", "titan-rtx", 2),
        ("Quadro RTX 8000", "rtx-8000", None),
        ("1080ti", "gtx-1080-ti", None),
        ("NVIDIA-GH200-480GB", "gh200-96gb", None),
        ("B200-192GB", "b200-180gb", None),
        ("mi300", "mi300x", None),
        ("gpu:h100", "h100-80gb", None),
        ("gpu:a100:4", "a100-40gb", 4),
        ("H100:8", "h100-80gb", 8),
        ("MI300X:8", "mi300x", 8),
        ("8xA100-80GB", "a100-80gb", 8),
        ("8 NVIDIA A100 GPUs", "a100-40gb", 8),
        ("2 x L4", "l4", 2),
        ("rtx-4090x2", "rtx-4090", 2),
    ],
)
def test_a_card_is_found_by_what_people_type(text, name, count):
    gpu, found = parse(text)
    assert (gpu.name, found) == (name, count)
    assert find(text) == gpu


@pytest.mark.parametrize("gpu", gpus(), ids=lambda gpu: gpu.name)
def test_a_card_answers_to_its_own_names(gpu):
    for name in (gpu.name, gpu.name.upper(), gpu.title, *gpu.aliases):
        assert find(name) == gpu
        assert ambiguity(name) is None


@pytest.mark.parametrize("text", ["NVIDIA GeForce RTX 4080 Laptop GPU", "RTX 3080 12GB", "rtx4070-8gb"])
def test_a_laptops_chip_and_another_size_are_other_cards(text):
    with pytest.raises(UnknownGpu):
        find(text)


@given(st.sampled_from(gpus()), st.integers(1, 512))
def test_a_count_never_changes_the_card(gpu, count):
    for text in (f"{gpu.name}:{count}", f"{count}x{gpu.name}", f"{count} x {gpu.title}"):
        assert parse(text) == (gpu, count)


def test_a_bare_family_is_its_smallest_card_and_says_so():
    assert find("a100").name == "a100-40gb"
    assert "40 and 80 GB" in (ambiguity("A100:8") or "")
    assert "16 and 32 GB" in (ambiguity("v100") or "")
    assert "8 and 16 GB" in (ambiguity("rtx 4060 ti") or "")
    assert ambiguity("a100-80gb") is None
    assert ambiguity("h100") is None
    assert ambiguity("l40s") is None


def test_capacity_is_what_driver_and_torch_report():
    h100 = find("h100-80gb")
    assert h100.total == 81559 * MIB
    assert h100.usable == int(79.14 * GIB)
    assert find("t4").usable == int(14.56 * GIB)
    assert find("b200").usable == int(178.35 * GIB)
    for gpu in gpus():
        assert 0 < gpu.usable <= gpu.total, gpu.name


def test_abilities_follow_the_chip():
    assert not find("t4").bf16
    assert not find("v100").flash_attention_2
    assert find("a100-40gb").flash_attention_2
    assert not find("a100-40gb").fp8
    assert find("l4").fp8
    assert find("h100").flash_attention_3
    assert find("b200").fp4


def test_a_mig_slice_is_a_card_of_its_own():
    gpu = find("NVIDIA-A100-SXM4-80GB-MIG-3g.40gb")
    assert gpu.name == "a100-80gb-mig-3g.40gb"
    assert gpu.usable == 40192 * MIB
    assert gpu.compute_capability == 8.0
    assert find(gpu.name) == gpu
    with pytest.raises(UnknownGpu, match="no MIG profile"):
        find("a100-80gb-mig-9g.90gb")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("h10o", "h100-80gb"),
        ("a100-60gb", "a100-40gb or a100-80gb"),
        ("a100-70gb", "a100-40gb or a100-80gb"),
        ("80GB:2", "h100-80gb"),
        ("rtx 6000", "rtx-6000-ada"),
    ],
)
def test_an_unknown_card_names_the_nearest(text, hint):
    with pytest.raises(UnknownGpu) as caught:
        find(text)
    message = str(caught.value)
    assert hint in message
    assert "\n" not in message


@given(st.text(max_size=40))
def test_any_text_is_a_card_or_unknown(text):
    try:
        gpu, count = parse(text)
    except UnknownGpu as unknown:
        message = str(unknown)
    else:
        message = gpu.name
        assert count is None or count >= 0
    assert "\n" not in message


def test_machines_of_the_clouds():
    machine = instance("p5.48xlarge")
    assert machine is not None
    assert (machine.gpu.name, machine.gpus, machine.cloud) == ("h100-80gb", 8, "aws")
    assert instance("a2-ultragpu-4g").gpu.name == "a100-80gb"
    assert instance("m5.large") is None


@pytest.mark.parametrize(
    ("name", "mib", "gpu"),
    [
        ("a10g", 22_888, "a10g"),
        ("a100", 61_439, "a100-40gb"),  # the middle of 40,960 and 81,920 is 61,440
        ("a100", 61_441, "a100-80gb"),
        ("v100", 16_384, "v100-16gb"),
    ],
)
def test_a_size_in_mib_tells_cards_of_one_name_apart(name, mib, gpu):
    assert of_size(name, mib << 20).name == gpu


def test_a_size_makes_no_card_of_a_name_that_nobody_knows():
    with pytest.raises(UnknownGpu):
        of_size("ours", 80 << 30)


def test_a_machine_is_its_cards_and_how_many():
    assert parse("p4d.24xlarge") == (find("a100-40gb"), 8)
    assert counted("p4d.24xlarge", None) == 8


def test_a_count_in_the_name_is_the_number_of_gpus():
    assert counted("2xA100-40GB", None) == 2
    assert counted("a100-40gb:3", 3) == 3
    assert counted("a100-40gb", 5) == 5
    assert counted("a100-40gb", None) is None
    assert counted(None, 7) == 7
    with pytest.raises(UnknownGpu, match="says 2 GPUs, and gpus says 3"):
        counted("2xA100-40GB", 3)
