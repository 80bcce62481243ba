"""Which packages take part in a job, and at which release."""

import pytest

from gpulint.estimator.estimate_job import estimate
from gpulint.formats.core.format import Project
from gpulint.formats.core.registry import find
from gpulint.job.job import Inference, Job
from gpulint.job.origin import Origin
from gpulint.source.read import parse
from gpulint.upstream import axolotl, megatron, transformers, unsloth
from gpulint.upstream.serving import sglang, vllm
from gpulint.upstream.stack import AROUND, FRAMEWORKS, KERNELS, NATIVE, Release, Stack

SFT = """model_name_or_path: Qwen/Qwen2.5-0.5B
dataset_name: a/b
use_peft: true
per_device_train_batch_size: 3
max_length: 1300
bf16: true
"""


def read(text, form="hf_trainer", **versions):
    project = Project("/nowhere", None, 1, None, lambda *_: None, None, versions, "trl sft")
    return find(form).read(parse(text, "config.yaml", "yaml"), project).job


@pytest.mark.parametrize("version", ["0.0.1", "2024.8"])
@pytest.mark.parametrize("package", sorted(FRAMEWORKS))
def test_a_pinned_version_makes_no_framework_part_of_a_job(package, version):
    plain, pinned = read(SFT), read(SFT, **{package: version})
    assert pinned.versions[package] == version
    assert not Stack(pinned).runs(package)
    assert estimate(pinned) == estimate(plain)


@pytest.mark.parametrize("name", [*NATIVE, *sorted(AROUND)])
def test_a_framework_takes_part_where_the_job_says_so(name):
    stack = Stack(Job(framework=name))
    package = NATIVE.get(name, name)
    assert stack.framework == package
    assert [other for other in sorted(FRAMEWORKS) if stack.runs(other)] == [package]
    assert stack.native == (name in NATIVE)


@pytest.mark.parametrize("name", [None, "acme"])
def test_a_framework_that_nobody_knows_is_none(name):
    stack = Stack(Job(framework=name))
    assert stack.framework is None
    assert not stack.native


@pytest.mark.parametrize("package", sorted(KERNELS))
def test_kernels_run_where_they_are_stated_to_be_installed(package):
    assert Stack(Job(versions={package: ""})).runs(package)
    assert not Stack(Job()).runs(package)


def test_an_engine_takes_part_where_it_serves():
    stack = Stack(Job(kind="inference", inference=Inference(engine="vllm"), versions={"sglang": "0.5.23"}))
    assert stack.runs(vllm.NAME)
    assert not stack.runs(sglang.NAME)


def test_the_engine_s_own_version_comes_first():
    job = Job(inference=Inference(engine="vllm", version="0.9.2"), versions={"vllm": "0.20.0", "sglang": "0.5.4"})
    stack = Stack(job)
    assert (stack.version("vllm"), stack.version("sglang")) == ("0.9.2", "0.5.4")
    job.inference.version = None
    assert stack.version("vllm") == "0.20.0"


@pytest.mark.parametrize(
    ("version", "kind", "known"),
    [
        ("4.57.1", "derived", "stated"),
        ("4.57.1", "file", "stated"),
        ("4.57.1", "default", "pinned"),
        ("4.57.1", None, "stated"),
        ("main", "derived", "newest"),
        (None, None, "newest"),
    ],
)
def test_how_a_release_is_known(version, kind, known):
    job = Job(versions={"transformers": version} if version else {})
    if kind:
        job.origins["versions.transformers"] = Origin(kind)
    assert Stack(job).release("transformers") == Release("transformers", version, known)


def test_a_package_that_does_not_run_does_nothing():
    job = Job(versions={"axolotl": "0.18.0", "transformers": "5.0"})
    assert not Stack(job).does(axolotl.LEAN_KERNELS)
    assert Stack(job).does(transformers.GROUPED_EXPERTS)
    job.framework = "axolotl"
    assert Stack(job).does(axolotl.LEAN_KERNELS)
    assert not Stack(job).does(megatron.CORE_MODELS)


def test_what_every_release_does_needs_no_version():
    assert Stack(Job(framework="unsloth")).does(unsloth.PADDED_LABELS)


AXOLOTL = "base_model: Qwen/Qwen2.5-0.5B\ndatasets: [{path: a, type: alpaca}]\nadapter: lora\n"
FACTORY = """model_name_or_path: Qwen/Qwen2.5-0.5B
stage: sft
do_train: true
finetuning_type: lora
use_unsloth: true
"""
AUTOMODEL = """recipe: TrainFinetuneRecipeForNextTokenPrediction
model:
  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained
  pretrained_model_name_or_path: Qwen/Qwen2.5-0.5B
"""
PRIME = "model: {name: Qwen/Qwen2.5-0.5B}\ndata: {batch_size: 8, seq_len: 512}\n"
VERL = "actor_rollout_ref: {model: {path: Qwen/Qwen2.5-0.5B}}\nalgorithm: {adv_estimator: grpo}\n"
MEGATRON = "actor_rollout_ref: {model: {path: Qwen/Qwen2.5-0.5B}, actor: {strategy: megatron}}\n"


@pytest.mark.parametrize(
    ("form", "text", "framework"),
    [
        ("hf_trainer", SFT, None),
        ("axolotl", AXOLOTL, "axolotl"),
        ("llamafactory", FACTORY, "unsloth"),
        ("llamafactory", FACTORY.replace("true", "false"), None),
        ("nemo_automodel", AUTOMODEL, "nemo-automodel"),
        ("prime_rl", PRIME, "prime-rl"),
        ("verl", VERL, "verl"),
        ("verl", MEGATRON, "megatron"),
    ],
)
def test_formats_say_who_runs_the_job(form, text, framework):
    assert read(text, form).framework == framework
