"""torchtune recipes: model builders, recipes, chunked loss, sharding, keys and edits."""

import pytest

from gpulint.formats.core.format import NoJobError, Project
from gpulint.formats.core.registry import is_of
from gpulint.formats.torchtune.format import FORMAT
from gpulint.source.edit.edit import apply
from gpulint.source.read import parse

LORA = """# To launch on 2 devices:
#   tune run --nproc_per_node 2 lora_finetune_distributed --config llama3_1/8B_lora
tokenizer:
  _component_: torchtune.models.llama3.llama3_tokenizer
  path: /tmp/tokenizer.model
  max_seq_len: 2048
model:
  _component_: torchtune.models.llama3_1.lora_llama3_1_8b
  lora_attn_modules: ['q_proj', 'output_proj']
  apply_lora_to_mlp: True
  lora_rank: 16
  lora_alpha: 32
optimizer:
  _component_: torch.optim.AdamW
  fused: True
  lr: 3e-4
loss:
  _component_: torchtune.modules.loss.LinearCrossEntropyLoss
dataset:
  _component_: torchtune.datasets.alpaca_cleaned_dataset
  packed: True
batch_size: 2
batch_size_val: ${batch_size}
gradient_accumulation_steps: 8
dtype: bf16
enable_activation_checkpointing: True
"""


def read(text, gpus=None):
    document = parse(text, "recipe.yaml", "yaml")
    assert is_of(document, "torchtune")
    return FORMAT.read(document, Project("/nowhere", None, gpus, None, lambda *_: None))


def test_a_lora_recipe():
    job = read(LORA).job
    assert job.framework == "torchtune"
    assert job.model["hidden_size"] == 4096
    assert job.model["num_hidden_layers"] == 32
    assert job.model["num_key_value_heads"] == 8
    assert job.model["vocab_size"] == 128256
    assert job.method == "lora"
    assert job.adapter.r == 16
    assert job.adapter.dtype == "bfloat16"
    assert job.adapter.targets == ["q_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    assert job.optimizer.name == "adamw_torch_fused"
    assert (job.micro_batch_size, job.sequence_length, job.packing) == (2, 2048, True)
    assert job.activation_checkpointing == "full"
    assert (job.loss.kernel, job.loss.chunk, job.loss.logits) == ("chunked", 512, "pieces")
    assert job.hardware.gpus == 2
    assert job.origins["hardware.gpus"].span.line == 2
    assert job.parallelism.fsdp.version == 2
    assert job.parallelism.fsdp.sync_each_batch


def test_given_gpus_win_over_the_comment():
    assert read(LORA, gpus=8).job.hardware.gpus == 8


def test_a_single_device_recipe_does_not_shard():
    text = LORA.replace("--nproc_per_node 2 lora_finetune_distributed", "lora_finetune_single_device")
    job = read(text).job
    assert job.hardware.gpus == 1
    assert job.parallelism.fsdp is None


def test_qlora_builder_packs_the_base():
    job = read(LORA.replace("lora_llama3_1_8b", "qlora_llama3_1_8b")).job
    assert job.weights.quantization.method == "torchao-nf4"
    assert job.weights.quantization.storage_dtype == "bfloat16"


@pytest.mark.parametrize(
    ("builder", "kind", "parts"),
    [
        ("gemma2.gemma2_2b", "gemma2", {"head_dim": 256, "tie_word_embeddings": True, "num_hidden_layers": 26}),
        ("qwen2.qwen2_0_5b", "qwen2", {"tie_word_embeddings": True, "hidden_size": 896}),
        ("qwen2_5.qwen2_5_7b_instruct", "qwen2", {"tie_word_embeddings": False, "hidden_size": 3584}),
        ("qwen3.qwen3_8b_base", "qwen3", {"head_dim": 128}),
        ("llama2.llama2_7b", "llama", {"intermediate_size": 11008}),
        ("llama3_3.llama3_3_70b", "llama", {"num_hidden_layers": 80}),
        ("phi4.phi4_14b", "llama", {"intermediate_size": 17920, "num_key_value_heads": 10}),
    ],
)
def test_builders_make_their_dimensions(builder, kind, parts):
    job = read(LORA.replace("llama3_1.lora_llama3_1_8b", builder)).job
    assert job.model["model_type"] == kind
    assert {key: job.model[key] for key in parts} == parts
    assert job.method == "full"


def test_an_unbounded_row_is_not_guessed():
    job = read(LORA.replace("max_seq_len: 2048", "max_seq_len: null")).job
    assert job.sequence_length is None
    assert "longest" in job.origins["sequence_length"].note


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ("teacher_model: {_component_: torchtune.models.llama3_1.llama3_1_8b}\n", "distillation"),
        ("quantizer: {_component_: torchtune.training.quantization.Int8DynActInt4WeightQATQuantizer}\n", "fake"),
    ],
)
def test_what_a_job_cannot_say_is_said(more, reason):
    with pytest.raises(NoJobError, match=reason):
        read(LORA + more)


