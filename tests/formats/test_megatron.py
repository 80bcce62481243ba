"""Megatron options, NeMo and GPT-NeoX configs: dimensions, degrees, precision, batches, keys and edits."""

import json

import pytest

from gpulint.estimator.estimate_job import estimate_job
from gpulint.formats.core.format import NoJobError, Project
from gpulint.formats.core.registry import recognise
from gpulint.formats.megatron import format as megatron
from gpulint.formats.megatron import gpt_neox
from gpulint.formats.megatron.model import Sizes, config_of, feed_forward, padded
from gpulint.formats.nemo import nemo
from gpulint.models.resolve import resolve
from gpulint.source.edit.edit import apply
from gpulint.source.read import parse

from .conftest import read_as

MEGATRON = """ENV_VARS:
  CUDA_DEVICE_MAX_CONNECTIONS: 1
MODEL_ARGS:
  --num-layers: 32
  --hidden-size: 4096
  --ffn-hidden-size: 14336
  --num-attention-heads: 32
  --group-query-attention: true
  --num-query-groups: 8
  --swiglu: true
  --untie-embeddings-and-output-weights: true
  --position-embedding-type: rope
  --vocab-size: 128200
  --micro-batch-size: 1
  --global-batch-size: 64
  --seq-length: 8192
  --tensor-model-parallel-size: 2
  --pipeline-model-parallel-size: 2
  --num-layers-per-virtual-pipeline-stage: 4
  --sequence-parallel: true
  --use-distributed-optimizer: true
  --bf16: true
"""

NEMO = """trainer:
  devices: 8
  num_nodes: 2
  precision: bf16
model:
  micro_batch_size: 2
  global_batch_size: 64
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 1
  encoder_seq_length: 4096
  max_position_embeddings: ${.encoder_seq_length}
  num_layers: 24
  hidden_size: 2048
  ffn_hidden_size: ${multiply:4, ${.hidden_size}}
  num_attention_heads: 16
  make_vocab_size_divisible_by: 128
  megatron_amp_O2: true
  sequence_parallel: true
  activations_checkpoint_granularity: selective
  tokenizer:
    library: megatron
    type: GPT2BPETokenizer
  optim:
    name: distributed_fused_adam
    grad_sync_dtype: bf16
"""

NEOX = """{
  "pipe-parallel-size": 1,
  "model-parallel-size": 2,
  "num-layers": 16,
  "hidden-size": 2048,
  "num-attention-heads": 8,
  "seq-length": 2048,
  "pos-emb": "rotary",
  "no-weight-tying": true,
  "tokenizer-type": "HFTokenizer",
  "zero_optimization": {"stage": 1},
  # batch size (trained on 16 gpus)
  "train_micro_batch_size_per_gpu": 4,
  "checkpoint-activations": true,
  "fp16": {"enabled": true},
}
"""

FORMATS = {"megatron": megatron.FORMAT, "nemo": nemo.FORMAT, "gpt_neox": gpt_neox.FORMAT}
TEXTS = {"megatron": MEGATRON, "nemo": NEMO, "gpt_neox": NEOX}


read = read_as


def test_megatron_options():
    reading = read("megatron", MEGATRON, gpus=16)
    job = reading.job
    assert reading.problems == []
    assert job.framework == "megatron"
    assert job.model["model_type"] == "llama"
    assert job.model["vocab_size"] == 128256
    assert (job.parallelism.tensor, job.parallelism.pipeline, job.parallelism.virtual_stages) == (2, 2, 4)
    assert job.parallelism.sequence
    assert (job.parallelism.zero.stage, job.parallelism.zero.library) == (1, "megatron")
    assert (job.weights.dtype, job.precision.gradients, job.precision.master_weights) == ("bfloat16", "float32", True)
    assert job.gradient_accumulation_steps == 16
    assert job.origins["micro_batch_size"].span.line == 14


def test_without_a_count_one_replica_is_assumed():
    job = read("megatron", MEGATRON).job
    assert job.hardware.gpus == 4
    assert job.origins["hardware.gpus"].kind == "assumed"


