"""Tools that are run from their repositories: lingua, mistral-finetune, trlx, prime-rl, Megatron-Bridge, verl's SFT."""

from __future__ import annotations

import pytest

from gpulint.formats.core.format import NoJobError, Project
from gpulint.formats.core.registry import find, recognise
from gpulint.rules.suggest.change import reread
from gpulint.source.read import parse

LINGUA = """name: run
steps: 10
distributed: {fsdp_type: full_shard, dp_shard: 8, model_dtype: bf16, compile: true, tp_size: 1}
model: {dim: 2048, n_layers: 25, n_heads: 16}
data:
  batch_size: 4
  seq_len: 4096
  tokenizer: {name: tiktoken, path: tokenizers/cl_toplang_128k.tiktoken}
"""
MISTRAL = """data: {instruct_data: a.jsonl}
model_id_or_path: mistralai/Mistral-7B-v0.3
lora: {rank: 64}
seq_len: 8192
batch_size: 1
num_microbatches: 4
run_dir: out
"""
TRLX = """train: {seq_length: 1024, epochs: 1, total_steps: 10, batch_size: 16, minibatch_size: 4,
  checkpoint_interval: 10, eval_interval: 10, pipeline: PromptPipeline, trainer: AcceleratePPOTrainer}
model: {model_path: gpt2-xl, num_layers_unfrozen: 2}
tokenizer: {tokenizer_path: gpt2-xl}
optimizer: {name: adamw, kwargs: {lr: 1.0e-5}}
scheduler: {name: cosine_annealing}
method: {name: PPOConfig, gen_kwargs: {max_new_tokens: 40}}
"""
PRIME = """max_steps = 10
seq_len = 4096

[model]
name = "Qwen/Qwen3-0.6B"

[deployment]
num_train_gpus = 4
num_infer_gpus = 4

[orchestrator]
batch_size = 128

[trainer.model]
optimization_dtype = "bfloat16"

[trainer.model.ac]
freq = 2
"""
PRIME_SFT = """max_steps = 10

[model]
name = "Qwen/Qwen3-0.6B"

[data]
name = "a/b"
seq_len = 4096
batch_size = 32

[optim]
lr = 2e-5
"""
BRIDGE = """model: {seq_length: 4096, tensor_model_parallel_size: 2, sequence_parallel: true}
train: {train_iters: 10, global_batch_size: 64, micro_batch_size: 2}
optimizer: {lr: 1.0e-4}
scheduler: {lr_warmup_iters: 3}
dataset: {seq_length: 4096}
ddp: {grad_reduce_in_fp32: true}
"""
VERL_OLD = """data: {train_batch_size: 256, micro_batch_size_per_gpu: 4, max_length: 1024, train_files: a.parquet}
model:
  partial_pretrain: google/gemma-1.1-7b-it
  fsdp_config: {cpu_offload: false}
  enable_gradient_checkpointing: false
  lora_rank: 0
optim: {lr: 1.0e-5}
trainer: {project_name: a}
"""
VERL_NEW = """data: {train_batch_size: 256, use_dynamic_bsz: true, max_token_len_per_gpu: 8192, max_length: 2048}
model: {path: Qwen/Qwen2.5-7B, lora_rank: 16}
engine: {strategy: fsdp2, model_dtype: bf16}
optim: {lr: 1.0e-5}
trainer: {n_gpus_per_node: 8, nnodes: 2}
"""

GENERATION = """trainer: {nnodes: 1, n_gpus_per_node: 8}
model: {path: Qwen/Qwen2-7B}
rollout: {tensor_model_parallel_size: 2, prompt_length: 1536, response_length: 512, gpu_memory_utilization: 0.5}
"""
EVALUATION = """generation:
  model_name: Qwen/Qwen2-7B
  vllm_cfg: {tensor_parallel_size: 2, max_model_len: 2048}
cluster: {gpus_per_node: 8, num_nodes: 1}
"""

FILES = {
    "lingua": ("yaml", LINGUA), "mistral_finetune": ("yaml", MISTRAL), "trlx": ("yaml", TRLX),
    "prime_rl": ("toml", PRIME), "megatron_bridge": ("yaml", BRIDGE), "verl_sft": ("yaml", VERL_NEW),
}  # fmt: skip


