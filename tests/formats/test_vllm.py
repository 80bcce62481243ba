import pytest

from gpulint.formats.core.registry import recognise
from gpulint.formats.serving.vllm import human_readable
from gpulint.source.read import parse

from .origins import ENGINE, INFERENCE, missing

SERVER = """\
model: meta-llama/Llama-3.1-70B-Instruct
tensor-parallel-size: 4   # one node
max-model-len: 32K
gpu-memory-utilization: 0.95
port: 8000
"""


@pytest.fixture
def vllm(bench):
    return bench("vllm")


def name_of(text, syntax="yaml"):
    found = recognise(parse(text, f"config.{syntax}", syntax))
    return found.name if found else None


@pytest.mark.parametrize(
    "text",
    [
        SERVER,
        "tensor-parallel-size: 8\nenforce-eager: true\n",
        "model: a/b\nmax_model_len: 4096\n",
        "tensor_parallel_size: 2\ngpu_memory_utilization: 0.9\n",
        "tensor-parallel-size: 8\ndisable-log-requests: true\n",
    ],
)
def test_recognition(text):
    assert name_of(text) == "vllm"


@pytest.mark.parametrize(
    "text",
    [
        "model: a/b\ndtype: bfloat16\nseed: 1\n",
        "model:\n  name: a/b\nmax_model_len: 8\ntensor_parallel_size: 2\n",
        "tensor-parallel-size: 4\nmem-fraction-static: 0.8\nserved-model-name: x\n",
        "max_model_len: 8\nepochs: 3\nlr: 1\nname: x\ntrainer: y\n",
    ],
)
def test_other_files(text):
    assert name_of(text) != "vllm"


def test_vllm_reads_no_json():
    assert name_of('{"model": "a/b", "max-model-len": 8, "tensor-parallel-size": 2}', "json") is None


@pytest.mark.parametrize("text", [SERVER, "tensor-parallel-size: 8\nenforce-eager: true\n"])
def test_every_field_that_decides_memory_has_an_origin(vllm, text):
    assert missing(vllm.job(text), INFERENCE + ENGINE) == []


def test_stated_values_and_their_places(vllm):
    job = vllm.job(SERVER)
    assert (job.kind, job.inference.engine, job.model) == ("inference", "vllm", "meta-llama/Llama-3.1-70B-Instruct")
    assert (job.inference.max_model_len, job.inference.gpu_memory_utilization) == (32768, 0.95)
    assert job.origins["parallelism.tensor"].key == "tensor-parallel-size"
    assert job.origins["inference.max_model_len"].span.line == 3


@pytest.mark.parametrize(("stated", "length", "note"), [("-1", -1, "the longest that fits"), ("8191", 8191, "")])
def test_a_length_of_minus_one_says_what_it_is(vllm, stated, length, note):
    job = vllm.job(SERVER.replace("max-model-len: 32K", f"max-model-len: {stated}"))
    assert (job.inference.max_model_len, job.origins["inference.max_model_len"].note) == (length, note)


def test_defaults_that_depend_on_the_gpu_stay_open(vllm):
    job = vllm.job("tensor-parallel-size: 2\nenable-lora: true\n")
    inference = job.inference
    assert (inference.gpu_memory_utilization, inference.kv_cache_dtype, inference.max_lora_rank) == (0.92, "auto", 16)
    assert (inference.max_model_len, inference.max_num_seqs, inference.max_num_batched_tokens) == (None, None, None)
    assert job.origins["inference.max_num_seqs"].note == "default of vllm 0.33.0, by GPU"
    assert (job.model, job.weights.dtype, job.versions["vllm"]) == (None, None, "0.33.0")


def test_the_mode_is_read_where_it_is_stated(vllm):
    assert vllm.job(SERVER + "performance-mode: throughput\n").inference.performance_mode == "throughput"
    assert vllm.job(SERVER).inference.performance_mode is None


def test_the_gpus_are_the_product_of_the_degrees(vllm):
    text = "tensor-parallel-size: 4\npipeline-parallel-size: 2\ndata_parallel_size: 2\nenable-expert-parallel: true\n"
    job = vllm.job(text)
    assert (job.hardware.gpus, job.parallelism.data, job.parallelism.expert) == (16, 2, 8)
    assert job.origins["hardware.gpus"].kind == "derived"
    assert vllm.job(text, gpus=8).hardware.gpus == 8


@pytest.mark.parametrize(
    ("name", "method", "bits"),
    [("awq_marlin", "awq", 4), ("fp8", "fp8", 8), ("bitsandbytes", "bnb-nf4", 4), ("modelopt_fp4", "nvfp4", 4)],
)
def test_quantisation(vllm, name, method, bits):
    packed = vllm.job(SERVER + f"quantization: {name}\n").weights.quantization
    assert (packed.method, packed.bits) == (method, bits)


def test_quantisation_that_only_the_checkpoint_knows(vllm):
    job = vllm.job(SERVER + "quantization: compressed-tensors\ndtype: half\n")
    assert (job.weights.quantization, job.weights.dtype) == (None, "float16")


