"""SGLang's server arguments: recognition, meaning, defaults, versions, edits."""

import pytest

from gpulint.estimator.estimate_job import estimate
from gpulint.formats.core.registry import recognise
from gpulint.source.read import parse

from .origins import ENGINE, INFERENCE, missing

SERVER = """\
model-path: Qwen/Qwen2.5-7B-Instruct
tensor-parallel-size: 4   # of one node
mem-fraction-static: 0.8
context-length: 16384
kv-cache-dtype: fp8_e4m3
"""


@pytest.fixture
def sglang(bench):
    return bench("sglang")


def name_of(text, syntax="yaml"):
    found = recognise(parse(text, f"config.{syntax}", syntax))
    return found.name if found else None


@pytest.mark.parametrize("text", [SERVER, "tp-size: 8\nmodel: a/b\n", "disaggregation-mode: decode\nport: 1\n"])
def test_recognition(text):
    assert name_of(text) == "sglang"


@pytest.mark.parametrize(
    "text",
    [
        "model: a/b\nmax-model-len: 8\ntensor-parallel-size: 2\n",
        "tp-size: 2\nepochs: 1\nlr: 0.1\nname: x\n",
        "context_length: 2048\nmodel: {name: x}\n",
    ],
)
def test_other_files(text):
    assert name_of(text) != "sglang"


def test_stated_values_and_their_places(sglang):
    job = sglang.job(SERVER)
    assert (job.kind, job.inference.engine, job.model) == ("inference", "sglang", "Qwen/Qwen2.5-7B-Instruct")
    assert (job.parallelism.tensor, job.hardware.gpus) == (4, 4)
    assert (job.inference.gpu_memory_utilization, job.inference.max_model_len) == (0.8, 16384)
    assert job.inference.kv_cache_dtype == "fp8_e4m3"
    assert job.origins["parallelism.tensor"].key == "tensor-parallel-size"
    assert job.origins["parallelism.tensor"].span.line == 2


def test_every_field_that_decides_memory_has_an_origin(sglang):
    assert missing(sglang.job(SERVER), INFERENCE + ENGINE) == []


def test_what_depends_on_the_gpu_stays_open(sglang):
    inference = sglang.job("model-path: a/b\ntp-size: 1\n").inference
    assert (inference.gpu_memory_utilization, inference.max_num_batched_tokens, inference.max_num_seqs) == (None,) * 3


@pytest.mark.parametrize(
    ("text", "gpus", "data"),
    [
        ("tp-size: 4\ndp-size: 2\n", 8, 2),
        ("tp-size: 4\ndp-size: 4\nenable-dp-attention: true\n", 4, 1),
        ("tp-size: 2\npp-size: 3\n", 6, 1),
    ],
)
def test_gpus_are_the_product_of_the_degrees(sglang, text, gpus, data):
    job = sglang.job("model-path: a/b\n" + text)
    assert (job.hardware.gpus, job.parallelism.data) == (gpus, data)


def test_data_parallel_attention_lies_within_the_ranks(sglang):
    job = sglang.job("model-path: a/b\ntp-size: 8\ndp-size: 4\nenable-dp-attention: true\n")
    assert (job.parallelism.tensor, job.parallelism.attention_tensor) == (8, 2)
    assert sglang.job("model-path: a/b\ntp-size: 8\ndp-size: 4\n").parallelism.attention_tensor is None


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("cuda-graph-bs: [1, 2, 160]\n", [1, 2, 160]),
        ("cuda-graph-max-bs: 64\n", [64]),
        ("cuda-graph-max-bs-decode: 64\n", [64]),
        ("", None),
    ],
)
def test_captured_batches(sglang, text, sizes):
    assert sglang.job("model-path: a/b\ntp-size: 1\n" + text).inference.cudagraph_capture_sizes == sizes


def test_a_prefill_that_is_not_cut(sglang):
    job = sglang.job("model-path: a/b\ntp-size: 1\nchunked-prefill-size: -1\n")
    assert job.inference.max_num_batched_tokens == 16384
    assert job.origins["inference.max_num_batched_tokens"].kind == "file"


