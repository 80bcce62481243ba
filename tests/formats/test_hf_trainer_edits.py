import pytest

from gpulint.formats.hf_trainer import sharding as training_sharding

TRL = """\
# a recipe
model_name_or_path: Qwen/Qwen2.5-0.5B   # the model
dataset_name: a/b

per_device_train_batch_size: 4
learning_rate: 2e-4  # kept as text
max_length: 2048
gradient_checkpointing: false
eval_strategy: steps
"""
PLAIN = "model_name_or_path: a/b\ntrain_folder: x\noutput_dir: out\nlearning_rate: 1e-5\n"
FIREFLY = """\
{
  "model_name_or_path": "a/b",
  "train_file": "x",
  "max_seq_length": 512,
  "output_dir": "o",
  "bf16": true
}
"""


@pytest.fixture(autouse=True)
def known_hidden_size(monkeypatch):
    monkeypatch.setattr(training_sharding, "hidden_size", lambda *_: 4096)


@pytest.fixture
def hf(bench):
    return bench("hf_trainer")


CHANGES = [
    {"micro_batch_size": 1, "gradient_accumulation_steps": 4},
    {"sequence_length": 1024},
    {"packing": True},
    {"activation_checkpointing": "full"},
    {"activation_checkpointing": "offload"},
    {"optimizer.name": "adamw_8bit"},
    {"attention": "flash_attention_2"},
    {"weights.dtype": "bfloat16"},
    {"precision.autocast": "float16"},
    {"method": "lora"},
    {"method": "lora", "adapter.r": 64},
    {"method": "lora", "weights.quantization.method": "bnb-nf4"},
    {"method": "lora", "weights.quantization.method": "bnb-int8"},
    {"parallelism.zero.stage": 2},
    {"parallelism.zero.stage": 3, "parallelism.zero.offload_optimizer.device": "cpu"},
    {"parallelism.zero.stage": 3, "parallelism.zero.offload_parameters.device": "cpu"},
    {"parallelism.fsdp.sharding": "full_shard"},
    {"evaluation.micro_batch_size": 1},
    {
        "method": "lora",
        "weights.quantization.method": "bnb-nf4",
        "activation_checkpointing": "full",
        "micro_batch_size": 1,
    },
]


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_the_edited_file_is_the_changed_job(hf, changes):
    text, job = hf.change(TRL, changes)
    assert {path: job.get(path) for path in changes} == changes
    assert text.startswith("# a recipe\nmodel_name_or_path: Qwen/Qwen2.5-0.5B   # the model\n")
    assert "learning_rate: 2e-4  # kept as text\n" in text


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_the_edited_file_has_no_new_problem(hf, changes):
    text, _ = hf.change(TRL, changes)
    assert hf.read(text).problems == hf.read(TRL).problems == []


def test_words_of_trl(hf):
    describe = hf.format.describe
    reading = hf.read(TRL)
    assert describe(reading, {"method": "lora", "weights.quantization.method": "bnb-nf4"}) == (
        "use_peft: true, lora_r: 16, lora_alpha: 32, lora_target_modules: all-linear, load_in_4bit: true"
    )
    assert describe(reading, {"weights.dtype": "bfloat16"}) == "dtype: bfloat16"
    assert describe(reading, {"parallelism.fsdp.sharding": "full_shard"}) == (
        "fsdp: true, fsdp_config: {version: 2, reshard_after_forward: true}"
    )


def test_an_older_spelling_is_kept(hf):
    text, job = hf.change(TRL + "torch_dtype: float32\n", {"weights.dtype": "bfloat16"})
    assert "torch_dtype: bfloat16\n" in text
    assert job.weights.dtype == "bfloat16"
    text, _ = hf.change(
        TRL.replace("gradient_checkpointing", "activation_checkpointing"), {"activation_checkpointing": "full"}
    )
    assert "activation_checkpointing: true\n" in text


