"""AReaL configs: what trains, its degrees and engine, packed rows, models beside it, keys and edits."""

import pytest

from gpulint.formats.core.registry import recognise
from gpulint.formats.rl.areal_allocation import training_part
from gpulint.source.read import parse

from .conftest import read_as

GRPO = """experiment_name: math
trial_name: one
tokenizer_path: ${actor.path}
cluster: {n_nodes: 1, n_gpus_per_node: 8}
rollout: {backend: "sglang:d4p1t1", max_concurrent_rollouts: 256}
gconfig: {n_samples: 4, max_new_tokens: 1024}
actor:
  backend: "fsdp:d4p1t1"
  path: Qwen/Qwen2.5-1.5B-Instruct
  gradient_checkpointing: true
  dtype: bfloat16
  mb_spec: {max_tokens_per_mb: 10240}
  optimizer: {type: adam}
  kl_ctl: 0.1
  ppo_n_minibatches: 1
ref:
  backend: ${actor.backend}
  path: ${actor.path}
  scheduling_strategy: {type: colocation, target: actor}
sglang: {mem_fraction_static: 0.8}
train_dataset: {batch_size: 256, type: rl, max_length: 1024}
"""

SFT = """experiment_name: sft
trial_name: one
cluster: {n_nodes: 1, n_gpus_per_node: 8}
actor:
  backend: "fsdp:d8"
  path: Qwen/Qwen3-1.7B
  mb_spec: {max_tokens_per_mb: 4096}
  optimizer: {type: adam}
train_dataset: {batch_size: 128, type: sft}
"""


def read(text, gpus=None):
    return read_as("areal", text, gpus)


def test_a_run_with_a_rollout_is_rl_on_the_gpus_of_the_actor():
    reading = read(GRPO)
    job = reading.job
    assert (job.objective, job.model, job.hardware.gpus) == ("grpo", "Qwen/Qwen2.5-1.5B-Instruct", 4)
    assert job.origins["hardware.gpus"].key == "actor.backend"
    assert (job.sequence_length, job.rl.prompt_length, job.rl.completion_length) == (2048, 1024, 1024)
    assert (job.micro_batch_size, job.gradient_accumulation_steps, job.packing) == (5, 51, True)
    assert (job.rl.vllm, job.rl.reference_model, job.rl.generations) == ("server", True, 4)
    assert (job.weights.dtype, job.activation_checkpointing, job.attention) == (
        "bfloat16", "full", "flash_attention_2",
    )  # fmt: skip
    assert (job.parallelism.fsdp.version, job.parallelism.fsdp.sync_each_batch) == (2, True)
    assert reading.problems == []


@pytest.mark.parametrize(
    ("old", "new", "reference"),
    [
        ("kl_ctl: 0.1", "kl_ctl: 0.0", False),
        ("type: colocation, target: actor", "type: separation", False),
        ("  scheduling_strategy", "  offload: true\n  scheduling_strategy", False),
        ("  kl_ctl: 0.1\n", "", True),
    ],
)
def test_the_reference_is_where_its_section_says(old, new, reference):
    assert read(GRPO.replace(old, new)).job.rl.reference_model is reference


def test_degrees_that_are_stated_hold_on_any_number_of_gpus():
    alone, among = read(GRPO).job, read(GRPO, gpus=16).job
    assert (among.data_parallel, among.micro_batch_size) == (alone.data_parallel, alone.micro_batch_size) == (4, 5)
    assert among.gradient_accumulation_steps == alone.gradient_accumulation_steps
    free = read(GRPO.replace('backend: "fsdp:d4p1t1"\n', "experiment: one\n"), gpus=16).job
    assert free.data_parallel == 16


def test_a_server_on_the_same_gpus_takes_its_share():
    text = GRPO.replace("max_concurrent_rollouts: 256", "scheduling_strategy: {type: colocation, target: actor}")
    job = read(text + "enable_offload: true\n").job
    assert (job.rl.vllm, job.rl.vllm_gpu_memory_utilization, job.rl.vllm_sleep) == ("colocate", 0.8, True)


def test_without_a_bound_on_tokens_a_rank_takes_its_rows_at_once():
    job = read(GRPO.replace("max_tokens_per_mb: 10240", "n_mbs: 8")).job
    assert (job.micro_batch_size, job.origins["micro_batch_size"].key) == (32, "actor.mb_spec.n_mbs")
    assert read(GRPO.replace("mb_spec: {max_tokens_per_mb: 10240}", "mb_spec: {}")).job.micro_batch_size == 256


def test_sft_fills_a_micro_batch_with_rows_of_any_length():
    job = read(SFT).job
    assert (job.objective, job.sequence_length, job.micro_batch_size) == ("sft", 4096, 1)
    assert (job.rl.reference_model, job.hardware.gpus, job.activation_checkpointing) == (False, 8, "none")


def test_objectives_follow_from_sections_and_data():
    assert (
        read(SFT.replace("type: sft", "type: rw").replace("path: Qwen", "is_critic: true\n  path: Qwen")).job.objective
        == "reward"
    )
    dpo = read(SFT + "ref: {path: Qwen/Qwen3-1.7B, scheduling_strategy: {type: colocation, target: actor}}\n").job
    assert (dpo.objective, dpo.rl.reference_model) == ("dpo", True)
    ppo = read(GRPO + "critic: {path: Qwen/Qwen2.5-1.5B-Instruct, offload: true}\n").job
    assert (ppo.objective, ppo.rl.value_model) == ("ppo", "apart")