def test_a_cache_of_so_many_tokens_is_no_larger(sglang):
    text = "model-path: Qwen/Qwen2.5-7B-Instruct\ntp-size: 1\n"
    free, bound = sglang.job(text), sglang.job(text + "max-total-tokens: 10000\n")
    for job in (free, bound):
        job.hardware.gpu = "h100-80gb"
    free, bound = estimate(free), estimate(bound)
    assert bound.kv_cache.tokens == 10000 < free.kv_cache.tokens
    assert bound.per_gpu.process < free.per_gpu.process


def test_the_beginning_of_an_option_is_that_option(sglang):
    text = "model-path: a/b\ntp: 2\nmem-frac: 0.7\nchunked-prefill-size: 4096\n"
    reading = sglang.read(text)
    assert (reading.job.parallelism.tensor, reading.job.inference.gpu_memory_utilization) == (2, 0.7)
    assert reading.problems == []


def test_a_typo_is_found_where_it_stands(sglang):
    (problem,) = sglang.problems(SERVER + "max-runing-requests: 8\n", "unknown-key")
    assert (problem.span.line, problem.values["suggestion"]) == (6, "max-running-requests")
    assert problem.values["treatment"] == "refused"


def test_a_removed_option_dates_the_file(sglang):
    text = "model-path: a/b\ntp-size: 2\nenable-ep-moe: true\n"
    reading = sglang.read(text)
    assert reading.job.versions["sglang"] == "0.5.4"
    assert reading.job.origins["versions.sglang"].key == "enable-ep-moe"
    assert [item.kind for item in reading.problems] == ["deprecated-key"]


def test_a_version_that_still_has_the_option(sglang):
    document = parse("model-path: a/b\ntp-size: 2\nenable-ep-moe: true\n", "config.yaml", "yaml")
    from gpulint.formats.core.format import Project
    from gpulint.formats.core.releases import read_as_stated

    project = Project("/nowhere", None, None, None, lambda *_: None, versions={"sglang": "0.4.9"})
    reading = read_as_stated(sglang.format, document, project)
    assert reading.problems == []
    assert reading.job.inference.version == "0.4.9"


def test_what_another_program_fills_in_is_not_guessed(sglang):
    job = sglang.job("model-path: $MODEL\ntp-size: $TP\ncontext-length: ${LEN}\nmem-fraction-static: 0.8\n")
    assert (job.model, job.inference.max_model_len, job.parallelism.tensor) == (None, None, 1)
    for path in ("model", "inference.max_model_len", "parallelism.tensor"):
        assert job.origins[path].kind == "assumed"


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"parallelism.tensor": 8}, "tensor-parallel-size: 8   # of one node"),
        ({"inference.max_model_len": 8192}, "context-length: 8192"),
        ({"weights.quantization.method": "fp8"}, "quantization: fp8"),
        ({"inference.enforce_eager": True}, "disable-cuda-graph: true"),
    ],
)
def test_changes_in_its_own_words(sglang, changes, line):
    text, job = sglang.change(SERVER, changes)
    assert line in text.splitlines()
    assert all(job.get(path) == value for path, value in changes.items())


def test_what_it_cannot_say(sglang):
    assert sglang.change(SERVER, {"method": "lora"}) is None


def test_what_hybrid_models_and_embeddings_are_told(sglang):
    asked = "disable-radix-cache: true\nmax-mamba-cache-size: 64\nmamba-full-memory-ratio: 0.5\n"
    given = sglang.job(f"model-path: a/b\n{asked}prefill-only-disable-kv-cache: true\n").inference
    assert (given.prefix_caching, given.max_states, given.state_ratio, given.kv_cache_off) == (False, 64, 0.5, True)
    usual = sglang.job("model-path: a/b\n").inference
    assert (usual.prefix_caching, usual.max_states, usual.state_ratio, usual.kv_cache_off) == (None, None, None, False)