def test_a_deepspeed_mapping_is_edited_in_place(hf):
    text = TRL + "deepspeed:\n  bf16: {enabled: auto}\n  zero_optimization:\n    stage: 2  # for now\n"
    after, job = hf.change(text, {"parallelism.zero.stage": 3, "parallelism.zero.offload_parameters.device": "cpu"})
    assert "    stage: 3  # for now\n" in after
    assert job.parallelism.zero.offload_parameters.device == "cpu"


def test_fsdp_and_deepspeed_replace_each_other(hf):
    text, job = hf.change(TRL + "fsdp: full_shard\n", {"parallelism.zero.stage": 3})
    assert job.parallelism.fsdp is None
    _, job = hf.change(text, {"parallelism.fsdp.sharding": "full_shard"})
    assert job.parallelism.zero is None


def test_quantisation_can_be_taken_back(hf):
    text = TRL + "use_peft: true\nload_in_4bit: true\n"
    after, job = hf.change(text, {"method": "full"})
    assert (job.method, job.weights.quantization) == ("full", None)
    assert "load_in_4bit" not in after


@pytest.mark.parametrize(
    "changes",
    [
        {"loss.kernel": "liger"},  # TRL 1.16 computes the loss in tiles
        {"loss.kernel": "cut_cross_entropy"},
        {"parallelism.tensor": 2},
        {"inference.max_model_len": 1024},
        {"adapter.r": 8},  # no adapter
        {"rl.vllm_sleep": True},  # no vLLM
        {"micro_batch_size": 1, "loss.kernel": "liger"},
    ],
    ids=str,
)
def test_what_trl_cannot_say(hf, changes):
    assert hf.change(TRL, changes) is None


def test_grpo_shares_the_gpu_with_vllm(hf):
    text = TRL + "num_generations: 4\nuse_vllm: true\n"
    _, job = hf.change(text, {"rl.vllm_gpu_memory_utilization": 0.2, "rl.vllm_sleep": True})
    assert (job.rl.vllm_gpu_memory_utilization, job.rl.vllm_sleep) == (0.2, True)
    assert hf.change(text, {"sequence_length": 100}) is None


def test_dpo_can_precompute_its_reference(hf):
    _, job = hf.change(TRL + "loss_type: sigmoid\n", {"rl.precompute_reference": True})
    assert job.rl.reference_model is False


class TestOtherPrograms:
    def test_a_plain_script_knows_the_trainers_keys_only(self, hf):
        _, job = hf.change(PLAIN, {"loss.kernel": "liger", "micro_batch_size": 2})
        assert (job.loss.kernel, job.micro_batch_size) == ("liger", 2)
        assert hf.change(PLAIN, {"method": "lora"}) is None
        assert hf.change(PLAIN, {"sequence_length": 1024}) is None
        assert hf.change(PLAIN + "block_size: 4096\n", {"sequence_length": 1024})[1].sequence_length == 1024
        assert hf.change(PLAIN, {"weights.dtype": "bfloat16"}) is None

    def test_open_instruct(self, hf):
        text = PLAIN + "with_tracking: true\nuse_slow_tokenizer: true\n"
        after, job = hf.change(
            text, {"method": "lora", "weights.quantization.method": "bnb-nf4", "optimizer.name": "adamw_8bit"}
        )
        assert "use_qlora: true" in after
        assert (job.method, job.optimizer.name) == ("lora", "adamw_8bit")
        assert hf.change(text, {"parallelism.zero.stage": 3}) is None

    def test_firefly_in_json(self, bench):
        text, job = bench("hf_trainer", "json").change(FIREFLY, {"method": "lora"})
        assert '"train_mode": "lora"' in text
        assert (job.method, job.weights.quantization) == ("lora", None)
        _, job = bench("hf_trainer", "json").change(FIREFLY, {"parallelism.zero.stage": 3})
        assert job.parallelism.zero.stage == 3