def read(text, syntax="yaml", gpus=None):
    document = parse(text, f"config.{syntax}", syntax)
    form = recognise(document)
    project = Project("/nowhere", None, gpus, None, lambda *_: None)
    return form.name, form.read(document, project), project


def job(text, syntax="yaml", gpus=None):
    return read(text, syntax, gpus)[1].job


@pytest.mark.parametrize("name", FILES)
def test_recognised_without_problems(name):
    syntax, text = FILES[name]
    found, reading, _ = read(text, syntax)
    assert (found, reading.problems) == (name, [])


def test_lingua():
    found = job(LINGUA)
    assert (found.model["num_hidden_layers"], found.model["intermediate_size"], found.model["vocab_size"]) == (
        25, 5632, 128256,
    )  # fmt: skip
    assert found.origins["model"].kind == "assumed"
    assert (found.hardware.gpus, found.weights.dtype, found.parallelism.fsdp.shard_size) == (8, "float32", 8)
    assert (found.micro_batch_size, found.sequence_length, found.compile) == (4, 4096, True)


def test_lingua_shards_over_all_ranks_where_dp_shard_is_1():
    """An H100 of eight held 63 GiB of a 7B run whose copies would be 136 GiB (lingua issue 56)."""
    whole = job(LINGUA.replace("dp_shard: 8, ", ""), gpus=8).parallelism.fsdp
    assert (whole.sharding, whole.shard_size) == ("shard_grad_op", None)
    copies = job(LINGUA.replace("full_shard, dp_shard: 8", "no_shard"), gpus=8).parallelism.fsdp
    assert (copies.sharding, copies.shard_size) == ("no_shard", None)


def test_lingua_states_and_recurrent_networks():
    mamba = LINGUA.replace("n_heads: 16", "n_heads: 32, state_dim: 128, conv_size: 4")
    assert job(mamba).model["model_type"] == "mamba2"
    with pytest.raises(NoJobError, match="minGRU"):
        read("model_type: minGRU\n" + LINGUA)


def test_mistral_finetune():
    found = job(MISTRAL, gpus=8)
    assert (found.method, found.adapter.r, found.adapter.alpha) == ("lora", 64, 128)
    assert (found.gradient_accumulation_steps, found.activation_checkpointing) == (4, "full")
    assert (found.weights.dtype, found.precision.master_weights) == ("bfloat16", True)
    assert (found.loss.upcast, found.loss.kept, found.parallelism.fsdp.sync_each_batch) == ("model", True, True)
    assert job(MISTRAL.replace("{rank: 64}", "{enable: false}")).method == "full"


def test_trlx():
    found = job(TRLX)
    assert (found.objective, found.micro_batch_size, found.gradient_accumulation_steps) == ("ppo", 4, 4)
    assert found.trainable == [r"\.46\.", r"\.47\."]
    assert found.rl.value_model == "head"
    assert job(TRLX.replace("num_layers_unfrozen: 2", "num_layers_unfrozen: -1")).rl.reference_model is True
    with pytest.raises(NoJobError, match="ilql"):
        read(TRLX.replace("PPOConfig", "ILQLConfig"))


def test_prime_rl():
    found = job(PRIME, "toml")
    assert (found.objective, found.model, found.hardware.gpus) == ("grpo", "Qwen/Qwen3-0.6B", 4)
    assert (found.sequence_length, found.weights.dtype, found.rl.vllm) == (4096, "bfloat16", "server")
    assert (found.activation_checkpointing, found.checkpoint_every) == ("offload", 2)
    name, reading, _ = read(PRIME_SFT, "toml")
    assert (name, reading.job.objective, reading.job.sequence_length) == ("prime_rl", "sft", 4096)
    assert reading.job.parallelism.fsdp.sync_each_batch is True


@pytest.mark.parametrize(
    ("lines", "waits", "offload"),
    [("", True, False), ("optim_cpu_offload = false", False, False), ("fsdp_cpu_offload = true", False, True)],
)
def test_states_of_prime_rl_wait_in_main_memory_by_default(lines, waits, offload):
    found = job(PRIME_SFT.replace("[model]", f"[model]\n{lines}", 1), "toml")
    assert (found.optimizer.states_offloaded_between_steps, found.parallelism.fsdp.offload) == (waits, offload)