def test_a_batch_that_does_not_divide_stops():
    problems = read("megatron", MEGATRON.replace("batch-size: 64", "batch-size: 6"), gpus=16).problems
    assert [(item.kind, item.key) for item in problems] == [("contradiction", "global-batch-size")]


def test_nemo_1_brings_an_old_core_along(bench):
    """Whose loss copied the logits."""
    assert bench("nemo").job(NEMO).versions["megatron-core"] == "0.5.0"
    assert bench("nemo").job(NEMO, versions={"megatron-core": "0.8.0"}).versions["megatron-core"] == "0.8.0"


def test_nemo_pretraining():
    job = read("nemo", NEMO).job
    assert (job.hardware.gpus, job.hardware.nodes) == (16, 2)
    assert job.model["model_type"] == "gpt2"
    assert job.model["intermediate_size"] == 8192
    assert job.model["max_position_embeddings"] == 4096
    assert job.model["vocab_size"] == padded(50257, 128, 4) == 50688
    assert job.precision.gradients == "bfloat16"
    assert job.gradient_accumulation_steps == 8
    assert (job.activation_checkpointing, job.checkpoint_policy) == ("selective", "core_attention")


def test_nemo_cuts_rows_to_the_length_of_the_data():
    text = NEMO + "  data:\n    seq_length: 2048\n"
    reading = read("nemo", text)
    assert reading.job.sequence_length == 2048
    changed = apply(text, nemo.FORMAT.edits(reading, {"sequence_length": 1024}))
    assert changed.count("seq_length: 1024\n") == 2


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ("", 50257),
        ("  override_vocab_size: 31000\n", 31000),
        ("  tokenizer: {library: megatron, type: null, model: /data/llama_tokenizer.model}\n", 32000),
        ("  tokenizer: {model: /data/other.model}\n", 50257),
        ("  tokenizer: {model: /data/llama_tokenizer.model}\n  override_vocab_size: 31000\n", 31000),
    ],
)
@pytest.mark.parametrize("tensor", [4, 3])
def test_nemo_pads_the_vocabulary_that_a_size_or_the_tokenizer_says(stated, words, tensor):
    """To multiples of 128 for each rank of tensor parallelism."""
    text = NEMO.replace("tensor_model_parallel_size: 4", f"tensor_model_parallel_size: {tensor}")
    if "tokenizer" in stated:
        text = text.replace("  tokenizer:\n    library: megatron\n    type: GPT2BPETokenizer\n", "")
    job = read("nemo", text.replace("  optim:\n", stated + "  optim:\n")).job
    assert job.model["vocab_size"] == -(-words // (128 * tensor)) * 128 * tensor


def test_nemo_without_o2_keeps_float32_weights():
    job = read("nemo", NEMO.replace("megatron_amp_O2: true", "megatron_amp_O2: false")).job
    assert (job.weights.dtype, job.precision.autocast, job.precision.master_weights) == ("float32", "bfloat16", False)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("run: {name: x}\nmodel: {tensor_model_parallel_size: 1, checkpoint_folder: x}\n", "conversion"),
        (NEMO.replace("model:\n", "model:\n  mm_cfg: {llm: x}\n"), "multimodal"),
        (NEMO.replace("  optim:\n", "  optimum:\n"), "trains nothing"),
    ],
)
def test_what_is_no_training_of_a_language_model_is_said(text, reason):
    with pytest.raises(NoJobError, match=reason):
        read("nemo", text)


def test_neox():
    reading = read("gpt_neox", NEOX)
    job = reading.job
    assert reading.problems == []
    assert job.model["model_type"] == "gpt_neox"
    assert job.model["vocab_size"] == 50432
    assert (job.hardware.gpus, job.origins["hardware.gpus"].span.line) == (16, 12)
    assert (job.weights.dtype, job.precision.master_weights) == ("float16", True)
    assert job.parallelism.zero.stage == 1
    assert job.parallelism.tensor == 2
    assert job.activation_checkpointing == "full"


