"""The schemas of servers beside vLLM, and how they are read."""

import ast
import zipfile

import pytest

from gpulint.formats.core.keys import load
from scripts.upstream.llama_cpp import options
from scripts.upstream.lmdeploy import added
from scripts.upstream.sglang import field_options
from scripts.upstream.source import Source, Upstream
from scripts.upstream.tgi import tgi


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("sglang", "tensor-parallel-size", 1),
        ("sglang", "mem-fraction-static", None),
        ("tgi", "cuda-memory-fraction", 1.0),
        ("lmdeploy", "cache-max-entry-count", 0.8),
        ("lmdeploy", "max-prefill-token-num", 8192),
        ("trtllm", "max_num_tokens", 8192),
        ("llama_cpp", "batch-size", 2048),
    ],
)
def test_defaults_of_the_named_version(name, key, value):
    assert load(name)["properties"][key]["default"] == value


@pytest.mark.parametrize("name", ["sglang", "tgi", "lmdeploy", "trtllm", "llama_cpp"])
def test_spellings_of_one_option_lead_to_one_that_exists(name):
    properties = load(name)["properties"]
    assert len(properties) > 50
    for part in properties.values():
        first = part.get("x-option")
        assert first is None or properties[first]["x-option"] == first


def test_a_field_of_sglang():
    (node,) = ast.parse('tp_size: A[int, Arg(help="x", aliases=["--tensor-parallel-size"])] = 1').body
    expected = {"type": "integer", "default": 1, "x-option": "tp-size"}
    assert field_options(node, "tp_size") == {"tp-size": expected, "tensor-parallel-size": expected}
    (node,) = ast.parse("secret: A[bool, Arg(no_cli=True)] = False").body
    assert field_options(node, "secret") == {}


def test_an_option_of_lmdeploy():
    call = ast.parse("p.add_argument('--tp', type=int, default=1)", mode="eval").body
    assert added(call) == {"tp": {"type": "integer", "default": 1}}


def test_options_of_tgi_name_their_variables(tmp_path):
    source = """struct Args {
    /// The model
    #[clap(default_value = "a/b", long, env)]
    model_id: String,

    /// Shards
    #[clap(long, env)]
    num_shard: Option<usize>,

    #[clap(long, short, action)]
    env: bool,
}
"""
    with zipfile.ZipFile(tmp_path / "tgi-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("launcher/main.rs", source)
    upstream = Upstream("TGI", "1.0", package="tgi", root="launcher/")
    assert tgi(Source(upstream, tmp_path))["properties"] == {
        "model-id": {"type": "string", "default": "a/b", "x-variable": "MODEL_ID"},
        "num-shard": {"type": "integer", "x-variable": "NUM_SHARD"},
        "env": {"type": "boolean"},
    }


def test_rows_of_llama_cpp():
    properties, short, opposites = options(
        "| `-c, --ctx-size N` | size (default: 0, 0 = model)<br/>(env: LLAMA_ARG_CTX_SIZE) |\n"
        "| `-kvo, --kv-offload, -nkvo, --no-kv-offload` | offload (default: enabled) |\n"
        "| `--draft, --draft-max N` | the argument has been removed. use --spec-draft-n-max |\n"
    )
    assert properties["ctx-size"] == {"default": 0, "x-option": "ctx-size", "x-variable": "LLAMA_ARG_CTX_SIZE"}
    assert short == {"c": "ctx-size", "kvo": "kv-offload", "nkvo": "no-kv-offload"}
    assert (properties["kv-offload"]["type"], opposites) == ("boolean", ["kv-offload"])
    assert properties["draft"]["x-removed"] == "removed; use --spec-draft-n-max"
    assert properties["draft"]["x-option"] == "draft-max"