def test_nested_options(vllm):
    job = vllm.job(
        SERVER + "speculative-config:\n  model: a/draft\n  num_speculative_tokens: 3\n"
        "compilation-config:\n  cudagraph_capture_sizes: [1, 2, 4]\n"
    )
    assert (job.inference.speculative_model, job.inference.cudagraph_capture_sizes) == ("a/draft", [1, 2, 4])
    assert job.inference.speculative_tokens == 3
    text = vllm.job(SERVER + 'compilation-config: \'{"mode": 0, "cudagraph_mode": "NONE"}\'\n').inference
    assert (text.compiles, text.cudagraph_capture_sizes) == (False, [])
    text = vllm.job(SERVER + "compilation-config: {level: 3, cudagraph_mode: PIECEWISE}\n").inference
    assert (text.compiles, text.cudagraph_capture_sizes) == (None, None)
    text = vllm.job(SERVER + 'speculative-config: \'{"model": "a/draft"}\'\n')
    assert text.inference.speculative_model == "a/draft"
    assert vllm.job(SERVER + "speculative-config: '{\"model\": '\n").inference.speculative_model is None
    assert vllm.job(SERVER + "enable-prefix-caching: true\n").inference.prefix_caching is True
    assert vllm.job(SERVER + "enable-prefix-caching: false\n").inference.prefix_caching is False
    text = vllm.job(SERVER + 'limit-mm-per-prompt: \'{"image": 0, "video": {"count": 0}, "audio": 1}\'\n').inference
    assert text.modalities_off == ["image", "video"]
    assert vllm.job(SERVER + "limit-mm-per-prompt:\n  image: 0\n").inference.modalities_off == ["image"]
    assert vllm.job(SERVER + "limit-mm-per-prompt: 'image=1'\n").inference.modalities_off is None
    assert vllm.job(SERVER + "limit-mm-per-prompt.image: 0\n").inference.modalities_off == ["image"]
    assert vllm.job(SERVER + "language-model-only: true\n").inference.modalities_off == ["image", "video", "audio"]
    assert vllm.job(SERVER + "limit-mm-per-prompt:\n  image: {count: 2}\n").images == 2
    assert vllm.job(SERVER + "limit-mm-per-prompt:\n  image: 0\n").images is None
    assert vllm.job(SERVER + "mm-processor-kwargs: '{\"max_pixels\": 262144}'\n").image_pixels == 262144
    assert vllm.job(SERVER + "mm-processor-kwargs:\n  size: {longest_edge: 65536}\n").image_pixels == 65536
    assert vllm.job(SERVER + "skip-mm-profiling: true\n").inference.skip_mm_profiling is True
    own = vllm.job(SERVER + 'speculative-config: \'{"method": "mtp", "num_speculative_tokens": 1}\'\n').inference
    assert (own.speculative_model, own.speculative_algorithm, own.speculative_tokens) == (None, "mtp", 1)
    assert vllm.job(SERVER + "speculative-config:\n  method: ngram\n").inference.speculative_algorithm == "ngram"


@pytest.mark.parametrize(
    ("written", "tokens"),
    [(4096, 4096), ("32k", 32000), ("32K", 32768), ("25.6k", 25600), ("1M", 1 << 20), ("4096", 4096),
     ("auto", None), (-1, None), ("-1", None), ("1.5K", None), (True, None), (None, None), ("9" * 50, None)],
)  # fmt: skip
def test_counts_as_vllm_reads_them(written, tokens):
    assert human_readable(written) == tokens


def test_an_option_of_an_older_version_says_which_version(vllm):
    reading = vllm.read("tensor-parallel-size: 8\ndisable-log-requests: true\n")
    assert reading.job.versions["vllm"] == "0.16.0"
    assert reading.job.inference.gpu_memory_utilization is None
    assert [(item.kind, item.key, item.values["replacement"]) for item in reading.problems] == [
        ("deprecated-key", "disable-log-requests", "")
    ]


def test_unknown_options(vllm):
    found = vllm.problems(SERVER + "max_num_seq: 8\nenable_prefix_caching: true\n", "unknown-key")
    assert [(item.key, item.values["suggestion"]) for item in found] == [("max_num_seq", "max_num_seqs")]
    old = vllm.problems("tensor_parallel_size: 8\nswap_space: 4\n", "deprecated-key")
    assert [item.key for item in old] == ["swap_space"]


@pytest.mark.parametrize(
    "changes",
    [
        {"parallelism.tensor": 8},
        {"inference.max_model_len": 8192},
        {"inference.max_num_seqs": 64, "inference.max_num_batched_tokens": 2048},
        {"inference.gpu_memory_utilization": 0.8},
        {"inference.kv_cache_dtype": "fp8"},
        {"inference.enforce_eager": True},
        {"weights.quantization.method": "fp8"},
        {"weights.dtype": "float16"},
    ],
    ids=str,
)
def test_the_edited_file_is_the_changed_job(vllm, changes):
    text, job = vllm.change(SERVER, changes)
    assert {path: job.get(path) for path in changes} == changes
    assert text.startswith("model: meta-llama/Llama-3.1-70B-Instruct\n")
    assert vllm.read(text).problems == []


def test_edits_keep_the_files_spelling(vllm):
    text, _ = vllm.change(
        "model: a/b\nmax_model_len: 4096\ntensor_parallel_size: 2\n",
        {"inference.max_num_seqs": 8, "parallelism.tensor": 4},
    )
    assert text == "model: a/b\nmax_model_len: 4096\ntensor_parallel_size: 4\nmax_num_seqs: 8\n"
    text, _ = vllm.change(SERVER, {"parallelism.tensor": 8})
    assert "tensor-parallel-size: 8   # one node\n" in text


@pytest.mark.parametrize(
    "changes", [{"micro_batch_size": 1}, {"method": "lora"}, {"weights.quantization.method": "awq"}], ids=str
)
def test_what_vllm_cannot_say(vllm, changes):
    assert vllm.change(SERVER, changes) is None


@pytest.mark.parametrize(
    ("option", "pooling"),
    [
        ("", None), ("runner: pooling", True), ("runner: generate", False), ("runner: auto", None),
        ("convert: embed", True), ("convert: none", None), ("task: score", True), ("task: generate", False),
    ],
)  # fmt: skip
def test_what_kind_of_model_it_serves(vllm, option, pooling):
    assert vllm.job(f"model: a/b\nmax-model-len: 8192\n{option}\n").inference.pooling is pooling