@pytest.mark.parametrize(
    ("name", "old", "new", "suggestion"),
    [
        ("megatron", "--micro-batch-size", "--micro-batchsize", "micro-batch-size"),
        ("gpt_neox", '"checkpoint-activations"', '"checkpoint-activation"', "checkpoint-activations"),
    ],
)
def test_a_misspelt_key_is_refused(name, old, new, suggestion):
    text = TEXTS[name].replace(old, new)
    line = next(number for number, row in enumerate(text.splitlines(), 1) if new in row)
    (problem,) = [item for item in read(name, text).problems if item.kind == "unknown-key"]
    assert (problem.span.line, problem.values["suggestion"], problem.values["treatment"]) == (
        line,
        suggestion,
        "refused",
    )


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("megatron", {"micro_batch_size": 2}),
        ("megatron", {"activation_checkpointing": "full"}),
        ("nemo", {"micro_batch_size": 1}),
        ("nemo", {"activation_checkpointing": "full"}),
        ("gpt_neox", {"micro_batch_size": 2}),
        ("gpt_neox", {"parallelism.zero.stage": 2}),
    ],
)
def test_changes_are_written_back(name, changes):
    reading = read(name, TEXTS[name])
    assert FORMATS[name].describe(reading, changes)
    changed = read(name, apply(TEXTS[name], FORMATS[name].edits(reading, changes))).job
    assert {path: changed.get(path) for path in changes} == changes


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_what_cannot_be_said_is_not_offered(name):
    assert FORMATS[name].edits(read(name, TEXTS[name]), {"liger_kernels": True}) is None


@pytest.mark.parametrize(
    ("sizes", "kind"),
    [
        (Sizes(64, 2, 4, 128, 256), "gpt_neox"),
        (Sizes(64, 2, 4, 128, 256, learned_positions=32), "gpt2"),
        (Sizes(64, 2, 4, 128, 256, groups=2), "starcoder2"),
        (Sizes(64, 2, 4, 128, 256, gated=True), "llama"),
        (Sizes(64, 2, 4, 128, 256, gated=True, experts=4, expert_hidden=96), "mixtral"),
        (Sizes(64, 2, 4, 128, 256, gated=True, experts=4, expert_hidden=96, shared_hidden=96), "qwen2_moe"),
    ],
)
def test_the_nearest_architecture(sizes, kind):
    config = config_of("x", sizes)
    assert config["model_type"] == kind
    assert json.dumps(config)


@pytest.mark.parametrize("shared", [0, 96])
def test_experts_without_a_gate_weigh_two_matrices(shared):
    """The nearest architecture has three, so that its experts have two thirds of the width."""
    sizes = Sizes(64, 2, 4, 128, 96, experts=4, expert_hidden=96, shared_hidden=shared)
    plain, gated = (resolve(config_of("x", each)).parameters for each in (sizes, sizes._replace(gated=True)))
    assert gated - plain == 2 * 64 * (4 * 96 + shared)


def test_the_width_of_the_mlp():
    assert feed_forward(4096, gated=False) == 16384
    assert feed_forward(4096, gated=True) == 10880


FORK = MEGATRON.replace("  --use-distributed-optimizer: true\n", "  --deepspeed: true\n")


def test_the_fork_with_deepspeed():
    job = read_as("megatron", FORK + "  --zero-stage: 1\n  --num-experts: 8\n  --moe-expert-parallel-size: 4\n").job
    assert (job.parallelism.zero.stage, job.parallelism.expert, job.activation_checkpointing) == (1, 4, "none")
    assert (
        read_as("megatron", FORK + "  --zero-stage: 2\n  --checkpoint-activations: true\n").job.activation_checkpointing
        == "full"
    )
    with pytest.raises(NoJobError, match="ZeRO stage"):
        read_as("megatron", FORK + "  --deepspeed_config: ds.json\n")