@pytest.mark.parametrize(
    ("text", "release", "expected"),
    [
        (PRIME, None, ("chunked", "blocks", 8192, True, "offload")),
        (PRIME, "0.7.0", ("chunked", "blocks", 1024, True, "offload")),
        (PRIME, "0.6.0", ("torch", "tiles", None, False, "full")),
        (PRIME, "0.4.0", ("chunked", "columns", 2048, False, "full")),
        (PRIME_SFT, None, ("chunked", "blocks", 8192, True, "offload")),
        (PRIME_SFT, "0.7.0", ("torch", "tiles", None, True, "offload")),
        (PRIME_SFT, "0.6.0", ("torch", "tiles", None, False, "none")),
    ],
)
def test_a_stated_release_of_prime_rl_has_its_own_defaults(text, release, expected):
    document = parse(text, "config.toml", "toml")
    project = Project("/nowhere", None, None, None, lambda *_: None)
    project = project._replace(versions={"prime-rl": release} if release else {})
    found = recognise(document).read(document, project).job
    loss = found.loss
    assert (loss.kernel, loss.logits, loss.chunk, found.compile, found.activation_checkpointing) == expected


@pytest.mark.parametrize(
    ("model", "lines", "gpus", "release", "degree"),
    [
        ("Qwen/Qwen3-30B-A3B", "", 16, None, 8),
        ("Qwen/Qwen3-30B-A3B", 'ep = "auto"', 4, None, 4),
        ("Qwen/Qwen3-30B-A3B", "dp_replicate = 4", 16, None, 4),
        ("Qwen/Qwen3-30B-A3B", "ep = 2", 16, None, 2),
        ("Qwen/Qwen3-30B-A3B", 'impl = "hf"', 16, None, 1),
        ("Qwen/Qwen3-30B-A3B", "", 16, "0.6.0", 1),
        ("Qwen/Qwen3-0.6B", "", 16, None, 1),
    ],
)
def test_prime_rl_divides_experts_by_itself(model, lines, gpus, release, degree):
    text = PRIME_SFT.replace("Qwen/Qwen3-0.6B", model).replace("[model]", f"[model]\n{lines}", 1)
    project = Project("/nowhere", None, gpus, None, lambda *_: None)
    project = project._replace(versions={"prime-rl": release} if release else {})
    document = parse(text, "config.toml", "toml")
    assert recognise(document).read(document, project).job.parallelism.expert == degree


@pytest.mark.parametrize(
    ("line", "kernel"), [("", "flash_attention_2"), ('attn = "auto"', "flash_attention_2"), ('attn = "sdpa"', "sdpa")]
)
def test_prime_rl_names_its_attention(line, kernel):
    assert job(PRIME_SFT.replace("[model]", f"[model]\n{line}", 1), "toml").attention == kernel


def test_megatron_bridge_packed_rows_and_sixteen_bit_states():
    text = BRIDGE.replace(
        "dataset: {", "dataset: {packed_sequence_specs: {packed_sequence_size: 4096}, rewrite: false, "
    )
    text = text.replace(
        "optimizer: {",
        "checkpoint: {pretrained_checkpoint: /c}\noptimizer: {use_precision_aware_optimizer: true, "
        "exp_avg_dtype: torch.bfloat16, exp_avg_sq_dtype: torch.bfloat16, ",
    )
    _, reading, _ = read(text)
    assert (reading.job.objective, reading.job.packing, reading.job.optimizer.state_dtype) == ("sft", True, "bfloat16")
    assert reading.job.origins["packing"].key == "dataset.packed_sequence_specs.packed_sequence_size"
    assert not reading.problems
    loose = text.replace("packed_sequence_specs: {packed_sequence_size: 4096}, ", "")
    assert job(loose).packing is False
    assert job(loose.replace("dataset: {", "dataset: {enable_in_batch_packing: true, ")).packing is True
    assert job(text.replace("use_precision_aware_optimizer: true, ", "")).optimizer.state_dtype is None


