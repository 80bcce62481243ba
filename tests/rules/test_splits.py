"""Sizes that ranks share, compared with what each program's own source checks, at both sides of every boundary."""

from __future__ import annotations

import pytest

from gpulint.launchers.reading import Recognised, open_jobs
from gpulint.launchers.registry import recognise
from gpulint.rules.expression import UNKNOWN
from gpulint.rules.facts.facts import Facts
from gpulint.settings.settings import Settings
from gpulint.source.read import parse

DIMENSIONS = {  # attention heads, key/value heads, MLP width: the models' config.json
    "Qwen/Qwen2.5-7B-Instruct": (28, 4, 18944),
    "Qwen/Qwen2.5-0.5B-Instruct": (14, 2, 4864),
    "NousResearch/Llama-2-13b-hf": (40, 40, 13824),
    "Qwen/Qwen2.5-14B-Instruct": (40, 8, 13824),
}
DEGREES = (1, 2, 3, 4, 5, 7, 8, 10, 14, 20, 28, 40)

ENGINES = {
    "vllm": "vllm serve {model} --tensor-parallel-size {ranks} --max-model-len 4096\n",
    "sglang": "python -m sglang.launch_server --model-path {model} --tp-size {ranks} --context-length 4096\n",
}


def facts_of(text, name="run.sh", syntax="shell", **versions):
    document = parse(text, name, syntax)
    settings = Settings(root=".", versions=versions)
    opened = open_jobs(Recognised(document, None, recognise(document)), settings).opened[0]
    return Facts(opened.reading, opened.project, opened.gpu)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("model", DIMENSIONS)
@pytest.mark.parametrize("ranks", DEGREES)
def test_an_engine_divides_heads_and_width_and_copies_key_value_heads(engine, model, ranks):
    heads, kv_heads, width = DIMENSIONS[model]
    facts = facts_of(ENGINES[engine].format(model=model, ranks=ranks))
    assert facts.get("splits.heads") == (heads if heads % ranks else None)
    copied = ranks % kv_heads == 0 if ranks > kv_heads else kv_heads % ranks == 0
    assert facts.get("splits.kv_heads") == (None if copied else kv_heads)
    assert facts.get("splits.mlp") == (width if width % ranks else None)


@pytest.mark.parametrize("model", DIMENSIONS)
@pytest.mark.parametrize("ranks", DEGREES)
def test_listed_sizes_up_to_the_gpus_divide_everything(model, ranks):
    heads, kv_heads, width = DIMENSIONS[model]
    facts = facts_of(ENGINES["vllm"].format(model=model, ranks=ranks))
    sizes = [n for n in range(1, min(heads, ranks) + 1) if heads % n == 0 and width % n == 0]
    sizes = [str(n) for n in sizes if kv_heads % n == 0 or n % kv_heads == 0]
    assert facts.get("splits.sizes") == sizes
    smaller = [int(n) for n in sizes if int(n) < ranks]
    assert facts.get("splits.smaller") == (smaller[-1] if smaller else UNKNOWN)


NANOTRON = """\
checkpoints: {{checkpoint_interval: 10, checkpoints_path: out}}
general: {{project: p, run: r}}
model:
  dtype: bfloat16
  model_config:
    hidden_size: {hidden}
    intermediate_size: {width}
    num_attention_heads: {heads}
    num_hidden_layers: 6
    num_key_value_heads: {kv_heads}
    vocab_size: 32000
    max_position_embeddings: 2048
    tie_word_embeddings: false
parallelism: {{dp: 1, pp: 1, tp: {ranks}}}
tokens: {{batch_accumulation_per_replica: 1, micro_batch_size: 1, sequence_length: 2048, train_steps: 10}}
"""


@pytest.mark.parametrize("ranks", [2, 3, 4, 6, 12])
def test_where_nothing_copies_key_value_heads_they_divide_too(ranks):
    from gpulint.formats.core.format import Project
    from gpulint.formats.core.registry import recognise as format_of

    text = NANOTRON.format(hidden=768, width=2304, heads=12, kv_heads=4, ranks=ranks)
    document = parse(text, "config.yaml", "yaml")
    project = Project(".", None, ranks, None, lambda *_: None)
    reading = format_of(document).read(document, project)
    assert reading.format == "nanotron"
    facts = Facts(reading, project, None)
    assert facts.get("splits.heads") is None
    assert facts.get("splits.kv_heads") == (4 if 4 % ranks else None)


FP8, AWQ, GPTQ = "Qwen/Qwen3-4B-FP8", "Qwen/Qwen1.5-14B-Chat-AWQ", "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("model", "width", "ranks"),
    [(FP8, 9728, n) for n in (1, 2, 4, 8)]
    + [(AWQ, 13696, n) for n in (1, 2, 4)]
    + [(GPTQ, 18944, n) for n in (1, 2, 4)],
)
def test_a_rank_has_whole_blocks_of_128_input_features(engine, model, width, ranks):
    facts = facts_of(ENGINES[engine].format(model=model, ranks=ranks))
    cut = ranks > 1 and width // ranks % 128
    assert facts.get("splits.block.size") == (width if cut else UNKNOWN)
    assert facts.get("splits.block.share") == (width // ranks if cut else UNKNOWN)


def test_groups_in_an_order_that_nobody_read_are_not_judged():
    assert (
        facts_of(ENGINES["vllm"].format(model="someone/Qwen1.5-14B-GPTQ", ranks=2)).get("splits.block.size") is UNKNOWN
    )


@pytest.mark.parametrize(
    ("engine", "release", "more", "cut"),
    [
        ("vllm", {"vllm": "0.32.0"}, "", True),
        ("vllm", {"vllm": "0.33.0"}, "", False),
        ("vllm", {"vllm": "0.32.0"}, " --enable-expert-parallel", False),
        ("sglang", {}, "", True),
        ("sglang", {}, " --ep-size 8", False),
    ],
)
def test_blocks_of_experts_by_engine_and_release(engine, release, more, cut):
    """1,536 features of an expert on 8 ranks are 192, one block and a half."""
    command = ENGINES[engine].format(model="Qwen/Qwen3-235B-A22B-FP8", ranks=8).rstrip()
    facts = facts_of(f"{command}{more}\n", **release)
    assert facts.get("splits.block.share") == (192 if cut else UNKNOWN)
    assert facts.get("splits.block.of_experts") is cut


GRPO = """\
model_name_or_path: Qwen/Qwen2.5-0.5B
dataset_name: trl-lib/DeepMath-103K
output_dir: out
num_generations: {generations}
per_device_train_batch_size: 3
gradient_accumulation_steps: 5
learning_rate: 1.0e-6
"""


@pytest.mark.parametrize(
    ("release", "rows"), [("0.14.0", UNKNOWN), ("0.15.0", 21), ("0.16.1", 21), ("0.17.0", 105), ("1.16.0", 105)]
)
def test_rows_that_trl_wants_to_be_whole_groups(release, rows):
    from gpulint.formats.core.format import Project
    from gpulint.formats.core.registry import recognise as format_of

    document = parse(GRPO.format(generations=7), "config.yaml", "yaml")
    project = Project(".", None, 7, None, lambda *_: None, versions={"trl": release})
    facts = Facts(format_of(document).read(document, project), project, None)
    assert facts.get("rl.grouped_batch") == rows