@pytest.mark.parametrize(
    ("lines", "heads", "attention"),
    [
        ("", 32, "eager"),
        ("  --num-key-value-heads: 4\n", 4, "eager"),
        ("  --num-key-value-heads: 4\n  --use-flash-attn-v2: true\n", 4, "flash_attention_2"),
    ],
)
def test_the_fork_has_an_old_core_and_its_own_word_for_groups(lines, heads, attention):
    text = FORK.replace("  --group-query-attention: true\n  --num-query-groups: 8\n", "  --zero-stage: 1\n") + lines
    job = read_as("megatron", text).job
    assert (job.model["num_key_value_heads"], job.attention, job.without_transformer_engine) == (heads, attention, True)
    assert job.versions["megatron-core"] == "0.2.0"


@pytest.mark.parametrize(
    ("line", "compiled"),
    [
        ("", False),
        ("  --cross-entropy-loss-fusion: true\n", True),
        ("  --cross-entropy-loss-fusion: true\n  --cross-entropy-fusion-impl: te\n", False),
    ],
)
def test_the_fused_cross_entropy_is_compiled_in_its_native_form(line, compiled):
    assert read_as("megatron", MEGATRON + line).job.loss.compiled is compiled


@pytest.mark.parametrize(
    ("lines", "waiting"),
    [
        ("", 0),
        ("  --defer-embedding-wgrad-compute: true\n", 16),
        ("  --defer-embedding-wgrad-compute: true\n  --wgrad-deferral-limit: 2\n", 2),
    ],
)
def test_gradients_of_logits_wait_for_the_end_of_the_step(lines, waiting):
    found = read_as("megatron", MEGATRON + lines, gpus=16).job
    assert found.gradient_accumulation_steps == 16
    assert found.loss.deferred == waiting


@pytest.mark.parametrize(
    ("lines", "open_"),
    [
        ("  --recompute-granularity: selective\n", []),
        ("  --recompute-granularity: selective\n  --recompute-modules: '[core_attn]'\n", []),
        ("  --recompute-granularity: selective\n  --recompute-modules: '[mlp moe_act]'\n", ["checkpoint_policy"]),
        ("  --fine-grained-activation-offloading: true\n", ["checkpoint_policy"]),
    ],
)
def test_modules_that_are_made_again_or_offloaded_lower_the_interval(lines, open_):
    found = read_as("megatron", MEGATRON + lines, gpus=16).job
    assert found.unstated == open_
    model = resolve(found.model)
    sure, unsure = (estimate_job(job, model, None).per_gpu for job in (found.with_changes({"unstated": []}), found))
    assert sure.process == unsure.process
    assert (unsure.low < sure.low) is bool(open_)


def test_a_part_of_a_neox_run_is_no_deepspeed_config():
    text = """{
  "finetune": true, "train_iters": 10, "lr_decay_iters": 10, "data_impl": "mmap", "checkpoint_activations": true,
  "zero_optimization": {"stage": 1}, "train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true}
}
"""
    document = parse(text, "train_config.yml", "yaml")
    found = recognise(document)
    assert found.name == "gpt_neox"
    with pytest.raises(NoJobError, match="the model stands in another file"):
        found.read(document, Project("/nowhere", None, None, None, lambda *_: None))
    own = parse('{"zero_optimization": {"stage": 1}, "train_micro_batch_size_per_gpu": 4}', "ds.json", "json")
    assert recognise(own).name == "deepspeed"


def test_dropouts_are_the_framework_s_where_a_file_is_silent():
    model = read("megatron", MEGATRON).job.model
    assert (model["hidden_dropout"], model["attention_dropout"]) == (0.1, 0.1)
    model = read("megatron", MEGATRON + "  --hidden-dropout: 0.0\n  --attention-dropout: 0.2\n").job.model
    assert (model["hidden_dropout"], model["attention_dropout"]) == (0.0, 0.2)
    assert read("gpt_neox", NEOX).job.model["hidden_dropout"] == 0.0
    assert read("nemo", NEMO).job.model["residual_dropout"] in (0.0, 0.1)