def test_generation_trains_nothing():
    text = "model:\n  _component_: torchtune.models.llama2.llama2_7b\nprompt: hello\n"
    with pytest.raises(NoJobError, match="trains nothing"):
        read(text)


def test_optimizer_in_backward_stops_with_accumulation():
    problems = read(LORA + "optimizer_in_bwd: True\n").problems
    assert [(item.kind, item.key, item.span.line) for item in problems] == [
        ("contradiction", "gradient_accumulation_steps", 24)
    ]


def test_a_misspelt_parameter_is_refused_and_a_misspelt_key_ignored():
    text = LORA.replace("lora_rank", "lora_rnak").replace("activation_checkpointing", "activation_checkpoint")
    found = {item.key: item for item in read(text).problems if item.kind == "unknown-key"}
    assert found["model.lora_rnak"].values["suggestion"] == "model.lora_rank"
    assert found["model.lora_rnak"].values["treatment"] == "refused"
    assert found["model.lora_rnak"].span.line == 11
    assert found["enable_activation_checkpoint"].values["suggestion"] == "enable_activation_checkpointing"
    assert found["enable_activation_checkpoint"].values["treatment"] == "ignored"
    assert read(LORA).problems == []


@pytest.mark.parametrize(
    ("changes", "written"),
    [
        ({"micro_batch_size": 1}, "batch_size: 1\n"),
        ({"sequence_length": 512}, "  max_seq_len: 512\n"),
        ({"activation_checkpointing": "offload"}, "enable_activation_offloading: true\n"),
        ({"weights.dtype": "float32"}, "dtype: fp32\n"),
        ({"optimizer.in_backward": True}, "optimizer_in_bwd: true\n"),
    ],
)
def test_changes_are_written_back(changes, written):
    reading = read(LORA)
    assert FORMAT.describe(reading, changes)
    changed = apply(LORA, FORMAT.edits(reading, changes))
    assert written in changed
    job = read(changed).job
    assert {path: job.get(path) for path in changes} == changes


def test_what_torchtune_cannot_say_is_not_offered():
    assert FORMAT.edits(read(LORA), {"parallelism.pipeline": 2}) is None
    assert FORMAT.describe(read(LORA), {"optimizer.name": "adamw_bnb_8bit"}) is None


def test_qlora_is_a_switch_of_the_builder():
    reading = read(LORA)
    changes = {"weights.quantization.method": "bnb-nf4"}
    assert FORMAT.describe(reading, changes) == "model.quantize_base: true"
    job = read(apply(LORA, FORMAT.edits(reading, changes))).job
    assert job.get("weights.quantization.method") == "torchao-nf4"


def test_lora_in_a_full_recipe_names_builder_and_recipe_and_edits_nothing():
    full = LORA.replace("lora_llama3_1_8b", "llama3_1_8b")
    reading = read(full)
    assert reading.job.method == "full"
    said = FORMAT.describe(reading, {"method": "lora"})
    assert said.startswith("recipe: lora_finetune_")
    assert "model._component_: torchtune.models.llama3_1.lora_llama3_1_8b" in said
    assert FORMAT.edits(reading, {"method": "lora"}) is None
    assert "qlora_llama3_1_8b" in FORMAT.describe(reading, {"method": "lora", "weights.quantization.method": "bnb-nf4"})
    assert FORMAT.describe(reading, {"method": "lora", "sequence_length": 512}) is None
