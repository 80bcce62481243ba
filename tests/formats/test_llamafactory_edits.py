import pytest

from gpulint.formats.hf_trainer import sharding as training_sharding
from gpulint.formats.llamafactory import method as llamafactory_method

FULL = """\
### model
model_name_or_path: meta-llama/Llama-3.1-8B

### method
stage: sft
do_train: true
finetuning_type: full   # everything
dataset: alpaca
template: llama3
cutoff_len: 4096
output_dir: saves/x
per_device_train_batch_size: 4
learning_rate: 1.0e-5
bf16: true
eval_strategy: steps
"""


@pytest.fixture(autouse=True)
def models(monkeypatch):
    monkeypatch.setattr(training_sharding, "hidden_size", lambda *_: 4096)
    monkeypatch.setattr(llamafactory_method, "find_model", lambda *_: None)


@pytest.fixture
def lf(bench):
    return bench("llamafactory")


@pytest.mark.parametrize(
    "changes",
    [
        {"micro_batch_size": 1, "gradient_accumulation_steps": 4},
        {"sequence_length": 2048},
        {"packing": True},
        {"activation_checkpointing": "offload"},
        {"activation_checkpointing": "none"},
        {"optimizer.name": "adamw_8bit"},
        {"loss.kernel": "liger"},
        {"attention": "flash_attention_2"},
        {"precision.autocast": "float16"},
        {"method": "lora"},
        {"method": "lora", "adapter.r": 64},
        {"method": "lora", "weights.quantization.method": "bnb-nf4"},
        {"method": "lora", "weights.quantization.method": "bnb-int8"},
        {"parallelism.zero.stage": 2},
        {"parallelism.zero.stage": 3},
        {"parallelism.zero.stage": 2, "parallelism.zero.offload_optimizer.device": "cpu"},
        {"parallelism.zero.stage": 3, "parallelism.zero.offload_parameters.device": "cpu"},
        {"evaluation.micro_batch_size": 1},
        {"method": "lora", "weights.quantization.method": "bnb-nf4", "micro_batch_size": 1, "loss.kernel": "liger"},
    ],
    ids=str,
)
def test_the_edited_file_is_the_changed_job(lf, changes):
    text, job = lf.change(FULL, changes)
    assert {path: job.get(path) for path in changes} == changes
    assert text.startswith("### model\nmodel_name_or_path: meta-llama/Llama-3.1-8B\n\n### method\nstage: sft\n")
    assert lf.read(text).problems == []


def test_words(lf):
    reading = lf.read(FULL)
    words = lf.format.describe
    assert words(reading, {"method": "lora", "weights.quantization.method": "bnb-nf4"}) == (
        "finetuning_type: lora, quantization_bit: 4, lora_rank: 16, lora_target: all"
    )
    assert words(reading, {"parallelism.zero.stage": 3}) == (
        "deepspeed: {zero_optimization: {stage: 3, overlap_comm: true, contiguous_gradients: true, "
        "stage3_gather_16bit_weights_on_model_save: true, …}, …}"
    )
    assert words(reading, {"loss.kernel": "liger"}) == "enable_liger_kernel: true"


def test_lora_drops_what_it_cannot_go_with(lf):
    text, job = lf.change(FULL + "use_galore: true\n", {"method": "lora"})
    assert "use_galore" not in text
    assert job.optimizer.name == "adamw_torch_fused"


def test_pure_bf16_keeps_weights_at_16_bits(lf):
    text, job = lf.change(FULL, {"weights.dtype": "bfloat16"})
    assert "pure_bf16: true" in text
    assert (job.weights.dtype, job.precision.autocast) == (None, None)
    zero = FULL + "deepspeed: examples/deepspeed/ds_z3_config.json\n"
    assert lf.change(zero, {"weights.dtype": "bfloat16"}) is None


def test_another_optimizer_takes_the_switches_out(lf):
    text, job = lf.change(FULL + "use_badam: true\n", {"optimizer.name": "adafactor"})
    assert "use_badam" not in text
    assert job.optimizer.name == "adafactor"


@pytest.mark.parametrize(
    "changes",
    [
        {"loss.kernel": "cut_cross_entropy"},
        {"parallelism.zero.stage": 1},
        {"parallelism.fsdp.sharding": "hybrid_shard"},
        {"adapter.r": 4},
    ],
    ids=str,
)
def test_what_it_cannot_say(lf, changes):
    assert lf.change(FULL, changes) is None


def test_the_engine(lf):
    chat = "model_name_or_path: a/b\ntemplate: llama3\ninfer_backend: vllm\n"
    _, job = lf.change(chat, {"inference.max_model_len": 1024, "inference.gpu_memory_utilization": 0.8})
    assert (job.inference.max_model_len, job.inference.gpu_memory_utilization) == (1024, 0.8)
    text, job = lf.change(chat, {"inference.max_num_seqs": 8})
    assert (job.inference.max_num_seqs, "vllm_config:\n  max_num_seqs: 8" in text) == (8, True)
    assert lf.change(chat, {"parallelism.tensor": 2}) is None
    assert lf.change(chat.replace("vllm", "huggingface"), {"inference.max_model_len": 8}) is None