def test_masks_of_dropout_are_kept_under_megatron_whatever_the_nearest_architecture():
    """Two a layer and one behind the embedding, of a byte an element."""
    text = MEGATRON.replace("  --tensor-model-parallel-size: 2\n", "  --tensor-model-parallel-size: 1\n")
    text = text.replace("  --pipeline-model-parallel-size: 2\n", "").replace(
        "  --num-layers: 32\n", "  --num-layers: 4\n"
    )
    text = "".join(line for line in text.splitlines(keepends=True) if "virtual" not in line)
    dropped = read("megatron", text, gpus=1).job
    plain = read("megatron", text + "  --hidden-dropout: 0.0\n", gpus=1).job
    sizes = [estimate_job(plan, resolve(plan.model), None).per_gpu.allocated for plan in (dropped, plain)]
    masks = (2 * 4 + 1) * 8192 * 4096
    assert masks <= sizes[0] - sizes[1] < 1.5 * masks


@pytest.mark.parametrize(
    ("line", "attention"),
    [
        ("", "flash_attention_2"),
        ("  --transformer-impl: local\n", "eager"),
        ("  --transformer-impl: local\n  --use-flash-attn: true\n", "eager"),
        ("  --transformer-impl: local\n  --use-flash-attn: true\n  --use-legacy-models: true\n", "flash_attention_2"),
        ("  --attention-backend: unfused\n", "eager"),
    ],
)
def test_megatron_s_own_attention_is_not_fused(line, attention):
    assert read("megatron", MEGATRON + line).job.attention == attention


@pytest.mark.parametrize(
    ("version", "line", "local"),
    [
        ("0.5", "", True),
        ("0.5", "  --transformer-impl: transformer_engine\n", False),
        ("0.6", "", False),
        ("0.6", "  --transformer-impl: local\n", True),
    ],
)
def test_layers_were_megatron_s_own_where_nothing_said_so_before_core_0_6(bench, version, line, local):
    job = bench("megatron").job(MEGATRON + line, versions={"megatron-core": version})
    assert job.without_transformer_engine is local
    assert job.attention == ("eager" if local else "flash_attention_2")


def test_a_release_whose_layers_are_taken_to_be_its_own_says_so(bench):
    job = bench("megatron").job(MEGATRON, versions={"megatron-core": "0.5"})
    found = {item.field: item.origin for item in estimate_job(job, resolve(job.model), None).assumptions}
    assert found["without_transformer_engine"] == "transformer_impl local, before core 0.6"


@pytest.mark.parametrize(
    ("version", "line", "attention"),
    [
        ("0.7", "", "flash_attention_2"),
        ("0.7", "  --use-mcore-models: true\n", "eager"),
        ("0.8", "", "eager"),
        ("0.8", "  --use-legacy-models: true\n", "flash_attention_2"),
    ],
)
def test_the_core_s_own_layers_have_no_flash_attention(bench, version, line, attention):
    text = MEGATRON + "  --transformer-impl: local\n  --use-flash-attn: true\n" + line
    assert bench("megatron").job(text, versions={"megatron-core": version}).attention == attention


def test_eager_attention_is_traced_to_what_asks_for_it():
    origin = read("megatron", MEGATRON + "  --transformer-impl: local\n").job.origins["attention"]
    assert (origin.kind, origin.key) == ("file", "transformer-impl")


def test_replicas_of_the_distributed_optimizer():
    job = read("megatron", MEGATRON + "  --num-distributed-optimizer-instances: 2\n").job
    assert job.parallelism.zero.replicas == 2


def test_the_precision_aware_optimizer_keeps_its_moments_in_sixteen_bits():
    flags = "  --use-precision-aware-optimizer: true\n  --exp-avg-dtype: bf16\n  --exp-avg-sq-dtype: bf16\n"
    job = read_as("megatron", MEGATRON + flags).job
    assert job.optimizer.state_dtype == "bfloat16"
    assert (
        read_as("megatron", MEGATRON + flags.replace("sq-dtype: bf16", "sq-dtype: fp8")).job.optimizer.state_dtype
        is None
    )