def test_sft_of_former_releases_calls_it_model_and_says_all_gpus_at_once():
    text = SFT.replace("actor:", "model:").replace('  backend: "fsdp:d8"\n', "") + "allocation_mode: d8p1t1\n"
    job = read(text).job
    assert (job.hardware.gpus, job.sequence_length, job.model) == (8, 4096, "Qwen/Qwen3-1.7B")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fsdp:d4p1t1", ("fsdp", 4, 4, 1, 1, 1)),
        ("sglang:d4p1t1+d2p1t1c2", ("fsdp", 4, 2, 1, 1, 2)),
        ("sglang.d4p1t1+d4p1t1", ("fsdp", 4, 4, 1, 1, 1)),
        ("vllm:d2t2+d1p4t2", ("megatron", 8, 1, 2, 4, 1)),
        ("megatron:(attn:d4p4t2|ffn:d2p4e4)", ("megatron", 32, 4, 2, 4, 1)),
        ("sglang[a]:d4+archon[b]:d2t2", ("archon", 4, 2, 2, 1, 1)),
    ],
)
def test_degrees_are_read_as_the_grammar_says(text, expected):
    plan = training_part(text)
    assert (plan.backend, plan.gpus, plan.data, plan.tensor, plan.pipeline, plan.context) == expected


def test_experts_have_degrees_of_their_own_and_shared_gpus_are_seen():
    plan = training_part("megatron:(attn:d4p4t2|ffn:d2p4e4)")
    assert (plan.expert, plan.expert_tensor, plan.shared) == (4, 1, False)
    assert training_part("sglang:d4|fsdp:d4").shared
    assert training_part("sglang:d4") is None
    assert training_part("deepspeed:d4") is None


def test_megatron_keeps_float32_masters_and_names_its_own_layers():
    text = GRPO.replace("fsdp:d4p1t1", "megatron:d2p1t2").replace(
        "  kl_ctl",
        "  use_lora: true\n  target_modules: [linear_qkv]\n  megatron: {recompute_granularity: selective}\n  kl_ctl",
    )
    job = read(text).job
    assert (job.framework, job.precision.master_weights, job.parallelism.zero.stage) == ("megatron", True, 1)
    assert (job.parallelism.tensor, job.activation_checkpointing, job.checkpoint_policy) == (
        2,
        "selective",
        "core_attention",
    )
    assert (job.adapter.targets, job.adapter.r) == (["q_proj", "k_proj", "v_proj"], 32)


def test_states_may_wait_in_main_memory_and_be_bfloat16():
    text = SFT.replace("type: adam}", "type: adam_bf16}\n  fsdp: {per_layer_optim_step: true, offload_params: true}")
    job = read(text).job
    assert (job.optimizer.state_dtype, job.optimizer.states_offloaded_between_steps) == ("bfloat16", True)
    assert job.parallelism.fsdp.offload


def test_unknown_keys_are_refused_and_a_workflow_may_add_sections():
    (problem,) = read(GRPO.replace("gradient_checkpointing", "gradient_checkponting")).problems
    assert (problem.kind, problem.key, problem.span.line) == ("unknown-key", "actor.gradient_checkponting", 10)
    assert problem.values["treatment"] == "refused"
    assert read(GRPO + "workflow: {turns: 3}\n").problems == []
    (slip,) = read(GRPO.replace("gconfig:", "gconfg:")).problems
    assert slip.values["suggestion"] == "gconfig"
    (old,) = read(GRPO.replace("kl_ctl: 0.1", "behave_imp_weight_cap: 5.0")).problems
    assert (old.kind, old.values["treatment"]) == ("deprecated-key", "refused")


def test_files_of_others_with_an_actor_are_not_areals():
    for text in (
        "experiment_name: a\nactor: {type: {_class: qwen3}, path: x, optimizer: {}}\n",
        "actor: {path: x}\n",
        "actor_rollout_ref: {actor: {}}\nactor: {path: x, mb_spec: {}}\nexperiment_name: a\n",
    ):
        found = recognise(parse(text, "config.yaml", "yaml"))
        assert found is None or found.name != "areal"


@pytest.mark.parametrize(
    ("changes", "written"),
    [
        ({"micro_batch_size": 2, "gradient_accumulation_steps": 128}, "max_tokens_per_mb: 4096"),
        ({"activation_checkpointing": "none"}, "gradient_checkpointing: false"),
        ({"weights.dtype": "float32"}, "dtype: float32"),
        ({"method": "lora"}, "use_lora: true"),
        ({"parallelism.fsdp.offload": True}, "offload_params: true"),
        ({"rl.reference_model": False}, "offload: true"),
        ({"rl.completion_length": 512}, "max_new_tokens: 512"),
    ],
)
def test_a_change_is_written_and_read_back(bench, changes, written):
    after, job = bench("areal").change(GRPO, changes)
    assert written in after
    assert {path: job.get(path) for path in changes} == changes


def test_a_launcher_starts_a_config(tmp_path):
    from gpulint.launchers.reading import open_jobs, recognise_file
    from gpulint.settings.settings import Settings

    (tmp_path / "grpo.yaml").write_text(GRPO)
    script = tmp_path / "run.sh"
    script.write_text(
        "#!/bin/bash\npython3 -m areal.infra.launcher.local train.py --config grpo.yaml actor.dtype=float32\n"
    )
    (job,) = [item.reading.job for item in open_jobs(recognise_file(str(script)), Settings(root=str(tmp_path))).opened]
    assert (job.weights.dtype, job.hardware.gpus) == ("float32", 4)