def test_megatron_bridge_without_a_model():
    found = job(BRIDGE, gpus=8)
    assert found.model is None
    assert (found.parallelism.tensor, found.parallelism.sequence, found.gradient_accumulation_steps) == (2, True, 8)
    whole = BRIDGE.replace(
        "model: {", "model: {hidden_size: 2048, num_layers: 16, num_attention_heads: 32, vocab_size: 128256, "
    )
    assert job(whole).model["hidden_size"] == 2048


@pytest.mark.parametrize(
    ("text", "key", "meant"),
    [
        (BRIDGE, "ddp.grad_reduce_in_fp23", "grad_reduce_in_fp32"),
        (BRIDGE, "model.sequence_paralel", "sequence_parallel"),
        (VERL_NEW, "data.max_token_len_per_gp", "max_token_len_per_gpu"),
        (VERL_OLD, "model.enable_gradient_checkpoint", "enable_gradient_checkpointing"),
    ],
)
def test_a_misspelt_key_is_found(text, key, meant):
    problems = read(text.replace(meant, key.rpartition(".")[2]))[1].problems
    assert [(item.key, item.values["suggestion"].rpartition(".")[2]) for item in problems] == [(key, meant)]


@pytest.mark.parametrize("text", [BRIDGE, VERL_OLD, VERL_NEW])
def test_keys_of_upstream_are_known(text):
    assert read(text)[1].problems == []


def test_both_trainers_of_verl():
    old, new = job(VERL_OLD, gpus=4), job(VERL_NEW)
    reduced = "parallelism.fsdp.sync_each_batch"
    assert (old.get(reduced), reduced in old.unstated) == (True, False)
    assert (new.get(reduced), reduced in new.unstated) == (True, True)
    assert (old.weights.dtype, old.micro_batch_size, old.gradient_accumulation_steps) == ("float32", 4, 16)
    assert (old.activation_checkpointing, old.padded, old.parallelism.fsdp.version) == ("none", True, 2)
    assert (new.hardware.gpus, new.weights.dtype, new.micro_batch_size) == (16, "bfloat16", 4)
    assert (new.activation_checkpointing, new.packing, new.parallelism.fsdp.version) == ("full", True, 2)


def test_generation_configs_are_servers():
    for text, name in ((GENERATION, "verl"), (EVALUATION, "nemo_rl")):
        found, reading, _ = read(text)
        one = reading.job
        assert (found, one.kind, one.inference.engine) == (name, "inference", "vllm")
        assert (one.parallelism.tensor, one.inference.max_model_len, one.hardware.gpus) == (2, 2048, 8)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("changes", [{"sequence_length": 512}, {"adapter.r": 4}], ids=str)
def test_changes_are_written(name, changes):
    syntax, text = FILES[name]
    if "adapter.r" in changes:
        text = text.replace("ddp: {", "peft: {dim: 8}\nddp: {").replace("num_layers_unfrozen: 2", "peft_config: {r: 8}")
        text = text.replace("[trainer.model.ac]", "[trainer.model.lora]\nrank = 8\n\n[trainer.model.ac]")
    _, reading, project = read(text, syntax)
    edits = find(name).edits(reading, changes)
    if name == "lingua" and "adapter.r" in changes:
        assert edits is None
        return
    after = reread(reading, project, edits)
    ((path, value),) = changes.items()
    assert after.job.get(path) == value


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("lingua", "seq_len: 4096", "seq_lem: 4096"),
        ("mistral_finetune", "num_microbatches", "num_microbatchs"),
        ("trlx", "minibatch_size", "minibatchsize"),
        ("prime_rl", "optimization_dtype", "optimisation_dtype"),
    ],
)
def test_a_misspelt_key_is_refused(name, right, wrong):
    syntax, text = FILES[name]
    _, reading, _ = read(text.replace(right, wrong), syntax)
    (problem,) = [item for item in reading.problems if item.kind == "unknown-key"]
    assert problem.key.rpartition(".")[2] == wrong.partition(":")[0]
    assert problem.values["suggestion"].rpartition(".")[2] == right.partition(":")[0]