@pytest.mark.parametrize(
    ("written", "dense"),
    [
        ("'([0]*3+[1]*29)'", 3), ("'[0]*1+[1]*31'", 1), ("'[0, 0, 1, 1]'", 2), ("'[1]*32'", 0),
        ("'[0,1]*16'", 1), ("2", 0),
    ],
)  # fmt: skip
def test_leading_layers_without_experts(written, dense):
    text = MEGATRON + f"  --num-experts: 8\n  --moe-layer-freq: {written}\n"
    model = read_as("megatron", text, 8).job.model
    assert model.get("first_k_dense_replace", 0) == dense


@pytest.mark.parametrize(
    ("layers", "options", "ends"),
    [
        (30, "--account-for-embedding-in-pipeline-split: true\n  --account-for-loss-in-pipeline-split: true", (7, 7)),
        (31, "--account-for-embedding-in-pipeline-split: true", (7, None)),
        (31, "--account-for-loss-in-pipeline-split: true", (None, 7)),
        (30, "--pp-partition-method: type:transformer|embedding", (7, 7)),
        (32, "--pp-partition-method: type:transformer", (None, None)),
        (32, "--pp-partition-method: type:transformer|embedding", (None, None)),
    ],
)
def test_an_embedding_or_the_loss_may_count_as_a_layer_of_its_stage(layers, options, ends):
    text = MEGATRON.replace("num-layers: 32", f"num-layers: {layers}").replace(
        "parallel-size: 2\n  --num", "parallel-size: 4\n  --num"
    )
    plan = read_as("megatron", f"{text}  {options}\n").job.parallelism
    assert plan.pipeline == 4
    assert (plan.first_stage_layers, plan.last_stage_layers) == ends


def changed(text, changes):
    reading = read("megatron", text)
    return apply(text, megatron.FORMAT.edits(reading, changes))


def test_a_change_of_checkpointing_takes_out_what_megatron_refuses_beside_it_and_what_would_win():
    whole = "  --recompute-granularity: full\n  --recompute-method: uniform\n  --recompute-num-layers: 1\n"
    text = changed(MEGATRON + whole, {"activation_checkpointing": "selective"})
    assert "--recompute-granularity: selective" in text
    assert "--recompute-method" not in text
    assert "--recompute-num-layers" not in text
    assert "--recompute-" not in changed(MEGATRON + whole, {"activation_checkpointing": "none"})
    for former in ("recompute-activations", "checkpoint-activations"):
        text = changed(f"{MEGATRON}  --{former}: true\n", {"activation_checkpointing": "full"})
        assert former not in text
        assert read("megatron", text).job.activation_checkpointing == "full"


@pytest.mark.parametrize(
    ("line", "attention", "kind"),
    [
        ("", "flash_attention_2", "default"), ("  --attention-backend: flash\n", "flash_attention_2", "file"),
        ("  --attention-backend: unfused\n", "eager", "file"),
    ],
)  # fmt: skip
def test_the_attention_backend_is_the_file_s_where_it_names_one(line, attention, kind):
    job = read("megatron", MEGATRON + line).job
    assert (job.attention, job.origins["attention"].kind) == (attention, kind)


BRIDGE = """train: {train_iters: 100, global_batch_size: 64, micro_batch_size: 1}
ddp: {use_distributed_optimizer: true}
rng: {seed: 1}
model:
  hidden_size: 64
  num_layers: 6
  num_attention_heads: 4
  vocab_size: 1024
  gated_linear_unit: true
  num_moe_experts: 8
  moe_ffn_hidden_size: 96
  pipeline_model_parallel_size: 2
  num_layers_in_first_pipeline_stage: 2
"""


def test_a_provider_s_experts_and_ends():
    job = read("megatron_bridge", BRIDGE).job
    assert (job.model["model_type"], job.model["num_local_experts"], job.model["intermediate_size"]) == (
        "mixtral",
        8,
        96,
    )
    assert (job.parallelism.first_stage_layers, job.parallelism.last_stage_layers) == (2, None)
